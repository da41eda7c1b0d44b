"""The one stream of JupyterLab's meter, in a real browser on a real site: who listens, what it asks and outlives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import Chromium, Visit
from tests.browser.lab import LAB, SLOW, cookies, open_lab, panel_of, window
from tests.harness import Stack, until

pytestmark = [pytest.mark.hub, pytest.mark.browser]

MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stream") / "data") as running:
        running.researcher.start("gpu-1-4")
        yield running


@pytest.fixture
def visit(chromium: Chromium, stack: Stack, pictures: Path) -> Iterator[Visit]:
    with window(chromium, stack, cookies(chromium, stack), pictures) as made:
        yield made


def test_i3_i20_open_tabs_hold_one_stream_ask_nothing_in_rounds_and_are_no_activity(visit: Visit, stack: Stack) -> None:
    page, asked = visit.page, list[str]()
    page.context.on("request", lambda request: asked.append(request.url))
    other = page.context.new_page()
    for each in (page, other):
        open_lab(visit, each)
        expect(each.locator("#berth-meter")).to_contain_text("credits/h", timeout=SLOW)
    streams = [url for url in asked if "/berth/stream" in url]
    assert len(streams) == 1, "the second tab is told by the first"

    def ours_alone(route: Route) -> None:  # JupyterLab asks in rounds itself
        _ = route.continue_() if "/berth/" in route.request.url else route.abort()

    page.context.route("**/user/researcher/**", ours_alone)
    panel = panel_of(page)
    charged = panel.get_by_role("row", name="Charged so far")
    first = charged.inner_text()
    asked.clear()
    moved = list[datetime]()
    while (seen := a_minute_of_activity(page, stack, charged, asked)) is not None:
        moved.append(seen)
        assert len(moved) < 3, f"somebody is active in rounds: {moved}"
    expect(charged).not_to_have_text(first)


def a_minute_of_activity(page: Page, stack: Stack, charged: Locator, asked: list[str]) -> datetime | None:
    """The first activity of a minute in which two tabs are open and nobody does anything; None where there was none.
    What JupyterLab itself was about when its requests were cut off may still arrive."""
    wait_until_still(stack)
    began = datetime.now(UTC)
    while datetime.now(UTC) - began < MINUTE:
        assert charged.inner_text()  # so that the browser's events are heard meanwhile
        assert [url for url in asked if "/berth/" in url] == []
        if max(activity(stack)) >= began:
            return max(activity(stack))
        page.wait_for_timeout(2000)
    return None


def activity(stack: Stack) -> tuple[datetime, datetime]:
    """When the server itself, and the Hub, saw activity last."""
    server = stack.researcher.server()
    assert server is not None
    own = stack.researcher.notebook("GET", "api/status").json()["last_activity"]
    return datetime.fromisoformat(own), datetime.fromisoformat(server["last_activity"])


def wait_until_still(stack: Stack) -> None:
    said = [activity(stack)]

    def still() -> bool:
        said.append(activity(stack))
        return said[-1] == said[-2]

    until(still, 60, "the last activity stands still", every=3.0)


def test_the_meter_goes_on_after_the_service_was_killed(visit: Visit, stack: Stack) -> None:
    page = open_lab(visit)
    assert page.url.startswith(visit.url + LAB)
    panel = panel_of(page)
    charged = panel.get_by_role("row", name="Charged so far")
    expect(charged).to_contain_text("credits", timeout=SLOW)
    stack.wait_for_new("berth", stack.kill("berth"))
    after = charged.inner_text()
    expect(charged).not_to_have_text(after, timeout=2 * SLOW)
    expect(page.locator("#berth-meter [data-berth=stale]")).to_be_hidden(timeout=SLOW)
    assert not visit.errors
