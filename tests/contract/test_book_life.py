"""The life of a lease on a real book: compare-and-swap, intent and fact, and who may do what when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.errors import NotFound, Reason, Refused, Stale
from quota.leases import State, StopReason, Target
from quota.transitions import IllegalMove
from tests.fakes.book import BOOT, HOST, Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(2)
        yield opened


def kinds(desk: Desk, lease_id: str) -> list[str]:
    return [event.kind for event in reversed(desk.rows.events(lease_id))]


def test_a_whole_life_and_its_history(desk: Desk) -> None:
    lease = desk.session(60)
    assert (lease.state, lease.target) == (State.SETTLED, Target.STOP)
    assert (lease.stop_reason, lease.held) == (StopReason.USER, 0)
    assert kinds(desk, lease.id) == [
        "lease-reserved",
        "lease-starting",
        "lease-running",
        "stop-requested",
        "lease-stopping",
        "lease-released",
        "lease-settled",
    ]
    assert desk.rows.events(lease.id)[0].detail["charged"] == lease.charged == 8333
    assert desk.bank.audit() == []


def test_a_stale_copy_writes_nothing(desk: Desk) -> None:
    old = desk.reserve()
    new = desk.book.mark_starting(old, desk.now)
    assert new.version == old.version + 1
    for write in (
        lambda: desk.book.mark_starting(old, desk.now),
        lambda: desk.book.mark_running(old, BOOT, desk.now),
        lambda: desk.book.close(old, desk.now, StopReason.FAILED),
        lambda: desk.book.release(old, desk.now),
        lambda: desk.book.settle(old),
    ):
        with pytest.raises(Stale):
            write()
    assert desk.book.lease(old.id) == new


def test_illegal_moves_are_faults(desk: Desk) -> None:
    desk.beat()
    lease = desk.reserve()
    for write in (
        lambda: desk.book.mark_running(lease, BOOT, desk.now),
        lambda: desk.book.release(lease, desk.now),
        lambda: desk.book.close(lease, desk.now, StopReason.FAILED),
        lambda: desk.book.settle(lease),
    ):
        with pytest.raises(IllegalMove):
            write()
    assert desk.book.lease(lease.id) == lease
    running = desk.start(lease)
    for write in (
        lambda: desk.book.release(running, desk.now),
        lambda: desk.book.acknowledge(running.id, BOOT),
        lambda: desk.book.mark_starting(running, desk.now),
    ):
        with pytest.raises(IllegalMove):
            write()
    assert desk.book.lease(lease.id) == running


# ---- only the living owner takes a lease out of STARTING


def test_running_needs_a_fresh_heartbeat(desk: Desk) -> None:
    lease = desk.book.mark_starting(desk.reserve(), desk.now)
    with pytest.raises(Stale):
        desk.book.mark_running(lease, BOOT, desk.now)  # it never beat
    desk.beat()
    desk.clock.advance(30.000001)
    with pytest.raises(Stale):
        desk.book.mark_running(lease, BOOT, desk.now)
    assert desk.book.lease(lease.id) == lease
    desk.beat()
    desk.clock.advance(30)
    assert desk.book.mark_running(lease, BOOT, desk.now).state is State.RUNNING


def test_running_needs_the_owner_itself(desk: Desk) -> None:
    desk.beat()
    desk.beat("boot-2")
    lease = desk.book.mark_starting(desk.reserve(), desk.now)
    with pytest.raises(Stale):
        desk.book.mark_running(lease, "boot-2", desk.now)
    with pytest.raises(Stale):
        desk.book.acknowledge(lease.id, "boot-2")
    assert desk.book.lease(lease.id) == lease


def test_a_boot_that_was_dropped_is_dead(desk: Desk) -> None:
    desk.beat()
    lease = desk.book.mark_starting(desk.reserve(), desk.now)
    desk.rows.drop_beat(BOOT)
    with pytest.raises(Stale):
        desk.book.mark_running(lease, BOOT, desk.now)


def test_a_boot_that_was_buried_is_dead(desk: Desk) -> None:
    desk.beat()
    lease = desk.book.mark_starting(desk.reserve(), desk.now)
    desk.rows.bury(BOOT)
    with pytest.raises(Stale):
        desk.book.mark_running(lease, BOOT, desk.now)


def test_a_start_that_was_stopped_does_not_go_on(desk: Desk) -> None:
    desk.beat()
    reserved = desk.reserve("alice")
    stopped = desk.book.request_stop(reserved.id, StopReason.ADMIN, by="admin")
    with pytest.raises(Stale):
        desk.book.mark_starting(reserved, desk.now)
    with pytest.raises(Refused) as caught:
        desk.book.mark_starting(stopped, desk.now)
    assert caught.value.reason is Reason.STOP_REQUESTED
    assert caught.value.facts == {"lease": reserved.id, "stop_reason": "admin"}
    starting = desk.book.mark_starting(desk.reserve("bob"), desk.now)
    stopped = desk.book.request_stop(starting.id, StopReason.ADMIN)
    with pytest.raises(Stale):
        desk.book.mark_running(starting, BOOT, desk.now)
    with pytest.raises(Refused):
        desk.book.mark_running(stopped, BOOT, desk.now)


def test_ready_lies_inside_the_start(desk: Desk) -> None:
    requested = desk.now
    lease = desk.reserve("early")
    desk.clock.advance(10)
    desk.beat()
    lease = desk.book.mark_starting(lease, desk.now)
    assert desk.book.mark_running(lease, BOOT, requested - timedelta(hours=1)).started_at == requested
    lease = desk.book.mark_starting(desk.reserve("late"), desk.now)
    assert desk.book.mark_running(lease, BOOT, desk.now + timedelta(hours=1)).started_at == desk.now


# ---- stopping


def test_the_first_reason_stays_and_the_earlier_time_wins(desk: Desk) -> None:
    lease = desk.run()
    soon, later = desk.now + timedelta(minutes=5), desk.now + timedelta(minutes=9)
    first = desk.book.request_stop(lease.id, StopReason.IDLE, detail="idle for 30 min", by="culler", stop_after=later)
    assert (first.state, first.target, first.stop_after) == (State.RUNNING, Target.STOP, later)
    assert desk.book.request_stop(lease.id, StopReason.QUOTA, stop_after=later) == first
    sooner = desk.book.request_stop(lease.id, StopReason.QUOTA, detail="no credit", stop_after=soon)
    assert (sooner.stop_reason, sooner.stop_detail, sooner.stop_by) == (StopReason.IDLE, "idle for 30 min", "culler")
    assert sooner.stop_after == soon
    at_once = desk.book.request_stop(lease.id, StopReason.USER, by="alice")
    assert (at_once.stop_reason, at_once.stop_after) == (StopReason.IDLE, desk.now)
    assert kinds(desk, lease.id)[3:] == ["stop-requested", "stop-sooner", "stop-sooner"]


def test_an_end_in_the_future_is_now(desk: Desk) -> None:
    lease = desk.run()
    desk.clock.advance(10)
    closed = desk.book.close(lease, desk.now + timedelta(days=9), StopReason.USER)
    assert closed.ended_at == desk.now


def test_n01_what_was_seen_counts_though_the_clock_was_set_back_before_it_was_written(desk: Desk) -> None:
    lease = desk.run()
    desk.clock.advance(600)
    seen = desk.now
    lease = desk.book.observe(lease, seen)
    desk.clock.jump(-60)
    assert desk.book.close(lease, seen, StopReason.FAILED).ended_at == seen


def test_a_stop_decided_on_an_older_lease_is_stale(desk: Desk) -> None:
    """An agent that took the owner for dead, while the owner confirmed its server."""
    desk.beat()
    starting = desk.book.mark_starting(desk.reserve(), desk.now)
    running = desk.book.mark_running(starting, BOOT, desk.now)
    with pytest.raises(Stale):
        desk.book.request_stop(running.id, StopReason.FAILED, expect=starting)
    assert desk.book.lease(running.id) == running
    assert desk.book.request_stop(running.id, StopReason.IDLE, expect=running).target is Target.STOP


def test_a_stop_of_what_is_over_does_nothing(desk: Desk) -> None:
    lease = desk.session(10)
    assert desk.book.request_stop(lease.id, StopReason.ADMIN) == lease
    with pytest.raises(NotFound):
        desk.book.request_stop("l0", StopReason.ADMIN)


def test_an_idle_server_that_came_back_to_life_goes_on(desk: Desk) -> None:
    lease = desk.run()
    desk.book.request_stop(lease.id, StopReason.IDLE, detail="idle", stop_after=desk.now + timedelta(minutes=5))
    back = desk.book.cancel_stop(lease.id, by="idle-culler")
    assert (back.state, back.target) == (State.RUNNING, Target.RUN)
    assert (back.stop_reason, back.stop_detail, back.stop_by, back.stop_after) == (None, "", "", None)
    assert desk.book.cancel_stop(lease.id, by="idle-culler") == back


def test_it_is_too_late_to_go_on_once_the_notice_is_over(desk: Desk) -> None:
    lease = desk.run()
    stopped = desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + timedelta(minutes=5))
    desk.clock.advance(300)
    with pytest.raises(Stale, match="too late"):
        desk.book.cancel_stop(lease.id, by="idle-culler")
    assert desk.book.lease(lease.id) == stopped
    desk.book.acknowledge(lease.id, BOOT)
    with pytest.raises(Stale):
        desk.book.cancel_stop(lease.id, by="idle-culler")


def test_a_start_that_was_stopped_is_not_brought_back(desk: Desk) -> None:
    lease = desk.reserve()
    desk.book.request_stop(lease.id, StopReason.USER, stop_after=desk.now + timedelta(minutes=5))
    with pytest.raises(Stale):
        desk.book.cancel_stop(lease.id, by="idle-culler")


@pytest.mark.parametrize("starting", [False, True])
def test_the_owner_gives_up_a_start(desk: Desk, starting: bool) -> None:
    lease = desk.reserve()
    if starting:
        lease = desk.book.mark_starting(lease, desk.now)
    given_up = desk.book.acknowledge(lease.id, BOOT)
    assert (given_up.state, given_up.target) == (State.STOPPING, Target.STOP)
    assert given_up.stop_reason is StopReason.FAILED
    assert desk.book.acknowledge(lease.id, BOOT) == given_up
    assert desk.book.acknowledge(lease.id, "another boot") == given_up


def test_giving_up_keeps_an_earlier_reason(desk: Desk) -> None:
    lease = desk.reserve()
    desk.book.request_stop(lease.id, StopReason.ADMIN, by="admin")
    assert desk.book.acknowledge(lease.id, BOOT).stop_reason is StopReason.ADMIN


def test_a_hub_that_was_restarted_may_begin_the_removal(desk: Desk) -> None:
    lease = desk.run()
    desk.book.request_stop(lease.id, StopReason.USER)
    assert desk.book.acknowledge(lease.id, "boot-2").state is State.STOPPING


# ---- what was seen


def test_observations_only_grow_and_leave_the_version(desk: Desk) -> None:
    lease = desk.run()
    seen = desk.now + timedelta(seconds=10)
    after = desk.book.observe(lease, seen)
    assert (after.last_seen, after.version) == (seen, lease.version)
    assert desk.book.observe(lease, seen - timedelta(seconds=5)).last_seen == seen
    desk.book.observe_all([], seen)


def test_what_does_not_run_is_not_observed(desk: Desk) -> None:
    reserved, running = desk.reserve("alice"), desk.run("bob")
    desk.clock.advance(10)
    desk.book.observe_all([reserved, running], desk.now)
    assert desk.book.lease(reserved.id).last_seen is None
    assert desk.book.lease(running.id).last_seen == desk.now


def test_s02_an_end_that_was_recorded_counts(desk: Desk) -> None:
    lease = desk.run()
    ended = desk.now + timedelta(seconds=42)
    desk.clock.advance(600)
    closed = desk.book.close(lease, ended, StopReason.FAILED, "exit code 137")
    assert (closed.state, closed.target, closed.ended_at) == (State.STOPPING, Target.STOP, ended)
    assert (closed.stop_reason, closed.stop_detail) == (StopReason.FAILED, "exit code 137")
    again = desk.book.close(closed, desk.now, StopReason.USER)
    assert (again.ended_at, again.stop_reason) == (ended, StopReason.FAILED)
    released = desk.book.release(again, desk.now)
    assert released.ended_at == ended


def test_s02_where_no_end_was_recorded_the_last_observation_counts(desk: Desk) -> None:
    lease = desk.run()
    desk.clock.advance(30)
    seen = desk.now
    desk.book.observe_all([lease], seen)
    desk.clock.advance(600)
    closed = desk.book.close(lease, None, StopReason.FAILED)
    assert closed.ended_at == seen
    other = desk.run("bob")
    started = desk.now
    desk.clock.advance(600)
    desk.book.request_stop(other.id, StopReason.PLATFORM)
    released = desk.book.release(desk.book.lease(other.id))
    assert released.ended_at == started


def test_an_end_lies_inside_the_life(desk: Desk) -> None:
    early, late = desk.run("early"), desk.run("late")
    desk.clock.advance(60)
    assert early.started_at is not None
    closed = desk.book.close(early, early.started_at - timedelta(hours=1), StopReason.FAILED)
    assert closed.ended_at == early.started_at
    assert desk.book.close(late, desk.now + timedelta(hours=1), StopReason.FAILED).ended_at == desk.now


def test_a_stop_keeps_its_reason_when_the_end_is_seen(desk: Desk) -> None:
    lease = desk.run()
    asked = desk.book.request_stop(lease.id, StopReason.IDLE, detail="30 min")
    closed = desk.book.close(asked, desk.now, StopReason.FAILED, "exit code 0")
    assert (closed.stop_reason, closed.stop_detail) == (StopReason.IDLE, "30 min")


def test_what_is_over_is_not_written_again(desk: Desk) -> None:
    lease = desk.session(10)
    assert desk.book.release(lease, desk.now) == lease
    assert desk.book.close(lease, desk.now, StopReason.USER) == lease
    assert desk.book.settle(lease) == lease
    assert desk.book.meter(lease, desk.now).lease == lease


def test_s06_a_start_that_never_was_frees_everything(desk: Desk) -> None:
    lease = desk.book.mark_starting(desk.reserve(), desk.now)
    desk.clock.advance(20)
    released = desk.book.release(desk.book.acknowledge(lease.id, BOOT))
    assert released.held == 0
    assert [device.used for device in desk.rows.devices()] == [0, 0]
    settled = desk.book.settle(released)
    assert (settled.charged, settled.usage, settled.started_at) == (0, 0, None)
    assert desk.bank.account("alice").available == 100_000_000


def test_a_released_lease_keeps_its_slots_for_the_record(desk: Desk) -> None:
    lease = desk.session(10)
    assert lease.slots[0].host == HOST
    assert lease.slots[0].device == "SIM-h1-0"
