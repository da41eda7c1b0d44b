"""The README's journeys in a real browser: a researcher works and is charged, an admin sees, gives, limits, stops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack, until

pytestmark = [pytest.mark.hub, pytest.mark.browser]

CELLS = len(nbformat.read(str(files("images") / "notebooks" / "digits.ipynb"), as_version=4).cells)

#: Short enough to be seen being reclaimed, long enough for the notice to be read.
IDLE = """
[idle]
with_gpu = "40 s"
without_gpu = "40 s"
notice = "15 s"
check_every = "2 s"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("journey")) as running:
        yield running


@pytest.fixture
def window(chromium: Chromium) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    yield context.new_page()
    chromium.close(context)


@pytest.fixture
def researcher(window: Page, stack: Stack, pictures: Path) -> Visit:
    visit = Visit(window, stack.url, pictures)
    login = stack.passwords()["researcher"]
    visit.log_in(login["name"], login["password"])
    return visit


@pytest.fixture
def admin(window: Page, stack: Stack, pictures: Path) -> Visit:
    visit = Visit(window, stack.url, pictures)
    login = stack.passwords()["admin"]
    visit.log_in(login["name"], login["password"])
    return visit


def pick(visit: Visit, profile: str) -> None:
    visit.open("/hub/spawn")
    visit.page.check(f'input[name=profile][value="{profile}"]')


# ---- B: the researcher -----------------------------------------------------------------------------------------------


def test_the_start_page_tells_room_price_balance_and_image(researcher: Visit) -> None:
    researcher.open("/hub/spawn")
    values = researcher.page.locator("input[name=profile]").evaluate_all("found => found.map(one => one.value)")
    assert values == ["cpu", "gpu-1-8", "gpu-1-4", "gpu-1-2", "gpu-1", "gpu-2"]
    card = researcher.text('.berth-card[data-profile="gpu-1-4"]')
    assert "8 free now" in card
    assert "0.25 credits per hour" in card
    assert "simulated" in card
    assert "400 h" in card  # what 100 credits buy
    assert "100.00 credits" in researcher.text("#berth-balance")
    assert "This environment" in researcher.text("#berth-image")
    assert "free of charge" in researcher.text('.berth-card[data-profile="cpu"]')
    researcher.picture("spawn")


def test_log_in_start_work_stop_and_see_the_exact_charge(researcher: Visit, stack: Stack) -> None:
    page = researcher.page
    pick(researcher, "gpu-1-4")
    page.click('input[type=submit], button[type=submit]:has-text("Start")', no_wait_after=True)
    page.wait_for_url(re.compile(r"/user/researcher/lab"), timeout=60_000)
    page.goto(f"{stack.url}/user/researcher/lab/tree/berth-examples/digits.ipynb?reset")
    run_all(page)
    researcher.picture("lab", full=False)

    running = stack.researcher.lease()
    assert running["state"] == "RUNNING" and running["simulated"]
    stop(researcher)
    lease = stack.researcher.settled(running["id"])

    researcher.open("/services/berth/")
    words = " ".join(researcher.text("main").split())
    seconds = span(lease)
    due = round(seconds * 250 / 1000 / 3600 * 1_000_000)
    assert abs(lease["charged_micro_credits"] - due) <= 1
    assert f"{lease['charged_micro_credits'] / 1_000_000:.6f}" in words
    assert "1/4" in words and "1.00 credit" in words and "simulated" in words
    assert f"{seconds:.6f}".rstrip("0") in words.replace(" ", "")
    researcher.picture("usage")
    assert not researcher.errors


def run_all(page: Page) -> None:
    """Run every cell of the notebook that is open, as its first cell says: Shift + Enter, one by one."""
    notebook = page.locator(".jp-Notebook").first
    expect(notebook.locator(".jp-Cell").first).to_be_visible(timeout=60_000)
    status = page.locator("#jp-main-statusbar")
    expect(status).to_contain_text("| Idle", timeout=60_000)  # until then JupyterLab drops what it is told to run
    notebook.locator(".jp-Cell").first.click()
    page.keyboard.press("Escape")
    for _ in range(CELLS):
        page.keyboard.press("Shift+Enter")
    expect(page.locator(".jp-OutputArea-output").filter(has_text="accuracy").first).to_be_visible(timeout=120_000)
    assert page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0


def stop(visit: Visit) -> None:
    visit.open("/hub/home")
    visit.page.click("#stop")
    expect(visit.page.locator("#start")).to_contain_text("Start", timeout=40_000)


def span(lease: dict[str, str]) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(lease["ended_at"]) - datetime.fromisoformat(lease["started_at"])).total_seconds()


def test_a_refusal_is_told_on_the_page(researcher: Visit, stack: Stack) -> None:
    admin = stack.admin
    assert admin.berth("/accounts/researcher/limits", "PUT", {"max_servers": 0}).status_code == 200
    try:
        pick_disabled = researcher
        pick_disabled.open("/hub/spawn")
        assert "you may not run servers" in researcher.text('.berth-card[data-profile="cpu"]')
    finally:
        assert admin.berth("/accounts/researcher/limits", "PUT", {"max_servers": None}).status_code == 200


# ---- C: the admin ----------------------------------------------------------------------------------------------------


def test_admin_adds_a_user_grants_limits_sees_and_stops(admin: Visit, stack: Stack) -> None:
    page = admin.page
    add_user(admin, "grace")
    grace = stack.person("grace")
    grace.start("gpu-1-2")
    lease = grace.lease()

    admin.open("/services/berth/board")
    row = admin.text('#holders tr[data-user="grace"]')
    for part in ("grace", "1/2 GPU", "simulated", "gpu-1-2"):
        assert part in row
    admin.picture("board")

    admin.open("/services/berth/admin")
    page.fill("#grant-account", "grace")
    page.fill("#grant-credits", "25")
    page.fill("#grant-note", "for the poster")
    page.click("#grant-form button[type=submit]")
    page.wait_for_url(re.compile("/services/berth/admin"))
    assert "25" in admin.text("[role=status], .alert")
    assert float(grace.read("/me")["account"]["available_micro_credits"]) > 124_000_000

    page.fill("#limits-account", "grace")
    page.fill("#max-servers", "1")
    page.click("#limits-form button[type=submit]")
    page.wait_for_url(re.compile("/services/berth/admin"))
    refusal = grace.refused({"profile": "cpu"}, server="second")
    assert "1" in refusal.words
    admin.picture("admin")

    page.click('#running tr[data-user="grace"] a:has-text("Stop")')
    page.click("main form button[type=submit]")
    settled = grace.settled(lease["id"])
    assert settled["stop_reason"] == "admin"
    assert not admin.errors


def add_user(admin: Visit, name: str) -> None:
    """On the Hub's own admin page, as the README says."""
    admin.open("/hub/admin")
    admin.page.click('button:has-text("Add Users"), a:has-text("Add Users")')
    admin.page.fill("textarea", name)
    admin.page.click('button:has-text("Add Users")')
    expect(admin.page.get_by_text(name, exact=True).first).to_be_visible(timeout=15_000)


def test_an_idle_server_is_announced_then_reclaimed_and_its_user_is_told_why(
    chromium: Chromium, tmp_path: Path, pictures: Path
) -> None:
    with Stack(tmp_path / "data", IDLE) as stack:
        context = chromium.new_context(viewport={"width": 1280, "height": 860})
        visit = Visit(context.new_page(), stack.url, pictures)
        login = stack.passwords()["researcher"]
        visit.log_in(login["name"], login["password"])
        stack.researcher.start("gpu-1-8")
        lease = stack.researcher.lease()

        def announced() -> bool:
            visit.open("/hub/home")
            return "idle" in visit.text("main, #home-page, body").lower() and "stop" in visit.text("body").lower()

        until(lambda: (stack.researcher.lease(lease["id"])["idle"] or {}).get("kind") == "warn", 90, "warned")
        assert until(announced, 10)
        visit.picture("home-idle-notice")
        settled = stack.researcher.settled(lease["id"], 90)
        assert settled["stop_reason"] == "idle"
        visit.open("/hub/home")
        assert "idle" in visit.text("body").lower()
        visit.picture("home-after-idle")
        chromium.close(context)
