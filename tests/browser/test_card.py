"""Keeping a server, the card of one that was reclaimed, and saying that it was wrong, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, visit_as
from tests.harness import Stack, until

pytestmark = [pytest.mark.hub, pytest.mark.browser]

IDLE = """
[idle]
with_gpu = "25 s"
without_gpu = "25 s"
notice = "15 s"
check_every = "2 s"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("card") / "data", IDLE) as running:
        yield running


@pytest.fixture
def window(chromium: Chromium) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    yield context.new_page()
    chromium.close(context)


def test_i15_a_warned_server_is_kept_and_let_go_again(window: Page, stack: Stack, pictures: Path) -> None:
    me, seen = stack.researcher, visit_as(window, stack, pictures, "researcher")
    me.start("gpu-1-8")
    lease = me.lease()["id"]
    until(lambda: (me.lease().get("idle") or {}).get("kind") == "warn", 60)
    seen.open("/hub/home")
    seen.page.click(".berth-keep")
    expect(seen.page).to_have_url(f"{stack.url}/services/berth/lease/{lease}#wish")
    seen.page.click('button[value="keep:3600"]')
    expect(seen.page.locator(".berth-wish")).to_contain_text("It is kept though unused until")
    assert seen.page.locator('[role="alert"].alert-warning').count() == 0  # the old deadline is no more
    until(lambda: (me.lease().get("idle") or {}).get("kind") == "keep", 20)
    assert seen.findings() == []
    seen.picture("keep")
    seen.open("/hub/home")
    assert "It is kept though unused until" in seen.text("#berth-default")
    seen.open(f"/services/berth/lease/{lease}")
    seen.page.click('button[value="no-keep"]')
    expect(seen.page.locator("#wish")).to_contain_text("Until you stop it")
    me.settled(lease)


def test_the_card_tells_and_a_doubt_is_granted(window: Page, stack: Stack, pictures: Path, chromium: Chromium) -> None:
    seen = visit_as(window, stack, pictures, "researcher")
    seen.open("/hub/home")
    assert "Reclaimed because it was idle" in seen.text("#berth-ended")
    seen.page.click("#berth-card details summary")
    assert "Not used since" in seen.text("#berth-card-evidence")
    assert seen.findings() == []
    seen.picture("card")
    seen.page.click("#berth-doubt")
    lease = seen.page.url.rpartition("/")[2].partition("#")[0]
    seen.page.click("#card-doubt summary")
    seen.page.fill("#appeal-words", "It was waiting for its data.")
    seen.page.click('#card-doubt button[type="submit"]')
    expect(seen.page.locator("#card-appeal")).to_have_text("It was waiting for its data.")
    assert seen.findings() == []
    desk = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    try:
        admin = visit_as(desk.new_page(), stack, pictures, "admin")
        admin.open("/services/berth/admin")
        assert "It was waiting for its data." in admin.text("#doubted")
        assert admin.findings() == []
        admin.picture("doubted-phone-dark")
        admin.page.fill('#doubted input[name="answer"]', "Sorry.")
        admin.page.click('#doubted button[value="grant"]')
        expect(admin.page.locator("#doubted")).to_have_count(0)
    finally:
        chromium.close(desk)
    seen.page.emulate_media(color_scheme="dark")
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.open(f"/services/berth/lease/{lease}")
    assert "credits were given back. Sorry." in seen.text("#card-decided")
    assert seen.findings() == []
    seen.picture("card-receipt-phone-dark")
    seen.open("/hub/home")
    assert seen.findings() == []
    seen.picture("card-phone-dark")
    seen.page.click("#berth-resume")
    expect(seen.page.locator("input[name=profile]:checked")).to_have_value("gpu-1-8")
