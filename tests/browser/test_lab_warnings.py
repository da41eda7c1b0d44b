"""Warnings in JupyterLab, in a real browser on a real site: a banner that is answered from the keyboard, and what the
answers do. A kept server is let go again after each test, so that the next one is warned anew."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Request, expect

from tests.browser.conftest import Chromium, Visit
from tests.browser.lab import SLOW, cookies, open_lab, window
from tests.harness import Kernel, Stack, until

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
        assert not made.errors
    let_go(stack)


def let_go(stack: Stack) -> None:
    me = stack.researcher
    if (me.lease().get("idle") or {}).get("kind") != "warn":
        assert me.berth(f"/leases/{me.lease()['id']}/keep", "DELETE").status_code == 200
    until(lambda: (me.lease().get("idle") or {}).get("kind") == "warn", 60, "the server is warned of")


def banner_of(page: Page, stack: Stack) -> Locator:
    """The warning, once the server has been at rest for a while: to load a page is work for it, and takes a warning
    back."""
    until(lambda: at_rest(stack), 120, "the server is at rest")
    banner = page.locator(".berth-banner")
    expect(banner).to_have_count(1, timeout=SLOW)
    return banner


def at_rest(stack: Stack) -> bool:
    """Whether it is warned of, and was not used for about ten seconds."""
    verdict = stack.researcher.lease().get("idle") or {}
    if verdict.get("kind") != "warn":
        return False
    return datetime.fromisoformat(verdict["deadline"]) - datetime.now(UTC) < timedelta(minutes=40) - timedelta(
        seconds=12
    )


def kept_for(stack: Stack) -> timedelta:
    """How long from now, as service `berth` has it; nothing or less where it is not kept."""
    found: Any = stack.researcher.read(f"/leases/{stack.researcher.lease()['id']}/wish")["keep_until"]
    return datetime.fromisoformat(found) - datetime.now(UTC) if found else timedelta(0)


def tab_to(page: Page, wanted: Locator) -> None:
    """By the Tab key alone, from the top of the page."""
    page.locator("body").evaluate("body => { document.activeElement?.blur(); body.focus() }")
    for _ in range(40):
        page.keyboard.press("Tab")
        if wanted.evaluate("node => node === document.activeElement"):
            return
    raise AssertionError(f"not reached with the Tab key: {wanted}")


def test_i14_i15_a_warning_is_read_out_and_answered_from_the_keyboard(visit: Visit, stack: Stack) -> None:
    page = open_lab(visit)
    banner = banner_of(page, stack)
    expect(banner.get_by_role("alert")).to_contain_text("This server is stopped at")
    expect(banner).to_contain_text("Not used since")
    answer = banner.get_by_role("status", include_hidden=True)
    assert answer.get_attribute("aria-live") == "polite"
    visit.picture("lab-warning", full=False)
    keep = banner.get_by_role("button", name="Keep for 1 hour")
    tab_to(page, keep)
    outline = keep.evaluate(
        "node => [getComputedStyle(node).outlineStyle, parseFloat(getComputedStyle(node).outlineWidth)]"
    )
    assert outline[0] == "solid" and outline[1] >= 2
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("Kept until", timeout=SLOW)
    expect(answer).to_contain_text("Held for this server: 0.")
    assert timedelta(minutes=55) < kept_for(stack) <= timedelta(hours=1)
    assert len(page.context.pages) == 1, "the small window for the log-in is closed again"
    dismiss = banner.get_by_role("button", name="Dismiss")
    expect(keep).to_be_hidden(timeout=SLOW)  # the warning does not hold any more, what was answered stays
    expect(dismiss).to_be_focused()
    visit.picture("lab-kept", full=False)
    page.keyboard.press("Enter")
    expect(banner).to_have_count(0)


def test_a_wish_is_the_users_own_and_needs_the_token_of_the_pages(visit: Visit, stack: Stack) -> None:
    page, sent = open_lab(visit), list[Request]()
    page.context.on("request", lambda request: sent.append(request) if request.method == "PUT" else None)
    banner = banner_of(page, stack)
    banner.get_by_role("button", name="Keep for 3 hours").click()
    expect(banner.get_by_role("status")).to_contain_text("Kept until", timeout=SLOW)
    (wish,) = [request for request in sent if "/services/berth/" in request.url]
    headers = wish.all_headers()
    assert headers["x-xsrftoken"] and "authorization" not in headers
    forged = """async ([url, token]) => {
        const headers = {"Content-Type": "application/json", ...(token ? {"X-XSRFToken": token} : {})}
        return (await fetch(url, {method: "PUT", headers, body: '{"seconds": 60}'})).status
    }"""
    servers_own = page.evaluate("(/(?:^|; )_xsrf=([^;]+)/.exec(document.cookie) || [])[1] || 'none'")
    assert [page.evaluate(forged, [wish.url, token]) for token in ("", servers_own)] == [403, 403]
    assert page.evaluate(forged, [wish.url, headers["x-xsrftoken"]]) == 200


def test_a_warning_goes_by_itself_once_the_server_is_used(visit: Visit, stack: Stack) -> None:
    page = open_lab(visit)
    banner = banner_of(page, stack)
    with Kernel(stack.researcher) as kernel:
        kernel.run("sum(range(10))")
        expect(banner).to_have_count(0, timeout=SLOW)
        page.reload()  # a page that is opened later is not told of it either
        expect(page.locator("#berth-meter")).to_contain_text("credits/h", timeout=SLOW)


def test_one_answer_is_enough_for_all_tabs_and_for_the_page_loaded_anew(visit: Visit, stack: Stack) -> None:
    page = open_lab(visit)
    banner_of(page, stack)
    other = open_lab(visit, page.context.new_page())
    banner_of(other, stack).get_by_role("button", name="Dismiss").click()
    for each in (page, other):
        expect(each.locator(".berth-banner")).to_have_count(0)
    other.reload()
    expect(other.locator("#berth-meter [data-berth=idle]")).to_contain_text("idle stop in", timeout=SLOW)
    expect(other.locator(".berth-banner")).to_have_count(0)


def test_b8_a_wish_that_cannot_be_paid_says_why_and_the_server_stays_warned(visit: Visit, stack: Stack) -> None:
    page = open_lab(visit)
    banner = banner_of(page, stack)
    tight, no_limit = {"monthly_micro_credits": 400_000}, {"monthly_micro_credits": None}
    assert stack.admin.berth("/accounts/researcher/limits", "PUT", tight).status_code == 200
    try:
        keep = banner.get_by_role("button", name="Keep for 3 hours")
        tab_to(page, keep)
        page.keyboard.press("Enter")
        expect(banner.get_by_role("status")).to_contain_text("There is not enough credit to keep it", timeout=SLOW)
        visit.picture("lab-keep-refused", full=False)
        expect(keep).to_be_focused()
        expect(banner.get_by_role("status")).to_be_in_viewport(ratio=1)
        expect(banner.get_by_role("alert")).to_be_visible()
        assert kept_for(stack) <= timedelta(0)
    finally:
        assert stack.admin.berth("/accounts/researcher/limits", "PUT", no_limit).status_code == 200


def test_chinese_is_spoken_where_the_pages_are_chinese(
    chromium: Chromium, stack: Stack, signed_in: str, pictures: Path
) -> None:
    with window(chromium, stack, signed_in, pictures, locale="zh-CN") as visit:
        page = open_lab(visit)
        expect(page.locator("#berth-meter")).to_contain_text("因闲置停止", timeout=SLOW)
        banner = banner_of(page, stack)
        expect(banner.get_by_role("alert")).to_contain_text("此服务器将于")
        expect(banner).to_contain_text("没有代码在运行")
        visit.picture("lab-warning-zh", full=False)
        banner.get_by_role("button", name="保留 1 小时").click()
        expect(banner.get_by_role("status")).to_contain_text("都保留至", timeout=SLOW)
        assert not visit.errors
    let_go(stack)
