"""Simulated devices: stable, distinct, and never taken for real ones."""

from __future__ import annotations

import pytest

from spawner.simulated import MEMORY_MIB, PREFIX, SimulatedInventory


def uuids(count: int, seed: str) -> list[str]:
    return [reading.uuid for reading in SimulatedInventory(count, seed=seed).read()]


def test_the_seed_alone_makes_the_uuids() -> None:
    assert uuids(2, "folder") == uuids(2, "folder")
    assert uuids(4, "folder")[:2] == uuids(2, "folder")
    assert not set(uuids(8, "folder")) & set(uuids(8, "other"))
    assert len(set(uuids(64, "folder"))) == 64


def test_they_say_simulated_everywhere() -> None:
    inventory = SimulatedInventory()
    assert inventory.simulated
    for reading in inventory.read():
        assert reading.simulated
        assert reading.uuid.startswith(PREFIX)
        assert "simulated" in reading.name


def test_they_have_memory_and_measure_nothing() -> None:
    for reading in SimulatedInventory(2).read():
        assert reading.memory_mib == MEMORY_MIB
        assert (reading.memory_used_mib, reading.utilisation, reading.error) == (None, None, "")


def test_two_by_default_and_none_if_wanted() -> None:
    assert len(SimulatedInventory().read()) == 2
    assert SimulatedInventory(0).read() == ()


@pytest.mark.parametrize("count", [-1, 1025])
def test_an_absurd_number_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="is not a number of simulated GPUs"):
        SimulatedInventory(count)
    with pytest.raises(ValueError, match="amount of memory"):
        SimulatedInventory(1, memory_mib=0)
