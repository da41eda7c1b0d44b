"""Strangers and ghosts through a whole agent: real book, real pynvml over the shim, time of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quota.errors import Refused
from quota.leases import DeviceState
from spawner import devices
from tests.contract.test_inventory_agent import alerts, rows, untouched
from tests.integration.agent_site import HOST, SimulatedSite, quick_folder, simulated_site
from tests.shim.driver import Driver

Make = Callable[..., Driver]
CARD = "device GPU-1 NVIDIA_A10 24576 0 0"
FULL = "device GPU-1 NVIDIA_A10 24576 9216 0"
FOREIGN = "process 4194000 compute 8192"  # beyond the pids that a machine of the tests gives out
MINE = "process 4194001 compute 4096"
STRANGER, GHOST = f"gpu-stranger:{HOST}", f"gpu-ghost:{HOST}"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Driver], SimulatedSite]]:
    monkeypatch.setattr(devices, "DEVICES_PATIENCE_S", 20.0)
    made: list[SimulatedSite] = []
    with quick_folder() as folder:

        def make(inventory: object, where: Path = folder) -> SimulatedSite:
            made.append(simulated_site(where, inventory=inventory))
            return made[-1]

        yield make
        for world in made:
            world.close()


def test_q07_a_stranger_keeps_its_device_out_until_it_has_ended(
    driver: Make, site: Callable[..., SimulatedSite]
) -> None:
    machine = driver(FULL, FOREIGN)
    world = site(machine)
    world.live_for(1)
    assert rows(world)["GPU-1"].state is DeviceState.OK, "one look says nothing"
    world.live_for(20)
    assert rows(world)["GPU-1"].state is DeviceState.SUSPECT
    assert "pid 4194000" in rows(world)["GPU-1"].why
    assert "pid 4194000" in alerts(world)[STRANGER].words
    with pytest.raises(Refused):
        world.reserve(share=500)
    world.agent = world.new_agent("agent-2")
    world.live_for(1)
    assert rows(world)["GPU-1"].state is DeviceState.SUSPECT, "an agent that starts anew does not give it out"
    machine.scenario(CARD)
    world.live_for(6)
    assert (rows(world)["GPU-1"].state, alerts(world)) == (DeviceState.OK, {})
    world.reserve(share=500)


def test_a_stranger_beside_a_lease_is_told_from_its_programs(driver: Make, site: Callable[..., SimulatedSite]) -> None:
    machine = driver(CARD)
    world = site(machine)
    lease = world.run(share=500)
    world.runtime.servers[lease.id].pids = frozenset({4194001})
    machine.scenario(FULL, MINE)
    world.live_for(40)
    assert (rows(world)["GPU-1"].state, alerts(world)) == (DeviceState.OK, {})
    machine.scenario(FULL, MINE, FOREIGN)
    world.live_for(30)
    assert "4194000" in rows(world)["GPU-1"].why and "4194001" not in rows(world)["GPU-1"].why
    assert untouched(world, lease), "who holds it goes on"
    world.runtime.outage = "it does not answer"
    world.live_for(30)
    assert rows(world)["GPU-1"].state is DeviceState.SUSPECT
    world.runtime.outage = ""
    world.runtime.servers[lease.id].pids = None
    world.live_for(30)
    assert rows(world)["GPU-1"].state is DeviceState.SUSPECT, "what nobody can tell takes nothing back"


def test_programs_of_leases_that_do_not_tell_their_pids_are_no_strangers(
    driver: Make, site: Callable[..., SimulatedSite]
) -> None:
    machine = driver(CARD)
    world = site(machine)
    world.run(share=500)
    machine.scenario(FULL, MINE, FOREIGN)
    world.live_for(40)
    assert (rows(world)["GPU-1"].state, alerts(world)) == (DeviceState.OK, {})


def test_memory_that_stays_after_a_stop_keeps_its_device_out(driver: Make, site: Callable[..., SimulatedSite]) -> None:
    machine = driver(FULL, MINE)
    world = site(machine)
    lease = world.run(share=500)
    world.runtime.servers[lease.id].pids = frozenset({4194001})
    world.live_for(20)
    world.runtime.end(lease.id)
    machine.scenario(FULL)
    world.live_for(3)
    assert rows(world)["GPU-1"].state is DeviceState.OK
    world.live_for(25)
    assert rows(world)["GPU-1"].state is DeviceState.SUSPECT
    assert "9216 MiB" in alerts(world)[GHOST].words and "nvidia-smi -r" in alerts(world)[GHOST].words
    machine.scenario(CARD)
    world.live_for(6)
    assert (rows(world)["GPU-1"].state, alerts(world)) == (DeviceState.OK, {})
