"""No serious finding of axe on any page, in both themes and on a phone; no page is wider than its window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]

WINDOWS = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}

#: Name and address.
PAGES = {
    "hub-admin": "/hub/admin",
    "hub-groups": "/hub/admin#/groups",
    "home": "/hub/home",
    "spawn": "/hub/spawn",
    "token": "/hub/token",
    "missing": "/hub/no-such-page",
    "usage": "/services/berth/",
    "board": "/services/berth/board",
    "starts": "/services/berth/starts",
    "notices": "/services/berth/notices",
    "desk": "/services/berth/admin",
    "interface": "/services/berth/interface",
    "service-missing": "/services/berth/lease/no-such-lease",
}

#: What is there once a page that a script makes is whole.
WHOLE = {"hub-admin": '[data-testid$="collapse-button"][aria-label]', "hub-groups": "#react-admin-hook ul.list-group"}

#: What somebody sees who has nothing yet, finds nothing, or may not: as the researcher, who never had a server.
EMPTY = {
    "first-visit": "/hub/home",
    "no-session": "/services/berth/?month=2020-01",
    "nobody-found": "/services/berth/board?q=nobody",
    "not-running": "/user/researcher/lab",
    "forbidden": "/hub/admin",
    "service-forbidden": "/services/berth/admin",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("accessible") / "data") as running:
        running.admin.start("gpu-1-4")
        yield running


@pytest.fixture(params=list(WINDOWS))
def visit(request: pytest.FixtureRequest, chromium: Chromium, stack: Stack, pictures: Path) -> Iterator[Visit]:
    context = chromium.new_context(**WINDOWS[request.param])
    made = Visit(context.new_page(), stack.url, pictures)
    made.theme = request.param
    yield made
    chromium.close(context)


def test_no_page_has_a_serious_finding(visit: Visit, stack: Stack) -> None:
    visit.page.goto(f"{stack.url}/hub/login")
    trouble = {"log-in": visit.findings()}
    login = stack.passwords()["admin"]
    visit.log_in(login["name"], login["password"])
    lease = stack.admin.lease()["id"]
    receipt = {"lease": f"/services/berth/lease/{lease}", "stop": f"/services/berth/lease/{lease}/stop"}
    for name, path in (PAGES | receipt).items():
        visit.page.goto(stack.url + path)
        if name in WHOLE:
            visit.page.wait_for_selector(WHOLE[name])
        trouble[name] = visit.findings()
        visit.picture(f"page-{name}-{visit.theme}")
    assert not {name: found for name, found in trouble.items() if found}
    assert not visit.errors


def test_nor_has_an_empty_page_or_a_refusal(visit: Visit, stack: Stack) -> None:
    login = stack.passwords()["researcher"]
    visit.log_in(login["name"], login["password"])
    trouble = {}
    for name, path in EMPTY.items():
        visit.page.goto(stack.url + path)
        trouble[name] = visit.findings()
        visit.picture(f"page-{name}-{visit.theme}")
    assert not {name: found for name, found in trouble.items() if found}
    visit.open("/hub/home")
    assert visit.page.locator("#berth-first li").count() == 3
    assert "No server of yours has stopped yet" in visit.text("#berth-ended-none")
    assert not visit.errors
