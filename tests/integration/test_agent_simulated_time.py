"""The agent on a fake clock and a fake runtime, with the real book: money, notice, signals, trouble."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from quota.leases import DeviceState, Lease, State, StopReason, Target
from spawner.agent import AgentPolicy
from spawner.ports import GpuReading, ServerSpec, Unreachable
from tests.fakes.clock import FakeClock
from tests.fakes.runtime import FakeRuntime
from tests.integration.agent_site import HOST, Site, quick_folder

SECOND = timedelta(seconds=1)


class World(Site):
    clock: FakeClock
    runtime: FakeRuntime

    def live_for(self, seconds: int, *, step: int = 1, hub: bool = True) -> None:
        """Time passes in steps of seconds; the agent cycles, the hub's heart beats."""
        for _ in range(seconds // step):
            self.clock.advance(step)
            if hub:
                self.rows.beat(self.boot, "hub", HOST)
            self.agent.cycle()


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


def make(folder: Path, **more: object) -> World:
    clock = FakeClock()
    return World(folder, clock, FakeRuntime(clock), **more)  # type: ignore[arg-type]


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    site = make(folder)
    yield site
    site.close()


# ---- to the second ---------------------------------------------------------------------------------------------


def test_a_session_is_charged_to_the_second_and_leaves_nothing(world: World) -> None:
    lease = world.run(share=500)
    world.live_for(3600, step=30)
    world.runtime.end(lease.id, 0)
    world.live_for(5)
    done = world.now(lease)
    assert (done.state, done.stop_reason, done.stop_detail) == (State.SETTLED, StopReason.USER, "ended from inside")
    assert done.started_at and done.ended_at and done.ended_at - done.started_at == 3600 * SECOND
    assert done.charged == 500_000 and done.usage == 500 * 3600
    world.assert_clean()


def test_x12_a_session_between_two_cycles_is_charged_exactly(world: World) -> None:
    lease = world.run(share=1000)
    world.clock.advance(0.36)
    world.runtime.end(lease.id, 3)
    world.clock.advance(600)
    world.cycles()
    done = world.now(lease)
    assert (done.charged, done.stop_reason, done.stop_detail) == (100, StopReason.FAILED, "exit code 3")
    world.assert_clean()


def test_s02_a_server_that_ended_while_nobody_looked_is_charged_to_its_own_end(world: World) -> None:
    lease = world.run(share=1000)
    world.live_for(60)
    world.clock.advance(40)
    world.runtime.end(lease.id, -9)
    world.clock.advance(600)  # hub and agent were down for ten minutes
    world.agent = world.new_agent("agent-2")
    world.live_for(5)
    done = world.now(lease)
    assert done.ended_at and done.started_at and done.ended_at - done.started_at == 100 * SECOND
    assert done.charged == round(1_000_000 * 100 / 3600) and done.stop_detail == "signal 9"
    world.assert_clean()


def test_x29_without_a_record_the_last_observation_counts(world: World) -> None:
    lease = world.run(share=1000)
    world.live_for(50)
    world.clock.advance(30)
    world.runtime.vanish(lease.id)
    world.clock.advance(30)
    world.live_for(5)
    done = world.now(lease)
    assert done.ended_at and done.started_at and done.ended_at - done.started_at == 50 * SECOND
    assert done.stop_reason is StopReason.FAILED
    world.assert_clean()


def test_s01_a_restarted_agent_goes_on_with_every_lease_and_meter(world: World) -> None:
    leases = [world.run(user, 250) for user in ("ada", "bob", "eve")]
    world.live_for(90)
    for number in range(3):
        world.agent = world.new_agent(f"agent-{number + 2}")
        world.live_for(30)
    for lease in leases:
        now = world.now(lease)
        assert (now.state, now.target) == (State.RUNNING, Target.RUN)
        assert now.last_seen == world.clock.now()
        assert now.usage == 250 * 151, "metered when the last agent began"
    assert set(world.runtime.alive()) == {lease.id for lease in leases}


def test_s01_a_runtime_that_is_away_changes_nothing(world: World) -> None:
    lease = world.run()
    world.live_for(5)
    before = world.now(lease)
    world.runtime.outage = "no answer"
    world.live_for(10)
    assert world.now(lease) == before
    world.runtime.outage = ""
    world.live_for(1)
    assert world.now(lease).last_seen == world.clock.now()


def test_x04_a_time_limit_survives_every_restart(world: World) -> None:
    lease = world.run(share=1000)
    end = world.clock.now() + 600 * SECOND
    world.book.request_stop(lease.id, StopReason.SHUTDOWN, detail="after ten minutes", stop_after=end)
    world.live_for(120)
    world.boot, world.agent = "hub-2", world.new_agent("agent-2")
    world.clock.advance(400)
    assert world.runtime.alive()
    world.live_for(90)
    done = world.now(lease)
    assert done.ended_at == end and done.stop_reason is StopReason.SHUTDOWN
    assert done.charged == round(1_000_000 * 600 / 3600)
    world.assert_clean()


# ---- stops -----------------------------------------------------------------------------------------------------


def test_a_stop_has_its_notice_then_ends_in_good_order(world: World) -> None:
    lease = world.run()
    world.book.request_stop(
        lease.id, StopReason.IDLE, detail="idle for 30 min", stop_after=world.clock.now() + 300 * SECOND
    )
    world.live_for(280, step=20)
    world.live_for(19)
    assert world.runtime.alive() == {lease.id}
    world.live_for(5)
    assert ("stop", lease.id) in world.runtime.calls
    done = world.now(lease)
    assert (done.state, done.stop_reason, done.stop_detail) == (State.SETTLED, StopReason.IDLE, "idle for 30 min")
    assert done.ended_at and done.started_at and done.ended_at - done.started_at == 300 * SECOND


def test_s12_a_deaf_server_is_forced_and_its_state_is_clear(world: World) -> None:
    lease = world.mark_starting(world.reserve())
    world.runtime.deaf.add(lease.id)
    world.runtime.start(ServerSpec(lease.id, ("serve",), {}, "/"))
    world.mark_running(lease)
    world.book.request_stop(lease.id, StopReason.ADMIN)
    world.live_for(9)
    assert world.runtime.alive() == {lease.id} and world.now(lease).state is State.RUNNING
    world.live_for(5)
    assert world.now(lease).state is State.SETTLED
    world.assert_clean()


def test_what_cannot_be_removed_keeps_its_slot_and_holds_up_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, other = world.run("ada", 1000), world.run("bob", 1000)
    world.runtime.stuck.add(stuck.id)
    world.runtime.end(stuck.id, -9)
    with caplog.at_level(logging.ERROR):
        world.live_for(20)
        world.runtime.end(other.id, 0)
        world.live_for(40)
    assert world.now(other).state is State.SETTLED
    held = world.now(stuck)
    assert held.state is State.STOPPING and held.ended_at is not None, "the bill is closed, the slot is not free"
    assert sorted(device.used for device in world.rows.devices()) == [0, 1000]
    failures = [record for record in caplog.records if stuck.id in record.getMessage()]
    assert 4 <= len(failures) <= 8, "it is tried ever more rarely"
    world.runtime.stuck.clear()
    world.live_for(31)
    assert world.now(stuck).state is State.SETTLED


# ---- starts that fail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["reserved", "starting", "started"])
@pytest.mark.parametrize("owner", ["gives up", "dies"])
def test_s06_a_start_that_fails_at_any_step_leaves_nothing(world: World, step: str, owner: str) -> None:
    lease = world.reserve()
    if step != "reserved":
        lease = world.mark_starting(lease)
    if step == "started":
        world.runtime.start(ServerSpec(lease.id, ("serve",), {}, "/"))
    world.live_for(2)
    assert world.now(lease).state is not State.RELEASED
    if owner == "gives up":
        world.book.acknowledge(lease.id, world.boot)
        world.live_for(3)
    else:
        world.live_for(70, hub=False)
    done = world.now(lease)
    assert (done.state, done.stop_reason, done.charged) == (State.SETTLED, StopReason.FAILED, 0)
    world.assert_clean()


def test_s06_a_start_that_fails_after_ready_costs_nothing(world: World) -> None:
    lease = world.run(share=1000)
    world.live_for(40)
    world.book.void(lease.id)
    world.book.request_stop(lease.id, StopReason.FAILED, detail="no route")
    world.live_for(10)
    assert world.now(lease).charged == 0
    world.assert_clean()


def test_a_slow_start_keeps_its_slot_until_its_living_owner_says_so(world: World) -> None:
    lease = world.mark_starting(world.reserve(share=1000))
    world.live_for(120)
    late = world.now(lease)
    assert (late.state, late.target) == (State.STARTING, Target.STOP)
    world.runtime.start(ServerSpec(lease.id, ("serve",), {}, "/"))  # it comes after all
    world.live_for(2)
    assert world.runtime.look() == {}, "removed, as it is no longer wanted"
    assert world.now(lease).state is State.STARTING, "and the slot is still not free"
    world.book.acknowledge(lease.id, world.boot)
    world.live_for(3)
    world.assert_clean()


# ---- orphans ---------------------------------------------------------------------------------------------------


def test_s05_a_server_that_the_book_does_not_know_is_removed_after_a_grace(world: World) -> None:
    world.runtime.start(ServerSpec("l-unknown", ("serve",), {}, "/"))
    world.live_for(29)
    assert world.runtime.alive() == {"l-unknown"}
    world.live_for(3)
    assert world.runtime.look() == {}
    (event,) = [event for event in world.rows.events() if event.kind == "orphan-removed"]
    assert event.lease_id == "l-unknown"


def test_s05_a_server_whose_lease_is_over_is_removed_in_one_cycle(world: World) -> None:
    lease = world.run()
    world.runtime.end(lease.id, 0)
    world.live_for(5)
    world.runtime.start(ServerSpec(lease.id, ("serve",), {}, "/"))
    world.live_for(1)
    assert world.runtime.look() == {}


def test_s05_a_lease_without_a_server_is_closed(world: World) -> None:
    lease = world.run()
    world.live_for(10)
    del world.runtime.servers[lease.id]
    world.live_for(4)
    done = world.now(lease)
    assert done.state is State.SETTLED and done.ended_at and done.started_at
    assert done.ended_at - done.started_at == 10 * SECOND
    world.assert_clean()


def test_s05_an_orphan_that_got_its_lease_after_the_list_was_read_stays(world: World) -> None:
    world.agent.cycle()
    real_look = world.runtime.look
    made: list[Lease] = []

    def look_while_the_hub_starts_one():  # type: ignore[no-untyped-def]
        if not made:
            made.append(world.run())
        return real_look()

    world.runtime.look = look_while_the_hub_starts_one  # type: ignore[method-assign]
    world.live_for(2)
    assert world.runtime.alive() == {made[0].id} and world.now(made[0]).state is State.RUNNING


def test_leases_of_another_host_are_another_agents(world: World) -> None:
    lease = world.run()
    del world.runtime.servers[lease.id]
    other = world.new_agent("agent-elsewhere")
    other._host = "host-b"
    for _ in range(5):
        other.cycle()
    assert world.now(lease).state is State.RUNNING


# ---- credit ----------------------------------------------------------------------------------------------------


def test_b1_a_server_whose_credit_runs_out_is_warned_and_ends_when_it_is_used_up(folder: Path) -> None:
    world = make(folder, grant=1_000_000)  # one hour of a GPU
    lease = world.run(share=1000)
    world.live_for(3500, step=25)
    told = [event.detail["percent"] for event in world.rows.events(lease.id) if event.kind == "credit-low"]
    assert told == [95, 80]
    assert world.now(lease).target is Target.RUN
    world.live_for(60)
    last = world.now(lease)
    assert (last.target, last.stop_reason) == (Target.STOP, StopReason.QUOTA)
    assert last.stop_detail == "the credit of ada is used up"
    assert last.stop_after is not None and last.stop_after - world.clock.now() <= 90 * SECOND
    world.live_for(60)
    done = world.now(lease)
    assert done.state is State.SETTLED and 990_000 <= done.charged <= 1_000_300
    assert world.bank.account("ada").available >= -300
    assert world.bank.audit() == []
    world.close()


def test_a_warning_is_not_repeated_by_the_next_agent(folder: Path) -> None:
    world = make(folder, grant=1_000_000)
    lease = world.run(share=1000)
    world.live_for(3000, step=25)
    world.agent = world.new_agent("agent-2")
    world.live_for(60)
    assert len([event for event in world.rows.events(lease.id) if event.kind == "credit-low"]) == 1
    world.close()


def test_a_cpu_server_costs_its_own_rate_which_is_nothing_by_default(folder: Path) -> None:
    world = make(folder, grant=0)
    lease = world.run(share=0)
    world.live_for(120, step=20)
    assert world.now(lease).state is State.RUNNING and world.now(lease).charged == 0
    world.close()


# ---- signals and samples ---------------------------------------------------------------------------------------


def test_the_host_signal_tells_when_the_server_last_computed(world: World) -> None:
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


def test_a_restart_of_the_agent_neither_hides_use_nor_makes_any_up(world: World) -> None:
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


def test_a_load_that_nobody_can_tell_is_null(world: World) -> None:
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


def test_a_simulated_device_has_no_utilisation_of_its_own(world: World) -> None:
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
    world = make(folder, inventory=gpus)
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
    world = make(folder, inventory=gpus)
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
    world = make(folder, inventory=gpus)
    lease = world.run(share=1000)
    world.live_for(6)
    gpus.hang = threading.Event()
    world.clock.advance(6)
    world.runtime.end(lease.id, 0)
    world.live_for(4)
    assert world.now(lease).state is State.SETTLED
    gpus.hang.set()
    world.close()


def test_a_drained_device_can_be_taken_back_into_service(world: World) -> None:
    world.live_for(1)
    uuid = world.rows.devices()[0].uuid
    world.rows.set_device_state(uuid, DeviceState.DRAINING, "maintenance")
    world.live_for(12)
    assert world.rows.devices()[0].state is DeviceState.DRAINING
    world.rows.set_device_state(uuid, DeviceState.OK, "")
    world.live_for(6)
    assert world.rows.devices()[0].state is DeviceState.OK


# ---- the agent itself ------------------------------------------------------------------------------------------


def test_the_agents_own_heartbeat_tells_of_its_last_good_cycle(world: World) -> None:
    world.live_for(6)
    good = world.clock.now()
    world.runtime.outage = "the engine does not answer"
    world.live_for(6)
    (beat,) = world.rows.boots("agent")
    assert (beat.boot, beat.host, beat.beat_at) == ("agent-1", HOST, world.clock.now() - 1 * SECOND)
    assert beat.note == f"last good cycle: {good.isoformat()}; the engine does not answer"


def test_a_lease_in_trouble_does_not_stop_the_cycle(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
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


def test_no_exception_ends_the_loop(world: World, caplog: pytest.LogCaptureFixture) -> None:
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
