"""Groups that pay, as service berth shows them: who may look, sums that equal the ledger, and the export."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quota.groups import Group
from tests.contract.service_reading import CREDIT, post, words
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import PREFIX, Service, open_service

LAB = "group:lab a"
PAGE = "groups/lab%20a"
SITES = [Group("lab a", ("lena",), pays=True), Group("lab-b"), Group("lab-c", pays=True)]


def offered(user: str, groups: frozenset[str]) -> set[str]:
    return {"cpu", "gpu-1-4"} if "lab a" in groups else {"cpu"}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """ada and bo are in a lab that pays, lena leads it, cy is in another group, dan has left the lab."""
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        desk.bank.ensure_account(LAB, "group")
        desk.bank.grant(LAB, 10 * CREDIT, "boss", note="spring course")
        async with open_service(desk, groups=SITES, offered=offered) as found:
            for name in ("ada", "bo", "lena", "cy", "dan"):
                found.hub.add_user(name)
            found.hub.add_user("boss", admin=True)
            found.hub.groups |= {"lab a": ["ada", "bo"], "lab-b": ["cy"]}
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


def use(desk: Desk) -> None:
    """A month of the lab: two members, somebody who left, and a session that a member paid alone."""
    for user, hours, share in (("ada", 2, 500), ("bo", 1, 250), ("ada", 1, 1000), ("dan", 1, 250)):
        desk.session(3600 * hours, user=user, share=share, account=LAB)
    desk.session(3600, user="ada", share=1000)


def api(service: Service, user: str) -> str:
    return next(
        token for token, model in service.hub.tokens.items() if model["name"] == user and model["kind"] == "user"
    )


async def test_b2_the_members_sums_make_the_ledgers(service: Service, desk: Desk) -> None:
    use(desk)
    answer = await service.api(api(service, "ada")).get(f"{PAGE}/usage")
    assert answer.status_code == 200, answer.text
    used = answer.json()
    charged = {each["user"]: each["charged_micro_credits"] for each in used["members"]}
    assert charged == {"ada": 2 * CREDIT, "bo": CREDIT // 4, "dan": CREDIT // 4}
    assert {each["user"]: each["member"] for each in used["members"]} == {"ada": True, "bo": True, "dan": False}
    ledger = desk.bank.account(LAB).month_charged
    assert sum(charged.values()) == used["charged_micro_credits"] == ledger == 2_500_000
    assert sum(item["charged_micro_credits"] for item in used["items"]) == ledger
    assert [item["user"] for item in used["items"]] == ["dan", "ada", "bo", "ada"]
    page = words(await service.browser("bo").get(PAGE))
    assert re.search(r"ada 2 2(\.00)? 2\.00", page), page[-900:]
    assert "dan not a member any more 1 0.25 0.25" in page
    assert "In all 2.50" in page
    assert "7.50 of 10.00 credits · spring course" in page
    assert desk.bank.audit() == []


async def test_b2_the_file_has_the_same_sum_and_says_who(service: Service, desk: Desk) -> None:
    use(desk)
    answer = await service.browser("lena").get(f"{PAGE}/usage.csv")
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="berth-lab-a-')
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["user"] for row in rows] == ["dan", "ada", "bo", "ada"]
    assert sum(float(row["credits"]) for row in rows) == 2.5


@pytest.mark.parametrize(("user", "status"), [("ada", 200), ("lena", 200), ("boss", 200), ("cy", 403), ("dan", 403)])
async def test_b2_a_groups_use_is_for_members_leads_and_admins(service: Service, user: str, status: int) -> None:
    client, browser = service.api(api(service, user)), service.browser(user)
    for path in (PAGE, f"{PAGE}/usage"):
        assert (await client.get(path)).status_code == status
    for path in (PAGE, f"{PAGE}/usage.csv"):
        assert (await browser.get(path)).status_code == status
    mine = [group["name"] for group in (await client.get("groups")).json()["items"]]
    assert mine == {"cy": [], "dan": [], "boss": ["lab a", "lab-c"]}.get(user, ["lab a"])
    for unknown in ("groups/lab-b", "groups/none"):
        assert (await client.get(unknown)).status_code == 404


async def test_b2_who_is_taken_out_may_not_look_any_more(service: Service) -> None:
    client = service.api(api(service, "bo"))
    assert (await client.get(PAGE)).json()["members"] == ["ada", "bo"]
    service.hub.groups["lab a"].remove("bo")
    assert (await client.get(PAGE)).status_code == 403, "with the same token, at once"


async def test_b2_the_link_is_for_those_who_have_a_group(service: Service) -> None:
    link = f'href="{PREFIX}groups"'
    for user, has in {"ada": True, "lena": True, "boss": True, "cy": False}.items():
        assert (link in (await service.browser(user).get("")).text) is has
    assert str((await service.browser("ada").get("groups")).url).endswith(f"{PREFIX}{PAGE}")
    assert "No group of yours pays" in words(await service.browser("cy").get("groups"))
    assert "lab-c" in words(await service.browser("boss").get("groups"))


async def test_b2_my_usage_and_the_receipt_say_who_paid(service: Service, desk: Desk) -> None:
    use(desk)
    running = desk.run("ada", "two", account=LAB)
    desk.clock.advance(3600)
    browser, client = service.browser("ada"), service.api(api(service, "ada"))
    page = words(await browser.get(""))
    assert "In all 1.00" in page, "what she paid herself"
    assert "Paid by the group lab a" in page
    assert "In all 2.50" in page, "and what the lab paid, up to now"
    assert "0.00 credits per hour 1 running" in page
    assert "Paid by the group lab a" in words(await browser.get(f"lease/{running.id}"))
    mine = (await client.get("me/usage")).json()
    labs = (await client.get("me/usage", params={"payer": LAB})).json()
    assert (mine["charged_micro_credits"], labs["charged_micro_credits"]) == (CREDIT, 2_500_000)
    assert {item["user"] for item in labs["items"]} == {"ada"}
    assert (await client.get("me/usage", params={"payer": "bo"})).status_code == 404
    me = (await client.get("me")).json()
    assert (me["leases"][0]["account"], me["burn_micro_credits_per_hour"]) == (LAB, 0)


async def test_b2_the_desk_grants_to_groups_that_pay_and_to_no_other(service: Service, desk: Desk) -> None:
    browser = service.browser("boss")
    page = (await browser.get("admin")).text
    assert 'data-account="group:lab-c"' in page
    assert 'data-account="group:lab-b"' not in page
    granted = await post(browser, "admin", "admin/grant", account="group:lab-c", credits="5")
    assert "Granted 5.00 credits to group:lab-c." in words(granted)
    limited = await post(browser, "admin", "admin/limits", account="group:lab-c", max_gpus="4")
    assert "4 GPUs" in words(limited)
    for account, why in {"group:lab-b": "does not pay", "group:none": "There is no group 'none'"}.items():
        assert why in words(await post(browser, "admin", "admin/grant", account=account, credits="5"))
    client = service.api(api(service, "boss"))
    assert (await client.post("accounts/group:lab-a/grants", json={"credits": "1"})).status_code == 404
    answer = await client.post("accounts/group:lab%20a/grants", json={"credits": "1"})
    assert (answer.status_code, answer.json()["account"]["kind"]) == (201, "group")
    assert desk.bank.account(LAB).available == 11 * CREDIT
    moved = await browser.get("usage", params={"account": LAB})
    assert str(moved.url).endswith(PAGE)
    desk.bank.ensure_account("group:gone", "group")
    assert "Usage of group:gone" in words(await browser.get("usage", params={"account": "group:gone"}))


async def test_b2_the_page_works_without_the_hub(service: Service, desk: Desk) -> None:
    use(desk)
    browser = service.browser("boss")
    await browser.get(PAGE)
    service.hub.down = True
    page = words(await browser.get(PAGE))
    assert "The Hub did not answer" in page
    assert "In all 2.50" in page


async def test_s17_the_list_of_profiles_is_what_is_open_to_who_asks(service: Service) -> None:
    async def names(user: str) -> list[str]:
        answer = await service.api(api(service, user)).get("profiles")
        return [item["name"] for item in answer.json()["items"]]

    assert await names("ada") == ["cpu", "gpu-1-4"]
    assert await names("cy") == ["cpu"]
    assert await names("boss") == ["cpu", "gpu-1-4", "test"], "who starts for others sees what there is"
    service.hub.groups["lab a"].remove("ada")
    assert await names("ada") == ["cpu"]
