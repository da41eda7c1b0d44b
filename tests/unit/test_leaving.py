"""The one way out: for every reason there is, how long a server may save, and when it may be ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quota import leaving
from quota.leases import Holder, Lease, Price, Slot, State, StopReason, Target
from quota.leaving import Graces, grace, has_work, hastened, may_take_back, stop_after, wait_until
from quota.reported import Farewell
from quota.units import MicroCredits, MilliGpu

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
AUTOMATIC, BY_HAND, NONE = timedelta(minutes=2), timedelta(seconds=15), timedelta(0)
GRACES = Graces(AUTOMATIC, BY_HAND)
KERNEL = {"kernels": [{"id": "k", "busy": False}], "terminals": 0}
QUIET: dict[str, Any] = {"kernels": [], "terminals": 0}

#: What a kit with something to save is given, one that has been silent for a minute, and one that has nothing.
GIVEN: dict[StopReason, tuple[timedelta, timedelta]] = {
    StopReason.USER: (BY_HAND, NONE),
    StopReason.ADMIN: (BY_HAND, NONE),
    StopReason.PLATFORM: (BY_HAND, NONE),
    StopReason.SHUTDOWN: (AUTOMATIC, AUTOMATIC),
    StopReason.IDLE: (AUTOMATIC, AUTOMATIC),
    StopReason.MAX_AGE: (AUTOMATIC, AUTOMATIC),
    StopReason.QUOTA: (AUTOMATIC, AUTOMATIC),
    StopReason.PREEMPTED: (AUTOMATIC, AUTOMATIC),
    StopReason.WINDOW_END: (AUTOMATIC, AUTOMATIC),
    StopReason.RESIZE: (AUTOMATIC, AUTOMATIC),
    StopReason.PARK: (AUTOMATIC, AUTOMATIC),
    StopReason.OVER_SHARE: (AUTOMATIC, AUTOMATIC),
    StopReason.GPU_LOST: (AUTOMATIC, AUTOMATIC),
    StopReason.DRAIN: (AUTOMATIC, AUTOMATIC),
    StopReason.NO_SHOW: (NONE, NONE),
    StopReason.LEAK: (NONE, NONE),
    StopReason.FAILED: (NONE, NONE),
}


def stopping(reason: StopReason = StopReason.IDLE, after: timedelta | None = AUTOMATIC, **more: Any) -> Lease:
    lease = Lease(
        "l1", 3, State.RUNNING, Target.STOP, Holder("alice"), 1, "alice", "gpu-1", "env", MilliGpu(1000), 1,
        (Slot("h", "GPU-0", MilliGpu(1000)),), False, Price(1, MicroCredits(1), MicroCredits(0)), "hub-1", NOW, "alice",
        started_at=NOW, stop_reason=reason, stop_after=None if after is None else NOW + after,
    )  # fmt: skip
    return replace(lease, **more)


def saying(done_s: float | None = None) -> Farewell:
    done = None if done_s is None else NOW + timedelta(seconds=done_s)
    return Farewell(NOW, NOW, done, {})


@pytest.mark.parametrize("reason", StopReason)
def test_i09_every_reason_goes_the_one_way(reason: StopReason) -> None:
    fresh, silent = GIVEN[reason]
    assert grace(reason, (NOW - timedelta(seconds=5), KERNEL), NOW, GRACES) == fresh
    assert grace(reason, (NOW - timedelta(seconds=60), KERNEL), NOW, GRACES) == silent
    assert grace(reason, (NOW - timedelta(seconds=5), QUIET), NOW, GRACES) == NONE
    assert grace(reason, None, NOW, GRACES) == NONE, "no kit ever spoke: nobody could save"
    assert stop_after(reason, (NOW, KERNEL), NOW, GRACES) == NOW + fresh
    lease = stopping(reason, fresh)
    until = NOW + fresh if fresh else None
    assert wait_until(lease, None, NOW) == wait_until(lease, saying(), NOW) == until
    assert wait_until(lease, saying(1), NOW + timedelta(seconds=1)) is None
    assert wait_until(lease, None, NOW + fresh) is None, "whatever the kit says or does not say"


@pytest.mark.parametrize(
    ("payload", "work"),
    [
        (QUIET, False),
        (KERNEL, True),
        ({**QUIET, "terminals": 1}, True),
        ({**QUIET, "children": 1}, True),
        ({**QUIET, "unsaved": 2}, True),
        ({}, False),
        ({"kernels": None, "terminals": None, "unsaved": "x"}, False),
    ],
)
def test_what_a_kit_has_to_save(payload: dict[str, Any], work: bool) -> None:
    assert has_work(payload) is work


def test_only_a_running_server_that_is_to_stop_is_waited_for() -> None:
    for state in (State.RESERVED, State.STARTING, State.STOPPING, State.RELEASED, State.SETTLED):
        assert wait_until(stopping(state=state), None, NOW) is None
    assert wait_until(stopping(target=Target.RUN, stop_reason=None, stop_after=None), None, NOW) is None
    assert wait_until(stopping(after=None), None, NOW) is None


def test_a_kit_that_is_done_makes_its_server_due_and_none_later() -> None:
    lease, other = stopping(), replace(stopping(), id="l2")
    (found, same) = hastened([lease, other], {"l1": saying(7), "l2": saying()})
    assert found == replace(lease, stop_after=NOW + timedelta(seconds=7)) and same is other
    late = stopping(after=timedelta(seconds=5))
    assert hastened([late], {"l1": saying(7)}) == [late]
    running = stopping(target=Target.RUN, stop_reason=None, stop_after=None)
    assert hastened([running], {"l1": saying(7)}) == [running]


@pytest.mark.parametrize("reason", StopReason)
def test_only_stops_for_want_of_use_are_taken_back_by_use(reason: StopReason) -> None:
    taken = reason in (StopReason.IDLE, StopReason.SHUTDOWN)
    assert may_take_back(stopping(reason), saying(), NOW) is taken
    interrupted = NOW + AUTOMATIC - leaving.INTERRUPTS
    assert not may_take_back(stopping(reason), saying(), interrupted)
    assert not may_take_back(stopping(reason), saying(1), NOW)
    assert not may_take_back(stopping(reason, BY_HAND), None, NOW)
