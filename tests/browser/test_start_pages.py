"""The start page by keyboard and on a phone, and the page of a start that takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack, until

pytestmark = [pytest.mark.hub, pytest.mark.browser]

#: While the file lies there, a named server starts and never answers.
EXTRA = """
import dataclasses, os
from pathlib import Path
from spawner.local_runtime import LocalRuntime

flag, start = Path(os.environ["BERTH_DATA"]) / "never-answers", LocalRuntime.start


def start_deaf(self, spec):
    if flag.exists() and spec.env.get("JUPYTERHUB_SERVER_NAME"):
        spec = dataclasses.replace(spec, argv=("sleep", "600"))
    start(self, spec)


LocalRuntime.start = start_deaf
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("pages") / "data", extra_config=EXTRA) as running:
        yield running


@pytest.fixture(params=["desk", "phone"])
def window(request: pytest.FixtureRequest, chromium: Chromium) -> Iterator[Page]:
    sizes = {"desk": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
    scheme = "dark" if request.param == "phone" else "light"
    context = chromium.new_context(viewport=sizes[request.param], color_scheme=scheme)  # type: ignore[arg-type]
    yield context.new_page()
    chromium.close(context)


@pytest.fixture
def visit(window: Page, stack: Stack, pictures: Path) -> Visit:
    made = Visit(window, stack.url, pictures)
    login = stack.passwords()["researcher"]
    made.log_in(login["name"], login["password"])
    return made


def test_a_profile_is_chosen_by_keyboard_alone(visit: Visit) -> None:
    visit.open("/hub/spawn")
    page = visit.page
    page.locator("input[name=profile]:checked").focus()
    page.keyboard.press("ArrowDown")
    chosen = page.locator("input[name=profile]:checked")
    assert chosen.get_attribute("value") == "gpu-1-8"
    assert page.evaluate("document.activeElement.value") == "gpu-1-8"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "berth-image"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "submit"
    width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width[0] <= width[1], "the page is wider than its window"
    assert not visit.errors


def test_s14_cancelling_a_named_start_leaves_the_default_server_alone(visit: Visit, stack: Stack) -> None:
    me, page, flag = stack.researcher, visit.page, stack.data / "never-answers"
    if not me.ready():
        me.start("cpu")
    flag.touch()
    try:
        visit.open("/hub/spawn/researcher/two")
        page.check('input[name=profile][value="gpu-1"]')
        page.click("#spawn_form button[type=submit]")
        page.wait_for_url("**/hub/spawn-pending/researcher/two*")
        expect(page.locator("#progress-log")).to_contain_text("Room found: 1 simulated GPU", timeout=20_000)
        expect(page.locator("#progress-log")).to_contain_text("Waiting for JupyterLab (", timeout=20_000)
        visit.picture("starting")
        assert not visit.findings()
        second = me.browser.post("/hub/spawn/researcher/two", data={"profile": "cpu", "_xsrf": me.xsrf})
        assert second.url.path == "/hub/spawn-pending/researcher/two"  # a second tab is led to the first's start
        page.click("#stop-server-btn")
        page.wait_for_url("**/hub/home", timeout=20_000)
    finally:
        flag.unlink()
    assert me.ready(), "the default server was stopped"
    until(lambda: me.gone("two"), 20, "the named server is gone")
    lease = next(lease for lease in me.leases() if lease["holder"]["server"] == "two")
    settled = me.settled(lease["id"])
    assert (settled["stop_reason"], settled["charged_micro_credits"]) == ("user", 0)
    assert not visit.errors


def test_a_second_tab_is_led_to_the_start_of_the_first(visit: Visit, stack: Stack) -> None:
    me, flag = stack.researcher, stack.data / "never-answers"
    tabs = [visit.page, visit.page.context.new_page()]
    flag.touch()
    try:
        for tab in tabs:
            tab.goto(f"{stack.url}/hub/spawn/researcher/two")
            tab.check('input[name=profile][value="cpu"]')
        for tab in tabs:
            tab.click("#spawn_form button[type=submit]")
            tab.wait_for_url("**/hub/spawn-pending/researcher/two*")
            expect(tab.locator("#progress-log")).to_contain_text("Waiting for JupyterLab (", timeout=20_000)
        assert sum(lease["holder"]["server"] == "two" and lease["ended_at"] is None for lease in me.leases()) == 1
        tabs[1].click("#stop-server-btn")
        tabs[1].wait_for_url("**/hub/home", timeout=20_000)
    finally:
        flag.unlink()
    until(lambda: me.gone("two"), 20, "the named server is gone")
    assert not visit.errors


def test_a_refusal_is_told_on_the_start_page_in_words(visit: Visit, stack: Stack) -> None:
    visit.open("/hub/spawn/researcher/three")
    page = visit.page
    page.evaluate("document.querySelector('input[name=profile]:checked').value = 'h100'")
    page.click("#spawn_form button[type=submit]")
    expect(page.locator(".spawn-error-msg")).to_contain_text("There is no profile “h100”. Choose one of: cpu")
    assert not visit.errors
