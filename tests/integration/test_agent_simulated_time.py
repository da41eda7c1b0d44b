"""The agent on a fake clock and a fake runtime, with the real book: starts, stops, orphans, money."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.leases import Lease, State, StopReason, Target
from quota.notices import NoticeKind
from spawner.ports import Look, ServerSpec
from tests.integration.agent_site import SimulatedSite, quick_folder, simulated_site

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


# ---- to the second ---------------------------------------------------------------------------------------------


def test_a_session_is_charged_to_the_second_and_leaves_nothing(world: SimulatedSite) -> None:
    lease = world.run(share=500)
    world.live_for(3600, step=30)
    world.runtime.end(lease.id, 0)
    world.live_for(5)
    done = world.now(lease)
    assert (done.state, done.stop_reason, done.stop_detail) == (State.SETTLED, StopReason.USER, "ended from inside")
    assert done.started_at and done.ended_at and done.ended_at - done.started_at == 3600 * SECOND
    assert done.charged == 500_000 and done.usage == 500 * 3600
    world.assert_clean()


def test_x12_a_session_between_two_cycles_is_charged_exactly(world: SimulatedSite) -> None:
    lease = world.run(share=1000)
    world.clock.advance(0.36)
    world.runtime.end(lease.id, 3)
    world.clock.advance(600)
    world.cycles()
    done = world.now(lease)
    assert (done.charged, done.stop_reason, done.stop_detail) == (100, StopReason.FAILED, "exit code 3")
    world.assert_clean()


def test_s02_a_server_that_ended_while_nobody_looked_is_charged_to_its_own_end(world: SimulatedSite) -> None:
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


def test_x29_without_a_record_the_last_observation_counts(world: SimulatedSite) -> None:
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


def test_s01_a_restarted_agent_goes_on_with_every_lease_and_meter(world: SimulatedSite) -> None:
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


def test_s01_a_runtime_that_is_away_changes_nothing(world: SimulatedSite) -> None:
    lease = world.run()
    world.live_for(5)
    before = world.now(lease)
    world.runtime.outage = "no answer"
    world.live_for(10)
    assert world.now(lease) == before
    world.runtime.outage = ""
    world.live_for(1)
    assert world.now(lease).last_seen == world.clock.now()


def test_x04_a_time_limit_survives_every_restart(world: SimulatedSite) -> None:
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


def test_a_stop_has_its_notice_then_ends_in_good_order(world: SimulatedSite) -> None:
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


def test_s12_a_deaf_server_is_forced_and_its_state_is_clear(world: SimulatedSite) -> None:
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


def test_s02_an_end_between_the_last_look_and_the_removal_is_charged_by_its_record(
    world: SimulatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that nothing could end is removed at last, and its record with it: so that is read first."""
    lease, looks = world.run(share=1000), world.runtime.look
    monkeypatch.setattr(world.runtime, "stop", lambda *_: None)  # neither asking nor forcing helps
    world.book.request_stop(lease.id, StopReason.ADMIN)
    world.live_for(29)
    assert world.runtime.alive() == {lease.id}

    def ends_right_after_it() -> Look:
        seen = looks()
        monkeypatch.setattr(world.runtime, "look", looks)
        world.clock.advance(0.5)
        world.runtime.end(lease.id, 0)
        return seen

    monkeypatch.setattr(world.runtime, "look", ends_right_after_it)
    world.live_for(6)
    assert ("remove", lease.id) in world.runtime.calls
    done = world.now(lease)
    assert done.state is State.SETTLED and done.ended_at and done.started_at
    assert done.ended_at - done.started_at == 30.5 * SECOND
    world.assert_clean()


def test_what_cannot_be_removed_keeps_its_slot_and_holds_up_nobody(
    world: SimulatedSite, caplog: pytest.LogCaptureFixture
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
def test_s06_a_start_that_fails_at_any_step_leaves_nothing(world: SimulatedSite, step: str, owner: str) -> None:
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


def test_s06_a_start_that_fails_after_ready_costs_nothing(world: SimulatedSite) -> None:
    lease = world.run(share=1000)
    world.live_for(40)
    world.book.void(lease.id)
    world.book.request_stop(lease.id, StopReason.FAILED, detail="no route")
    world.live_for(10)
    assert world.now(lease).charged == 0
    world.assert_clean()


def test_a_slow_start_keeps_its_slot_until_its_living_owner_says_so(world: SimulatedSite) -> None:
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


def test_s05_a_server_that_the_book_does_not_know_is_removed_after_a_grace(world: SimulatedSite) -> None:
    world.runtime.start(ServerSpec("l-unknown", ("serve",), {}, "/"))
    world.live_for(29)
    assert world.runtime.alive() == {"l-unknown"}
    world.live_for(3)
    assert world.runtime.look() == {}
    (event,) = [event for event in world.rows.events() if event.kind == "orphan-removed"]
    assert event.lease_id == "l-unknown"


def test_s05_a_server_whose_lease_is_over_is_removed_in_one_cycle(world: SimulatedSite) -> None:
    lease = world.run()
    world.runtime.end(lease.id, 0)
    world.live_for(5)
    world.runtime.start(ServerSpec(lease.id, ("serve",), {}, "/"))
    world.live_for(1)
    assert world.runtime.look() == {}


def test_s05_a_lease_without_a_server_is_closed(world: SimulatedSite) -> None:
    lease = world.run()
    world.live_for(10)
    del world.runtime.servers[lease.id]
    world.live_for(4)
    done = world.now(lease)
    assert done.state is State.SETTLED and done.ended_at and done.started_at
    assert done.ended_at - done.started_at == 10 * SECOND
    world.assert_clean()


def test_s05_an_orphan_that_got_its_lease_after_the_list_was_read_stays(world: SimulatedSite) -> None:
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


def test_leases_of_another_host_are_another_agents(world: SimulatedSite) -> None:
    lease = world.run()
    del world.runtime.servers[lease.id]
    other = world.new_agent("agent-elsewhere")
    other._host = "host-b"
    for _ in range(5):
        other.cycle()
    assert world.now(lease).state is State.RUNNING


# ---- credit ----------------------------------------------------------------------------------------------------


def test_b1_a_server_whose_credit_runs_out_is_warned_and_ends_when_it_is_used_up(folder: Path) -> None:
    world = simulated_site(folder, grant=1_000_000)  # one hour of a GPU
    lease = world.run(share=1000)
    world.runtime.deaf.add(lease.id)
    world.runtime.servers[lease.id].deaf = True  # it takes all the time that it is given to end
    world.live_for(3480, step=20)
    told = [event.detail["percent"] for event in world.rows.events(lease.id) if event.kind == "credit-low"]
    assert told == [95, 80]
    notices = world.told.notices
    assert [(each.kind, each.user, each.data.get("percent")) for each in notices] == [
        (NoticeKind.CREDIT_LOW, "ada", 80),
        (NoticeKind.CREDIT_LOW, "ada", 95),
    ]
    assert world.now(lease).target is Target.RUN
    world.live_for(40)
    last = world.now(lease)
    assert (last.target, last.stop_reason) == (Target.STOP, StopReason.QUOTA)
    assert last.stop_detail == "the credit of ada is used up"
    assert last.stop_after is not None and last.stop_after - world.clock.now() <= 90 * SECOND
    (stop,) = notices[2:]
    assert (stop.kind, stop.data["deadline"]) == (NoticeKind.CREDIT_STOP, last.stop_after.isoformat())
    assert "the credit of ada is used up" in stop.words
    world.live_for(90)
    done = world.now(lease)
    assert done.state is State.SETTLED and 990_000 <= done.charged <= 1_000_000
    assert world.bank.account("ada").available >= 0
    assert world.bank.audit() == []
    world.close()


def test_a_warning_is_not_repeated_by_the_next_agent(folder: Path) -> None:
    world = simulated_site(folder, grant=1_000_000)
    lease = world.run(share=1000)
    world.live_for(3000, step=25)
    world.agent = world.new_agent("agent-2")
    world.live_for(60)
    assert len([event for event in world.rows.events(lease.id) if event.kind == "credit-low"]) == 1
    world.close()


def test_a_cpu_server_costs_its_own_rate_which_is_nothing_by_default(folder: Path) -> None:
    world = simulated_site(folder, grant=0)
    lease = world.run(share=0)
    world.live_for(120, step=20)
    assert world.now(lease).state is State.RUNNING and world.now(lease).charged == 0
    world.close()
