"""Programs and memory on a device that no lease of it put there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawner.ports import GpuProcess, GpuReading
from spawner.strangers import LOOKS, Owners, Suspicion, ghost_words, look, outsiders, stranger_words

WELL = GpuReading("GPU-1", 0, "NVIDIA A100", 40960, 0, 0, simulated=False, processes=())
ONE = replace(WELL, processes=(GpuProcess(7, 512), GpuProcess(9, 64, graphics=True)))
FREE = Owners()
HELD = Owners({"GPU-1": frozenset({"l-a", "l-b"})}, {"l-a": frozenset({7}), "l-b": frozenset({8})})
NOT_TOLD = Owners(HELD.holders, {"l-a": frozenset({7})})


def nobody(pid: int) -> tuple[str, str]:
    return "", ""


def after(reading: GpuReading, owners: Owners, looks: int, before: Suspicion | None = None) -> Suspicion:
    seen = before or Suspicion()
    for _ in range(looks):
        seen = look(seen, reading, owners, nobody)
    return seen


@pytest.mark.parametrize(
    ("pids", "owners", "found"),
    [
        ((), FREE, set()),
        ((7,), FREE, {7}),
        ((7,), HELD, set()),
        ((7, 8), HELD, set()),
        ((7, 5), HELD, {5}),
        ((7, 5), NOT_TOLD, None),
        ((7,), Owners({"GPU-2": frozenset({"l-a"})}, {"l-a": frozenset({7})}), {7}),
    ],
)
def test_whose_programs_they_are(pids: tuple[int, ...], owners: Owners, found: set[int] | None) -> None:
    assert outsiders(replace(WELL, processes=tuple(GpuProcess(pid, 1) for pid in pids)), owners) == found


def test_a_list_that_the_driver_does_not_give_says_nothing() -> None:
    assert outsiders(replace(ONE, processes=None), FREE) is None
    assert outsiders(replace(ONE, error="it hangs"), FREE) is None


def test_a_stranger_is_one_that_stays() -> None:
    assert after(ONE, FREE, LOOKS - 1).strangers == []
    seen = after(ONE, FREE, LOOKS)
    assert seen.strangers == [7], "what draws pictures is none"
    assert "(pid 7, python of ada)" in stranger_words(seen, lambda pid: ("python", "ada"))
    assert "(pid 7)" in stranger_words(seen, nobody)
    assert after(WELL, FREE, 1, seen).strangers == [], "it clears by itself"
    other = replace(WELL, processes=(GpuProcess(6, 1),))
    assert after(other, FREE, LOOKS - 1, seen).strangers == [], "each program is counted for itself"


def test_what_nobody_can_tell_keeps_a_stranger_and_makes_none() -> None:
    both = replace(WELL, processes=(GpuProcess(7, 1), GpuProcess(5, 1)))
    assert after(both, NOT_TOLD, 10 * LOOKS).strangers == []
    seen = after(both, HELD, LOOKS)
    assert seen.strangers == [5]
    assert after(both, NOT_TOLD, 3, seen).strangers == [5]
    assert after(replace(both, error="it hangs"), HELD, 3, seen).strangers == [5]
    assert after(WELL, NOT_TOLD, 1, seen).strangers == []


def test_a_daemon_that_computes_for_others_is_no_stranger() -> None:
    seen = Suspicion()
    for _ in range(LOOKS):
        seen = look(seen, ONE, FREE, lambda pid: ("nvidia-cuda-mps-server"[:15], "root"))
    assert seen.strangers == []


def test_a_device_that_was_out_stays_out_until_it_is_seen_clean() -> None:
    assert look(None, ONE, FREE, nobody, was_out=True).strangers == [7]
    assert look(None, ONE, FREE, nobody).strangers == []
    assert look(None, replace(WELL, memory_used_mib=9000), FREE, nobody, was_out=True).haunted


@pytest.mark.parametrize(
    ("reading", "owners", "haunted"),
    [
        (replace(WELL, memory_used_mib=9000), FREE, True),
        (replace(WELL, memory_used_mib=500), FREE, False),
        (replace(WELL, memory_used_mib=9000), HELD, False),
        (replace(WELL, memory_used_mib=9000, processes=None), FREE, False),
        (replace(ONE, memory_used_mib=9000), FREE, False),
        (replace(WELL, memory_used_mib=None), FREE, False),
        (replace(WELL, memory_used_mib=2**40), FREE, False),
        (replace(WELL, memory_used_mib=9000, memory_mib=None), FREE, False),
        (replace(WELL, memory_used_mib=9000, mig=True), FREE, False),
    ],
)
def test_memory_that_nobody_holds(reading: GpuReading, owners: Owners, haunted: bool) -> None:
    assert not after(reading, owners, LOOKS - 1).haunted
    seen = after(reading, owners, LOOKS)
    assert seen.haunted == haunted
    assert bool(ghost_words(seen, reading)) == haunted
    assert not after(replace(WELL, memory_used_mib=0), owners, 1, seen).haunted


@given(st.lists(st.sets(st.integers(1, 5), max_size=4), max_size=30))
def test_strangers_are_those_of_the_last_looks(history: list[set[int]]) -> None:
    seen = Suspicion()
    for pids in history:
        seen = look(seen, replace(WELL, processes=tuple(GpuProcess(pid, 1) for pid in pids)), FREE, nobody)
    last = history[-LOOKS:]
    expected = sorted(set.intersection(*last)) if len(last) == LOOKS else []
    assert seen.strangers == expected
