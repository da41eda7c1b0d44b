"""The idle culler on both databases: wishes, the longest life, alerts, notices through the outbox, and its own rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from idle_culler.decide import Policy
from idle_culler.policies import PolicyRule, policy_of
from quota import schema_stops
from quota.leases import Lease, StopReason, Target
from quota.leaving import Graces
from quota.outbox import Outbox
from quota.verdicts import Told, Verdict
from quota.wish import NO_WISH
from quota.wishes import Wishes
from quota.wishing import Bounds, Wishing
from tests.contract.culled_worlds import World, open_world
from tests.fakes.book import HOST, gpu

HOUR = timedelta(hours=1)
GRACES = Graces(timedelta(minutes=2), timedelta(seconds=15))
FOUR_HOURS = Policy(idle_gpu=1800, idle_cpu=7200, notice=600, max_age=4 * 3600)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as made:
        made.culler = made.new_culler(**parts_of(made))
        yield made


def parts_of(world: World) -> dict[str, Any]:
    """The parts that stand in the book, as the site has them."""
    desk = world.desk
    return {"wishes": Wishes(desk.store, desk.clock), "alerts": desk.alerts}


def wishing(world: World) -> Wishing:
    return Wishing(world.desk.bank, Bounds(3 * HOUR, lambda lease: None))


def real_devices(world: World) -> None:
    world.desk.rows.put_devices(HOST, [gpu(number, simulated=False) for number in range(4)])


# ---- wishes ------------------------------------------------------------------------------------------------------


async def test_i15_a_kept_server_outlives_its_limit_and_is_warned_before_the_wish_ends(world: World) -> None:
    lease = world.server()
    await world.until(10)
    wishing(world).keep(lease.id, HOUR, "alice")
    until = world.desk.now + HOUR
    await world.until(50)
    assert world.kind(lease) == "keep:kept"
    await world.until(6)
    verdict = world.desk.rows.verdict(lease.id)
    assert verdict and (verdict.kind, verdict.rule, verdict.deadline) == ("warn", "idle", until)
    wanted = verdict.evidence["wish"]
    assert datetime.fromisoformat(wanted["keep_until"]) == until
    await world.until(4)
    assert world.lease(lease).stop_reason is StopReason.IDLE


async def test_i15_a_wish_that_is_withdrawn_keeps_nothing(world: World) -> None:
    lease = world.server()
    wishing(world).keep(lease.id, 3 * HOUR, "alice")
    await world.until(31)
    assert world.kind(lease) == "keep:kept"
    wishing(world).no_keep(lease.id, "alice")
    await world.look()
    assert world.kind(lease) == "warn:idle"


async def test_i15_a_set_end_comes_whatever_runs(world: World) -> None:
    lease = world.server()
    wishing(world).shut_down(lease.id, world.desk.now + timedelta(minutes=30), "alice")
    await world.until(24, busy=True)
    assert world.kind(lease) == "keep:busy-kernel"
    await world.look(busy=True)
    assert world.kind(lease) == "warn:shutdown"
    await world.until(5, busy=True)
    stopped = world.lease(lease)
    assert (stopped.target, stopped.stop_reason, stopped.stop_by) == (Target.STOP, StopReason.SHUTDOWN, "idle-culler")
    assert "asked for it to be stopped at 09:30 UTC" in stopped.stop_detail


async def test_i15_a_set_end_that_is_taken_back_is_not_asked_for_again(world: World) -> None:
    lease = world.server()
    wishes = Wishes(world.desk.store, world.desk.clock)
    wishing(world).shut_down(lease.id, world.desk.now + timedelta(minutes=5), "alice")
    wishing(world).when_done(lease.id, True, "alice")
    world.desk.book.request_stop(lease.id, StopReason.SHUTDOWN, stop_after=world.desk.now + timedelta(minutes=9))
    world.desk.clock.advance(360)
    assert world.desk.book.cancel_stop(lease.id, "alice").target is Target.RUN
    found = wishes.of([lease.id])[lease.id]
    assert (found.shutdown_at, found.when_done) == (None, True), "the other wish stands"
    assert "shutdown-withdrawn" in [event.kind for event in world.desk.rows.events(lease.id)]
    await world.until(3, busy=True)
    assert world.lease(lease).target is Target.RUN


async def test_i15_an_end_that_was_not_due_outlives_a_stop_that_is_taken_back(world: World) -> None:
    lease = world.server()
    later = world.desk.now + HOUR
    wishing(world).shut_down(lease.id, later, "alice")
    for reason in (StopReason.SHUTDOWN, StopReason.IDLE):
        world.desk.book.request_stop(lease.id, reason, stop_after=world.desk.now + timedelta(minutes=2))
        world.desk.book.cancel_stop(lease.id, "alice")
    assert Wishes(world.desk.store, world.desk.clock).of([lease.id])[lease.id].shutdown_at == later


async def test_i15_when_done_waits_for_programs_that_only_wait(world: World) -> None:
    """A `nohup` job that sleeps uses nothing, and is not done."""
    world.policy = Policy(None, None, 300)
    lease = world.server()
    wishing(world).when_done(lease.id, True, "alice")
    await world.until(20, programs=1)
    verdict = world.desk.rows.verdict(lease.id)
    assert verdict and world.lease(lease).target is Target.RUN
    assert verdict.words.endswith("(programs that live: 1)")
    await world.look()
    assert world.lease(lease).stop_reason is StopReason.SHUTDOWN
    assert "when its work is done" in world.lease(lease).stop_detail


async def test_i08_a_wish_that_cannot_be_read_leaves_its_server_alone_and_hides_nobody(world: World) -> None:
    real = Wishes(world.desk.store, world.desk.clock)
    bad, good = world.server("alice"), world.server("bob")

    class Torn:
        def of(self, ids: Any) -> Any:
            if bad.id in ids:
                raise ValueError("a row that nobody can read")
            return real.of(ids)

    world.culler = world.new_culler(wishes=Torn(), alerts=world.desk.alerts)
    await world.until(31)
    assert world.lease(bad).target is Target.RUN and world.lease(good).stop_reason is StopReason.IDLE
    assert "1 of 2 leases could not be judged" in world.culler.health()


# ---- the longest life ----------------------------------------------------------------------------------------------


async def test_i14_the_longest_life_ends_a_server_that_is_always_busy_and_names_rule_and_value(world: World) -> None:
    world.policy = FOUR_HOURS
    lease = world.server()
    started = world.desk.now
    await world.until(229, busy=True, last=world.desk.now)
    assert world.kind(lease) == "keep:busy-kernel"
    await world.look(busy=True)
    verdict = world.desk.rows.verdict(lease.id)
    assert verdict and world.kind(lease) == "warn:max-age" and verdict.deadline == started + 4 * HOUR
    world.culler = world.new_culler(**parts_of(world))  # the warning survives a restart
    await world.until(10, busy=True)
    stopped = world.lease(lease)
    assert stopped.stop_reason is StopReason.MAX_AGE
    assert "4 h after their start (idle.max_age)" in stopped.stop_detail
    assert world.hub.stopped == [("alice", "")]
    assert world.history(lease) == ["warn:max-age", "reclaim:max-age"]


async def test_i17_no_stop_that_is_taken_back_puts_the_longest_life_off(world: World) -> None:
    """Its user sets an end, lets it come, takes it back by use, again and again."""
    world.policy = FOUR_HOURS
    lease, wishes = world.server(), wishing(world)
    for _ in range(260):
        now = world.lease(lease)
        if now.target is Target.STOP and now.stop_reason is StopReason.SHUTDOWN:
            world.desk.book.cancel_stop(lease.id, "alice")
        elif now.target is Target.STOP:
            break
        wishes.shut_down(lease.id, world.desk.now + timedelta(seconds=60), "alice")
        world.culler = world.new_culler(**parts_of(world), graces=GRACES)
        await world.look(busy=True)
    ended = world.lease(lease)
    assert ended.stop_reason is StopReason.MAX_AGE
    assert world.desk.now - (lease.started_at or world.desk.now) <= 4 * HOUR + timedelta(minutes=12)


# ---- notices -------------------------------------------------------------------------------------------------------


def outbox_of(world: World) -> list[tuple[str, str]]:
    """Kinds and words of the notices in the book, the oldest first."""
    table = schema_stops.notice
    with world.desk.store.read() as connection:
        rows = connection.execute(sa.select(table.c.kind, table.c.words).order_by(table.c.id))
        return [(row.kind, row.words) for row in rows]


async def told_in_the_book(world: World, before: int, after: int, **signals: Any) -> list[tuple[str, str]]:
    """What the outbox has after so many minutes of looks, with a culler that is restarted in between."""
    out = Outbox(world.desk.store, world.desk.clock)
    for minutes in (before, after):
        world.culler = world.new_culler(**parts_of(world), notifier=out)
        await world.until(minutes, **signals)
    out.close()
    return outbox_of(world)


async def test_i14_the_longest_life_is_told_twice_before_and_once_when_it_comes(world: World) -> None:
    world.policy = FOUR_HOURS
    world.server()
    told = await told_in_the_book(world, 235, 6, busy=True)
    assert [kind for kind, _ in told] == ["max-age-warning", "max-age-warning", "max-age-stop"]
    assert "will be stopped at 2026-03-02 13:00 UTC" in told[0][1]
    assert "is being stopped" in told[2][1] and "(idle.max_age)" in told[2][1]


async def test_i14_a_set_end_is_told_twice_before_and_once_when_it_comes(world: World) -> None:
    lease = world.server()
    wishing(world).shut_down(lease.id, world.desk.now + timedelta(minutes=15), "alice")
    told = await told_in_the_book(world, 12, 4, busy=True)
    assert [kind for kind, _ in told] == ["shutdown-warning", "shutdown-warning", "shutdown-stop"]
    assert "as you asked" in told[0][1] and "asked for it to be stopped at 09:15 UTC" in told[2][1]


async def test_i14_an_end_by_its_users_wish_is_told_when_it_comes(world: World) -> None:
    lease = world.server()
    wishing(world).when_done(lease.id, True, "alice")
    ((kind, words),) = await told_in_the_book(world, 2, 4)
    assert kind == "shutdown-stop" and "nothing has run since 09:00 UTC" in words


async def test_i14_idleness_is_told_twice_before_and_once_when_it_comes(world: World) -> None:
    world.policy = Policy(notice=600)
    world.server()
    told = await told_in_the_book(world, 25, 6)
    assert [kind for kind, _ in told] == ["idle-warning", "idle-warning", "idle-stop"]


async def test_a_second_stop_after_one_that_was_taken_back_is_told_as_well(world: World) -> None:
    lease, out = world.server(), Outbox(world.desk.store, world.desk.clock)
    world.culler = world.new_culler(**parts_of(world), notifier=out, graces=GRACES)
    await world.until(31)
    assert world.lease(lease).target is Target.STOP
    world.desk.book.cancel_stop(lease.id, "alice")
    await world.look(60, busy=True)
    await world.until(31)
    assert world.lease(lease).target is Target.STOP
    out.close()
    assert [kind for kind, _ in outbox_of(world)].count("idle-stop") == 2


@pytest.mark.parametrize("restarts", [False, True])
async def test_i14_after_a_stop_that_was_taken_back_comes_a_warning_and_no_second_stop_at_once(
    world: World, restarts: bool
) -> None:
    """Its user is back, and the next look comes before the kit has reported what they ran."""
    lease, out = world.server(), Outbox(world.desk.store, world.desk.clock)
    world.policy = Policy(notice=600)
    world.culler = world.new_culler(**parts_of(world), notifier=out, graces=GRACES)
    await world.until(30)
    assert world.lease(lease).stop_reason is StopReason.IDLE
    world.desk.book.cancel_stop(lease.id, "alice")
    if restarts:
        world.culler = world.new_culler(**parts_of(world), notifier=out, graces=GRACES)
    await world.look(15)
    verdict = world.desk.rows.verdict(lease.id)
    assert verdict and world.lease(lease).target is Target.RUN
    assert (world.kind(lease), verdict.deadline) == ("warn:idle", world.desk.now + timedelta(minutes=10))
    await world.until(10)
    assert world.lease(lease).stop_reason is StopReason.IDLE, "and nobody came"
    out.close()
    kinds = [kind for kind, _ in outbox_of(world)]
    assert kinds == ["idle-warning", "idle-warning", "idle-stop"] * 2


async def test_a_stop_that_could_not_be_written_is_written_by_the_next_look(world: World) -> None:
    """The warning that was given stands."""
    lease = world.server()

    class Torn:
        away = True

        def __getattr__(self, name: str) -> Any:
            return getattr(world.desk.book, name)

        def request_stop(self, *words: Any, **more: Any) -> Lease:
            if self.away:
                raise ConnectionError("away")
            return world.desk.book.request_stop(*words, **more)

    torn = Torn()
    world.culler = world.new_culler(**parts_of(world), book=torn)
    await world.until(32)
    assert world.lease(lease).target is Target.RUN and "could not be reclaimed" in world.culler.health()
    torn.away = False
    await world.look()
    assert world.lease(lease).stop_reason is StopReason.IDLE


# ---- alerts --------------------------------------------------------------------------------------------------------


def open_alerts(world: World) -> set[str]:
    return {alert.key for alert in world.desk.alerts.open()}


async def test_i17_suspected_keep_busy_is_an_alert_and_stops_nobody(world: World) -> None:
    real_devices(world)
    lease = world.server()
    burns = {"util": 30, "memory_util": 0, "memory_used_mib": 500, "simulated": False}
    for minute in range(181):
        await world.look(60, gpu={**burns, "active_at": world.desk.now.isoformat()})
        if minute == 90:  # a restart does not begin to count anew
            world.culler = world.new_culler(**parts_of(world))
    assert open_alerts(world) == {f"keep-busy:{lease.id}"}
    (alert,) = world.desk.alerts.open()
    assert "alice" in alert.words and alert.detail["lease"] == lease.id
    assert world.lease(lease).target is Target.RUN and world.kind(lease) == "keep:gpu-active"
    await world.look(60, gpu={**burns, "util": 75, "active_at": world.desk.now.isoformat()})
    assert open_alerts(world) == set()


async def test_i16_a_gpu_that_works_for_nobody_is_an_alert_until_it_is_used(world: World) -> None:
    real_devices(world)
    lease = world.server()
    held = {"util": 0, "memory_util": 0, "memory_used_mib": 20_480, "simulated": False, "active_at": None}
    held["active_at"] = world.desk.now.isoformat()
    await world.until(121, busy=True, gpu=held)
    assert open_alerts(world) == {f"gpu-unused:{lease.id}"}
    await world.look(60, busy=True, gpu={**held, "util": 40})
    assert open_alerts(world) == set()


async def test_i07_blind_servers_are_one_alert_that_survives_a_restart_and_ends(world: World) -> None:
    real_devices(world)
    leases = [world.server("alice"), world.server("bob")]
    await world.until(4, gpu={"util": None, "reason": "unknown"})
    (alert,) = world.desk.alerts.open()
    assert (alert.key, alert.detail) == ("idle-blind", {"leases": 2})
    world.culler = world.new_culler(**parts_of(world))
    await world.until(2, gpu={"util": 0, "memory_used_mib": 0, "active_at": None})
    assert open_alerts(world) == set()
    assert {world.kind(lease) for lease in leases} == {"keep:recent"}


# ---- its rows ------------------------------------------------------------------------------------------------------


def verdict_of(lease: Lease, at: datetime, words: str, deadline: datetime | None = None) -> Verdict:
    return Verdict(lease.id, at, "warn" if deadline else "keep", "idle", words, {"n": [1, None, "ä"]}, deadline)


async def test_verdicts_are_written_together_over_older_ones_with_their_history(world: World) -> None:
    rows, now = world.desk.rows, world.desk.now
    first, second, over = world.server("alice"), world.server("bob"), world.server("carol")
    rows.put_verdicts([verdict_of(each, now, "before") for each in (first, second, over)])
    world.desk.end(world.lease(over))
    later = now + timedelta(minutes=1)
    new = [verdict_of(first, later, "new", later + HOUR), verdict_of(second, later, "新")]
    rows.put_verdicts(new, [Told(first.id, first.account_id, "idle-culler", {"kind": "warn", "rule": "idle"})])
    assert rows.verdicts() == {verdict.lease_id: verdict for verdict in new}, "of live leases alone"
    assert rows.verdicts([second.id]) == {second.id: new[1]}
    assert world.history(first) == ["warn:idle"] and world.history(second) == []


async def test_of_verdicts_that_cannot_be_written_together_none_is(world: World) -> None:
    lease = world.server()
    before = verdict_of(lease, world.desk.now, "before")
    world.desk.rows.put_verdicts([before])
    foreign = Verdict("no-such-lease", world.desk.now, "keep", "idle", "x", {})
    told = Told(lease.id, lease.account_id, "idle-culler", {"kind": "keep", "rule": "idle"})
    with pytest.raises(sa.exc.IntegrityError):
        world.desk.rows.put_verdicts([verdict_of(lease, world.desk.now, "after"), foreign], [told])
    assert world.desk.rows.verdict(lease.id) == before and world.history(lease) == []


async def test_watched_is_every_live_lease_with_all_its_sources(world: World) -> None:
    first, second, over = world.server("alice"), world.server("bob"), world.server("carol")
    for lease in (first, second, over):
        world.signal(lease)
    world.desk.end(world.lease(over))
    world.desk.clock.advance(5)
    world.signal(second, busy=True)
    found = world.desk.rows.watched()
    assert set(found) == {first.id, second.id} and set(found[first.id]) == {"kit", "host"}
    at, payload = found[second.id]["kit"]
    assert at == world.desk.now and payload["kernels"][0]["busy"] is True
    assert found[first.id]["kit"][0] == world.desk.now - timedelta(seconds=5)
    assert {source: row for source, row in found[second.id].items()} == dict(world.desk.rows.signals(second.id))


async def test_nothing_wished_is_no_wish(world: World) -> None:
    lease = world.server()
    assert Wishes(world.desk.store, world.desk.clock).of([lease.id, "none"]) == {lease.id: NO_WISH, "none": NO_WISH}


async def test_i13_rules_of_two_leases_at_once_come_from_the_book(world: World) -> None:
    """The site's rules see profile and groups as the lease has them."""
    rules = [
        PolicyRule(1, {"with_gpu": 600}, profiles=frozenset({"test"}), groups=frozenset({"class"})),
        PolicyRule(2, {"with_gpu": 1200}, profiles=frozenset({"test"})),
    ]
    student = world.desk.run("alice", share=1000, groups=("class",))
    other = world.desk.run("bob", share=1000)
    for lease in (student, other):
        world.hub.add(lease.holder.user, "")
        world.leases.append(lease)
    plain = Policy(notice=60)
    world.culler = world.new_culler(policy=lambda lease: policy_of(plain, rules, lease, world.desk.now))
    await world.until(11)
    assert "(idle.rules[1].with_gpu)" in world.lease(student).stop_detail
    assert world.lease(other).target is Target.RUN
    await world.until(10)
    assert "(idle.rules[2].with_gpu)" in world.lease(other).stop_detail
