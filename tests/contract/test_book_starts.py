"""Scheduled starts on a real book: who may have how many, and that one is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from quota.errors import NotFound
from quota.schedules import CLAIMED, KEPT, LATEST, ScheduleRefused, Schedules, Start, StartState
from tests.fakes.book import Desk, open_desk

HOUR = timedelta(hours=1)
PAUSE = timedelta(seconds=30)
OPTIONS = {"profile": "gpu-1-4", "image": "env", "payer": "alice"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        yield desk


@pytest.fixture
def schedules(desk: Desk) -> Schedules:
    return Schedules(desk.store, desk.clock, most=3)


def add(schedules: Schedules, desk: Desk, after: timedelta = HOUR, user: str = "alice", server: str = "") -> Start:
    return schedules.add(user, server, OPTIONS, desk.now + after, user)


def test_it_is_kept_as_it_was_asked_for(desk: Desk, schedules: Schedules) -> None:
    start = add(schedules, desk)
    assert schedules.of("alice") == [start] == [schedules.one(start.id)]
    assert (start.options, start.start_at, start.state, start.profile) == (
        OPTIONS,
        desk.now + HOUR,
        "waiting",
        "gpu-1-4",
    )
    assert schedules.of("bob") == []
    with pytest.raises(NotFound):
        schedules.one("s0")


def test_what_is_not_taken(desk: Desk, schedules: Schedules) -> None:
    for after, code in ((timedelta(0), "too-soon"), (-HOUR, "too-soon"), (LATEST + HOUR, "too-far")):
        with pytest.raises(ScheduleRefused, match=code):
            add(schedules, desk, after)
    add(schedules, desk)
    with pytest.raises(ScheduleRefused, match="twice"):
        add(schedules, desk)
    add(schedules, desk, server="two")
    add(schedules, desk, 2 * HOUR)
    with pytest.raises(ScheduleRefused, match="too-many") as refused:
        add(schedules, desk, 3 * HOUR)
    assert refused.value.most == 3
    add(schedules, desk, user="bob")
    with pytest.raises(ScheduleRefused, match="off"):
        Schedules(desk.store, desk.clock, most=0).add("bob", "", OPTIONS, desk.now + HOUR, "bob")


def test_one_that_is_taken_off_is_never_made(desk: Desk, schedules: Schedules) -> None:
    start = add(schedules, desk)
    assert schedules.cancel(start.id).state is StartState.CANCELLED
    assert schedules.cancel(start.id).state is StartState.CANCELLED
    desk.clock.advance(7200)
    assert schedules.due(PAUSE) == []
    assert schedules.claim(start) is None


def test_two_never_claim_the_same(desk: Desk, schedules: Schedules) -> None:
    start = add(schedules, desk)
    assert schedules.due(PAUSE) == []
    desk.clock.advance(3600)
    assert schedules.due(PAUSE) == [start]
    mine = schedules.claim(start)
    assert mine is not None and mine.state is StartState.STARTING and mine.tried_at == desk.now
    assert schedules.claim(start) is None
    assert schedules.due(PAUSE) == []
    with pytest.raises(ScheduleRefused, match="under-way"):
        schedules.cancel(start.id)
    assert schedules.end(mine, StartState.STARTED) is True
    assert schedules.end(mine, StartState.FAILED, "no") is False, "what is over stays"
    assert schedules.one(start.id).state is StartState.STARTED


def at_once(work: Callable[[int], object]) -> list[object]:
    """Eight threads begin together; what each got, or how it was refused."""
    gate = Barrier(8)

    def one(number: int) -> object:
        gate.wait(20)
        try:
            return work(number)
        except ScheduleRefused as refused:
            return refused.code

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(one, range(8)))


def test_eight_at_once_get_no_more_than_one_may_have(desk: Desk, schedules: Schedules) -> None:
    desk.bank.ensure_account("alice")
    found = at_once(lambda number: add(schedules, desk, HOUR * (number + 1)))
    assert len(schedules.of("alice")) == 3 and found.count("too-many") == 5
    for start in schedules.of("alice"):
        schedules.cancel(start.id)
    found = at_once(lambda _number: add(schedules, desk))
    assert found.count("twice") == 7


def test_eight_at_once_claim_it_once(desk: Desk, schedules: Schedules) -> None:
    start = add(schedules, desk)
    desk.clock.advance(3600)
    found = at_once(lambda _number: schedules.claim(start))
    assert len([each for each in found if each is not None]) == 1


def test_what_a_dead_process_claimed_is_looked_at_again_by_one(desk: Desk, schedules: Schedules) -> None:
    start = add(schedules, desk, timedelta(seconds=1))
    desk.clock.advance(1)
    lost = schedules.claim(start)
    desk.clock.advance(CLAIMED.total_seconds())
    assert schedules.due(PAUSE) == [lost]
    assert lost is not None
    mine = schedules.claim(lost)
    assert mine is not None and schedules.claim(lost) is None
    assert schedules.wait(lost) is False, "it lives after all, and has nothing to say any more"
    assert schedules.wait(mine, "No room.") is True
    assert schedules.due(PAUSE) == [], "it rests"
    desk.clock.advance(30)
    assert [each.outcome for each in schedules.due(PAUSE)] == ["No room."]


def test_only_the_newest_that_are_over_are_kept(desk: Desk, schedules: Schedules) -> None:
    for _ in range(KEPT + 5):
        schedules.cancel(add(schedules, desk).id)
        desk.clock.advance(60)
    coming = add(schedules, desk)
    found = schedules.of("alice")
    assert found[0] == coming and len(found) == KEPT + 1
    assert [each.start_at for each in found[1:]] == sorted((each.start_at for each in found[1:]), reverse=True)
