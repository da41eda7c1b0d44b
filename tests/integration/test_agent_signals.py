"""What the agent writes of load and devices, and how it bears trouble, on a fake clock with the real book."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from quota.leases import DeviceState, State
from quota.vitals import from_note
from spawner.agent import AgentPolicy
from spawner.ports import GpuReading, Unreachable
from tests.integration.agent_site import HOST, SimulatedSite, quick_folder, simulated_site

SECOND = timedelta(seconds=1)


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


@pytest.fixture
def world(folder: Path) -> Iterator[SimulatedSite]:
    site = simulated_site(folder)
    yield site
    site.close()


# ---- signals and samples ---------------------------------------------------------------------------------------


def test_the_host_signal_tells_when_the_server_last_computed(world: SimulatedSite) -> None:
    lease = world.run()
    world.live_for(1)
    assert world.rows.signals(lease.id)["host"][1]["cpu_percent"] is None, "one reading says nothing"
    world.runtime.servers[lease.id].cpu_seconds = 8.0
    world.live_for(10)
    at, host = world.rows.signals(lease.id)["host"]
    assert host["cpu_percent"] == pytest.approx(80) and host["window_s"] == 10
    busy_at = host["cpu_active_at"]
    assert busy_at == at.isoformat() == world.clock.now().isoformat()
    world.runtime.servers[lease.id].cpu_seconds = 8.2
    world.live_for(10)
    host = world.rows.signals(lease.id)["host"][1]
    assert host["cpu_percent"] == pytest.approx(2) and host["cpu_active_at"] == busy_at
    sample = world.rows.samples()[lease.id]
    assert (sample.cpu_seconds, sample.memory_mib, sample.gpu_util) == (8.2, 100, None)


def test_a_restart_of_the_agent_neither_hides_use_nor_makes_any_up(world: SimulatedSite) -> None:
    lease = world.run()
    world.live_for(21)
    before = world.rows.signals(lease.id)["host"][1]["cpu_active_at"]
    world.agent = world.new_agent("agent-2")
    world.live_for(11)
    assert world.rows.signals(lease.id)["host"][1]["cpu_active_at"] == before
    world.runtime.servers[lease.id].cpu_seconds += 1.0
    world.clock.advance(600)
    world.agent = world.new_agent("agent-3")
    world.live_for(1)
    host = world.rows.signals(lease.id)["host"][1]
    assert host["cpu_active_at"] == world.clock.now().isoformat(), "it may all have been used a moment ago"


def test_a_load_that_nobody_can_tell_is_null(world: SimulatedSite) -> None:
    lease = world.run()
    world.live_for(20)
    world.runtime.servers[lease.id].cpu_seconds = None  # type: ignore[assignment]
    world.live_for(10)
    host = world.rows.signals(lease.id)["host"][1]
    assert host["cpu_percent"] is None and host["window_s"] is None
    world.runtime.servers[lease.id].cpu_seconds = 0.0
    world.live_for(10)
    at, host = world.rows.signals(lease.id)["host"]
    assert host["cpu_active_at"] == at.isoformat(), "use in between cannot be ruled out"


def test_the_host_signal_tells_what_was_read_and_written_and_how_many_run(world: SimulatedSite) -> None:
    lease = world.run()
    world.live_for(1)
    assert world.rows.signals(lease.id)["host"][1]["io_bytes_per_s"] is None, "one reading says nothing"
    server = world.runtime.servers[lease.id]
    server.io_bytes, server.processes = 10 * 64 * 1024 + 1, 3
    world.live_for(10)
    host = world.rows.signals(lease.id)["host"][1]
    assert host["io_bytes_per_s"] == pytest.approx(64 * 1024, rel=1e-3) and host["processes"] == 3
    busy_at = host["io_active_at"]
    assert busy_at == world.clock.now().isoformat()
    server.io_bytes += 10 * 64 * 1024
    world.live_for(10)
    host = world.rows.signals(lease.id)["host"][1]
    assert host["io_active_at"] == busy_at, "no more than what is nothing"
    world.agent = world.new_agent("agent-2")
    server.io_bytes += 1
    world.live_for(11)
    assert world.rows.signals(lease.id)["host"][1]["io_active_at"] == busy_at, "a restart makes no use up"
    server.io_bytes = None
    world.live_for(10)
    host = world.rows.signals(lease.id)["host"][1]
    assert (host["io_bytes_per_s"], host["io_bytes"]) == (None, None)
    assert host["cpu_percent"] == 0, "the other number is still known"


def test_a_simulated_device_has_no_utilisation_of_its_own(world: SimulatedSite) -> None:
    lease = world.run(share=1000)
    world.live_for(11)
    gpu = world.rows.signals(lease.id)["gpu"][1]
    assert (gpu["util"], gpu["memory_used_mib"], gpu["simulated"], gpu["reason"]) == (None, None, True, "simulated")
    cpu_only = world.run("bob", 0)
    world.live_for(11)
    assert "gpu" not in world.rows.signals(cpu_only.id)


class Gpus:
    """Two devices that say what they are told."""

    simulated = False

    def __init__(self) -> None:
        self.answer: tuple[GpuReading, ...] | Unreachable = tuple(
            GpuReading(f"GPU-{n}", n, "NVIDIA A10", 24576, 0, 0, simulated=False) for n in range(2)
        )
        self.hang: threading.Event | None = None

    def set(self, position: int, **changes: object) -> None:
        assert not isinstance(self.answer, Unreachable)
        self.answer = tuple(
            replace(reading, **changes) if reading.position == position else reading  # type: ignore[arg-type]
            for reading in self.answer
        )

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        if self.hang is not None:
            self.hang.wait(30)
        return self.answer


def test_the_gpu_signal_is_that_of_all_devices_of_the_lease(folder: Path) -> None:
    gpus = Gpus()
    world = simulated_site(folder, inventory=gpus)
    lease = world.run(share=1000, count=2)
    world.live_for(11)
    quiet_since = world.rows.signals(lease.id)["gpu"][1]["active_at"]
    gpus.set(0, memory_used_mib=100)
    gpus.set(1, memory_used_mib=7)
    world.live_for(20)
    gpu = world.rows.signals(lease.id)["gpu"][1]
    assert (gpu["util"], gpu["memory_used_mib"], gpu["active_at"]) == (0, 107, quiet_since)
    gpus.set(1, utilisation=63)
    world.live_for(15)
    gpu = world.rows.signals(lease.id)["gpu"][1]
    assert gpu["util"] == 63 and gpu["active_at"] > quiet_since
    gpus.set(0, utilisation=None)
    world.live_for(15)
    gpu = world.rows.signals(lease.id)["gpu"][1]
    assert (gpu["util"], gpu["reason"]) == (None, "unknown")
    world.close()


def test_a_blind_inventory_keeps_the_rows_and_makes_utilisation_unknown(folder: Path) -> None:
    gpus = Gpus()
    world = simulated_site(folder, inventory=gpus)
    lease = world.run(share=1000)
    world.live_for(11)
    gpus.answer = Unreachable("the driver does not answer")
    world.live_for(30)
    for device in world.rows.devices():
        assert (device.name, device.memory_mib) == ("NVIDIA A10", 24576)
        assert (device.state, device.why) == (DeviceState.SUSPECT, "the driver does not answer")
    assert world.rows.signals(lease.id)["gpu"][1]["util"] is None
    assert world.now(lease).state is State.RUNNING
    world.close()


def test_devices_that_hang_do_not_keep_a_server_from_being_looked_after(folder: Path) -> None:
    gpus = Gpus()
    world = simulated_site(folder, inventory=gpus)
    lease = world.run(share=1000)
    world.live_for(6)
    gpus.hang = threading.Event()
    world.clock.advance(6)
    world.runtime.end(lease.id, 0)
    world.live_for(4)
    assert world.now(lease).state is State.SETTLED
    gpus.hang.set()
    world.close()


def test_a_drained_device_can_be_taken_back_into_service(world: SimulatedSite) -> None:
    world.live_for(1)
    uuid = world.rows.devices()[0].uuid
    world.rows.set_device_state(uuid, DeviceState.DRAINING, "maintenance")
    world.live_for(12)
    assert world.rows.devices()[0].state is DeviceState.DRAINING
    world.rows.set_device_state(uuid, DeviceState.OK, "")
    world.live_for(6)
    assert world.rows.devices()[0].state is DeviceState.OK


# ---- the agent itself ------------------------------------------------------------------------------------------


def test_the_agents_own_heartbeat_tells_of_its_last_good_cycle(world: SimulatedSite) -> None:
    world.live_for(6)
    good = world.clock.now()
    world.runtime.outage = "the engine does not answer"
    world.live_for(6)
    (beat,) = world.rows.boots("agent")
    assert (beat.boot, beat.host, beat.beat_at) == ("agent-1", HOST, world.clock.now() - 1 * SECOND)
    assert from_note(beat.note).words == f"last good cycle: {good.isoformat()}; the engine does not answer"


def test_a_lease_in_trouble_does_not_stop_the_cycle(
    world: SimulatedSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = world.run("ada", 250), world.run("bob", 250)
    real = world.book.close

    def close(lease, *rest):  # type: ignore[no-untyped-def]
        if lease.id == bad.id:
            raise OSError("no")
        return real(lease, *rest)

    monkeypatch.setattr(world.book, "close", close)
    world.runtime.end(bad.id, 0)
    world.runtime.end(good.id, 0)
    with caplog.at_level(logging.ERROR):
        world.live_for(5)
    assert world.now(good).state is State.SETTLED and world.now(bad).state is State.RUNNING
    assert any(bad.id in record.getMessage() for record in caplog.records)


def test_no_exception_ends_the_loop(world: SimulatedSite, caplog: pytest.LogCaptureFixture) -> None:
    world.policy = AgentPolicy(cycle=0.01)
    agent = world.new_agent("agent-2")
    stop, cycles = threading.Event(), []

    def cycle() -> bool:
        cycles.append(1)
        if len(cycles) == 3:
            stop.set()
        raise RuntimeError("the book is away")

    agent.cycle = cycle  # type: ignore[method-assign]
    world.rows.beat("agent-2", "agent", HOST)
    with caplog.at_level(logging.ERROR):
        agent.run(stop)
    assert len(cycles) == 3 and "the book is away" in caplog.text
    assert world.rows.boots("agent") == [], "it leaves in good order"
