"""Berth in JupyterLab, in a real browser on a real site: the meter in the status bar, and the panel behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visit
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]

#: A GPU server is warned of at once and stopped much later than these tests take.
IDLE = """
[idle]
with_gpu = "10 min"
notice = "598 s"
check_every = "1 s"
"""
LAB = "/user/researcher/lab"
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("lab") / "data", IDLE) as running:
        running.researcher.start("gpu-1-4")
        yield running


@pytest.fixture(scope="module")
def signed_in(stack: Stack, browser: Browser) -> str:
    """Cookies of the researcher, so that each test begins with a window that is logged in."""
    context = browser.new_context()
    login = stack.passwords()["researcher"]
    Visit(context.new_page(), stack.url, Path()).log_in(login["name"], login["password"])
    state = context.storage_state()
    context.close()
    return json.dumps(state)


def window(browser: Browser, stack: Stack, signed_in: str, pictures: Path, **more: Any) -> Visit:
    state: Any = json.loads(signed_in)
    context = browser.new_context(viewport={"width": 1400, "height": 860}, storage_state=state, **more)
    context.grant_permissions([])
    return Visit(context.new_page(), stack.url, pictures)


@pytest.fixture
def visit(browser: Browser, stack: Stack, signed_in: str, pictures: Path) -> Iterator[Visit]:
    made = window(browser, stack, signed_in, pictures)
    yield made
    made.page.context.close()


def lab(visit: Visit, path: str = "") -> Page:
    visit.page.goto(f"{visit.url}{LAB}{path}?reset")
    expect(visit.page.locator("#berth-meter button")).to_be_visible(timeout=60_000)
    return visit.page


def findings(page: Page, selector: str) -> list[str]:
    """What axe finds inside our own part of JupyterLab's page."""
    found = Axe().run(page, context=selector, options=AXE).response["violations"]
    return [f"{each['impact']} {each['id']}: {[node['html'] for node in each['nodes']]}" for each in found]


def test_meter_and_panel_say_what_this_server_has_uses_and_costs(visit: Visit, stack: Stack) -> None:
    page = lab(visit)
    meter = page.locator("#berth-meter")
    for part in (
        "1/4 GPU (simulated)",
        "memory 6 GiB, simulated",
        "0.25 credits/h",
        "left",
        "credits last",
        "idle stop in",
    ):
        expect(meter).to_contain_text(part, timeout=20_000)
    expect(meter).not_to_contain_text("0 %")  # nobody measures a simulated GPU
    meter.locator("button").focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("dialog")
    expect(panel).to_contain_text("gpu-1-4")
    expect(panel).to_contain_text("0.25 credits per hour")
    link = panel.get_by_role("link", name="Receipt of this session")
    assert (link.get_attribute("href") or "").endswith(f"/services/berth/lease/{stack.researcher.lease()['id']}")
    visit.picture("lab-panel", full=False)
    assert findings(page, ".berth-panel") == [] and findings(page, "#berth-meter") == []
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    assert not visit.errors
