"""The Hub's own pages with Berth's parts in them: what the home page says, and that both ways of rendering work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader
from jupyterhub._data import DATA_FILES_PATH

from hub_config.hub_words import HubWords
from quota.leases import StopReason
from quota.schedules import Schedules
from quota.web.home import HomeView, home_view
from tests.fakes.book import Desk, open_desk

OURS = Path(__file__).resolve().parents[2] / "hub_config" / "templates"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as found:
        found.devices(2)
        yield found


def view(desk: Desk, user: str = "alice", zone: str | None = None) -> HomeView:
    return home_view(desk.book, desk.bank, desk.rows, user, desk.now, zone)


def test_a_new_user_sees_the_grant_and_nothing_else(desk: Desk) -> None:
    found = view(desk)
    assert (found.available, found.held, found.month, found.per_hour) == ("100.00", "0.00", "0.00", "0.00")
    assert (found.running, found.notices, dict(found.servers), found.ended) == (0, (), {}, ())
    assert (found.newcomer, found.burn, found.asof) == (True, "Nothing is running", "2 Mar 2026, 09:00:00")


def test_running_servers_are_found_by_the_hubs_names(desk: Desk) -> None:
    desk.run(profile="test")
    desk.run(server="two", profile="cpu", share=0, count=0)
    desk.clock.advance(3600)
    found = view(desk, zone="Asia/Shanghai")
    assert set(found.servers) == {"", "two"}
    assert (found.servers[""].share, found.servers[""].charged) == ("1/2 GPU, simulated", "0.50")
    assert found.servers[""].since == "2 Mar 2026, 17:00:00"
    assert found.per_hour == "0.50"
    assert view(desk, "bob").servers == {}


def test_starts_that_wait_and_buttons_to_keep(desk: Desk) -> None:
    schedules = Schedules(desk.store, desk.clock)
    for hours, server in ((5, "two"), (2, ""), (1, "three")):
        start = schedules.add("alice", server, {"profile": "cpu"}, desk.now + timedelta(hours=hours), "alice")
    schedules.cancel(start.id)
    schedules.add("bob", "", {"profile": "cpu"}, desk.now + timedelta(hours=1), "bob")
    assert view(desk).starts == (
        "2 Mar 2026, 11:00:00 · default server · cpu",
        "2 Mar 2026, 14:00:00 · two · cpu",
    )
    desk.run(profile="test")
    desk.book.request_stop(desk.run(server="two", profile="test").id, StopReason.IDLE)
    servers = view(desk).servers
    assert servers[""].steps == ((3600, "Keep it for 1 h"), (10800, "Keep it for 3 h"))
    assert servers["two"].steps == ()
    found = home_view(desk.book, desk.bank, desk.rows, "alice", desk.now, most_starts=0, keep_most=None)
    assert (found.starts, found.servers[""].steps, found.servers[""].can_wish) == (None, (), True)


def test_a_warning_comes_with_its_deadline_and_an_end_with_its_reason(desk: Desk) -> None:
    first = desk.run(profile="test")
    desk.clock.advance(36)
    desk.book.request_stop(first.id, StopReason.IDLE, detail="not used for 30 min")
    desk.wind_up(desk.book.acknowledge(first.id, "boot-1"))
    second = desk.run(profile="test")
    deadline = desk.now + timedelta(minutes=5)
    desk.rows.put_verdict(second.id, desk.now, "warn", "idle", "not used since nine", {}, deadline)
    found = view(desk)
    assert [(each.title, each.deadline_iso) for each in found.notices] == [("Idle", "2026-03-02T09:05:36Z")]
    (ended,) = found.ended
    assert (ended.words, ended.charged) == ("Reclaimed because it was idle: not used for 30 min", "0.005")


# ---- the templates, as the Hub renders them ----


def environment(*, enable_async: bool) -> Environment:
    upstream = str(Path(DATA_FILES_PATH) / "templates")
    loader = ChoiceLoader(
        [PrefixLoader({"templates": FileSystemLoader([upstream])}, "/"), FileSystemLoader([str(OURS), upstream])]
    )
    return Environment(loader=loader, autoescape=True, enable_async=enable_async, extensions=[HubWords])


def namespace(**more: Any) -> dict[str, Any]:
    spawner = SimpleNamespace(name="two", display_name="", ready=True, active=True, pending=None, last_activity=None)
    user = SimpleNamespace(
        name="alice",
        json_escaped_name="alice",
        spawner=SimpleNamespace(options_form=True),
        all_spawners=lambda include_default: [spawner],
        server_url=lambda name: f"/user/alice/{name}/",
    )
    values = {
        "base_url": "/hub/",
        "prefix": "/",
        "user": user,
        "static_url": lambda path, include_version=True: f"/hub/static/{path}",
        "login_url": "/hub/login",
        "logout_url": "/hub/logout",
        "parsed_scopes": {},
        "services": [],
        "xsrf_token": "x",
        "berth_site": "Dock <5>",
    }
    return values | more


async def home(desk: Desk, **more: Any) -> str:
    async def berth_home(user: Any) -> HomeView:
        return view(desk, user.name)

    values = {
        "berth_home": berth_home,
        "url": "/user/alice",
        "default_server": SimpleNamespace(active=True),
        "allow_named_servers": True,
        "named_server_limit_per_user": 2,
        "invalid_server_names": [],
    }
    template = environment(enable_async=True).get_template("home.html")
    return await template.render_async(**namespace(**{**values, **more}))


async def test_the_home_page_has_the_hubs_buttons_and_berths_cards(desk: Desk) -> None:
    desk.session(50, profile="test")
    desk.run(profile="test")
    two = desk.run(server="two", profile="test")
    desk.rows.put_verdict(two.id, desk.now, "warn", "idle", "not used", {}, desk.now + timedelta(minutes=5))
    page = await home(desk)
    for part in (
        'id="start"',
        'id="stop"',
        'data-server-name="two"',
        'id="stop-two"',
        "new-server-btn",
        'id="berth-burn">At this rate until about ',
        'id="berth-free"',
        'id="berth-starts"',
        'data-seconds="3600"',
    ):
        assert part in page
    assert 'id="berth-available">99.' in page
    assert page.count("1/2 GPU, simulated") == 3
    assert "berth-notice" in page and 'datetime="2026-03-02T09:05:50Z"' in page
    assert "Stopped by its user" in page
    assert "Dock &lt;5&gt;" in page


async def test_the_home_page_works_while_the_book_does_not(desk: Desk) -> None:
    async def no_book(user: Any) -> None:
        return None

    page = await home(desk, berth_home=no_book)
    assert "The book does not answer" in page and 'id="start"' in page and "berth-balance" not in page


@pytest.mark.parametrize("scopes", [{}, {"admin-ui": True}], ids=["user", "admin"])
def test_error_pages_render_without_async_and_link_to_berth(scopes: dict[str, bool]) -> None:
    template = environment(enable_async=False).get_template("404.html")
    page = template.render(**namespace(parsed_scopes=scopes, status_code=404, status_message="x"))
    links = re.findall(r'class="nav-link" href="([^"]+)"', page)
    wanted = ["/hub/home", "/services/berth/", "/services/berth/board", "/services/berth/notices", "/hub/token"]
    assert links == wanted + (["/hub/admin", "/services/berth/admin"] if scopes else [])
    assert "There is no page here" in page


def test_a_page_for_somebody_who_is_not_logged_in() -> None:
    template = environment(enable_async=False).get_template("error.html")
    page = template.render(**namespace(user=None, status_code=500, status_message="x", message="y"))
    assert "My usage" not in page and "y" in page
