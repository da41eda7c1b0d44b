"""Who pays, chosen in a real browser; the group's page and the form in both themes and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Chromium, Visit
from tests.browser.test_accessible import WINDOWS
from tests.harness import Stack
from tests.harness.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.browser]

#: Somebody who is given nothing a month, in a lab that has been given something.
TOML = """
[first_start]
monthly_credits = 0
[[groups]]
name = "Lab A"
leads = ["lead"]
pays = true
"""
LAB = "group:Lab A"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("payers") / "data", TOML) as running:
        ada = running.add("ada")
        assert running.admin.hub("POST", "/groups/Lab%20A").status_code == 201
        assert running.admin.hub("POST", "/groups/Lab%20A/users", {"users": ["ada"]}).status_code == 200
        running.run("grant", LAB, "20", "--note", "spring course")
        ada.ask_start({"profile": "gpu-1-4", "payer": LAB}).raise_for_status()
        until(ada.ready, 60, "ada's server is ready")
        yield running


def test_b2_the_payer_decides_what_can_be_started(chromium: Chromium, stack: Stack, pictures: Path) -> None:
    with chromium.window(viewport={"width": 1280, "height": 860}) as context:
        visit = Visit(context.new_page(), stack.url, pictures)
        visit.log_in("ada", stack.passwords()["researcher"]["password"])
        visit.open("/hub/spawn/ada/two")
        page = visit.page
        payer, whole = page.locator("#berth-payer"), page.locator("#berth-profile-gpu-1")
        expect(payer).to_have_value(LAB)  # her own balance carries no GPU
        expect(whole).to_be_enabled()
        assert "h of this profile" in visit.text('[data-profile="gpu-1"] [data-payer]:not([hidden])')
        whole.check()
        payer.select_option("ada")
        expect(whole).to_be_disabled()
        expect(page.locator("#berth-profile-cpu")).to_be_checked()  # the first that she can pay: it is free
        assert "balance is too low" in visit.text('[data-profile="gpu-1"] [data-payer]:not([hidden])')
        payer.select_option(LAB)
        expect(whole).to_be_enabled()
        page.locator("#berth-profile-gpu-1-8").check()
        page.click("#spawn_form button[type=submit]")
        person = stack.person("ada")
        until(lambda: person.ready("two"), 60, "ada's second server is ready")
        lease = next(each for each in person.leases() if each["holder"]["server"] == "two")
        assert (lease["account"], lease["profile"]) == (LAB, "gpu-1-8")
        assert not visit.errors


@pytest.mark.parametrize("window", WINDOWS)
def test_b2_form_and_group_page_have_no_serious_finding(
    chromium: Chromium, stack: Stack, pictures: Path, window: str
) -> None:
    with chromium.window(**WINDOWS[window]) as context:
        visit = Visit(context.new_page(), stack.url, pictures)
        visit.log_in("ada", stack.passwords()["researcher"]["password"])
        trouble = {}
        addresses = {"payer": "/hub/spawn/ada/three", "group": "/services/berth/groups", "own": "/services/berth/"}
        for name, path in addresses.items():
            visit.open(path)
            trouble[name] = visit.findings()
            visit.picture(f"page-groups-{name}-{window}")
        assert not {name: found for name, found in trouble.items() if found}
        visit.open("/services/berth/groups")
        assert visit.text("h1") == "Group Lab A"
        assert "ada" in visit.text("#members")
        assert not visit.errors
