"""A clock that is set, and a machine that sleeps: what is charged is the time that servers really ran.

The real book and agent on a clock with two hands (`FakeClock.jump` moves the wall clock alone, as a step or a suspend
does); what a server really ran is told by the other hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.jumping import JUMPED
from quota.leases import Lease, State, StopReason, Target
from quota.records import read_segments
from quota.store import Store
from spawner.ports import ServerSpec
from tests.integration.agent_site import HOST, SimulatedSite, quick_folder, simulated_site

HOUR = 3600
#: Set forward, set back, suspended inside a session, and steps of half a minute.
JUMPS = (2 * HOUR, -2 * HOUR, 8 * HOUR, 30, -30)
PRICE = 1_000_000


@pytest.fixture(scope="module")
def empty() -> Iterator[Path]:
    """A migrated book, made once."""
    with quick_folder() as folder:
        with Store(f"sqlite:///{folder}/book.sqlite") as store:
            store.migrate()
        yield folder / "book.sqlite"


@pytest.fixture
def world(empty: Path) -> Iterator[SimulatedSite]:
    with quick_folder() as folder:
        shutil.copy(empty, folder)
        site = simulated_site(folder)
        yield site
        site.close()


def due(seconds: float) -> int:
    """Micro-credits of a whole GPU for so long."""
    return round(PRICE * seconds / HOUR)


def counted(world: SimulatedSite, lease: Lease) -> timedelta:
    """The length of all its segments, of which none overlaps another or lies ahead."""
    with world.store.read() as connection:
        parts = read_segments(connection, [lease.id])[lease.id]
    ends = [part.ended_at or world.clock.now() for part in parts]
    assert all(part.started_at <= end <= world.clock.now() for part, end in zip(parts, ends, strict=True))
    assert all(end <= after.started_at for end, after in zip(ends, parts[1:], strict=False))
    return sum((end - part.started_at for part, end in zip(parts, ends, strict=True)), timedelta(0))


def note_ends(world: SimulatedSite, ended: list[timedelta]) -> None:
    """Note by the hand that never jumps when a server ends."""
    end = world.runtime.end

    def noting(lease_id: str, exit_code: int | None = 0) -> None:
        ended.append(world.clock.run)
        end(lease_id, exit_code)

    world.runtime.end = noting  # type: ignore[method-assign]


@pytest.mark.parametrize("jump", JUMPS)
def test_n01_a_jump_inside_a_session_changes_nothing_of_what_is_charged(world: SimulatedSite, jump: int) -> None:
    lease = world.run(share=1000)
    world.live_for(600, step=60)
    world.clock.jump(jump)
    world.live_for(5)
    assert counted(world, lease) == timedelta(seconds=605)
    world.live_for(595, step=35)
    world.runtime.end(lease.id, 0)
    world.live_for(5)
    done = world.now(lease)
    assert (done.state, done.stop_detail) == (State.SETTLED, "ended from inside")
    assert (done.charged, done.usage) == (due(1200), 1_200_000)
    world.assert_clean()


@pytest.mark.parametrize("jump", JUMPS)
def test_n01_a_jump_is_on_record_and_shown(world: SimulatedSite, jump: int) -> None:
    lease = world.run(share=1000)
    world.live_for(60, step=10)
    world.clock.jump(jump)
    world.live_for(3)
    (told,) = [event for event in world.rows.events() if event.kind == JUMPED and event.lease_id is None]
    assert told.detail == {"host": HOST, "seconds": float(jump), "running": 1}
    assert [event.detail for event in world.rows.events(lease.id) if event.kind == JUMPED] == [{"seconds": float(jump)}]
    alerts = [alert.words for alert in world.alerts.open() if alert.key == f"clock:{HOST}"]
    assert len(alerts) == (1 if abs(jump) >= 60 else 0)
    assert all("1 running server kept the time that really ran" in words for words in alerts)
    world.agent = world.new_agent("agent-2")
    world.live_for(5)
    world.clock.advance(86_400)
    world.live_for(5)
    assert not any(alert.key == f"clock:{HOST}" for alert in world.alerts.open()), "after a day it is history"


@pytest.mark.parametrize("jump", JUMPS)
def test_n01_nobody_is_declared_dead_or_late_or_ended_for_a_jump(world: SimulatedSite, jump: int) -> None:
    idle, asked = world.run("ada", 250), world.run("bob", 250)
    starting = world.mark_starting(world.reserve("eve", 250))
    world.live_for(20)
    world.book.request_stop(idle.id, StopReason.IDLE, stop_after=world.clock.now() + timedelta(minutes=5))
    world.live_for(10)
    world.clock.jump(jump)
    for _ in range(4):  # the first seconds after a wake: no heart has beaten since
        world.clock.advance(1)
        world.agent.cycle()
    assert {world.now(one).target for one in (asked, starting)} == {Target.RUN}
    world.runtime.start(ServerSpec(starting.id, ("serve",), {}, "/"))
    world.mark_running(world.now(starting))
    world.live_for(280, step=10)
    assert idle.id in world.runtime.alive(), "its notice is as long as it was promised"
    world.live_for(30)
    assert world.now(idle).state is State.SETTLED
    assert world.now(idle).ended_at == world.clock.now() - timedelta(seconds=4 + 280 + 30 - 290)
    assert world.runtime.alive() == {asked.id, starting.id}


@pytest.mark.parametrize("jump", JUMPS)
def test_n01_what_is_to_be_tried_again_or_waited_for_is_so_after_a_jump(world: SimulatedSite, jump: int) -> None:
    """A pause between two tries, and the grace of a server that the book does not know, do not last for the jump."""
    stuck = world.run("ada", 1000)
    world.runtime.stuck.add(stuck.id)
    world.runtime.end(stuck.id, -9)
    world.runtime.start(ServerSpec("unknown", ("serve",), {}, "/"))
    world.live_for(10)
    world.clock.jump(jump)
    world.runtime.stuck.clear()
    world.live_for(20)
    assert world.runtime.alive() == {"unknown"}, "its grace is not cut short either"
    world.live_for(20)
    assert world.now(stuck).state is State.SETTLED
    world.assert_clean()


@pytest.mark.parametrize("jump", JUMPS)
def test_n01_a_length_of_time_moves_with_the_clock_and_a_time_of_day_stays(world: SimulatedSite, jump: int) -> None:
    """Who asked for an end at nine has it at nine by the new clock, or at once where that went over nine."""
    notice, evening, passed = (world.run(user, share=250) for user in ("ada", "bob", "eve"))
    now = world.clock.now()
    late, soon = now + timedelta(hours=12), now + timedelta(seconds=25)
    world.book.request_stop(notice.id, StopReason.IDLE, stop_after=late)
    world.book.request_stop(evening.id, StopReason.SHUTDOWN, stop_after=late)
    world.book.request_stop(passed.id, StopReason.SHUTDOWN, stop_after=soon)
    world.live_for(3)
    world.clock.jump(jump)
    jumped = world.clock.now()
    world.cycles(1)
    assert world.now(notice).stop_after == late + timedelta(seconds=jump)
    assert world.now(evening).stop_after == late
    assert world.now(passed).stop_after == max(soon, jumped)
    assert world.runtime.alive() >= {notice.id, evening.id}


@pytest.mark.parametrize("jump", JUMPS)
def test_n01_a_hub_that_was_dead_stays_dead(world: SimulatedSite, jump: int) -> None:
    """No step back brings a heart to life."""
    starting = world.mark_starting(world.reserve())
    world.live_for(25, step=5, hub=False)
    world.clock.jump(jump)
    world.live_for(60, step=4, hub=False)
    assert world.now(starting).stop_detail == "the hub that was starting it is gone"
    world.live_for(40, step=4, hub=False)
    assert world.now(starting).state is State.SETTLED
    world.assert_clean()


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 8 * HOUR])
@pytest.mark.parametrize("down", [3, 700])
def test_n01_a_jump_while_no_agent_ran_is_made_good_by_the_next(world: SimulatedSite, jump: int, down: int) -> None:
    lease = world.run(share=1000)
    world.live_for(100, step=10)
    world.clock.advance(down)
    world.clock.jump(jump)
    world.clock.advance(down)
    world.agent = world.new_agent("agent-2")
    world.live_for(10)
    assert counted(world, lease) == timedelta(seconds=110 + 2 * down)
    world.agent = world.new_agent("agent-3")
    world.live_for(10)
    assert counted(world, lease) == timedelta(seconds=120 + 2 * down), "no jump is made good twice"


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 8 * HOUR])
@pytest.mark.parametrize("order", ["before", "after"])
def test_n01_an_end_on_record_on_either_side_of_the_jump_counts(world: SimulatedSite, jump: int, order: str) -> None:
    lease = world.run(share=1000)
    world.live_for(100, step=10)
    world.clock.advance(2)
    if order == "before":
        world.runtime.end(lease.id, 0)
    world.clock.jump(jump)
    world.clock.advance(2)
    if order == "after":
        world.runtime.end(lease.id, 0)
    world.live_for(5)
    assert world.now(lease).charged == due(102 if order == "before" else 104)
    world.assert_clean()


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 8 * HOUR])
def test_n01_an_agent_that_dies_in_making_a_jump_good_makes_it_good_once(world: SimulatedSite, jump: int) -> None:
    lease = world.run(share=1000)
    world.live_for(50, step=10)
    real, hand = world.agent._hand._jumps.make_good, world.agent._hand._jumps

    def dies_after(*args: object) -> object:
        real(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    hand.make_good = dies_after  # type: ignore[assignment]
    world.clock.jump(jump)
    world.clock.advance(1)
    with pytest.raises(KeyboardInterrupt):
        world.agent.cycle()
    world.agent = world.new_agent("agent-2")
    world.live_for(9)
    assert counted(world, lease) == timedelta(seconds=60)


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 8 * HOUR])
def test_n01_a_jump_at_every_step_of_a_start_and_of_a_stop(world: SimulatedSite, jump: int) -> None:
    """Between any two writes of the hub, with the agent's look before or after the next one."""

    made: list[Lease] = []

    def now() -> Lease:
        return world.now(made[-1])

    def steps() -> Iterator[Callable[[], object]]:
        yield lambda: made.append(world.reserve(share=1000))
        yield lambda: world.mark_starting(now())
        yield lambda: world.runtime.start(ServerSpec(now().id, ("serve",), {}, "/"))
        yield lambda: world.mark_running(now())
        yield lambda: world.live_for(30, step=15)
        yield lambda: world.book.request_stop(now().id, StopReason.USER)
        yield lambda: world.runtime.stop(now().id, 5.0)
        yield lambda: world.book.acknowledge(now().id, world.boot)
        yield lambda: world.live_for(4)

    ended: list[timedelta] = []
    note_ends(world, ended)
    for position in range(9):
        for looks in (False, True):
            world.live_for(4)
            for number, step in enumerate(steps()):
                if number == position:
                    world.clock.jump(jump)
                    if looks:
                        world.agent.cycle()
                world.clock.advance(0.25)
                world.rows.beat(world.boot, "hub", HOST)
                step()
                if number == 3:
                    began = world.clock.run
            lease = now()
            assert lease.state is State.SETTLED, (position, looks)
            ran = (ended.pop() - began) / timedelta(seconds=1)
            assert lease.charged == due(ran), (position, looks, ran)
            world.assert_clean()
