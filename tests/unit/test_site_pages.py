"""Templates of the site: every way one can be wrong is told at boot, and none makes a page of the service fail."""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hub_config.compose import check_extensions, parts
from hub_config.settings import SettingsError, parse
from hub_config.site_pages import BerthPages, check_templates, hub_folders
from quota.web.notice_views import GlanceView
from quota.web.pages import PageHandler
from quota.web.render import ALWAYS, Pages, make_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "site" / "templates"
PAGE = '{% extends "berth/page.html" %}'
BASE = '{% extends "berth/base.html" %}'


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "there is no template in"),
        ({"page.html": PAGE}, "page.html is no .html file in one of the folders hub, service, shared; move"),
        ({"hub/page.htm": PAGE}, "hub/page.htm is no .html file"),
        ({"hub/pages.html": PAGE}, "hub/pages.html stands for no page, so nothing shows it; did you mean page.html?"),
        ({"service/xyz.html": "x"}, "service/xyz.html stands for no page, so nothing shows it; include it in another"),
        ({"hub/page.html": PAGE + "\n{% block main %}"}, "hub/page.html, line 2: Unexpected end of template"),
        (
            {"hub/page.html": PAGE + "\n{{ user | zzz }}"},
            "hub/page.html, line 2: no filter named 'zzz'; correct it",
        ),
        ({"service/base.html": "{{ title | uper }}"}, "no filter named 'uper'; did you mean 'upper'?"),
        ({"service/base.html": "{% if title is emty %}{% endif %}"}, "no test named 'emty'"),
        ({"service/base.html": "{{ title"}, "service/base.html, line 1: "),
        ({"shared/a.html": "{% endif %}"}, "shared/a.html, line 1: "),
        (
            {"hub/page.html": PAGE + "{% block announcment %}x{% endblock %}"},
            "hub/page.html, line 1: berth/page.html has no block 'announcment'; did you mean 'announcement'?",
        ),
        (
            {"hub/page.html": '{% extends "page.html" %}'},
            'hub/page.html extends itself; write {% extends "berth/page.html"',
        ),
        ({"hub/page.html": '{% extends "berth/pages.html" %}'}, "hub/page.html names 'berth/pages.html', which is no"),
        (
            {"service/base.html": BASE + '{% block main %}{% include "shared/no.html" %}{% endblock %}'},
            "service/base.html names 'shared/no.html', which is no template",
        ),
        (
            {"service/base.html": BASE + "{% block main %}{{ user.name }}{% endblock %}"},
            "service/base.html uses 'user', which it is not given; there are ",
        ),
        (
            {
                "service/base.html": BASE + '{% block main %}{% include "shared/a.html" %}{% endblock %}',
                "shared/a.html": "{{ base_url }}",
            },
            "shared/a.html uses 'base_url', which it is not given",
        ),
    ],
)
def test_what_would_break_a_page_or_do_nothing_is_one_line_at_boot(
    tmp_path: Path, files: dict[str, str], says: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(SettingsError) as error:
        check_templates(tmp_path / "berth.toml", write(own, files))
    said = str(error.value)
    assert said.startswith(f"{tmp_path / 'berth.toml'}: extensions.templates: ") and says in said
    assert "\n" not in said


def test_settings_lead_to_the_check(tmp_path: Path) -> None:
    (tmp_path / "berth.toml").write_text('[extensions]\ntemplates = "pages"\n')
    with pytest.raises(SettingsError, match=r"extensions\.templates: there is no folder .*pages; make it"):
        check_extensions(parts(tmp_path))
    write(tmp_path, {"pages/hub/404.html": PAGE})
    check_extensions(parts(tmp_path))


@pytest.mark.parametrize(
    "name", ["/etc", "../pages", "pages/../..", "secrets", "homes/ada", "a//b", ".hidden", "a/", "."]
)
def test_a_folder_that_is_not_the_sites_own_is_refused(name: str) -> None:
    with pytest.raises(
        SettingsError, match=r'extensions\.templates: .* is no folder of the site; .* such as "templates"'
    ):
        parse(f'[extensions]\ntemplates = "{name}"\n')


def test_a_page_may_use_what_berths_own_is_given(tmp_path: Path) -> None:
    files = {"service/error.html": '{% extends "berth/error.html" %}{% block main %}{{ problem.title }}{% endblock %}'}
    check_templates(tmp_path / "berth.toml", write(tmp_path / "own", files))


def test_the_example_passes_and_is_shown_by_the_service() -> None:
    check_templates(EXAMPLE.parent / "berth.toml", EXAMPLE)
    ours, own = (Pages("UTC", folder).render("error.html", **GIVEN) for folder in (None, EXAMPLE))
    assert 'id="site-support"' not in ours and 'id="site-support"' in own
    assert len(own) > len(ours), "all else is there too"


class Anything:
    """A value with every attribute."""

    def __getattr__(self, name: str) -> str:
        return name

    def __call__(self, *_: object) -> str:
        return ""


GIVEN = {
    **dict.fromkeys(ALWAYS, "x"),
    "asset": Anything(),
    "viewer": None,
    "flash": None,
    "groups": (),
    "now": datetime(2026, 3, 2, 9, 0, tzinfo=UTC),
    "problem": Anything(),
    "told": GlanceView(),
}


def test_what_templates_may_count_on_is_what_every_page_is_given() -> None:
    (call,) = [
        node
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(PageHandler.page))))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "render"
    ]
    given = {word.arg for word in call.keywords if word.arg}
    assert given == ALWAYS


def test_a_template_that_fails_on_a_page_is_logged_and_berths_own_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {"service/base.html": BASE + "{% block announcement %}{{ site.nowhere.deep }}{% endblock %}"}
    check_templates(tmp_path / "berth.toml", own := write(tmp_path / "own", files))
    with caplog.at_level(logging.ERROR):
        shown = Pages("UTC", own).render("error.html", **GIVEN)
    assert shown == Pages("UTC").render("error.html", **GIVEN)
    assert "The page error.html could not be made with the site's templates" in caplog.text


def test_the_hub_finds_the_sites_then_berths_then_its_own(tmp_path: Path) -> None:
    from jinja2 import Environment, FileSystemLoader

    own = write(tmp_path / "own", {"hub/404.html": '[{% include "berth/404.html" ignore missing %}]'})
    environment = Environment(loader=FileSystemLoader(hub_folders(own)), extensions=[BerthPages])
    assert environment.loader is not None
    found = {name: environment.loader.get_source(environment, name)[1] for name in ("404.html", "page.html")}
    assert found["404.html"] == str(own / "hub/404.html")
    assert str(found["page.html"]).endswith("hub_config/templates/page.html")
    assert make_environment("UTC", own).get_template("base.html").filename
