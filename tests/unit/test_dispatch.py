"""Scheduled starts are made once, told once, and never silently lost: the dispatcher on a real book, with a Hub that
refuses, is silent, or dies between its answer and the record of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from quota import told
from quota.dispatch import ALERT, SCOPE, Dispatcher, StartForbidden, StartRefused, check_scopes, keep_dispatching
from quota.leases import StopReason
from quota.notices import Notice
from quota.schedules import CLAIMED, Schedules, Start, StartState
from quota.web.parts import HubUnavailable
from tests.fakes.book import Desk, open_desk
from tests.fakes.spawner_world import until

MINUTE = timedelta(minutes=1)
WINDOW = 10 * MINUTE
OPTIONS = {"profile": "gpu-1-4", "image": "env", "payer": "alice"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        yield desk


@dataclass
class Hub:
    """What it was asked; `answers` are done one by one, then it starts for good."""

    desk: Desk
    answers: list[Callable[[], None]] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)
    may: frozenset[str] = frozenset({SCOPE})
    made: datetime | None = datetime(2020, 1, 1, tzinfo=UTC)

    async def start_server(self, user: str, server: str, options: dict[str, str], language: str = "") -> None:
        self.asked.append((user, server, options, language))
        if self.answers:
            self.answers.pop(0)()
        else:
            self.desk.run(user, server)

    async def made_at(self, user: str) -> datetime | None:
        return self.made

    async def scopes(self) -> frozenset[str]:
        return self.may


@dataclass
class Site:
    desk: Desk
    hub: Hub
    schedules: Schedules
    dispatcher: Dispatcher
    notices: list[Notice]

    def add(self, user: str = "alice") -> Start:
        return self.schedules.add(user, "", OPTIONS, self.desk.now + MINUTE, user)

    def later(self, span: timedelta = MINUTE) -> None:
        self.desk.clock.advance(span.total_seconds())
        asyncio.run(self.dispatcher.look())

    def state(self, start: Start) -> tuple[str, str]:
        now = self.schedules.one(start.id)
        return now.state.value, now.outcome


@pytest.fixture
def site(desk: Desk) -> Site:
    schedules, hub, notices = Schedules(desk.store, desk.clock), Hub(desk), list[Notice]()
    dispatcher = Dispatcher(
        schedules, desk.book, hub, desk.alerts, desk.clock, notices.append, lambda user: "zh-CN", WINDOW
    )
    return Site(desk, hub, schedules, dispatcher, notices)


def refuse(words: str) -> Callable[[], None]:
    def answer() -> None:
        raise StartRefused(words)

    return answer


def silent() -> None:
    raise HubUnavailable("no answer")


def test_it_is_made_at_its_time_and_told(site: Site) -> None:
    start = site.add()
    site.later(MINUTE - timedelta(seconds=1))
    assert site.hub.asked == []
    site.later(timedelta(seconds=1))
    assert site.hub.asked == [("alice", "", OPTIONS, "zh-CN")]
    assert site.state(start) == ("started", "")
    assert [(each.user, each.kind.value, each.data["schedule"]) for each in site.notices] == [
        ("alice", "start-done", start.id)
    ]
    site.later()
    assert len(site.hub.asked) == len(site.notices) == 1


def test_a_refused_one_is_tried_again_within_the_window(site: Site) -> None:
    start = site.add()
    site.hub.answers = [refuse("Refused: no GPU is free."), silent]
    site.later()
    assert site.state(start) == ("waiting", "Refused: no GPU is free.")
    site.later()
    assert site.state(start) == ("waiting", told.START_UNANSWERED)
    site.later()
    assert (len(site.hub.asked), site.state(start)[0]) == (3, "started")
    assert [each.kind.value for each in site.notices] == ["start-done"]


def test_one_that_is_refused_to_the_end_is_told_with_the_reason(site: Site) -> None:
    start = site.add()
    site.hub.answers = [refuse("Refused: your balance is too low.")] * 100
    for _ in range(12):
        site.later()
    assert site.state(start) == ("failed", "Refused: your balance is too low.")
    (notice,) = site.notices
    assert (notice.kind.value, notice.link) == ("start-failed", "/services/berth/starts")
    assert "your balance is too low" in notice.words
    tries = len(site.hub.asked)
    site.later()
    assert len(site.hub.asked) == tries and site.desk.book.leases(user="alice") == []


def test_one_whose_time_passed_while_nothing_ran_is_missed_and_told(site: Site) -> None:
    start = site.add()
    site.later(MINUTE + WINDOW + timedelta(seconds=1))
    assert site.state(start) == ("missed", told.START_MISSED)
    assert site.hub.asked == []
    assert told.START_MISSED in site.notices[0].words


def test_one_whose_time_passed_is_still_made_within_the_window(site: Site) -> None:
    start = site.add()
    site.later(MINUTE + WINDOW - timedelta(seconds=1))
    assert site.state(start)[0] == "started"


def test_a_process_that_died_after_the_hub_had_started_it_starts_no_second_one(site: Site) -> None:
    """The claim is in the book; the next process finds the lease and asks nobody."""
    start = site.add()
    site.desk.clock.advance(60)
    assert site.schedules.claim(start) is not None
    site.desk.run("alice")
    site.later(timedelta(0))
    assert site.state(start)[0] == "starting", "the claim may still be good"
    site.later(CLAIMED)
    assert (site.state(start)[0], site.hub.asked) == ("started", [])


def test_a_process_that_died_before_it_asked_loses_nothing(site: Site) -> None:
    start = site.add()
    site.desk.clock.advance(60)
    assert site.schedules.claim(start) is not None
    site.later(CLAIMED)
    assert (site.state(start)[0], len(site.hub.asked)) == ("started", 1)


def test_a_process_that_died_between_telling_and_record_tells_under_the_same_key(site: Site) -> None:
    """The outbox takes each key once."""
    start, end = site.add(), Schedules.end

    class Died(Exception):
        pass

    def dies(*_args: object) -> bool:
        raise Died

    site.schedules.end = dies  # type: ignore[assignment,method-assign]
    site.later()
    site.schedules.end = end.__get__(site.schedules)  # type: ignore[method-assign]
    site.later(CLAIMED)
    assert site.state(start)[0] == "started"
    assert len(site.notices) == 2 and len({each.key for each in site.notices}) == 1
    assert len(site.hub.asked) == 1


def test_who_started_it_and_stopped_it_again_gets_no_second_one(site: Site) -> None:
    start = site.add()

    def both() -> None:
        lease = site.desk.run("alice")
        site.desk.book.request_stop(lease.id, StopReason.USER)
        site.desk.wind_up(site.desk.book.acknowledge(lease.id, "boot-1"))
        raise HubUnavailable("the answer was lost")

    site.hub.answers = [both]
    site.later()
    site.later()
    assert (site.state(start)[0], len(site.hub.asked)) == ("started", 1)


def test_one_whose_server_runs_already_is_over_and_nobody_is_written_to(site: Site) -> None:
    start = site.add()
    site.desk.run("alice")
    site.later()
    assert site.state(start) == ("started", told.START_THERE)
    assert (site.hub.asked, site.notices) == ([], [])


def test_one_bad_start_hides_no_other(site: Site) -> None:
    bad, good = site.add("bob"), site.add()

    def bug() -> None:
        raise RuntimeError("a fault of ours")

    site.hub.answers = [bug]
    site.later()
    assert {site.state(bad)[0], site.state(good)[0]} == {"starting", "started"}
    site.later(CLAIMED)
    assert site.state(bad)[0] == site.state(good)[0] == StartState.STARTED


def test_one_that_the_hub_forbids_berth_is_an_alert_and_no_fault_of_the_user(site: Site) -> None:
    start = site.add()

    def forbid() -> None:
        raise StartForbidden("the token lacks it")

    site.hub.answers, site.hub.may = [forbid], frozenset()
    site.later()
    assert site.state(start) == ("waiting", told.START_FORBIDDEN)
    assert [each.key for each in site.desk.alerts.open()] == [ALERT]
    site.hub.may = frozenset({SCOPE})
    site.later()
    assert site.state(start)[0] == "started"


def test_one_behind_a_stop_waits_for_it_and_asks_nobody(site: Site) -> None:
    """The Hub would refuse it in words for programs."""
    start = site.add()
    before = site.desk.run("alice")
    site.desk.book.request_stop(before.id, StopReason.USER)
    site.later()
    assert (site.state(start), site.hub.asked) == (("waiting", told.START_BEHIND_STOP), [])
    site.desk.wind_up(site.desk.book.acknowledge(before.id, "boot-1"))
    site.later()
    assert (site.state(start)[0], len(site.hub.asked)) == ("started", 1)


async def test_a_fault_in_one_look_is_not_the_end_of_the_next(site: Site) -> None:
    start, due = site.add(), Schedules.due
    site.desk.clock.advance(60)

    def faulty(*_args: object) -> list[Start]:
        site.schedules.due = due.__get__(site.schedules)  # type: ignore[method-assign]
        raise RuntimeError("a fault of ours")

    site.schedules.due = faulty  # type: ignore[method-assign]
    going_on = asyncio.create_task(keep_dispatching(site.dispatcher, every=0.01))
    try:
        await until(lambda: site.state(start)[0] == "started", 20)
    finally:
        going_on.cancel()


async def test_a_missing_scope_is_an_alert_until_it_is_there(desk: Desk) -> None:
    hub = Hub(desk, may=frozenset())
    assert await check_scopes(hub, desk.alerts) is False
    (alert,) = desk.alerts.open()
    assert alert.key == ALERT and SCOPE in alert.words
    hub.may = frozenset({SCOPE})
    assert await check_scopes(hub, desk.alerts) is True
    assert desk.alerts.open() == []


@pytest.mark.parametrize("who", ["deleted", "made anew"])
def test_who_has_a_name_later_inherits_no_start(site: Site, who: str) -> None:
    start = site.add()
    site.hub.made = None if who == "deleted" else site.desk.now + MINUTE / 2
    site.later()
    assert site.state(start) == ("cancelled", told.START_USER_GONE)
    assert (site.hub.asked, site.notices, site.desk.book.leases(user="alice", limit=1)) == ([], [], [])
