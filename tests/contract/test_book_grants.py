"""Grants, months, refunds and the settings of the book."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from quota.bank import Bank, Defaults
from quota.errors import Conflict, NotFound
from quota.units import CREDIT, MicroCredits
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import FakeClock

GRANT = 100 * CREDIT


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(2)
        yield opened
        assert opened.bank.audit() == []


# ---- grants are dated buckets


def test_x14_a_manual_grant_never_vanishes(tmp_path: Path) -> None:
    """Ten times the monthly grant by hand: still there after logins, ticks and the month's end."""
    clock = FakeClock(datetime(2026, 3, 30, 12, 0, tzinfo=UTC))
    with open_desk(tmp_path, clock) as desk:
        desk.devices(1)
        desk.bank.ensure_account("alice")
        desk.bank.grant("alice", 10 * GRANT, by="admin", note="for the paper")
        lease = desk.run(share=1000)
        for _ in range(30):
            clock.advance(600)
            lease = desk.book.meter(lease, desk.now).lease
            desk.bank.ensure_account("alice")
        charged = desk.end(lease).charged
        assert charged == 5 * CREDIT
        assert desk.bank.account("alice").available == 11 * GRANT - charged
        clock.advance(3 * 86400)
        view = desk.bank.account("alice")
        assert view.available == 11 * GRANT  # the monthly grant is new, and what was used of it is forgotten
        assert [bucket.key[:7] for bucket in view.buckets] == ["monthly", "manual:"]
        assert desk.bank.audit() == []


def test_the_grant_that_expires_first_is_burnt_first(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    soon = desk.now + timedelta(days=1)
    for_ever = desk.bank.grant("alice", 50_000, by="admin")
    short = desk.bank.grant("alice", 50_000, by="admin", expires_at=soon)
    desk.session(360, share=1000)  # 100 000
    left = {bucket.id: bucket.balance for bucket in desk.bank.account("alice").buckets}
    assert left[short] == 0
    assert left[for_ever] == 50_000
    assert sum(left.values()) == GRANT


def test_an_expired_grant_is_taken_off(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    desk.bank.grant("alice", 70_000, by="admin", expires_at=desk.now + timedelta(hours=1))
    assert desk.bank.account("alice").available == GRANT + 70_000
    desk.clock.advance(3600)
    assert desk.bank.account("alice").available == GRANT
    assert "grant-expired" in [event.kind for event in desk.rows.events()]


def test_a_grant_has_a_key(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    desk.bank.ensure_account("bob")
    first = desk.bank.grant("alice", 5, by="admin", key="k1")
    assert desk.bank.grant("alice", 5, by="admin", key="k1") == first
    assert desk.bank.account("alice").available == GRANT + 5
    for name, amount in (("alice", 6), ("bob", 5)):
        with pytest.raises(Conflict):
            desk.bank.grant(name, amount, by="admin", key="k1")
    assert desk.bank.grant("alice", 5, by="admin") != desk.bank.grant("alice", 5, by="admin")


@pytest.mark.parametrize("amount", [0, -1, 10**16, True, 1.5])
def test_a_grant_is_a_positive_whole_number(desk: Desk, amount: int) -> None:
    desk.bank.ensure_account("alice")
    with pytest.raises(ValueError, match="grant"):
        desk.bank.grant("alice", amount, by="admin")


def test_nobody_unknown_is_given_anything(desk: Desk) -> None:
    for call in (
        lambda: desk.bank.grant("nobody", 1, by="admin"),
        lambda: desk.bank.account("nobody"),
        lambda: desk.bank.limits("nobody"),
        lambda: desk.bank.set_limits("nobody", {}, by="admin"),
        lambda: desk.bank.statement("nobody", desk.now, desk.now),
        lambda: desk.bank.refund("l0", None, "admin", ""),
    ):
        with pytest.raises(NotFound):
            call()


# ---- months


@pytest.mark.parametrize("metered", [False, True], ids=["settled over it", "metered over it"])
def test_a_hold_over_the_months_end_leaves_no_orphan(tmp_path: Path, metered: bool) -> None:
    clock = FakeClock(datetime(2026, 3, 31, 23, 55, tzinfo=UTC))
    with open_desk(tmp_path, clock) as desk:
        desk.devices(1)
        lease = desk.run(share=1000)
        clock.advance(600)
        if metered:
            lease = desk.book.meter(lease, desk.now).lease
        settled = desk.end(lease)
        assert settled.charged == 166_667
        view = desk.bank.account("alice")
        assert (view.held, view.debt) == (0, 0)
        # What was left of March's hold went back to March's grant, and with it out of the book.
        assert view.available == GRANT
        assert desk.bank.audit() == []


def test_a_month_begins_in_the_sites_own_zone(tmp_path: Path) -> None:
    clock = FakeClock(datetime(2026, 3, 31, 15, 59, 59, tzinfo=UTC))
    with open_desk(tmp_path, clock, Defaults(zone="Asia/Shanghai")) as desk:
        desk.devices(1)
        desk.session(0.5, share=1000)
        march = desk.bank.account("alice")
        assert march.month_charged == 139
        clock.advance(0.5)
        april = desk.bank.account("alice")
        assert (april.month_charged, april.available) == (0, GRANT)
        assert [bucket.key for bucket in april.buckets] == ["monthly:1:2026-04"]
        assert april.buckets[0].expires_at == datetime(2026, 4, 30, 16, 0, tzinfo=UTC)


def test_an_account_nobody_touched_for_months_is_up_to_date(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    desk.bank.ensure_account("group:team", "group")
    desk.clock.advance(100 * 86400)
    views = {view.account.name: view for view in desk.bank.accounts()}
    assert views["alice"].available == GRANT
    assert (views["group:team"].available, views["group:team"].buckets) == (0, ())


def test_the_monthly_grant_can_be_changed(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    desk.bank.ensure_account("bob")
    desk.bank.set_monthly_grant("*", 7_000_000, by="admin")
    desk.bank.set_monthly_grant("bob", 0, by="admin")
    assert desk.bank.account("alice").available == GRANT  # given is given
    desk.clock.advance(31 * 86400)
    assert desk.bank.account("alice").available == 7_000_000
    assert desk.bank.account("bob").available == 0
    assert (desk.bank.monthly_grant(), desk.bank.monthly_grant("bob")) == (7_000_000, 0)
    with pytest.raises(ValueError, match="monthly grant"):
        desk.bank.set_monthly_grant("*", -1, by="admin")


# ---- refunds


def test_a_refund_happens_once_and_never_above_the_charge(desk: Desk) -> None:
    lease = desk.session(36, share=1000)
    assert desk.bank.refund(lease.id, 10**12, "admin", "sorry") == 10_000
    assert desk.bank.refund(lease.id, None, "admin", "sorry") == 10_000
    with pytest.raises(Conflict):
        desk.bank.refund(lease.id, 5, "admin", "less")
    after = desk.book.lease(lease.id)
    assert (after.charged, after.usage) == (0, 36_000)
    view = desk.bank.account("alice")
    assert (view.available, view.month_charged) == (GRANT, 0)
    assert [bucket.balance for bucket in view.buckets if bucket.key == f"refund:{lease.id}"] == [10_000]
    assert [event.detail["amount"] for event in desk.rows.events(lease.id) if event.kind == "refund"] == [10_000]


def test_a_part_can_be_refunded(desk: Desk) -> None:
    lease = desk.session(36, share=1000)
    assert desk.bank.refund(lease.id, 4_000, "admin", "half a minute") == 4_000
    assert desk.bank.refund(lease.id, 4_000, "admin", "again") == 4_000
    assert desk.book.lease(lease.id).charged == 6_000
    (line,) = desk.bank.statement("alice", lease.requested_at, desk.now)
    assert line.charged == 6_000


def test_what_is_not_settled_is_not_refunded(desk: Desk) -> None:
    lease = desk.run()
    with pytest.raises(Conflict, match="not settled"):
        desk.bank.refund(lease.id, None, "admin", "")
    with pytest.raises(ValueError, match="more than 0"):
        desk.bank.refund(lease.id, 0, "admin", "")


def test_what_was_free_has_nothing_to_refund(desk: Desk) -> None:
    lease = desk.session(10, share=0, count=0)
    assert desk.bank.refund(lease.id, None, "admin", "") == 0


# ---- settings of the book


def test_the_book_owns_what_was_seeded_once(desk: Desk) -> None:
    desk.bank.set_price(5, 6, by="admin")
    desk.bank.set_limits("*", {"max_servers": 7}, by="admin")
    other = Bank(desk.store, desk.clock, Defaults(gpu_hour=MicroCredits(99), max_servers=1))
    assert (other.price().gpu_hour, other.price().cpu_hour, other.limits("*").max_servers) == (5, 6, 7)
    assert desk.bank.set_price(5, 6, by="admin").plan_id == desk.bank.price().plan_id == 2
    with pytest.raises(ValueError, match="price"):
        desk.bank.set_price(-1, 0, by="admin")


@pytest.mark.parametrize(
    "changes",
    [
        {"max_servers": -1},
        {"max_servers": True},
        {"max_gpu_milli": "2"},
        {"profiles": "cpu"},
        {"profiles": [1]},
        {"x": 1},
    ],
)
def test_bad_limits_are_refused(desk: Desk, changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|is not a limit"):
        desk.bank.set_limits("*", changes, by="admin")


def test_an_account_keeps_its_kind(desk: Desk) -> None:
    first = desk.bank.ensure_account("alice")
    assert desk.bank.ensure_account("alice") == first
    for name, kind in (("alice", "group"), ("group:lab", "user")):
        with pytest.raises(Conflict, match="is the name of a"):
            desk.bank.ensure_account(name, kind)
