"""Reserving on a real book: entitlement, hold and placement are one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from quota.bank import INHERIT, Defaults
from quota.errors import BerthError, NotFound, Reason, Refused
from quota.leases import Device, DeviceState, Holder, LeaseRequest, Slot, State, StopReason, Target
from quota.units import MicroCredits, MilliGpu
from tests.fakes.book import BOOT, HOST, Desk, asking, open_desk, place


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(2)
        yield opened


def refusal(call: Callable[[], object]) -> tuple[Reason, dict[str, object]]:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.reason, caught.value.facts


def test_a_reservation_holds_room_and_credit_in_one_commit(desk: Desk) -> None:
    lease = desk.reserve("alice", share=500, profile="gpu-1-2", requested_by="admin")
    assert desk.book.lease(lease.id) == lease
    assert (lease.state, lease.target, lease.version) == (State.RESERVED, Target.RUN, 1)
    assert (lease.owner, lease.requested_by, lease.requested_at) == (BOOT, "admin", desk.now)
    assert lease.slots == (Slot(HOST, "SIM-h1-0", MilliGpu(500)),)
    assert lease.simulated
    assert lease.held == 125_000  # 15 minutes of half a GPU at one credit an hour
    view = desk.bank.account("alice")
    assert (view.held, view.available) == (125_000, 100_000_000 - 125_000)
    assert [device.used for device in desk.rows.devices()] == [500, 0]
    assert desk.rows.events(lease.id)[0].kind == "lease-reserved"


def test_a_refusal_leaves_no_trace(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    before = desk.bank.account("alice")

    def nowhere(devices: Sequence[Device], request: LeaseRequest) -> tuple[Slot, ...]:
        raise Refused(Reason.NO_ROOM, free=0)

    assert refusal(lambda: desk.book.reserve(asking(), nowhere)) == (Reason.NO_ROOM, {"free": 0})
    assert desk.bank.account("alice") == before
    assert desk.book.leases() == []


def test_x01_the_price_comes_from_what_was_allocated(desk: Desk) -> None:
    """Whatever a client calls its profile: a share of a GPU has the GPU's rate."""
    lease = desk.reserve("alice", share=1000, profile="cpu", image="zzz")
    assert lease.held == 250_000
    lease = desk.start(lease)
    desk.clock.advance(3600)
    assert desk.end(lease).charged == 1_000_000


@pytest.mark.parametrize(
    "slots",
    [
        (),
        (Slot(HOST, "SIM-h1-0", MilliGpu(125)),),
        (Slot(HOST, "SIM-h1-0", MilliGpu(500)), Slot(HOST, "SIM-h1-1", MilliGpu(500))),
        (Slot(HOST, "SIM-h1-9", MilliGpu(500)),),
    ],
    ids=["nothing", "another share", "too many", "an unknown device"],
)
def test_x01_no_placement_gives_other_than_what_is_priced(desk: Desk, slots: tuple[Slot, ...]) -> None:
    with pytest.raises(BerthError, match="placement"):
        desk.book.reserve(asking(share=500), lambda devices, request: slots)
    assert desk.book.leases() == []


def test_p03_no_placement_gives_a_device_twice(desk: Desk) -> None:
    desk.reserve("alice", share=1000)
    taken = Slot(HOST, "SIM-h1-0", MilliGpu(500))
    with pytest.raises(BerthError, match="has not 500 free"):
        desk.book.reserve(asking("bob"), lambda devices, request: (taken,))
    whole = Slot(HOST, "SIM-h1-1", MilliGpu(1000))
    with pytest.raises(BerthError, match="twice"):
        desk.book.reserve(asking("bob", share=1000, count=2), lambda devices, request: (whole, whole))


def test_a_cpu_lease_gets_no_device(desk: Desk) -> None:
    lease = desk.reserve("alice", share=0, count=0)
    assert (lease.held, lease.simulated, lease.weight) == (0, False, 0)
    assert lease.slots == (Slot(HOST, None, MilliGpu(0)),)
    some = Slot(HOST, "SIM-h1-0", MilliGpu(0))
    with pytest.raises(BerthError, match="CPU lease"):
        desk.book.reserve(asking("bob", share=0, count=0), lambda devices, request: (some,))


def test_ten_tenths_fit_and_no_eleventh(desk: Desk) -> None:
    desk.devices(1)
    for number in range(10):
        desk.reserve(f"user{number}", share=100)
    assert desk.rows.devices()[0].used == 1000
    assert refusal(lambda: desk.reserve("late", share=100))[0] is Reason.NO_ROOM


def test_several_whole_gpus(desk: Desk) -> None:
    lease = desk.reserve("alice", share=1000, count=2)
    assert (lease.weight, len(lease.slots), lease.held) == (2000, 2, 500_000)


@pytest.mark.parametrize("share", [-1, 1001, 10**9])
def test_a_bad_share_is_refused(desk: Desk, share: int) -> None:
    assert refusal(lambda: desk.reserve("alice", share=share))[0] is Reason.OPTION_INVALID


def test_a_new_user_starts_with_the_months_grant(desk: Desk) -> None:
    desk.reserve("newcomer")
    view = desk.bank.account("newcomer")
    assert [bucket.amount for bucket in view.buckets] == [100_000_000]


def test_only_ones_own_account_or_a_groups_can_pay(desk: Desk) -> None:
    desk.bank.ensure_account("bob")
    desk.bank.ensure_account("group:team", "group")
    for account in ("bob", "team", "nobody"):
        reason = refusal(lambda: desk.book.reserve(asking("alice", account=account), place))  # noqa: B023
        assert reason == (Reason.ACCOUNT_FORBIDDEN, {"account": account})
    # A user who is called like a group does not become the group.
    assert refusal(lambda: desk.reserve("group:team"))[0] is Reason.ACCOUNT_FORBIDDEN


def test_one_live_lease_a_server(desk: Desk) -> None:
    first = desk.run("alice")
    assert refusal(lambda: desk.reserve("alice")) == (Reason.ALREADY_HELD, {"lease": first.id, "state": "RUNNING"})
    desk.book.request_stop(first.id, StopReason.USER)
    assert refusal(lambda: desk.reserve("alice")) == (Reason.STOPPING, {"lease": first.id, "state": "RUNNING"})
    desk.wind_up(desk.book.acknowledge(first.id, BOOT))
    assert desk.reserve("alice").live


def test_limits_of_everybody_and_of_one(desk: Desk) -> None:
    desk.reserve("alice", "one")
    desk.reserve("alice", "two")
    too_many = (Reason.TOO_MANY_SERVERS, {"limit": 2, "held": 2})
    assert refusal(lambda: desk.reserve("alice", "three")) == too_many
    desk.bank.set_limits("alice", {"max_servers": None}, by="admin")
    desk.reserve("alice", "three")
    desk.bank.set_limits("alice", {"max_servers": INHERIT, "max_gpu_milli": 1500}, by="admin")
    assert refusal(lambda: desk.reserve("alice", "four"))[0] is Reason.TOO_MANY_SERVERS
    desk.bank.set_limits("*", {"max_servers": 9}, by="admin")
    facts = {"limit": 1500, "held": 1500, "asked": 500}
    assert refusal(lambda: desk.reserve("alice", "four")) == (Reason.TOO_MANY_GPUS, facts)
    desk.reserve("alice", "cpu", share=0, count=0)


def test_allowed_profiles(desk: Desk) -> None:
    desk.bank.set_limits("*", {"profiles": ["cpu"]}, by="admin")
    desk.bank.ensure_account("alice")
    assert refusal(lambda: desk.reserve("alice", profile="gpu-1-2"))[0] is Reason.PROFILE_FORBIDDEN
    desk.bank.set_limits("alice", {"profiles": None}, by="admin")
    assert desk.reserve("alice", profile="gpu-1-2").live


def test_the_months_limit(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    desk.bank.set_limits("alice", {"monthly_micro": 300_000}, by="admin")
    desk.session(1200, "alice", share=500)  # 166 667
    facts = {"limit": 300_000, "used": 166_667, "needed": 250_000}
    assert refusal(lambda: desk.reserve("alice", share=1000)) == (Reason.MONTHLY_LIMIT, facts)
    assert desk.reserve("alice", share=500).held == 125_000
    desk.clock.advance(31 * 86400)
    assert desk.reserve("alice", "next month", share=500).live


def test_no_credit_tells_what_is_needed_and_what_is_there(tmp_path: Path) -> None:
    with open_desk(tmp_path, defaults=Defaults(monthly_grant=MicroCredits(100_000))) as desk:
        desk.devices(1)
        facts = {"needed": 250_000, "available": 100_000}
        assert refusal(lambda: desk.reserve("alice", share=1000)) == (Reason.NO_CREDIT, facts)
        # The account is there all the same, so that an admin can grant.
        desk.bank.grant("alice", 150_000, by="admin")
        assert desk.reserve("alice", share=1000).live
        assert desk.reserve("alice", "free of charge", share=0, count=0).held == 0


def test_a_price_of_nothing_needs_no_balance(tmp_path: Path) -> None:
    free = Defaults(monthly_grant=MicroCredits(0), gpu_hour=MicroCredits(0))
    with open_desk(tmp_path, defaults=free) as desk:
        desk.devices(1)
        lease = desk.session(3600, share=1000)
        assert (lease.charged, lease.usage) == (0, 3_600_000)
        assert desk.bank.account("alice").buckets == ()
        assert desk.bank.audit() == []


def test_p14_devices_that_are_not_ok_have_no_room(desk: Desk) -> None:
    desk.rows.set_device_state("SIM-h1-0", DeviceState.QUARANTINED, "ECC errors", by="admin")
    assert desk.reserve("alice", share=1000).slots[0].device == "SIM-h1-1"
    assert refusal(lambda: desk.reserve("bob", share=1000))[0] is Reason.NO_ROOM


def test_a_price_plan_is_pinned_in_the_lease(desk: Desk) -> None:
    old = desk.run("alice", share=1000)
    plan = desk.bank.set_price(2_000_000, 0, by="admin")
    new = desk.run("bob", share=1000)
    assert (old.price.plan_id, new.price) == (1, plan)
    desk.clock.advance(3600)
    assert desk.end(old).charged == 1_000_000
    assert desk.end(new).charged == 2_000_000


def test_b04_stopping_one_of_three_frees_room_and_quota_in_one_transaction(tmp_path: Path) -> None:
    """3 x 50 of 150: servers, GPUs, credit and room are all used up; stop one, start one."""
    defaults = Defaults(monthly_grant=MicroCredits(150_000), max_servers=3, max_gpu_milli=1500)
    with open_desk(tmp_path, defaults=defaults) as desk:
        desk.devices(2)
        leases = [desk.reserve("alice", f"s{number}", hold_seconds=360) for number in range(3)]  # 50 000 each
        desk.reserve("bob")
        assert desk.bank.account("alice").available == 0
        assert refusal(lambda: desk.reserve("alice", "s3", hold_seconds=360))[0] is Reason.TOO_MANY_SERVERS
        desk.book.request_stop(leases[0].id, StopReason.USER)
        stopping = desk.book.acknowledge(leases[0].id, BOOT)
        assert refusal(lambda: desk.reserve("alice", "s3", hold_seconds=360))[0] is Reason.TOO_MANY_SERVERS
        desk.book.release(stopping)
        # Not settled yet, and room, servers, GPUs and credit are free all the same.
        assert desk.bank.account("alice").available == 50_000
        assert desk.reserve("alice", "s3", hold_seconds=360).live


def test_s19_an_admin_starts_for_somebody_else_and_that_one_pays(desk: Desk) -> None:
    lease = desk.reserve("alice", requested_by="admin")
    assert (lease.account, lease.requested_by) == ("alice", "admin")
    with pytest.raises(NotFound):
        desk.bank.account("admin")
    assert desk.rows.events(lease.id)[0].by == "admin"


def test_reads(desk: Desk) -> None:
    one = desk.reserve("alice", "one", share=125)
    desk.clock.advance(1)
    two = desk.reserve("alice", "two", share=125)
    desk.clock.advance(1)
    three = desk.reserve("bob", share=125)
    assert desk.book.live() == [three, two, one]
    assert desk.book.unsettled() == [three, two, one]
    assert desk.book.live_of(Holder("alice", "two")) == two
    assert desk.book.live_of(Holder("alice")) is None
    assert desk.book.leases("alice") == [two, one]
    assert desk.book.leases(limit=1) == [three]
    assert desk.book.leases(before=three.id, limit=1) == [two]
    assert desk.book.leases(before=two.requested_at) == [one]
    with pytest.raises(NotFound):
        desk.book.leases(before="l0")
    with pytest.raises(NotFound):
        desk.book.lease("l0")


def test_pages_of_leases_miss_none_of_the_same_moment(desk: Desk) -> None:
    made = {desk.reserve(f"user{number}", share=100).id for number in range(7)}
    seen: list[str] = []
    last = None
    while page := desk.book.leases(limit=2, before=last):
        seen += [lease.id for lease in page]
        last = page[-1].id
    assert len(seen) == 7
    assert set(seen) == made


def test_a_holder_may_come_back_after_a_month(desk: Desk) -> None:
    desk.session(10)
    desk.clock.advance(timedelta(days=40).total_seconds())
    assert desk.reserve().live
