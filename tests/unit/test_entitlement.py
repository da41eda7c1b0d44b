"""Who may have a lease: the first reason against it, with the numbers a message is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quota.entitlement import Earlier, Limits, Standing, check
from quota.errors import Reason, Refused
from quota.leases import Holder, LeaseRequest, State, Target
from quota.units import MicroCredits, MilliGpu

REQUEST = LeaseRequest(Holder("alice"), "alice", "gpu-1-2", "env", MilliGpu(500), 1, "boot", "alice")
CPU = replace(REQUEST, share=MilliGpu(0), count=0, profile="cpu")
FRESH = Standing(servers=0, gpu_milli=0, month_charged=0, held=0, available=1000)


def refusal(
    request: LeaseRequest = REQUEST, limits: Limits | None = None, standing: Standing = FRESH, hold: int = 100
) -> tuple[Reason, dict[str, object]]:
    with pytest.raises(Refused) as caught:
        check(request, limits or Limits(), standing, MicroCredits(hold))
    return caught.value.reason, caught.value.facts


def test_without_limits_and_with_credit_everything_goes() -> None:
    check(REQUEST, Limits(), FRESH, MicroCredits(1000))


def test_no_credit() -> None:
    assert refusal(hold=1001) == (Reason.NO_CREDIT, {"needed": 1001, "available": 1000})


@pytest.mark.parametrize("available", [0, -500])
def test_what_costs_nothing_needs_no_credit(available: int) -> None:
    check(CPU, Limits(monthly_micro=0), replace(FRESH, available=available), MicroCredits(0))


def test_too_many_servers() -> None:
    standing = replace(FRESH, servers=2)
    expected = (Reason.TOO_MANY_SERVERS, {"limit": 2, "held": 2})
    assert refusal(limits=Limits(max_servers=2), standing=standing) == expected
    assert refusal(CPU, Limits(max_servers=2), standing, 0) == expected
    check(REQUEST, Limits(max_servers=3), standing, MicroCredits(0))


def test_too_many_gpus() -> None:
    standing = replace(FRESH, gpu_milli=1600)
    facts = {"limit": 2000, "held": 1600, "asked": 500}
    assert refusal(limits=Limits(max_gpu_milli=2000), standing=standing) == (Reason.TOO_MANY_GPUS, facts)
    check(CPU, Limits(max_gpu_milli=1000), standing, MicroCredits(0))
    check(REQUEST, Limits(max_gpu_milli=2100), standing, MicroCredits(0))


def test_the_months_limit_counts_what_is_held_too() -> None:
    standing = replace(FRESH, month_charged=700, held=250)
    facts = {"limit": 1000, "used": 950, "needed": 100}
    assert refusal(limits=Limits(monthly_micro=1000), standing=standing) == (Reason.MONTHLY_LIMIT, facts)
    check(REQUEST, Limits(monthly_micro=1050), standing, MicroCredits(100))


def test_a_forbidden_profile_tells_the_allowed_ones() -> None:
    limits = Limits(profiles=frozenset({"gpu-1-4", "cpu"}))
    assert refusal(limits=limits) == (Reason.PROFILE_FORBIDDEN, {"profile": "gpu-1-2", "allowed": "cpu, gpu-1-4"})
    assert refusal(limits=Limits(profiles=frozenset()))[1]["allowed"] == "none"


@pytest.mark.parametrize(
    ("target", "reason"), [(Target.RUN, Reason.ALREADY_HELD), (Target.STOP, Reason.STOPPING)], ids=["runs", "stops"]
)
def test_one_live_lease_a_holder(target: Target, reason: Reason) -> None:
    standing = replace(FRESH, earlier=Earlier("l1", State.RUNNING, target))
    assert refusal(standing=standing) == (reason, {"lease": "l1", "state": "RUNNING"})


@pytest.mark.parametrize(
    ("share", "count"),
    [(-1, 1), (0, 1), (500, 0), (1001, 1), (10**9, 1), (500, 2), (1000, -1), (-500, -1), (1000, 0)],
)
def test_x01_a_share_that_no_device_can_give_is_refused(share: int, count: int) -> None:
    reason, facts = refusal(replace(REQUEST, share=MilliGpu(share), count=count))
    assert (reason, facts["share"], facts["count"]) == (Reason.OPTION_INVALID, share, count)


def test_a_negative_hold_is_refused() -> None:
    assert refusal(replace(REQUEST, hold_seconds=-1))[0] is Reason.OPTION_INVALID
