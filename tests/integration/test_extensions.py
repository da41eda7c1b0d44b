"""The examples of docs/extend on one real site."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Stack

pytestmark = pytest.mark.hub

EXAMPLES = Path(__file__).parents[2] / "examples" / "site"
GPUS = '[gpus]\nsource = "simulated"\nsimulated = 2\n'
BANNER = 'c.JupyterHub.template_vars.update({"announcement": "Maintenance on Friday, 18:00"})\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    data = tmp_path_factory.mktemp("extended") / "data"
    stack = Stack(data, GPUS + "[hub]\n" + (EXAMPLES / "berth.toml").read_text(encoding="utf-8"), extra_config=BANNER)
    shutil.copy(EXAMPLES / "site_rules.py", data)
    with stack as running:
        yield running


def test_the_placement_of_the_example_places_servers(site: Stack) -> None:
    person = site.researcher
    person.start("gpu-1-4")
    person.start("gpu-1-4", server="second")
    try:
        # Best fit would have put both on one device, and one would be free as a whole.
        assert person.free_now()["gpu-1"] == 0
    finally:
        person.stop(server="second")
        person.stop()


def test_the_menu_of_the_example_grows_with_the_course(site: Stack) -> None:
    """Form and start alike, and by the membership of this moment."""
    person, admin = site.researcher, site.admin
    form = person.browser.get("/hub/spawn").text
    assert "after the GPU course" in form and 'data-profile="gpu-1"' not in form
    refusal = person.refused({"profile": "gpu-1"})
    assert refusal.status == 403 and "gpu-1-4" in str(refusal)
    assert admin.hub("POST", "/groups/gpu-course").status_code == 201
    assert admin.hub("POST", "/groups/gpu-course/users", {"users": ["researcher"]}).status_code == 200
    assert 'data-profile="gpu-1"' in person.browser.get("/hub/spawn").text
    person.start("gpu-1")
    person.stop()


def test_extra_config_puts_a_banner_on_the_pages_of_the_hub(site: Stack) -> None:
    assert "Maintenance on Friday, 18:00" in site.researcher.browser.get("/hub/token").text


def test_an_extension_that_cannot_be_loaded_ends_the_start_in_one_line(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data", '[extensions]\nplacement = "site_gone:place"\n')
    assert stack.launch().wait(60) != 0
    said = stack.screen.read_text(encoding="utf-8").strip()
    assert "extensions.placement: there is no module 'site_gone'" in said and "\n" not in said
