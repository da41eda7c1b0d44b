"""JupyterLab as one person has it open: a window that is logged in, and what is looked for in our part of its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import SLOW, Chromium, Visit
from tests.harness import Stack

LAB = "/user/researcher/lab"
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]}


def cookies(chromium: Chromium, stack: Stack) -> str:
    """Of the researcher, so that each test begins with a window that is logged in."""
    login = stack.passwords()["researcher"]
    with chromium.window() as context:
        Visit(context.new_page(), stack.url, Path()).log_in(login["name"], login["password"])
        return json.dumps(context.storage_state())


@contextmanager
def window(chromium: Chromium, stack: Stack, signed_in: str, pictures: Path, **more: Any) -> Iterator[Visit]:
    """A browser of its own for one test."""
    options = {"viewport": {"width": 1280, "height": 800}} | more
    with chromium.window(**options, storage_state=json.loads(signed_in)) as context:
        yield Visit(context.new_page(), stack.url, pictures)


def open_lab(visit: Visit, page: Page | None = None, path: str = "") -> Page:
    """JupyterLab with its layout as new, once the meter is there."""
    page = page or visit.page
    page.goto(f"{visit.url}{LAB}{path}?reset")
    expect(page.locator("#berth-meter button")).to_be_visible(timeout=SLOW)
    return page


def panel_of(page: Page) -> Locator:
    """The panel behind the meter, opened by keyboard: once more where JupyterLab, not done with its layout, took the
    focus away in between."""
    panel = page.get_by_role("dialog")
    for _attempt in range(3):
        page.locator("#berth-meter button").press("Enter")
        try:
            expect(panel).to_be_visible(timeout=10_000)
            break
        except AssertionError:
            continue
    expect(panel).to_be_visible()
    return panel


def theme(page: Page, name: str) -> None:
    """Choose JupyterLab's theme by its menu."""
    page.get_by_role("menuitem", name="Settings").click()
    page.locator(".lm-Menu-item", has_text="Theme").first.hover()
    page.locator(".lm-Menu-item", has_text=name).first.click()
    light = "false" if "Dark" in name else "true"
    expect(page.locator(f"body[data-jp-theme-light='{light}']")).to_be_attached(timeout=SLOW)


def findings(page: Page, *selectors: str) -> list[str]:
    """What axe finds inside our own parts of JupyterLab's page."""
    found = [each for name in selectors for each in Axe().run(page, context=name, options=AXE).response["violations"]]
    return [f"{each['impact']} {each['id']}: {[node['html'] for node in each['nodes']]}" for each in found]


Events = Sequence[tuple[str, dict[str, Any]]]


def play(page: Page, events: Callable[[], Events]) -> None:
    """Have the page hear these events as its server's, again each time it listens: what is rare on a trial machine.
    They are made when it listens first, so that a time in them is still to come however long the page took to load."""
    words: list[str] = []

    def answer(route: Route) -> None:
        if not words:
            words.extend(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events())
        route.fulfill(content_type="text/event-stream", body="".join(words))

    page.route("**/berth/stream*", answer)


def a_state(**more: Any) -> dict[str, Any]:
    """A server with a quarter of a GPU, of which all is known."""
    now = datetime.now(UTC)
    known: dict[str, Any] = {
        "lease_id": "l1",
        "profile": "gpu-1-4",
        "share_milli": 250,
        "count": 1,
        "simulated": False,
        "gpu_util": 37,
        "gpu_memory_mib": 3277,
        "gpu_memory_total_mib": 6144,
        "rate_micro_per_hour": 250_000,
        "balance_micro": 12_500_000,
        "payer": "researcher",
        "credit_ends_at": (now + timedelta(hours=50)).isoformat(),
        "charged_micro": 480_000,
        "started_at": now.isoformat(),
        "max_age_ends_at": None,
        "verdict": None,
        "wish": {"keep_until": None, "shutdown_at": None, "when_done": False},
        "target": "RUN",
        "stop": None,
        "now": now.isoformat(),
        "age": 0.0,
    }
    return known | more


def a_warning(number: int, minutes: float) -> Events:
    """State and notice of a server that is stopped so soon."""
    deadline = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()
    why = {"words": "Not used since 06:33 UTC (20 min)", "words_in": {"zh-CN": "自 06:33 UTC 起未使用（20 分钟）"}}
    verdict = {"kind": "warn", "rule": "idle", "deadline": deadline, **why}
    actions = ["keep-1h", "keep-3h", "save", "stop"]
    notice = {"id": number, "kind": "idle-warning", "expires_at": deadline, "actions": actions, **why}
    return [("state", a_state(verdict=verdict)), ("notice", notice)]
