"""What every inventory of devices must do: one suite, run on the simulated one and on NVML over the shim."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from quota.leases import DeviceState
from spawner.fleet import describe, to_devices
from spawner.health import trouble
from spawner.ports import GpuReading, Inventory, Unreachable
from spawner.simulated import SimulatedInventory
from tests.integration.test_agent_signals import Gpus
from tests.shim.driver import Driver
from tests.shim.library import compiler

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SHIM = "nvml-over-shim" if compiler() else "nvml-over-shim-needs-a-C-compiler"


@pytest.fixture(params=["simulated", "fake-of-the-agent-tests", SHIM])
def inventory(request: pytest.FixtureRequest) -> Inventory:
    """An inventory of two devices."""
    if request.param == "simulated":
        return SimulatedInventory(2, seed="contract")
    if request.param == "fake-of-the-agent-tests":
        return Gpus()
    make: Callable[..., Driver] = request.getfixturevalue("driver")
    machine = make(name="healthy")
    assert machine.detect()
    return machine


def read(inventory: Inventory) -> tuple[GpuReading, ...]:
    readings = inventory.read()
    assert not isinstance(readings, Unreachable), readings.why
    return readings


def test_it_lists_every_device_once_in_order(inventory: Inventory) -> None:
    readings = read(inventory)
    assert [reading.position for reading in readings] == [0, 1]
    assert len({reading.uuid for reading in readings}) == 2
    assert all(reading.uuid and not reading.error and not reading.lost for reading in readings)


def test_identities_are_the_same_at_every_read(inventory: Inventory) -> None:
    first, second = ([(one.uuid, one.name, one.memory_mib) for one in read(inventory)] for _ in range(2))
    assert first == second


def test_uuids_may_stand_in_an_environment_variable(inventory: Inventory) -> None:
    assert all(reading.uuid.isascii() and "," not in reading.uuid for reading in read(inventory))
    assert all(reading.uuid == "".join(reading.uuid.split()) for reading in read(inventory))


def test_readings_are_sane_or_unknown(inventory: Inventory) -> None:
    for reading in read(inventory):
        assert reading.name
        assert reading.memory_mib is None or reading.memory_mib > 0
        assert reading.memory_used_mib is None or 0 <= reading.memory_used_mib <= (reading.memory_mib or 0)
        assert reading.utilisation is None or 0 <= reading.utilisation <= 100
        assert reading.temperature_c is None or 0 < reading.temperature_c < 150
        for process in reading.processes or ():
            assert process.pid > 0 and (process.memory_mib is None or process.memory_mib >= 0)


def test_nothing_is_held_against_a_device_that_is_well(inventory: Inventory) -> None:
    for reading in read(inventory):
        assert (trouble(reading), reading.events, reading.part) == ("", (), None)
        assert not reading.mig


def test_simulated_is_said_of_the_simulated_alone(inventory: Inventory) -> None:
    readings = read(inventory)
    assert {reading.simulated for reading in readings} == {inventory.simulated}
    assert {reading.uuid.startswith("SIM-") for reading in readings} == {inventory.simulated}
    devices = to_devices("here", readings, (), NOW)
    assert {"simulated" in describe(device).lower() for device in devices} == {inventory.simulated}


def test_its_devices_can_be_taken(inventory: Inventory) -> None:
    devices = to_devices("here", read(inventory), (), NOW)
    assert [(device.state, device.free, device.seen_at) for device in devices] == [(DeviceState.OK, 1000, NOW)] * 2
