"""The watchdog through a whole agent: real book, real pynvml over the shim, time of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from quota.leases import Lease, StopReason, Target
from quota.notices import NoticeKind
from spawner import devices
from spawner.watchdog_loop import EVENT
from tests.contract.test_inventory_agent import untouched
from tests.integration.agent_site import SimulatedSite, quick_folder, simulated_site
from tests.shim.driver import Driver

Make = Callable[..., Driver]
CARD = "device GPU-1 NVIDIA_A10 24576 20480 0"
HERS, HIS = 4194001, 4194002
LARGE = (CARD, f"process {HERS} compute 18000", f"process {HIS} compute 2000")
SMALL = (CARD, f"process {HERS} compute 6000", f"process {HIS} compute 2000")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Driver], SimulatedSite]]:
    monkeypatch.setattr(devices, "DEVICES_PATIENCE_S", 20.0)
    made: list[SimulatedSite] = []
    with quick_folder() as folder:

        def make(machine: object) -> SimulatedSite:
            made.append(simulated_site(folder, inventory=machine))
            return made[-1]

        yield make
        for world in made:
            world.close()


def two(world: SimulatedSite) -> tuple[Lease, Lease]:
    ada, bob = world.run("ada", share=500), world.run("bob", share=250)
    world.runtime.servers[ada.id].pids = frozenset({HERS})
    world.runtime.servers[bob.id].pids = frozenset({HIS})
    return ada, bob


def steps(world: SimulatedSite, lease: Lease) -> list[str]:
    events = [event for event in world.rows.events(lease_id=lease.id, limit=100) if event.kind == EVENT]
    return [event.detail["step"] for event in sorted(events, key=lambda event: event.id)]


def test_p4_who_takes_more_than_their_share_is_told_within_a_minute_and_then_stopped(
    driver: Make, site: Callable[[Driver], SimulatedSite]
) -> None:
    machine = driver(*SMALL)
    world = site(machine)
    ada, bob = two(world)
    world.live_for(60)
    assert steps(world, ada) == []
    machine.scenario(*LARGE)
    world.live_for(60)
    assert steps(world, ada) == ["notice"]
    (notice,) = [each for each in world.told.notices if each.kind is NoticeKind.OVER_SHARE]
    assert notice.user == "ada" and "18000 MiB" in notice.words and "12288 MiB" in notice.words
    assert untouched(world, ada)
    world.live_for(130)
    assert steps(world, ada) == ["notice", "stop"]
    assert world.now(ada).stop_reason is StopReason.OVER_SHARE
    assert untouched(world, bob) and steps(world, bob) == []


def test_an_agent_that_starts_anew_neither_forgives_nor_tells_twice(
    driver: Make, site: Callable[[Driver], SimulatedSite]
) -> None:
    machine = driver(*LARGE)
    world = site(machine)
    ada, _ = two(world)
    world.live_for(60)
    world.agent = world.new_agent("agent-2")
    world.live_for(50)
    assert steps(world, ada) == ["notice"]
    machine.scenario(*SMALL)
    world.live_for(60)
    assert steps(world, ada) == ["notice", "within"]
    assert world.now(ada).target is Target.RUN
