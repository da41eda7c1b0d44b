"""Scheduling a start, keeping a server by the buttons at home, and starting the same again, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack, until

pytestmark = [pytest.mark.hub, pytest.mark.browser]

TOML = """
[gpus]
source = "simulated"

[schedule]
most = 2
"""
LOOKS = {
    "light": ({"width": 1280, "height": 860}, "light", "en"),
    "dark": ({"width": 1280, "height": 860}, "dark", "en"),
    "phone": ({"width": 390, "height": 844}, "dark", "en"),
    "phone-zh": ({"width": 390, "height": 844}, "light", "zh-CN"),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("scheduled") / "data", TOML) as running:
        yield running


@pytest.fixture
def window(chromium: Chromium) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, locale="en")
    yield context.new_page()
    chromium.close(context)


@pytest.fixture
def seen(window: Page, stack: Stack, pictures: Path) -> Visit:
    made = Visit(window, stack.url, pictures)
    login = stack.passwords()["researcher"]
    made.log_in(login["name"], login["password"])
    return made


def looks(seen: Visit, stack: Stack, chromium: Chromium, path: str, name: str) -> None:
    """The page in each look, with a picture; asserts that nothing serious is wrong with any."""
    cookies = seen.page.context.cookies()
    for look, (size, scheme, language) in LOOKS.items():
        context = chromium.new_context(viewport=size, color_scheme=scheme, locale=language)  # type: ignore[arg-type]
        try:
            context.add_cookies(cookies)  # type: ignore[arg-type]
            there = Visit(context.new_page(), stack.url, seen.pictures)
            there.open(path)
            assert there.page.locator("html").get_attribute("lang") == language
            there.picture(f"{name}-{look}")
            assert there.findings() == [], look
        finally:
            chromium.close(context)


def in_days(days: int, hour: int) -> str:
    """For a browser's field, on the site's clock (UTC)."""
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}T{hour:02}:30"


def test_a_start_is_scheduled_moved_and_cancelled(seen: Visit, stack: Stack, chromium: Chromium) -> None:
    page = seen.page
    seen.open("/hub/home")
    expect(page.locator("#berth-starts")).to_contain_text("No start is waiting.")
    page.click("#berth-starts a")
    expect(page.locator("#starts-none")).to_be_visible()
    assert page.input_value("#start-at").endswith("T08:00")
    for days, profile in ((1, "gpu-1-4"), (2, "cpu")):
        page.fill("#start-at", in_days(days, 7))
        page.select_option("#start-profile", profile)
        page.click('#start-add button[type="submit"]')
        expect(page.locator("#flash")).to_contain_text("It will be started at")
        if days == 1:
            looks(seen, stack, chromium, "/services/berth/starts", "starts")
    expect(page.locator("#starts-full")).to_contain_text("You have 2 starts waiting")
    assert seen.findings() == []
    first = page.locator(".berth-start").first
    first.locator('input[name="at"]').fill(in_days(1, 9))
    first.get_by_role("button", name="Move it").click()
    expect(page.locator("#flash")).to_contain_text("09:30:00 instead")
    seen.open("/hub/home")
    expect(page.locator("#berth-starts")).to_contain_text("09:30:00 · default server · gpu-1-4")
    looks(seen, stack, chromium, "/hub/home", "starts-home")
    page.click("#berth-starts a")
    for _ in range(2):
        page.locator(".berth-start").first.get_by_role("button", name="Cancel it").click()
        expect(page.locator("#flash")).to_contain_text("It is cancelled")
    expect(page.locator("#starts-over li")).to_have_count(2)
    assert seen.errors == []


def test_the_buttons_at_home_keep_a_server_and_say_so(seen: Visit, stack: Stack, chromium: Chromium) -> None:
    me, page = stack.researcher, seen.page
    me.start("gpu-1-8")
    until(lambda: me.lease()["state"] == "RUNNING", 30)
    seen.open("/hub/home")
    looks(seen, stack, chromium, "/hub/home", "keep-home")
    page.get_by_role("button", name="Keep it for 3 h").click()
    expect(page.locator("#berth-said")).to_contain_text("It is kept until", timeout=30_000)
    expect(page.locator(".berth-wish")).to_contain_text("It is kept though unused until")
    seen.picture("keep-home-done")
    seen.open("/hub/home")
    expect(page.locator("#berth-said")).to_be_hidden()
    before = me.read(f"/leases/{me.lease()['id']}/wish")["keep_until"]
    me.ask_stop()
    until(me.gone, 60)
    page.get_by_role("button", name="Keep it for 1 h").click()  # the page does not know yet
    expect(page.locator("#berth-trouble")).to_contain_text("Only a server that runs", timeout=30_000)
    assert me.read(f"/leases/{me.lease()['id']}/wish")["keep_until"] == before
    assert seen.findings() == [] and seen.errors == []
    seen.picture("keep-home-refused")


def test_resume_the_same_selects_what_that_server_had(seen: Visit, stack: Stack, chromium: Chromium) -> None:
    """Also on the receipt of an earlier one, and whatever was tried since."""
    me, page = stack.researcher, seen.page
    for profile in ("gpu-1-4", "gpu-1-2"):
        me.start(profile)
        me.stop()
    until(lambda: me.lease()["state"] == "SETTLED", 30)
    earlier = next(lease["id"] for lease in me.leases() if lease["profile"] == "gpu-1-4")
    me.refused({"profile": "no such profile"})
    checked = page.locator("input[name=profile]:checked")
    seen.open("/hub/spawn")
    expect(checked).to_have_value("gpu-1-2")
    seen.open("/hub/home")
    page.click("#berth-resume")
    expect(checked).to_have_value("gpu-1-2")
    expect(page.locator("#berth-again")).to_contain_text("Selected as that server had it")
    seen.open(f"/services/berth/lease/{earlier}")
    page.click("#card-resume")
    expect(checked).to_have_value("gpu-1-4")
    expect(page.locator("#berth-not-again")).to_be_hidden()
    looks(seen, stack, chromium, "/hub/spawn#profile=gpu-1-4&image=this-environment&payer=researcher", "resume")
    seen.open("/hub/home")  # a change of what stands behind # alone loads no page
    seen.open("/hub/spawn#profile=gone&image=x&payer=researcher")
    expect(page.locator("#berth-not-again")).to_be_visible()
    expect(checked).to_have_value("gpu-1-2")
    page.locator("#spawn_form button[type=submit]").click()
    page.wait_for_url(lambda url: "/user/researcher" in url, timeout=90_000)
    assert me.lease()["profile"] == "gpu-1-2"
    me.stop()
    assert seen.errors == []
