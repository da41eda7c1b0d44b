"""Notices in a real browser on a site with a mail server: the warning's banner, the mails, the page, one's choices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, visit_as
from tests.fakes.mailbox import MailBox
from tests.harness import Stack, until

pytestmark = [pytest.mark.hub, pytest.mark.browser]

TOML = """
[idle]
with_gpu = "25 s"
without_gpu = "25 s"
notice = "15 s"
check_every = "2 s"

[mail]
host = "127.0.0.1"
port = {port}
security = "none"
sender = "berth@example.org"
domain = "example.org"
admins = ["admins@example.org"]
"""


@pytest.fixture(scope="module")
def box() -> Iterator[MailBox]:
    with MailBox() as box:
        yield box


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, box: MailBox) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("notices") / "data", TOML.format(port=box.port)) as running:
        yield running


@pytest.fixture
def window(chromium: Chromium) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    yield context.new_page()
    chromium.close(context)


def subjects(box: MailBox, to: str) -> list[str]:
    return [str(mail["Subject"]) for mail in box.mails if str(mail["To"]) == to]


def test_a_warning_and_the_card_come_by_mail_and_stand_on_the_page(
    window: Page, stack: Stack, box: MailBox, pictures: Path
) -> None:
    me, seen = stack.researcher, visit_as(window, stack, pictures, "researcher")
    to = f"{me.name}@example.org"
    me.start("gpu-1-8")
    lease = me.lease()["id"]
    until(lambda: subjects(box, to), 90, "the warning comes by mail")
    assert subjects(box, to)[0] == "Your server will be stopped soon: it is idle"
    seen.open("/services/berth/board")
    expect(seen.page.locator(".berth-urgent")).to_contain_text("Your server will be stopped soon")
    assert seen.findings() == []
    seen.picture("notices-banner")
    me.settled(lease, 90)
    until(lambda: "Your server has ended" in subjects(box, to), 60, "the card comes by mail")
    card = next(mail for mail in box.mails if mail["Subject"] == "Your server has ended").get_content()
    assert "Reclaimed because it was idle: Not used since" in card and "It ran for" in card
    assert f"{stack.url}/services/berth/lease/{lease}" in card
    assert subjects(box, to).count("Your server has ended") == 1
    seen.open("/services/berth/notices")
    expect(seen.page.locator("#berth-unread")).to_have_text("1")  # the warnings before it say nothing more
    expect(seen.page.locator("#unread")).to_contain_text("Your server has ended")
    assert seen.findings() == []
    seen.picture("notices")


def test_choices_are_kept_and_a_test_message_arrives(window: Page, stack: Stack, box: MailBox, pictures: Path) -> None:
    seen = visit_as(window, stack, pictures, "researcher")
    seen.open("/services/berth/notices")
    seen.page.fill("#email", "me@home.example")
    seen.page.check('input[name="kind:idle-stop"][value="mail"]')
    seen.page.select_option("#digest", "daily")
    seen.page.fill("#quiet-from", "22:00")
    seen.page.fill("#quiet-to", "07:00")
    seen.page.click('#choose button[type="submit"]')
    expect(seen.page.locator("#flash")).to_have_text("From now on you are told like this.")
    expect(seen.page.locator("#email-help")).to_have_text("Mails go to me@home.example now.")
    assert seen.page.input_value("#quiet-from") == "22:00" and seen.page.input_value("#digest") == "daily"
    seen.page.click("#send-test")
    until(lambda: subjects(box, "me@home.example"), 60, "the test message comes, in quiet hours too")
    assert subjects(box, "me@home.example") == ["A test message"]
    seen.open("/services/berth/notices")
    expect(seen.page.locator('#test-ways [data-state="sent"]')).to_have_text(re.compile("Mail: was sent"))
    seen.page.click("#read-all")
    expect(seen.page.locator("#unread-none")).to_be_visible()
    assert seen.page.locator("#berth-unread").count() == 0
    assert seen.findings() == []
    seen.picture("notices-choices")


def test_the_page_is_whole_on_a_phone_in_the_dark_and_in_chinese(
    chromium: Chromium, stack: Stack, pictures: Path
) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark", locale="zh-CN")
    try:
        seen = visit_as(context.new_page(), stack, pictures, "researcher")
        seen.open("/services/berth/notices")
        expect(seen.page.locator("h1")).to_have_text("通知")
        width = seen.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        assert seen.findings() == []
        seen.picture("notices-phone-dark-zh")
    finally:
        chromium.close(context)
