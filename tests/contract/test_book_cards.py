"""How a server ended is told to its user, once, whoever ended it: the sweep over what was settled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from quota import cards, catalogues
from quota.cards import Cards
from quota.errors import Reason, Refused
from quota.farewells import Farewells
from quota.i18n import speaking
from quota.inbox import Inbox, Letter
from quota.leases import Lease, StopReason
from quota.notices import NAMED, Notice, idle_warning, stopped
from quota.outbox import Deliveries, Outbox
from quota.routing import MAIL, Preference
from quota.told import retold
from tests.fakes.book import Desk, open_desk

WHY = "Not used since 08:00 UTC (30 min): no code ran; servers with a GPU are stopped after 30 min without use (idle)"


def sweep(desk: Desk, put: Callable[[Notice], object] | None = None) -> Cards:
    found = Cards(desk.store, desk.clock, put or Outbox(desk.store, desk.clock, {MAIL}).put)
    found.look()
    return found


def reclaimed(desk: Desk, report: dict[str, Any] | None, done: bool = True) -> Lease:
    lease = desk.run(share=1000)
    desk.clock.advance(7200)
    desk.book.request_stop(lease.id, StopReason.IDLE, detail=WHY, stop_after=desk.now + timedelta(minutes=2))
    if report is not None:
        Farewells(desk.store, desk.clock).heard(lease.id, report, done=done)
    return desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))


def letters(desk: Desk, user: str = "alice") -> list[Letter]:
    return Inbox(desk.store, desk.clock).of(user, False)


def test_a_reclaimed_server_is_told_of_once_with_rule_evidence_cost_and_what_was_saved(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        look = sweep(desk)
        saved = [{"kind": "notebook", "path": "train.ipynb", "what": "train.ipynb"}]
        lost = [{"kind": "variable", "what": f"x{n}", "where": "train.ipynb", "why": "a thread"} for n in range(9)]
        lease = reclaimed(desk, {"state": "done", "saved": saved, "lost": lost})
        assert [look.look() for _ in range(3)] == [1, 0, 0]
        (letter,) = letters(desk)
        first, cost, counts, names, *unsaved = letter.words.split("\n")
        begins = "Your server with the profile test ended at 2026-03-02 11:00 UTC."
        assert first == f"{begins} Reclaimed because it was idle: {WHY}."
        assert cost == "It ran for 2 h and cost 2.00 credits."
        assert counts == "Saved: 1; could not be saved: 9. The list is on its receipt."
        assert names == "Saved: train.ipynb."
        assert unsaved == [f"Not saved: x{n}, train.ipynb (a thread)." for n in range(NAMED)]
        assert letter.link == f"/services/berth/lease/{lease.id}" and letter.read_at is None
        assert Deliveries(desk.store, desk.clock).of(letter.id) == {MAIL: ("waiting", "")}
        catalogues.load()
        with speaking("zh-CN"):
            told = retold(letter.words)
        assert not any(word in told for word in ("Your", "ended", "Saved", "saved", "Not", "stopped"))


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (None, "No saving was reported."),
        ({"state": "saving"}, "It began to save and did not say that it was done."),
    ],
)
def test_what_is_not_known_of_its_saving_is_said_to_be_unknown(
    tmp_path: Path, report: dict[str, Any] | None, words: str
) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        look = sweep(desk)
        reclaimed(desk, report, done=False)
        look.look()
        assert letters(desk)[0].words.split("\n")[2:] == [words]


def test_one_s_own_stop_is_on_the_page_and_read_unless_one_asks_for_more(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        look, inbox = sweep(desk), Inbox(desk.store, desk.clock)
        inbox.set_preference("bob", Preference(kinds={"own-stop": (MAIL,)}))
        for user in ("alice", "bob"):
            desk.session(60, user)
        assert look.look() == 2
        (alices,), (bobs,) = letters(desk), letters(desk, "bob")
        deliveries = Deliveries(desk.store, desk.clock)
        assert (inbox.unread("alice", False), deliveries.of(alices.id)) == (0, {})
        assert deliveries.of(bobs.id) == {MAIL: ("waiting", "")}


def test_what_ended_before_the_first_look_is_not_told_of_and_a_restart_forgets_nothing(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        desk.session(60)
        sweep(desk)
        assert letters(desk) == []
        running = desk.run("bob")
        desk.session(60)
        desk.clock.advance(3600)
        desk.end(running, StopReason.ADMIN)  # while nobody looked
        assert Cards(desk.store, desk.clock, Outbox(desk.store, desk.clock).put).look() == 2
        assert len(letters(desk)) == len(letters(desk, "bob")) == 1
        sweep(desk)
        assert len(letters(desk)) == len(letters(desk, "bob")) == 1


def test_a_long_history_is_gone_through_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "MOST", 2)
    monkeypatch.setattr(cards, "AGAIN", 3)
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        look = sweep(desk)
        ended = [desk.session(60).id for _ in range(7)]
        assert [look.look() for _ in range(5)] == [2, 2, 2, 1, 0]
        assert [letter.lease_id for letter in letters(desk)] == ended[::-1]


def test_one_that_cannot_be_told_holds_up_no_other_and_a_book_that_is_away_is_looked_at_again(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        put, fails = Outbox(desk.store, desk.clock).put, list[Exception]()

        def trouble(notice: Notice) -> object:
            if fails and notice.user == "alice":
                raise fails[0]
            return put(replace(notice))

        look = sweep(desk, trouble)
        fails.append(ValueError("strange"))
        desk.session(60)
        desk.session(60, "bob")
        assert look.look() == 1 and letters(desk) == []
        fails[0] = Refused(Reason.BOOK_UNAVAILABLE)
        with pytest.raises(Refused):
            look.look()
        fails.clear()
        assert look.look() == 1 and len(letters(desk)) == 1


def test_a_start_that_never_answered_and_what_still_runs_are_not_told_of(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        look = sweep(desk)
        desk.run("bob")
        failed = desk.reserve("alice")
        desk.book.request_stop(failed.id, StopReason.FAILED)
        assert desk.wind_up(desk.book.acknowledge(failed.id, "boot-1")).started_at is None
        assert look.look() == 0


def test_what_was_tidied_away_is_not_told_of_again(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        look = sweep(desk)
        reclaimed(desk, None)
        assert look.look() == 1
        desk.clock.advance(8 * 86_400)
        deliveries = Deliveries(desk.store, desk.clock)
        for claim in deliveries.claim(MAIL, "w"):
            deliveries.sent(claim)
        assert deliveries.forget(desk.now) == 1
        assert look.look() == 0 and letters(desk) == []


def test_a_glance_counts_what_is_unread_and_has_the_warnings_of_running_servers(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        inbox, put = Inbox(desk.store, desk.clock), Outbox(desk.store, desk.clock, {MAIL}).put
        lease, deadline = desk.run(), desk.now + timedelta(minutes=10)
        number = put(idle_warning(lease, "Not used", deadline, desk.now))
        put(idle_warning(lease, "Not used", deadline, desk.now, stage=2))
        found = inbox.glance("alice", False)
        assert (found.unread, [letter.kind for letter in found.urgent]) == (2, ["idle-warning"])
        assert inbox.urgent("alice")[0].id != number, "the latest"
        desk.rows.put_verdict(lease.id, desk.now, "keep", "recent", "In use", {})
        assert inbox.glance("alice", False).urgent == ()
        assert inbox.mark_read("alice", False, up_to=number) == 1
        put(stopped(desk.end(lease, StopReason.IDLE), desk.now))
        assert [letter.kind for letter in inbox.of("alice", False, read=False)] == ["stopped"]
