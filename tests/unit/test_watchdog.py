"""Who is over their share of a device's memory, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Slot
from quota.units import MilliGpu
from spawner.ports import GpuProcess, GpuReading, MigPart
from spawner.watchdog import SAMPLES, Account, Excess, OverShare, Rule, Step, excess, step
from tests.fakes.clock import START
from tests.fakes.use import lease

QUARTER = lease(share=250, slots=(Slot("h", "GPU-1", MilliGpu(250)),))
WHOLE = lease(share=1000, slots=(Slot("h", "GPU-1", MilliGpu(1000)),))
OVER, WITHIN = Excess("GPU-1", 9000, 4000, True), Excess("GPU-1", 3000, 4000, False)
EVERY = timedelta(seconds=10)


def reading(*memory: int | None) -> GpuReading:
    programs = tuple(GpuProcess(pid, mib) for pid, mib in enumerate(memory, start=1))
    return GpuReading("GPU-1", 0, "NVIDIA A10", 16000, 0, 0, simulated=False, processes=programs)


def of(found: GpuReading, pids: set[int] | None, tolerance: int = 10) -> bool | None:
    seen = excess(QUARTER, {"GPU-1": found}, None if pids is None else frozenset(pids), tolerance)
    return None if seen is None else seen.over


@pytest.mark.parametrize(
    ("memory", "pids", "over"),
    [
        ((), {1}, False),
        ((4000,), {1}, False),
        ((4400,), {1}, False),
        ((4401,), {1}, True),
        ((4401,), {2}, False),
        ((2300, 2300), {1, 2}, True),
        ((2300, 2300), {1}, False),
        ((4401, None), {1, 2}, True),
        ((300, None), {1, 2}, None),
        ((300, None), {1}, False),
        ((4401,), None, None),
        ((16001,), {1}, None),
        ((9000, 9000), {1, 2}, None),
        ((-5, 9000), {1, 2}, None),
    ],
)
def test_p4_memory_is_summed_over_a_lease_s_programs(
    memory: tuple[int | None, ...], pids: set[int] | None, over: bool | None
) -> None:
    assert of(reading(*memory), pids) is over


def test_nobody_is_judged_who_cannot_be() -> None:
    hot = reading(15000)
    part = MigPart("GPU-1", "1g.5gb", 4, 7, 0, "MIG-1")
    for blind in (
        replace(hot, error="it hangs"),
        replace(hot, processes=None),
        replace(hot, memory_mib=None),
        replace(hot, part=part),
    ):
        assert of(blind, {1}) is None
    assert excess(QUARTER, {}, frozenset({1}), 10) is None
    assert excess(WHOLE, {"GPU-1": hot}, frozenset({1}), 10) is None, "all of it is its own"


def play(seen: list[Excess | None], policy: OverShare) -> list[Step]:
    account, done, now = Account(), [], START
    for each in seen:
        account, do = step(account, each, now, policy)
        done.append(do)
        now += EVERY
    return [do for do in done if do is not Step.NONE]


def test_steps_follow_each_other() -> None:
    policy = OverShare(patience=timedelta(seconds=60))
    assert play([OVER] * (SAMPLES - 1), policy) == []
    assert play([OVER] * (SAMPLES + 5), policy) == [Step.NOTICE]
    assert play([OVER] * (SAMPLES + 6), policy) == [Step.NOTICE, Step.STOP]
    assert play([OVER] * 100, policy) == [Step.NOTICE, Step.STOP]
    assert play([OVER] * 100, replace(policy, rule=Rule.NOTICE)) == [Step.NOTICE]
    assert play([OVER] * 100, replace(policy, rule=Rule.OFF)) == []
    assert play([OVER] * 3 + [WITHIN] * 3 + [OVER] * 3, policy) == [Step.NOTICE, Step.WITHIN, Step.NOTICE]
    assert play([OVER, OVER, WITHIN] * 30, policy) == [], "it gave back each time"
    assert play([OVER, None] * 3, policy) == [Step.NOTICE], "unknown neither accuses nor clears"


@given(st.lists(st.sampled_from([OVER, WITHIN, None]), max_size=60))
def test_nobody_is_stopped_untold_or_while_within(history: list[Excess | None]) -> None:
    account, now, told, hot = Account(), START, None, 0
    for seen in history:
        account, do = step(account, seen, now, OverShare())
        hot = hot if seen is None else hot + 1 if seen.over else 0
        if do in (Step.NOTICE, Step.STOP):
            assert hot >= SAMPLES
        if do is Step.STOP:
            assert told is not None and now - told >= OverShare().patience
        told = now if do is Step.NOTICE else None if do is Step.WITHIN else told
        now += EVERY
