"""Several windows at once: log-out in one counts in all, two users do not mix, and back shows what is so now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser.conftest import Visit
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("windows") / "data") as running:
        yield running


@pytest.fixture
def contexts(browser: Browser) -> Iterator[list[BrowserContext]]:
    made = [browser.new_context(), browser.new_context()]
    yield made
    for context in made:
        context.close()


def logged_in(context: BrowserContext, stack: Stack, pictures: Path, role: str) -> Visit:
    visit = Visit(context.new_page(), stack.url, pictures)
    login = stack.passwords()[role]
    visit.log_in(login["name"], login["password"])
    return visit


def test_two_users_in_two_windows_do_not_mix(contexts: list[BrowserContext], stack: Stack, pictures: Path) -> None:
    one = logged_in(contexts[0], stack, pictures, "researcher")
    two = logged_in(contexts[1], stack, pictures, "admin")
    for _ in range(2):
        for visit, name in ((one, "researcher"), (two, "admin")):
            visit.open("/services/berth/")
            assert visit.text(".berth-name") == name
            visit.open("/hub/home")
            assert name in visit.text("#login_widget")


def test_log_out_in_one_window_counts_in_the_other(
    contexts: list[BrowserContext], stack: Stack, pictures: Path
) -> None:
    one = logged_in(contexts[0], stack, pictures, "researcher")
    one.open("/services/berth/")
    other = contexts[0].new_page()
    other.goto(f"{stack.url}/services/berth/board")
    me = f"{stack.url}/services/berth/api/v1/me"
    assert contexts[0].request.get(me, max_redirects=0).status == 200
    one.page.click("#logout")
    expect(one.page.locator("#logout")).to_have_count(0)
    for path in ("/services/berth/", "/hub/home"):
        other.goto(stack.url + path)
        expect(other.locator("#username_input, #login")).not_to_have_count(0)
    answer = contexts[0].request.get(me, max_redirects=0)
    assert answer.status in (401, 403)


def test_back_after_a_stop_does_not_offer_the_stop_again(
    contexts: list[BrowserContext], stack: Stack, pictures: Path
) -> None:
    visit = logged_in(contexts[0], stack, pictures, "researcher")
    stack.researcher.start("cpu")
    visit.open("/hub/home")
    expect(visit.page.locator("#stop")).to_be_visible()
    visit.open("/services/berth/")
    stack.researcher.stop()
    visit.page.go_back()
    expect(visit.page.locator("#start")).to_contain_text("Start")
    expect(visit.page.locator("#stop")).to_have_count(0)
