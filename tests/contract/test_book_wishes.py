"""Wishes about the end of servers on a real book: what is held for them, what bounds them, and what goes back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quota.bank import Defaults
from quota.errors import NotFound
from quota.leases import Lease, State, StopReason
from quota.ledger import grant_sub
from quota.units import MicroCredits
from quota.wish import NO_WISH, Wish
from quota.wishes import Wishes
from quota.wishing import Bounds, Wishing, WishRefused, offer_of
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import START, FakeClock

CREDIT = 10**6
HOUR = timedelta(hours=1)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        yield desk


def wishing(desk: Desk, most: timedelta | None = 3 * HOUR, longest: timedelta | None = None) -> Wishing:
    return Wishing(desk.bank, Bounds(most, lambda lease: longest))


def wish_of(desk: Desk, lease: Lease) -> Wish:
    return Wishes(desk.store, desk.clock).of([lease.id])[lease.id]


def test_i15_a_wish_to_be_kept_holds_what_it_will_cost(desk: Desk) -> None:
    lease = desk.run(share=1000)
    before = desk.bank.account("alice").available
    wished = wishing(desk).keep(lease.id, 3 * HOUR, "alice")
    assert wished.wish == wish_of(desk, lease) == Wish(keep_until=desk.now + 3 * HOUR)
    assert wished.held == desk.book.lease(lease.id).held == 3 * CREDIT
    assert desk.bank.account("alice").available == before - (3 * CREDIT - lease.held)
    assert desk.bank.audit() == []


def test_i15_meters_take_from_what_is_held_and_ask_for_nothing_more(desk: Desk) -> None:
    lease = desk.run(share=1000)
    wishing(desk).keep(lease.id, HOUR, "alice")
    available = desk.bank.account("alice").available
    for _ in range(9):
        desk.clock.advance(300)
        metered = desk.book.meter(desk.book.lease(lease.id), desk.now)
        assert not metered.exhausted
        lasts = metered.paid_until
        assert lasts is not None  # to the hour, but for what a micro-credit lasts
        assert abs(lasts - (START + HOUR)) < timedelta(milliseconds=4)
        assert desk.bank.account("alice").available == available
    desk.clock.advance(300)
    desk.book.meter(desk.book.lease(lease.id), desk.now)  # from now on the hold is filled up as ever
    assert desk.bank.account("alice").available < available
    ended = desk.end(desk.book.lease(lease.id))
    assert (ended.held, ended.charged) == (0, round(3000 * CREDIT / 3600))
    assert desk.bank.audit() == []


def test_i15_credit_for_one_hour_refuses_three_and_offers_one(tmp_path: Path) -> None:
    with open_desk(tmp_path, None, Defaults(monthly_grant=MicroCredits(3 * CREDIT // 2))) as desk:
        desk.devices(2)
        lease = desk.run(share=1000)
        with pytest.raises(WishRefused) as refused:
            wishing(desk).keep(lease.id, 3 * HOUR, "alice")
        assert (refused.value.code, refused.value.offer) == ("no-credit", HOUR)
        assert (wish_of(desk, lease), desk.book.lease(lease.id).held) == (NO_WISH, lease.held)
        assert wishing(desk).keep(lease.id, HOUR, "alice").held == CREDIT
        assert desk.bank.audit() == []


def test_a_monthly_limit_bounds_what_is_kept(desk: Desk) -> None:
    lease = desk.run(share=1000)
    desk.bank.set_limits("alice", {"monthly_micro": CREDIT // 2}, "boss")
    with pytest.raises(WishRefused) as refused:
        wishing(desk).keep(lease.id, HOUR, "alice")
    assert (refused.value.code, refused.value.offer) == ("no-credit", timedelta(minutes=30))


def test_what_was_held_for_a_wish_goes_back_when_it_is_withdrawn(desk: Desk) -> None:
    lease = desk.run(share=1000)
    before = desk.bank.account("alice")
    for _ in range(2):
        wishing(desk).keep(lease.id, 3 * HOUR, "alice")
        assert wishing(desk).keep(lease.id, HOUR, "alice").held == CREDIT
        assert wishing(desk).no_keep(lease.id, "alice").held == lease.held
    assert wish_of(desk, lease) == NO_WISH
    after = desk.bank.account("alice")
    assert (after.available, after.held) == (before.available, before.held)
    assert wishing(desk).no_keep(lease.id, "alice").wish == NO_WISH  # once more is nothing
    assert desk.bank.audit() == []


def test_a_hold_that_goes_back_to_an_expired_grant_expires(desk: Desk) -> None:
    desk.clock.advance(timedelta(days=30).total_seconds() - 9 * 3600 - 600)  # ten minutes before the month ends
    lease = desk.run(share=1000)
    wishing(desk).keep(lease.id, 3 * HOUR, "alice")
    old = desk.bank.account("alice").buckets[0]
    desk.clock.advance(1200)
    wishing(desk).no_keep(lease.id, "alice")
    assert grant_sub(old.id) not in {grant_sub(each.id) for each in desk.bank.account("alice").buckets}
    assert desk.bank.audit() == []
    desk.end(desk.book.lease(lease.id))
    assert desk.bank.audit() == []


def test_a_policy_bounds_or_forbids_it(desk: Desk) -> None:
    lease = desk.run()
    with pytest.raises(WishRefused, match="off"):
        wishing(desk, None).keep(lease.id, HOUR, "alice")
    with pytest.raises(WishRefused) as refused:
        wishing(desk, 2 * HOUR).keep(lease.id, 3 * HOUR, "alice")
    assert (refused.value.code, refused.value.offer) == ("too-long", 2 * HOUR)


def test_i14_the_longest_life_and_a_set_end_bound_it_and_it_is_said(desk: Desk) -> None:
    lease = desk.run(share=1000)
    mine = wishing(desk, longest=2 * HOUR)
    wished = mine.keep(lease.id, 3 * HOUR, "alice")
    assert (wished.wish.keep_until, wished.bounded, wished.held) == (desk.now + 2 * HOUR, "max-age", 2 * CREDIT)
    wished = mine.shut_down(lease.id, desk.now + HOUR, "alice")
    assert wished.wish == Wish(desk.now + HOUR, desk.now + HOUR)
    assert wished.held == CREDIT
    assert mine.keep(lease.id, 3 * HOUR, "alice").bounded == "shutdown"
    assert desk.bank.audit() == []


@pytest.mark.parametrize(("after", "code"), [(59, "too-soon"), (-5, "too-soon"), (7201, "too-late")])
def test_an_end_that_cannot_be_is_refused(desk: Desk, after: int, code: str) -> None:
    lease = desk.run()
    with pytest.raises(WishRefused) as refused:
        wishing(desk, longest=2 * HOUR).shut_down(lease.id, desk.now + timedelta(seconds=after), "alice")
    assert (refused.value.code, refused.value.latest) == (code, desk.now + 2 * HOUR)
    assert wish_of(desk, lease) == NO_WISH


def test_wishes_are_independent_and_withdrawn_one_by_one(desk: Desk) -> None:
    lease, mine = desk.run(), wishing(desk)
    mine.shut_down(lease.id, desk.now + HOUR, "alice")
    mine.when_done(lease.id, True, "alice")
    assert wish_of(desk, lease) == Wish(None, desk.now + HOUR, True)
    mine.shut_down(lease.id, None, "alice")
    assert wish_of(desk, lease) == Wish(when_done=True)
    assert mine.when_done(lease.id, False, "alice").wish == NO_WISH
    kinds = [event.kind for event in desk.rows.events(lease_id=lease.id) if "lease" not in event.kind]
    assert sorted(kinds) == ["shutdown-set", "shutdown-withdrawn", "when-done-set", "when-done-withdrawn"]


def test_only_what_runs_and_is_to_run_can_be_kept(desk: Desk) -> None:
    asked, lease = desk.reserve(server="two"), desk.run()
    desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + HOUR)
    for each in (asked, lease):
        with pytest.raises(WishRefused, match="not-running"):
            wishing(desk).keep(each.id, HOUR, "alice")
    with pytest.raises(NotFound):
        wishing(desk).keep("l0", HOUR, "alice")


@pytest.mark.parametrize(
    ("minutes", "offered"), [(200, 180), (179, 60), (60, 60), (59, 55), (5, 5), (4, None), (0, None), (-3, None)]
)
def test_what_is_offered_is_a_step_or_whole_five_minutes(minutes: int, offered: int | None) -> None:
    found = offer_of(timedelta(minutes=minutes))
    assert found == (None if offered is None else timedelta(minutes=offered))


_ACTS = st.lists(
    st.tuples(st.sampled_from(["keep", "no-keep", "shut-down", "meter", "wait"]), st.integers(1, 200)), max_size=12
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=_ACTS, share=st.sampled_from([0, 125, 1000]), grant=st.integers(0, 4 * CREDIT))
def test_whatever_is_wished_the_ledger_adds_up(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]], share: int, grant: int
) -> None:
    defaults = Defaults(monthly_grant=MicroCredits(CREDIT + grant), cpu_hour=MicroCredits(30_001))
    with open_desk(tmp_path_factory.mktemp("book"), FakeClock(), defaults) as desk:
        desk.devices(1)
        lease, mine = desk.run(share=share, count=1 if share else 0), wishing(desk, longest=9 * HOUR)
        for act, minutes in acts:
            _act(desk, mine, lease, act, timedelta(minutes=minutes))
            assert desk.bank.audit() == []
        ended = desk.end(desk.book.lease(lease.id))
        assert (ended.state, ended.held) == (State.SETTLED, 0)
        assert desk.bank.audit() == []


def _act(desk: Desk, mine: Wishing, lease: Lease, act: str, span: timedelta) -> None:
    try:
        if act == "keep":
            desk.book.meter(desk.book.lease(lease.id), desk.now)
            wished = mine.keep(lease.id, min(span, 3 * HOUR), "alice")
            assert wished.wish.keep_until is not None
            paid = desk.book.meter(desk.book.lease(lease.id), desk.now).paid_until
            assert paid is None or paid >= wished.wish.keep_until - timedelta(seconds=1)  # a charge is rounded
        elif act == "no-keep":
            mine.no_keep(lease.id, "alice")
        elif act == "shut-down":
            mine.shut_down(lease.id, desk.now + span, "alice")
        elif act == "meter":
            desk.book.meter(desk.book.lease(lease.id), desk.now)
        else:
            desk.clock.advance(span.total_seconds())
    except WishRefused as refused:
        assert refused.code != "not-running"
