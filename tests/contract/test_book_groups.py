"""Groups that pay: the account of a group carries leases of its members, and what a person holds is counted by person,
whoever pays. That somebody is a member is for the spawner to know; the book is told the payer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quota.bank import Limits
from quota.errors import Conflict, Reason, Refused
from quota.groups import Group, find_group, group_of, kind_of, payers_of
from quota.leases import Lease
from quota.units import CREDIT
from tests.fakes.book import Desk, asking, open_desk, place

LAB = "group:lab-a"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(4)
        opened.bank.ensure_account(LAB, "group")
        yield opened
        assert opened.bank.audit() == []


def refusal(call: Callable[[], object]) -> tuple[Reason, dict[str, object]]:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.reason, caught.value.facts


def available(desk: Desk, name: str) -> int:
    return int(desk.bank.account(name).available)


# ---- who pays --------------------------------------------------------------------------------------------------------


def test_b2_a_group_pays_for_its_members_and_they_keep_theirs(desk: Desk) -> None:
    desk.bank.grant(LAB, 10 * CREDIT, "admin")
    first, second = desk.session(3600, user="ada", share=1000, account=LAB), desk.session(7200, user="bo", account=LAB)
    own = desk.session(3600, user="ada", share=500)
    assert (first.account, first.charged, second.charged, own.account) == (LAB, CREDIT, CREDIT, "ada")
    assert available(desk, LAB) == 8 * CREDIT
    assert (available(desk, "ada"), available(desk, "bo")) == (99_500_000, 100 * CREDIT)
    lines = desk.bank.statement(LAB, first.requested_at, desk.now)
    assert sum(line.charged for line in lines) == desk.bank.account(LAB).month_charged == 2 * CREDIT


def test_b2_a_group_without_credit_is_told_by_its_name(desk: Desk) -> None:
    reason, facts = refusal(lambda: desk.reserve("ada", share=1000, account=LAB))
    assert (reason, facts) == (Reason.NO_CREDIT, {"needed": CREDIT // 4, "available": 0, "account": LAB})
    assert desk.book.live() == []
    desk.reserve("ada", share=1000)  # what the group lacks, she has


def test_b2_the_hold_stays_with_the_group_that_gave_it(desk: Desk) -> None:
    """Nothing that happens to the group or the user meanwhile moves the hold, its charges or what goes back."""
    desk.bank.grant(LAB, 5 * CREDIT, "admin")
    lease = desk.run("ada", share=1000, account=LAB)
    with pytest.raises(Conflict, match="has servers"):
        desk.bank.rename("ada", "ada2", by="admin")
    with pytest.raises(Conflict, match="has servers"):
        desk.bank.rename(LAB, "group:lab-b", by="admin")
    desk.bank.set_limits(LAB, {"max_servers": 0, "profiles": set()}, "admin")
    for _ in range(10):
        desk.clock.advance(360)
        lease = desk.book.meter(lease, desk.now).lease
    assert desk.end(lease).charged == CREDIT
    assert (available(desk, LAB), available(desk, "ada")) == (4 * CREDIT, 100 * CREDIT)
    assert desk.bank.refund(lease.id, None, "admin", "a fault") == CREDIT
    assert (available(desk, LAB), available(desk, "ada")) == (5 * CREDIT, 100 * CREDIT)


# ---- what is counted -------------------------------------------------------------------------------------------------


def test_b2_a_persons_servers_and_gpus_count_whoever_pays(desk: Desk) -> None:
    desk.bank.grant(LAB, 100 * CREDIT, "admin")
    desk.run("ada", "one", share=1000, account=LAB)
    desk.run("ada", "two", share=500)
    for payer in ("ada", LAB):
        reason, facts = refusal(lambda: desk.reserve("ada", "three", share=0, count=0, account=payer))  # noqa: B023
        assert (reason, facts) == (Reason.TOO_MANY_SERVERS, {"limit": 2, "held": 2})
    desk.bank.set_limits("ada", {"max_servers": None}, "admin")
    for payer in ("ada", LAB):
        reason, facts = refusal(lambda: desk.reserve("ada", "three", share=1000, account=payer))  # noqa: B023
        assert (reason, facts) == (Reason.TOO_MANY_GPUS, {"limit": 2000, "held": 1500, "asked": 1000})
    desk.run("bo", share=1000, account=LAB)


def test_b2_what_everybody_has_is_not_the_groups(desk: Desk) -> None:
    """Neither the monthly grant of new users nor their limits; what an admin sets for the group holds."""
    desk.bank.set_limits("*", {"max_servers": 1, "max_gpu_milli": 1000, "monthly_micro": 1}, "admin")
    assert desk.bank.limits(LAB) == desk.bank.account(LAB).limits == Limits()
    assert (desk.bank.monthly_grant(LAB), available(desk, LAB)) == (0, 0)
    desk.bank.grant(LAB, 10 * CREDIT, "admin")
    desk.reserve("ada", share=1000, account=LAB)
    desk.reserve("bo", share=1000, account=LAB)
    desk.bank.set_limits(LAB, {"max_gpu_milli": 2000, "profiles": {"test"}}, "admin")
    reason, facts = refusal(lambda: desk.reserve("cy", share=250, account=LAB))
    assert (reason, facts["account"], facts["held"]) == (Reason.TOO_MANY_GPUS, LAB, 2000)
    assert desk.bank.set_limits(LAB, {"max_gpu_milli": "inherit", "profiles": {"other"}}, "admin").max_gpu_milli is None
    reason, facts = refusal(lambda: desk.reserve("cy", share=250, account=LAB))
    assert (reason, facts["account"]) == (Reason.PROFILE_FORBIDDEN, LAB)


def test_b2_a_group_has_a_month_of_its_own(desk: Desk) -> None:
    desk.bank.set_monthly_grant(LAB, 3 * CREDIT, "admin")
    assert available(desk, LAB) == 3 * CREDIT
    desk.bank.set_limits(LAB, {"monthly_micro": CREDIT}, "admin")
    desk.bank.ensure_account("ada")
    desk.bank.set_limits("ada", {"monthly_micro": 0}, "admin")  # of what she pays herself
    desk.session(3600, user="ada", share=750, account=LAB)
    reason, facts = refusal(lambda: desk.reserve("bo", share=1000, hold_seconds=1800, account=LAB))
    assert (reason, facts["limit"], facts["account"]) == (Reason.MONTHLY_LIMIT, CREDIT, LAB)
    desk.clock.advance(31 * 86400)
    assert available(desk, LAB) == 3 * CREDIT, "the rest of the month before has expired"


# ---- two at once -----------------------------------------------------------------------------------------------------


def test_b2_n05_two_members_and_the_last_credit_of_their_group(desk: Desk) -> None:
    """Whoever is first gets it, the other is told; never both, never neither."""
    users = [f"user{number}" for number in range(6)]
    for user in users:
        desk.bank.ensure_account(user)
    desk.bank.grant(LAB, CREDIT // 4, "admin")  # one hold of a whole GPU

    def start(user: str) -> Lease | Reason:
        try:
            return desk.book.reserve(asking(user, share=1000, account=LAB), place)
        except Refused as refused:
            return refused.reason

    with ThreadPoolExecutor(len(users)) as pool:
        answers = list(pool.map(start, users))
    assert sorted(map(str, (each for each in answers if isinstance(each, Reason)))) == ["no-credit"] * 5
    (won,) = [each for each in answers if isinstance(each, Lease)]
    assert (won.account, won.held, available(desk, LAB)) == (LAB, CREDIT // 4, 0)


def test_b2_n05_one_person_with_two_payers_at_once_gets_no_more_than_their_limit(desk: Desk) -> None:
    desk.bank.ensure_account("ada")
    desk.bank.grant(LAB, 100 * CREDIT, "admin")
    desk.bank.set_limits("ada", {"max_servers": 1}, "admin")

    def start(number: int) -> Lease | Reason:
        try:
            payer = LAB if number % 2 else "ada"
            return desk.book.reserve(asking("ada", f"s{number}", share=250, account=payer), place)
        except Refused as refused:
            return refused.reason

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(start, range(6)))
    assert len([each for each in answers if isinstance(each, Lease)]) == 1
    assert answers.count(Reason.TOO_MANY_SERVERS) == 5


# ---- names -----------------------------------------------------------------------------------------------------------


def test_b2_only_groups_that_pay_are_payers() -> None:
    sites = [Group("lab-a", ("lead",), pays=True), Group("lab-b"), Group("lab-c", pays=True)]
    assert payers_of(sites, {"lab-a", "lab-b", "elsewhere"}) == (LAB,)
    assert payers_of(sites, ()) == ()
    assert (find_group(sites, LAB), find_group(sites, "lab-a")) == (sites[0], None)
    assert (group_of(LAB), group_of("lab-a"), kind_of(LAB), kind_of("ada")) == ("lab-a", None, "group", "user")
