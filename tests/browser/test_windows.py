"""Several windows, and long ones: log-out in one counts in all, two users do not mix, back shows what is so now, and a
page that was left open for a day does not lie, does nothing by mistake, and says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("windows") / "data") as running:
        yield running


@pytest.fixture
def contexts(chromium: Chromium) -> Iterator[list[BrowserContext]]:
    made = [chromium.new_context(), chromium.new_context()]
    yield made
    for context in made:
        chromium.close(context)


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


# ---- a page that was left open for a day -----------------------------------------------------------------------------


@pytest.fixture
def running(stack: Stack) -> None:
    if not stack.researcher.ready():
        stack.researcher.start("gpu-1-8")


@pytest.fixture
def left_open(contexts: list[BrowserContext], stack: Stack, pictures: Path, running: None) -> Visit:
    return logged_in(contexts[0], stack, pictures, "researcher")


@pytest.mark.parametrize("path", ["/services/berth/", "/services/berth/board", "/hub/home"])
def test_after_a_day_its_figures_have_stopped_and_say_so(left_open: Visit, path: str) -> None:
    page = left_open.page
    page.clock.install()
    left_open.open(path)
    asof = page.locator("#berth-asof")
    expect(asof).to_contain_text("As of")
    page.clock.fast_forward("24:00:00")
    expect(asof).to_have_text("These figures are old. Reload the page to see what is so now.")
    for live in page.locator("[data-per-hour]").all_inner_texts():
        assert float(live) < 0.125, "a charge ran on for a day"  # an hour of this server
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # looked at again
    expect(asof).to_contain_text("As of")
    assert not left_open.errors


def test_its_stop_buttons_do_nothing_and_say_why_once_the_log_in_is_over(left_open: Visit, stack: Stack) -> None:
    page, me = left_open.page, stack.researcher
    form = page.context.new_page()
    form.goto(f"{stack.url}/services/berth/lease/{me.lease()['id']}/stop")
    left_open.open("/hub/home")
    page.context.clear_cookies()
    page.click("#stop")
    expect(page.locator("#berth-trouble")).to_contain_text("Reload it, log in if you are asked to, and try again.")
    form.click("#confirm-stop")
    expect(form.locator("main")).to_contain_text("Reload it")
    assert me.ready(), "a page without a log-in stopped a server"
    page.click("#berth-trouble a")
    expect(page.locator("#username_input")).to_be_visible()


def test_its_buttons_work_again_after_a_new_log_in_and_a_reload(left_open: Visit, stack: Stack, pictures: Path) -> None:
    page, me = left_open.page, stack.researcher
    left_open.open("/hub/home")
    page.context.clear_cookies()
    logged_in(page.context, stack, pictures, "researcher")  # in another tab; the old page's token is another's
    page.click("#stop")
    expect(page.locator("#berth-trouble")).to_contain_text("this page is too old")
    assert me.ready()
    page.click("#berth-trouble a")
    page.click("#stop")
    expect(page.locator("#start")).to_contain_text("Start My Server", timeout=30_000)
    assert me.gone()


def test_its_start_form_leads_to_a_log_in_and_starts_nothing(
    contexts: list[BrowserContext], stack: Stack, pictures: Path
) -> None:
    visit = logged_in(contexts[0], stack, pictures, "researcher")
    visit.open("/hub/spawn/researcher/later")
    visit.page.context.clear_cookies()
    visit.page.click("#spawn_form button[type=submit]")
    visit.page.wait_for_load_state()
    assert not visit.findings()
    said = visit.text("body")
    assert "Log in" in said or "reload it" in said, said
    assert stack.researcher.gone("later")
