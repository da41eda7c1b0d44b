"""The idle culler on a real book and a Hub over loopback: verdicts on record, reclaim by the one way, nobody missed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from idle_culler.app import run
from idle_culler.decide import Policy
from quota import schema
from quota.leases import Holder, Lease, StopReason, Target
from quota.notices import NoticeKind
from quota.store import upsert
from quota.vitals import from_note
from tests.contract.culled_worlds import World, open_world
from tests.fakes.book import Desk
from tests.fakes.notifier import Told
from tests.harness.waiting import PATIENCE


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as made:
        yield made


async def test_i03_idle_with_an_open_tab_is_warned_and_reclaimed_with_the_reason(world: World) -> None:
    lease = world.server("alice", "two")
    world.hub.servers["alice", "two"] = "2027-01-01T00:00:00Z"  # a tab polls: the Hub calls it active to this minute
    started = world.desk.now
    await world.until(24)
    assert world.kind(lease) == "keep:recent" and not world.hub.stopped
    await world.look()
    verdict = world.desk.rows.verdict(lease.id)
    assert verdict is not None and world.kind(lease) == "warn:idle" and verdict.deadline is not None
    assert (verdict.deadline - started).total_seconds() == 1800
    assert world.lease(lease).target is Target.RUN and not world.hub.stopped
    await world.until(5)
    stopped = world.lease(lease)
    assert (stopped.target, stopped.stop_reason, stopped.stop_by) == (Target.STOP, StopReason.IDLE, "idle-culler")
    assert "30 min without use (idle.with_gpu)" in stopped.stop_detail
    assert stopped.stop_after is not None and stopped.stop_after <= world.desk.now
    assert world.hub.stopped == [("alice", "two")]
    assert world.history(lease) == ["warn:idle", "reclaim:idle"]
    assert json.dumps(dict(verdict.evidence))


async def test_a_warning_and_a_stop_are_told_once_whatever_restarts(world: World) -> None:
    told = Told()
    world.culler = world.new_culler(notifier=told)
    lease = world.server("alice", "two")
    await world.until(24)
    assert not told.notices
    await world.until(2)
    world.culler = world.new_culler(notifier=told)
    await world.until(5)
    warning, last, stop = told.notices
    assert [each.kind for each in told.notices] == [NoticeKind.IDLE_WARNING] * 2 + [NoticeKind.IDLE_STOP]
    assert (warning.data["stage"], last.data["stage"]) == (10, 2) and warning.data["deadline"] == last.data["deadline"]
    assert {warning.user, stop.user} == {"alice"} and warning.data["server"] == "two"
    assert lease.started_at is not None
    assert warning.data["deadline"] == (lease.started_at + timedelta(minutes=30)).isoformat()
    assert "idle.with_gpu" in stop.words and world.hub.stopped == [("alice", "two")]
    assert world.culler.vitals().counts["notices_delivered"] == 3


async def test_i01_a_busy_kernel_is_kept_for_ever(world: World) -> None:
    lease = world.server()
    for _ in range(60):
        await world.look(110, busy=True)
    assert world.kind(lease) == "keep:busy-kernel" and not world.hub.stopped
    assert world.history(lease) == []


async def test_i05_i20_reports_and_readers_do_not_move_the_deadline(world: World) -> None:
    lease = world.server()
    await world.until(26)
    first = world.desk.rows.verdict(lease.id)
    for _ in range(100):
        world.desk.rows.verdict(lease.id), world.desk.rows.signals(lease.id), world.desk.book.live()
    await world.look(1)
    second = world.desk.rows.verdict(lease.id)
    assert first and second and first.deadline == second.deadline


async def test_use_after_the_warning_withdraws_it(world: World) -> None:
    lease = world.server()
    await world.until(27)
    assert world.kind(lease) == "warn:idle"
    used = world.desk.now
    await world.until(5, last=used)
    assert world.kind(lease) == "keep:recent" and not world.hub.stopped
    assert world.history(lease) == ["warn:idle", "keep:recent"]
    verdict = world.desk.rows.verdict(lease.id)
    assert verdict and verdict.deadline is None


async def test_i07_a_blind_server_is_kept_and_history_says_so(world: World) -> None:
    """The host's reader fails for twice the time-out, right after the warning."""
    lease = world.server()
    await world.until(26)
    for _ in range(60):
        world.desk.clock.advance(60)
        world.desk.rows.put_signal(lease.id, "kit", {"kernels": [], "terminals": 0}, world.desk.now)
        world.desk.rows.put_signal(lease.id, "host", {"cpu_percent": None, "cpu_active_at": None}, world.desk.now)
        await world.culler.cycle()
    assert world.kind(lease) == "keep:blind" and not world.hub.stopped
    assert world.history(lease) == ["warn:idle", "keep:blind"]
    await world.look()
    assert world.kind(lease) == "keep:recent", "what happened unseen is not held against it"


async def test_a_server_that_just_starts_is_blind_without_a_story(world: World) -> None:
    lease = world.server()
    await world.culler.cycle()
    assert world.kind(lease) == "keep:blind"
    await world.until(3)
    assert world.kind(lease) == "keep:recent" and world.history(lease) == []


async def test_x24_a_server_that_never_reports_is_kept_and_told(world: World) -> None:
    lease = world.server()
    for _ in range(40):
        world.desk.clock.advance(60)
        await world.culler.cycle()
    assert world.kind(lease) == "keep:blind" and world.history(lease) == ["keep:blind"]


async def test_i13_gpu_and_cpu_servers_are_stopped_at_different_times(world: World) -> None:
    world.policy = Policy(idle_gpu=600, idle_cpu=1200, notice=60)
    with_gpu, without = world.server("alice"), world.server("bob", gpus=0)
    await world.until(11)
    assert world.lease(with_gpu).target is Target.STOP and world.lease(without).target is Target.RUN
    await world.until(10)
    assert world.lease(without).target is Target.STOP


async def test_i08_one_bad_row_hides_nobody(world: World) -> None:
    world.policy = Policy(idle_gpu=600, idle_cpu=600, notice=60)
    bad, good = world.server("alice"), world.server("bob")
    await world.until(9)
    with world.desk.store.write() as connection:
        where = schema.signal.c.lease_id == bad.id
        connection.execute(sa.update(schema.signal).where(where).values(payload=sa.literal_column("'{not json'")))
    for _ in range(3):
        world.desk.clock.advance(60)
        world.signal(good)
        cycle = await world.culler.cycle()
    assert cycle.failed == 0 and world.kind(bad) == "keep:blind"
    assert set(world.hub.stopped) == {("bob", "")} and world.lease(bad).target is Target.RUN


async def test_i08_one_lease_that_cannot_be_judged_hides_nobody(world: World) -> None:
    bad, good = world.server("alice"), world.server("bob")

    def policy(lease: Lease) -> Policy:
        if lease.id == bad.id:
            raise RuntimeError("a hole in the rules")
        return Policy(600, 600, 60)

    world.culler = world.new_culler(policy=policy)
    await world.until(12)
    assert "1 of 2 leases could not be judged" in world.culler.health()
    assert world.lease(bad).target is Target.RUN and world.lease(good).target is Target.STOP


async def test_i08_a_user_that_the_hub_forgot(world: World) -> None:
    """The intent stands, so the agent ends it; the others are stopped as ever."""
    world.policy = Policy(idle_gpu=600, idle_cpu=600, notice=60)
    orphan, other = world.server("alice"), world.server("bob")
    world.hub.users.remove("alice")
    del world.hub.servers["alice", ""]
    await world.until(12)
    assert world.lease(orphan).target is Target.STOP and world.lease(other).target is Target.STOP
    assert ("bob", "") in world.hub.stopped


async def test_i11_everybody_is_looked_at(tmp_path: Path) -> None:
    """5,000 users, 300 servers, small pages, users who come and go meanwhile: all idle ones within two cycles."""
    async with open_world(tmp_path, page=50) as world:
        world.policy = Policy(idle_gpu=100, idle_cpu=100, notice=50)
        world.hub.users = [f"user{number}" for number in range(5000)]
        for number in range(300):
            world.server(f"user{number * 16}", gpus=0)
        busy = set(world.leases[::10])

        def churn() -> None:
            world.hub.users.insert(0, f"new{len(world.hub.users)}")
            world.hub.users.pop(100)

        world.hub.on_page = churn
        for _ in range(4):
            world.desk.clock.advance(60)
            with world.desk.store.write() as connection:  # one transaction: the culler is what is measured here
                for lease in world.leases:
                    upsert(connection, schema.signal, world.signals(lease, busy=lease in busy))
            await world.culler.cycle()
        stopped = {lease.id for lease in world.leases if world.lease(lease).target is Target.STOP}
        assert stopped == {lease.id for lease in world.leases if lease not in busy}


async def test_i12_a_missing_scope_is_named_until_it_is_there(world: World) -> None:
    world.hub.scopes.discard("read:servers")
    await world.culler.cycle()
    assert world.culler.health() == (
        "unhealthy: the Hub's token lacks the scope read:servers; last successful cycle: none yet"
    )
    world.hub.scopes.add("read:servers")
    await world.culler.cycle()
    assert world.culler.health() == "ok; last successful cycle: 2026-03-02T09:00:00Z"


async def test_i12_a_hub_that_is_down_is_asked_again(world: World) -> None:
    """The verdicts go on, the intent is durable, and the stop is made up for when the Hub is back."""
    lease = world.server()
    await world.until(29)
    world.hub.down = True
    await world.look()
    assert world.lease(lease).target is Target.STOP and not world.hub.stopped
    assert "unhealthy: the Hub: GET /users: 503 down" in world.culler.health()
    world.hub.down = False
    await world.look(30)
    assert world.hub.stopped == [("alice", "")]
    await world.look(30)
    assert world.culler.health().startswith("ok; ")


async def test_a_restarted_culler_carries_on(world: World) -> None:
    """The warning that stands is not given anew, and the watch goes on."""
    lease = world.server()
    await world.until(27)
    warned = world.desk.rows.verdict(lease.id)
    world.culler = world.new_culler()
    await world.look(90)
    again = world.desk.rows.verdict(lease.id)
    assert warned and again and again.kind == "warn" and warned.deadline == again.deadline
    await world.look(90)
    assert world.lease(lease).target is Target.STOP
    assert world.history(lease) == ["warn:idle", "reclaim:idle"]


async def test_a_culler_that_was_away_too_long_looks_anew(world: World) -> None:
    lease = world.server()
    await world.until(27)
    world.culler = world.new_culler()
    await world.look(3600)
    assert world.kind(lease) == "keep:recent" and not world.hub.stopped


class Rows:
    """The book's rows, with something that happens right before the second look at a lease."""

    def __init__(self, desk: Desk, happens: Any) -> None:
        self._desk, self._happens, self.looked = desk, happens, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk.rows, name)

    def signals(self, lease_id: str) -> Any:
        self.looked += 1
        self._happens()
        return self._desk.rows.signals(lease_id)


async def test_use_in_the_last_moment_saves_it(world: World) -> None:
    """The signals are read again right before the stop."""
    lease = world.server()
    await world.until(29)
    rows = Rows(world.desk, lambda: world.signal(lease, busy=True))
    world.culler = world.new_culler(rows=rows)
    await world.look()
    assert rows.looked == 1, "there was a second look"
    assert world.lease(lease).target is Target.RUN and not world.hub.stopped
    assert world.kind(lease) == "keep:busy-kernel"


async def test_who_was_faster_keeps_their_reason(world: World) -> None:
    lease = world.server()
    await world.until(29)
    stop = lambda: world.desk.book.request_stop(lease.id, StopReason.USER, by="alice")  # noqa: E731
    world.culler = world.new_culler(rows=Rows(world.desk, stop))
    await world.look()
    assert world.lease(lease).stop_reason is StopReason.USER and not world.hub.stopped


async def test_a_new_server_of_the_same_name_is_not_hit(world: World) -> None:
    """The old lease ended and a new one began while the Hub was down."""
    lease = world.server()
    await world.until(29)
    world.hub.down = True
    await world.look()
    world.hub.down = False
    ended = world.desk.end(world.lease(lease))
    assert ended.stop_reason is StopReason.IDLE
    world.server()
    await world.look()
    assert world.hub.stopped == []
    holder = world.desk.book.live_of(Holder("alice"))
    assert holder is not None and holder.target is Target.RUN


async def test_the_same_verdict_is_not_written_every_second(world: World) -> None:
    lease = world.server()
    await world.look(1)
    first = world.desk.rows.verdict(lease.id)
    await world.look(1)
    second = world.desk.rows.verdict(lease.id)
    await world.look(70)
    third = world.desk.rows.verdict(lease.id)
    assert first and second and third
    assert first.at == second.at < third.at


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("idle_culler.app.BEAT_SECONDS", 0.02)
    yield


async def eventually(ask: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE * 20
    while not ask():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def test_run_beats_survives_and_ends(world: World, quick: None, caplog: pytest.LogCaptureFixture) -> None:
    """A book that fails for a while is shown in the heartbeat and in the log; the end takes the heartbeat off."""
    failing = True

    class Book:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.desk.book, name)

        def live(self) -> list[Lease]:
            if failing:
                raise OSError("disk on fire")
            return world.desk.book.live()

    def note() -> str:
        beats = world.desk.rows.boots(role="idle-culler")
        return from_note(beats[0].note).words if beats else ""

    stop = asyncio.Event()
    running = asyncio.create_task(run(world.parts(book=Book(), cycle_seconds=0.05), stop))
    await eventually(lambda: "unhealthy: the book cannot be read (OSError: disk on fire)" in note(), "trouble shows")
    failing = False
    await eventually(lambda: note().startswith("ok; last successful cycle: 2026-03-02T09:00:00Z"), "it recovers")
    stop.set()
    await asyncio.wait_for(running, 10)
    assert world.desk.rows.boots(role="idle-culler") == []
    assert "A cycle of the idle culler failed" in caplog.text
