"""Appeals on a real book: who may make one, what a grant gives back, and that it does so once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.appeals import LONGEST, OPEN_FOR, AppealRefused, Appeals, proposed
from quota.errors import Conflict, NotFound
from quota.leases import Lease, StopReason
from quota.notices import Notice
from tests.fakes.book import Desk, open_desk

CREDIT = 10**6


class Ears:
    def __init__(self) -> None:
        self.heard: list[Notice] = []

    def deliver(self, notice: Notice) -> None:
        self.heard.append(notice)

    def counts(self) -> dict[str, int]:
        return {}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        yield desk


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def appeals(desk: Desk, ears: Ears) -> Appeals:
    return Appeals(desk.bank, ears)


def reclaimed(desk: Desk, reason: StopReason = StopReason.IDLE, hours: float = 2) -> Lease:
    lease = desk.run(share=1000)
    desk.clock.advance(3600 * hours)
    return desk.end(lease, reason)


def test_n6_a_grant_refunds_once_however_often_it_is_given(desk: Desk, appeals: Appeals, ears: Ears) -> None:
    lease = reclaimed(desk)
    made = appeals.make(lease.id, "alice", "  It was\n training. ")
    assert (made.words, appeals.open()) == ("It was training.", [made])
    before = desk.bank.account("alice").available
    granted = appeals.grant(lease.id, CREDIT, "Sorry.", "boss")
    assert granted == appeals.grant(lease.id, CREDIT, "Sorry.", "boss") == appeals.of([lease.id])[lease.id]
    assert (granted.granted, granted.refund, granted.decided_by, granted.answer) == (True, CREDIT, "boss", "Sorry.")
    assert desk.bank.account("alice").available == before + CREDIT
    assert appeals.open() == []
    assert [(each.kind, each.user) for each in ears.heard[:2]] == [("appeal-made", ""), ("appeal-decided", "alice")]
    assert len({each.key for each in ears.heard}) == 2
    assert desk.bank.audit() == []


def test_a_grant_is_never_above_the_charge_and_may_be_nothing(desk: Desk, appeals: Appeals) -> None:
    first, second = reclaimed(desk), reclaimed(desk)
    for each in (first, second):
        appeals.make(each.id, "alice", "No.")
    assert appeals.grant(first.id, 10**12, "", "boss").refund == 2 * CREDIT
    assert appeals.grant(second.id, 0, "True, but it cost you nothing.", "boss").refund == 0
    assert desk.bank.audit() == []


def test_a_refund_that_was_made_before_stays(desk: Desk, appeals: Appeals) -> None:
    lease = reclaimed(desk)
    appeals.make(lease.id, "alice", "No.")
    desk.bank.refund(lease.id, 5, "boss", "")
    with pytest.raises(Conflict):
        appeals.grant(lease.id, CREDIT, "", "boss")
    assert appeals.of([lease.id])[lease.id].granted is None
    assert appeals.grant(lease.id, 5, "", "boss").refund == 5
    assert desk.bank.audit() == []


def test_denying_needs_words_and_gives_nothing(desk: Desk, appeals: Appeals) -> None:
    lease = reclaimed(desk)
    appeals.make(lease.id, "alice", "No.")
    with pytest.raises(AppealRefused, match="no-words"):
        appeals.deny(lease.id, " ", "boss")
    before = desk.bank.account("alice").available
    assert appeals.deny(lease.id, "It was idle.", "boss").granted is False
    with pytest.raises(AppealRefused, match="decided"):
        appeals.grant(lease.id, CREDIT, "", "boss")
    assert desk.bank.account("alice").available == before


def test_who_may_not(desk: Desk, appeals: Appeals) -> None:
    lease, own = reclaimed(desk), reclaimed(desk, StopReason.USER, 0.1)
    running = desk.run()
    refusals = [
        (lease.id, "bob", "x", "not-yours"),
        (running.id, "alice", "x", "not-ended"),
        (own.id, "alice", "x", "own-stop"),
        (lease.id, "alice", " \n", "no-words"),
    ]
    for lease_id, user, words, code in refusals:
        with pytest.raises(AppealRefused, match=code):
            appeals.make(lease_id, user, words)
    with pytest.raises(NotFound):
        appeals.make("l0", "alice", "x")
    with pytest.raises(NotFound):
        appeals.grant(lease.id, 1, "", "boss")
    assert len(appeals.make(lease.id, "alice", "x" * 5000).words) == LONGEST
    with pytest.raises(AppealRefused, match="made-before"):
        appeals.make(lease.id, "alice", "x")


def test_after_thirty_days_it_is_too_late(desk: Desk, appeals: Appeals) -> None:
    first, second = reclaimed(desk, StopReason.MAX_AGE), reclaimed(desk, StopReason.MAX_AGE)
    desk.clock.set(second.ended_at + OPEN_FOR)  # type: ignore[operator]
    appeals.make(second.id, "alice", "x")
    with pytest.raises(AppealRefused, match="too-late"):
        appeals.make(first.id, "alice", "x")


def test_what_is_proposed_is_the_time_since_its_last_use(desk: Desk) -> None:
    lease = reclaimed(desk)
    segments = desk.book.segments([lease.id])[lease.id]
    used = desk.now - timedelta(minutes=30)
    assert proposed(lease, segments, {"idle_since": used.isoformat()}) == CREDIT // 2
    for evidence in (None, {}, {"idle_since": "never"}, {"idle_since": "2026-03-02T10:00:00"}):
        assert proposed(lease, segments, evidence) == 2 * CREDIT
    early = (desk.now - timedelta(days=9)).isoformat()
    assert proposed(lease, segments, {"idle_since": early}) == 2 * CREDIT
