"""Berth in JupyterLab, in a real browser on a real site: the meter in the status bar, and the panel behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Chromium, Visit
from tests.browser.lab import SLOW, a_state, a_warning, cookies, findings, open_lab, panel_of, play, theme, window
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]

#: A GPU server is warned of at once and stopped much later than these tests take.
IDLE = """
[idle]
with_gpu = "40 min"
notice = "2398 s"
check_every = "1 s"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("lab") / "data", IDLE) as running:
        running.researcher.start("gpu-1-4")
        yield running


@pytest.fixture(scope="module")
def signed_in(stack: Stack, chromium: Chromium) -> str:
    return cookies(chromium, stack)


@pytest.fixture
def visit(chromium: Chromium, stack: Stack, signed_in: str, pictures: Path) -> Iterator[Visit]:
    with window(chromium, stack, signed_in, pictures) as made:
        yield made


def test_meter_and_panel_say_what_this_server_has_uses_and_costs(visit: Visit, stack: Stack) -> None:
    page = open_lab(visit)
    meter = page.locator("#berth-meter")
    known = ("1/4 GPU (simulated)", "memory 6 GiB, simulated", "0.25 credits/h", "left", "credits last", "idle stop in")
    for part in known:
        expect(meter).to_contain_text(part, timeout=20_000)
    expect(meter).not_to_contain_text("0 %")  # nobody measures a simulated GPU
    panel = panel_of(page)
    expect(panel).to_contain_text("gpu-1-4")
    expect(panel).to_contain_text("0.25 credits per hour")
    link = panel.get_by_role("link", name="Receipt of this session")
    assert (link.get_attribute("href") or "").endswith(f"/services/berth/lease/{stack.researcher.lease()['id']}")
    visit.picture("lab-panel", full=False)
    assert findings(page, ".berth-panel", "#berth-meter") == []
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(meter.get_by_role("button")).to_be_focused()
    assert not visit.errors


def test_it_can_be_read_in_the_dark_and_on_a_phone(visit: Visit) -> None:
    page = open_lab(visit)
    theme(page, "JupyterLab Dark")
    try:
        panel_of(page)
        visit.picture("lab-panel-dark", full=False)
        assert findings(page, ".berth-panel", "#berth-meter") == []
        page.keyboard.press("Escape")
    finally:
        theme(page, "JupyterLab Light")
    page.set_viewport_size({"width": 390, "height": 844})
    meter = page.locator("#berth-meter")
    expect(meter.locator("[data-berth=share]")).to_be_in_viewport(ratio=1)
    expect(meter.locator("[data-berth=idle]")).to_be_in_viewport(ratio=1, timeout=20_000)
    panel = panel_of(page)
    visit.picture("lab-panel-phone", full=False)
    for name in ("Keep for 1 hour", "Stop now", "Set", "Stop when what runs now is done", "Close"):
        action = panel.get_by_role("button", name=name, exact=True).first
        action.scroll_into_view_if_needed()
        expect(action).to_be_in_viewport(ratio=1)


# ---- what a trial machine does not bring about: the page hears it as its server's ----------------------------------


def test_i7_what_is_unknown_is_called_so_and_nothing_is_made_of_it(visit: Visit) -> None:
    nobody_knows = ("gpu_util", "gpu_memory_mib", "rate_micro_per_hour", "balance_micro", "charged_micro")
    play(visit.page, lambda: [("state", a_state(**dict.fromkeys(nobody_knows), credit_ends_at=None))])
    page = open_lab(visit)
    meter = page.locator("#berth-meter")
    expect(meter).to_contain_text("memory unknown of 6 GiB · in use unknown", timeout=SLOW)
    expect(meter).to_contain_text("unknown credits/h")
    expect(meter).to_contain_text("unknown left")
    for part in ("end", "idle"):
        expect(meter.locator(f"[data-berth={part}]")).to_be_hidden()
    panel = panel_of(page)
    for name, value in {
        "GPU use": "unknown",
        "Price": "unknown credits per hour",
        "Idle rules": "nothing said yet",
    }.items():
        expect(panel.get_by_role("row", name=name)).to_contain_text(value)
    assert not visit.errors


def test_what_is_known_is_said_with_its_unit(visit: Visit) -> None:
    play(visit.page, lambda: a_warning(1, 9.9))
    page = open_lab(visit)
    meter = page.locator("#berth-meter")
    for part in ("1/4 GPU", "memory 3.2 of 6 GiB · in use 37 %", "0.25 credits/h", "0.48 charged", "12.50 left"):
        expect(meter).to_contain_text(part, timeout=SLOW)
    expect(meter).to_contain_text("credits last 2 d 1 h")
    expect(meter).to_contain_text("idle stop in 9 min")
    assert not visit.errors


@pytest.mark.parametrize("name", ["JupyterLab Light", "JupyterLab Dark"])
def test_a_warning_has_names_and_contrast_in_both_themes_and_fits_a_phone(visit: Visit, name: str) -> None:
    page, dark = visit.page, "Dark" in name
    play(page, lambda: a_warning(2, 1.9))
    open_lab(visit)
    if dark:
        theme(page, name)
    try:
        banner = page.locator(".berth-banner")
        expect(banner).to_have_count(1, timeout=SLOW)
        visit.picture(f"lab-last-call-{'dark' if dark else 'light'}", full=False)
        assert findings(page, ".berth-banner", "#berth-meter") == []
        names = [each.inner_text() for each in banner.get_by_role("button").all()]
        assert names == ["Keep for 1 hour", "Keep for 3 hours", "Save now", "Stop now", "Dismiss"]
        expect(page.get_by_role("region", name="Warning about this server")).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 844})
        for each in banner.get_by_role("button").all():
            expect(each).to_be_in_viewport(ratio=1)
        visit.picture(f"lab-last-call-phone-{'dark' if dark else 'light'}", full=False)
    finally:
        if dark:
            page.set_viewport_size({"width": 1280, "height": 800})
            theme(page, "JupyterLab Light")


def test_a_stop_that_is_under_way_counts_what_is_saved_and_can_be_taken_back_where_it_was_for_want_of_use(
    visit: Visit,
) -> None:
    stop = {"reason": "idle", "detail": "Not used.", "detail_in": {}, "stop_after": None, "save_until": None}
    saving = {"state": "saving", "saved": [{"kind": "notebook"}] * 2, "lost": [{"kind": "variable"}]}
    stopping = [("stopping", stop), ("saving", saving)]
    play(visit.page, lambda: [("state", a_state(target="STOP", stop=stop)), *stopping])
    page = open_lab(visit)
    banner = page.locator(".berth-banner")
    expect(banner.get_by_role("alert")).to_contain_text("This server is being stopped", timeout=SLOW)
    expect(banner).to_contain_text("Not used.")
    expect(banner.get_by_role("status")).to_contain_text("so far saved: 2, not saved: 1")
    assert [each.inner_text() for each in banner.get_by_role("button").all()] == ["Keep for 1 hour"]
    expect(page.locator("#berth-meter")).to_contain_text("stopping")
    visit.picture("lab-stopping", full=False)
    assert findings(page, ".berth-banner") == []
    assert not visit.errors
