"""Logging in and out through a real provider's own pages, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack, free_port
from tests.harness.provider import PASSWORD, Provider

pytestmark = [pytest.mark.hub, pytest.mark.browser]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("sign-in") / "data")
    provider = Provider(free_port(), made.url)
    lines = f'admins = ["root"]\nusers = ["ada"]\nlabel = "the institute"\nurl = "{made.url}"\n'
    (made.data / "berth.toml").write_text(provider.toml(lines), encoding="utf-8")
    provider.write_secret(made.data)
    with provider:
        provider.do("user", name="ada")
        provider.do("user", name="eve")
        with made:
            yield made


def through_the_provider(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}/hub/login")
    page.get_by_role("button", name="Log in with the institute").click()
    page.locator('input[name="login"]').fill(name)
    page.locator('input[name="login"]').press("Enter")
    page.locator('input[name="password"]').fill(PASSWORD)
    page.locator('input[name="password"]').press("Enter")


def test_log_in_start_and_log_out_everywhere(chromium: Chromium, stack: Stack, pictures: Path) -> None:
    context = chromium.new_context()
    page = context.new_page()
    visit = Visit(page, stack.url, pictures)
    through_the_provider(page, stack.url, "ada")
    page.wait_for_url(f"{stack.url}/hub/**")
    visit.open("/services/berth/")
    assert visit.text(".berth-name") == "ada"
    visit.open("/hub/home")
    page.click("#logout")
    page.wait_for_url(f"{stack.url}/hub/login**")
    page.get_by_role("button", name="Log in with the institute").click()
    expect(page.locator('input[name="login"], input[name="password"]').first).to_be_visible()  # asked again: logged out
    assert visit.errors == []
    chromium.close(context)


def test_whoever_may_not_is_told_whom_to_ask(chromium: Chromium, stack: Stack, pictures: Path) -> None:
    context = chromium.new_context()
    page = context.new_page()
    through_the_provider(page, stack.url, "eve")
    expect(page.locator("main, .container, body").first).to_contain_text("Ask an admin to let you in")
    page.screenshot(path=str(pictures / "sign-in-refused.png"))
    page.goto(f"{stack.url}/hub/login")
    page.screenshot(path=str(pictures / "sign-in.png"))
    chromium.close(context)
