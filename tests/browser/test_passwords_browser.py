"""A site that keeps its people's passwords itself, in a real browser: from asking for an account to changing the
password; every page of it passes axe in both themes and on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]

WINDOWS = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
ADA, ADA_LATER = "seven grey boats at dawn", "eight green boats at dusk"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("passwords") / "data", '[auth]\nkind = "passwords"\n') as running:
        yield running


@contextmanager
def window(chromium: Chromium, stack: Stack, pictures: Path, theme: str) -> Iterator[Visit]:
    context = chromium.new_context(**WINDOWS[theme])
    made = Visit(context.new_page(), stack.url, pictures)
    made.theme = theme
    yield made
    assert made.errors == []
    chromium.close(context)


def looked_at(visit: Visit, name: str) -> None:
    visit.picture(f"passwords-{name}-{visit.theme}")
    assert visit.findings() == [], name


def test_ask_for_an_account_be_let_in_and_change_the_password(chromium: Chromium, stack: Stack, pictures: Path) -> None:
    (admin,) = json.loads(stack.run("passwords", "--json"))["admins"]
    with window(chromium, stack, pictures, "phone") as ada, window(chromium, stack, pictures, "light") as desk:
        ada.open("/hub/login")
        ada.page.get_by_role("link", name="Ask for an account").click()
        looked_at(ada, "signup")
        for name, value in (("username", "ada"), ("password", ADA), ("again", ADA + "?")):
            ada.page.fill(f"#{name}", value)
        ada.page.get_by_role("button", name="Ask for an account").click()
        expect(ada.page.get_by_role("alert")).to_contain_text("The two passwords differ")
        looked_at(ada, "signup-refused")
        for name in ("password", "again"):
            ada.page.fill(f"#{name}", ADA)
        ada.page.get_by_role("button", name="Ask for an account").click()
        expect(ada.page.get_by_role("status")).to_contain_text("once an admin has opened it")

        desk.log_in(admin["name"], admin["password"])
        desk.page.get_by_role("link", name="People").click()
        looked_at(desk, "people-waiting")
        desk.page.get_by_role("button", name="Let ada in").click()
        expect(desk.page.get_by_role("status")).to_contain_text("ada can log in now")
        desk.page.fill("#username", "bob")
        desk.page.get_by_role("button", name="Add").click()
        expect(desk.page.get_by_role("status").locator("code")).to_have_text(re.compile(r"[\w-]{16}"))
        looked_at(desk, "people")

        ada.log_in("ada", ADA)
        ada.open("/hub/change-password")
        looked_at(ada, "change")
        for name, value in (("old", ADA), ("password", ADA_LATER), ("again", ADA_LATER)):
            ada.page.fill(f"#{name}", value)
        ada.page.get_by_role("button", name="Change password").click()
        expect(ada.page.get_by_role("status")).to_contain_text("is changed")
        ada.open("/hub/home")
    with window(chromium, stack, pictures, "dark") as again:
        again.log_in("ada", ADA_LATER)
        again.open("/hub/change-password")
        looked_at(again, "change")
        again.page.goto(f"{stack.url}/hub/logout")
        again.log_in(admin["name"], admin["password"])
        again.open("/hub/people")
        looked_at(again, "people")
        again.open("/hub/signup")
        looked_at(again, "signup")
