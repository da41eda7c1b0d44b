"""The outbox in the book: once for each key, claims that two never share, ends, and what a death leaves."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quota.inbox import Inbox
from quota.notices import FRESH, Notice, NoticeKind
from quota.outbox import CLAIMED, MOST_TRIES, TOO_LATE, UNKNOWN, Deliveries, Outbox, Tidy, Waiting, pause
from quota.routing import Preference
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import START

NOTICE = Notice(
    "ada", NoticeKind.STOPPED, "It ended.", START, "/x", {"lease": "l1"}, key="stopped:l1", expires_at=START + FRESH
)


def boxes(desk: Desk) -> tuple[Outbox, Deliveries]:
    Inbox(desk.store, desk.clock).set_preference("ada", Preference(chat="sealed"))
    return Outbox(desk.store, desk.clock, ("mail", "chat"), again=0.01), Deliveries(desk.store, desk.clock)


def test_a_notice_is_written_once_for_its_key_with_its_deliveries(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        for _ in range(3):
            out.deliver(NOTICE)
        out.deliver(replace(NOTICE, key="other"))
        out.close()
        assert out.counts() == {"notices_written": 2, "notices_dropped": 0}
        claims = deliveries.claim("mail", "w1")
        assert [claim.notice for claim in claims] == [NOTICE, replace(NOTICE, key="other")]
        assert len(deliveries.claim("chat", "w1")) == 2


def test_two_workers_never_hold_the_same_delivery(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        for number in range(60):
            out.put(replace(NOTICE, key=str(number)))
        got: list[int] = []
        lock = threading.Lock()

        def work(name: str) -> None:
            while claims := deliveries.claim("mail", name, most=4):
                with lock:
                    got.extend(claim.id for claim in claims)
                assert all(deliveries.sent(claim) for claim in claims)

        workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(got) == len(set(got)) == 60
        assert deliveries.outcomes()["mail", "sent"] == 60


def test_what_a_dead_sender_held_is_not_sent_again_unless_the_channel_is_idempotent(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        number = out.put(NOTICE)
        assert number is not None
        (mail,) = deliveries.claim("mail", "dead")
        assert deliveries.begin([mail]) and deliveries.begin(deliveries.claim("chat", "dead"))
        assert deliveries.recover("mail", idempotent=False) == 0  # its claim is good
        desk.clock.advance(CLAIMED.total_seconds())
        assert (deliveries.recover("mail", False), deliveries.recover("chat", True)) == (1, 0)
        assert deliveries.claim("mail", "w2") == [] and len(deliveries.claim("chat", "w2")) == 1
        assert deliveries.of(number)["mail"] == ("failed", UNKNOWN)
        assert not deliveries.sent(mail)  # who hung and comes back changes nothing


def test_what_a_dead_sender_had_not_begun_to_hand_over_goes_out_and_at_once_where_its_death_is_seen(
    tmp_path: Path,
) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        numbers = [out.put(replace(NOTICE, key=str(number))) for number in range(3)]
        claims = deliveries.claim("mail", "dead")
        assert deliveries.begin(claims[:1])
        assert deliveries.recover("mail", False, lambda owner: True) == 0
        asked: list[str] = []
        assert deliveries.recover("mail", False, lambda owner: bool(asked.append(owner))) == 1
        assert set(asked) == {"dead"}
        again = deliveries.claim("mail", "next")
        assert [claim.id for claim in again] == numbers[1:]
        assert not deliveries.begin(claims[1:2]) and not deliveries.begin([again[0], claims[2]])  # whoever only hung
        assert deliveries.begin(again)
        assert [deliveries.of(claim.id)["mail"][0] for claim in claims] == ["failed", "sending", "sending"]


def test_tries_are_further_and_further_apart_and_come_to_an_end(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        number = out.put(replace(NOTICE, expires_at=None))
        assert number is not None
        pauses, tries = [], 0
        while True:
            (claim,) = deliveries.claim("mail", "w")
            tries += 1
            if not deliveries.again(claim, "no mail server"):
                break
            waited = 0
            while not (again := deliveries.claim("mail", "look")):
                desk.clock.advance(15)
                waited += 15
            deliveries.again(replace(again[0], tries=claim.tries + 1), "still none")
            tries += 1
            pauses.append(waited)
            desk.clock.advance(2 * 3600)
            if tries >= MOST_TRIES:
                break
        assert tries == MOST_TRIES and pauses == sorted(pauses) and pauses[0] == 15
        assert deliveries.of(number)["mail"][0] == "failed"


def test_what_is_too_late_is_dropped_and_nobody_is_told_of_a_deadline_that_is_over(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        number = out.put(replace(NOTICE, expires_at=START + timedelta(minutes=2)))
        assert number is not None
        desk.clock.advance(120)
        assert deliveries.claim("mail", "w") == []
        assert deliveries.of(number)["mail"] == ("dropped", TOO_LATE)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(["put", "claim", "send", "die", "later", "recover"]), max_size=25))
def test_whatever_dies_in_between_nothing_is_sent_twice(tmp_path: Path, steps: list[str]) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        went_out: list[int] = []
        held: list = []  # type: ignore[type-arg]
        for number, step in enumerate([*steps, "later", "recover", "claim", "send"]):
            if step == "put":
                out.put(replace(NOTICE, key=f"k{number % 5}", expires_at=None))
            elif step == "claim":
                held += deliveries.claim("mail", f"w{number}")
            elif step in ("send", "die") and held:
                claim = held.pop()
                if not deliveries.begin([claim]):
                    continue
                went_out.append(claim.id)  # it left; "die" is a death before the mark
                if step == "send":
                    deliveries.sent(claim)
            elif step == "later":
                desk.clock.advance(CLAIMED.total_seconds() + 1)
            elif step == "recover":
                deliveries.recover("mail", idempotent=False)
                # whoever held claims hangs, and may come back
        assert len(went_out) == len(set(went_out))


# ---- what waits, what is counted, what is forgotten --------------------------------------------------------------


def test_what_waits_is_told_with_its_age_since_it_was_due_not_since_it_was_decided(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        Inbox(desk.store, desk.clock).set_preference("bob", Preference(digest="daily"))
        out.put(replace(NOTICE, user="bob", key="digest", expires_at=None))  # at nine: it is due at eight
        assert deliveries.waiting() == {}
        desk.clock.advance(23 * 3600 + 1)
        assert deliveries.waiting()["mail"] == Waiting(1, START + timedelta(hours=23))
        (claim,) = deliveries.claim("mail", "w")
        assert deliveries.waiting()["mail"] == Waiting(1, desk.now)  # it is being sent
        for _ in range(3):
            assert deliveries.again(claim, "later")
            desk.clock.advance(pause(claim.tries).total_seconds())
            (claim,) = deliveries.claim("mail", "w")
        out.put(replace(NOTICE, key="new"))
        found = deliveries.waiting()
        assert (found["mail"].count, found["chat"]) == (2, Waiting(1, desk.now))
        assert found["mail"].oldest_due == START + timedelta(hours=23, seconds=1)


def test_each_try_is_counted_by_what_became_of_it(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        for number in range(5):
            out.put(replace(NOTICE, key=str(number), expires_at=START + timedelta(hours=1) if number == 4 else None))
        sent, failed, again, lost = deliveries.claim("mail", "w", most=4)
        deliveries.sent(sent)
        deliveries.sent(sent)  # once more changes nothing
        deliveries.failed(failed, "no")
        deliveries.again(again, "later")
        assert deliveries.begin([lost])
        desk.clock.advance(3600)
        assert deliveries.recover("mail", idempotent=False) == 1 and lost.tries == 1
        deliveries.claim("mail", "w")
        assert deliveries.counts() == {
            ("mail", "sent"): 1,
            ("mail", "failed"): 2,
            ("mail", "again"): 1,
            ("mail", "dropped"): 1,
        }


def test_old_notices_go_with_their_deliveries_and_none_that_is_still_to_be_sent(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        out, deliveries = boxes(desk)
        numbers = [out.put(replace(NOTICE, key=str(number), expires_at=None)) for number in range(4)]
        *mails, last = deliveries.claim("mail", "w")
        assert deliveries.begin([last])
        for claim in mails + deliveries.claim("chat", "w"):
            deliveries.sent(claim)
        desk.clock.advance(86_400)
        late = out.put(replace(NOTICE, key="late", when=desk.now))
        tidy = Tidy(deliveries, desk.clock, timedelta(days=7))
        assert tidy.look() == 0
        desk.clock.advance(6.5 * 86_400)
        assert tidy.look() == 3
        left = [letter.id for letter in Inbox(desk.store, desk.clock).of("ada", False)]
        assert left == [late, numbers[3]]  # one by mail is under way for ever, as far as the book knows
        deliveries.recover("mail", idempotent=False)
        assert tidy.look() == 0  # once a day is enough
        desk.clock.advance(86_400)
        assert tidy.look() == 1
        assert out.put(replace(NOTICE, key="0")) is not None
