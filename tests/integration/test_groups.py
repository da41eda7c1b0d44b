"""Profiles by group on a real hub: membership is what the Hub knows at the moment of the start."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness import Stack
from tests.harness.waiting import until

pytestmark = pytest.mark.hub

TOML = """
[[groups]]
name = "lab-a"
leads = ["lead"]
pays = true
[[groups]]
name = "lab-b"
[[profiles]]
name = "lab"
share = 0
groups = ["lab-a"]
[[profiles]]
name = "open"
share = 0
[[profiles]]
name = "quarter"
share = 0.25
"""
LAB = "group:lab-a"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One site with a lab that pays, one that does not, and who is in them."""
    with Stack(tmp_path_factory.mktemp("groups") / "data", TOML) as stack:
        for group, people in {"lab-a": ["ada", "bo"], "lab-b": ["ada"]}.items():
            assert stack.admin.hub("POST", f"/groups/{group}").status_code == 201
            for name in people:
                stack.add(name)
            assert stack.admin.hub("POST", f"/groups/{group}/users", {"users": people}).status_code == 200
        yield stack


def balance(stack: Stack, account: str) -> int:
    return int(stack.admin.read(f"/accounts/{account}")["available_micro_credits"])


def test_b2_a_member_lets_the_group_pay_by_rest(stack: Stack) -> None:
    ada, cy = stack.person("ada"), stack.add("cy")
    before = ada.available()
    poor = ada.refused({"profile": "quarter", "payer": LAB})
    assert (poor.status, "lab-a pays" in str(poor), "ask lead or an admin" in str(poor)) == (409, True, True), poor
    stack.run("grant", "group:lab-z", "1", code=1)
    stack.run("grant", "group:lab-b", "1", code=1)
    stack.run("grant", LAB, "10")
    for payer, words in {LAB: "You may not charge", "group:lab-z": "You may not charge", "bo": "bo"}.items():
        refused = cy.refused({"profile": "quarter", "payer": payer})
        assert (refused.status, words in str(refused)) == (403, True), refused
    idle = ada.refused({"profile": "quarter", "payer": "group:lab-b"})
    assert (idle.status, "lab-b does not pay" in str(idle)) == (403, True), idle
    ada.ask_start({"profile": "quarter", "payer": LAB}).raise_for_status()
    until(ada.ready, 60, "ada's server is ready")
    lease = ada.lease()
    assert (lease["account"], lease["holder"]["user"]) == (LAB, "ada")
    assert stack.admin.hub("DELETE", "/groups/lab-a/users", {"users": ["ada"]}).status_code == 200
    ada.stop()  # whoever leaves while a server runs: what the group began to pay it pays to the end
    bill = ada.settled(lease["id"])
    assert (bill["account"], bill["charged_micro_credits"] > 0) == (LAB, True)
    assert balance(stack, LAB) == 10_000_000 - bill["charged_micro_credits"]
    assert ada.available() == before
    assert ada.refused({"profile": "quarter", "payer": LAB}).status == 403
    stack.admin.hub("POST", "/groups/lab-a/users", {"users": ["ada"]}).raise_for_status()


def test_b2_a_member_lets_the_group_pay_by_the_form(stack: Stack) -> None:
    stack.run("grant", LAB, "10")
    bo, alone = stack.person("bo"), stack.add("dan")
    page = bo.browser.get("/hub/spawn").text
    assert 'name="payer"' in page
    assert "Group lab-a (" in page
    assert 'href="/services/berth/groups"' in page
    other = alone.browser.get("/hub/spawn").text
    assert 'name="payer"' not in other
    assert "/services/berth/groups" not in other
    image = bo.read("/profiles")["items"][0]["images"][0]
    form = {"profile": "quarter", "image": image, "payer": LAB}
    answer = bo.browser.post("/hub/spawn", params={"_xsrf": bo.xsrf}, data=form)
    assert answer.url.path != "/hub/spawn", answer.text
    until(bo.ready, 60, "bo's server is ready")
    lease = bo.lease()
    assert (lease["account"], bo.held(), lease["held_micro_credits"] > 0) == (LAB, 0, True)
    bo.stop()
    bo.settled(lease["id"])
    used = bo.read("/groups/lab-a/usage")
    charged = stack.admin.read(f"/accounts/{LAB}")["month_charged_micro_credits"]
    assert sum(each["charged_micro_credits"] for each in used["members"]) == used["charged_micro_credits"] == charged
    assert "Group lab-a" in bo.browser.get("/services/berth/groups").text
    assert 'href="/services/berth/groups"' in bo.browser.get("/services/berth/").text
    assert alone.berth("/groups/lab-a").status_code == 403
    assert bo.read("/me/usage", payer=LAB)["items"][0]["lease_id"] == lease["id"]
    refusal = alone.browser.post("/hub/spawn", params={"_xsrf": alone.xsrf}, data=form)
    assert "You may not charge the account" in refusal.text
    audit = json.loads(stack.run("audit", "--json"))
    assert audit["clean"], audit


def test_s17_s19_x09_a_removed_member_is_refused_without_a_new_log_in(stack: Stack) -> None:
    admin, member, like = stack.admin, stack.person("ada"), stack.add("lab-a")
    assert like.refused({"profile": "lab"}).status == 403  # a name like the group's grants nothing
    assert {item["name"] for item in like.read("/profiles")["items"]} == {"open", "quarter"}
    assert "lab" in {item["name"] for item in member.read("/profiles")["items"]}
    member.start("lab")
    member.stop()
    gone = admin.hub("DELETE", "/groups/lab-a/users", {"users": ["ada"]})
    assert gone.status_code == 200, gone.text
    refusal = member.refused({"profile": "lab"})
    assert refusal.status == 403
    assert "lead or an admin" in str(refusal)
    admin.ask_start(user="ada").raise_for_status()  # without options: the default of ada, not of the admin
    lease = member.lease()
    assert (lease["profile"], lease["account"], lease["requested_by"]) == ("open", "ada", "admin")
    stack.tidy()
