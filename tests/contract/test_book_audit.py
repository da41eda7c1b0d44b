"""The audit has teeth: whatever somebody changes behind the book's back, it says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from quota.audit import CHECKS
from tests.fakes.book import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(2)
        opened.session(100, "alice", server="done")
        opened.run("alice", "running")
        yield opened


def test_a_book_in_order_has_no_findings(desk: Desk) -> None:
    assert desk.bank.audit() == []


TAMPERING = {
    "transactions_balance": ("UPDATE posting SET amount = amount + 1 WHERE id = 1", "sums to 1"),
    "balances_agree": ("UPDATE balance SET amount = amount + 5 WHERE sub = 'grant:1'", "balance grant:1"),
    "months_agree": ("UPDATE month_charge SET charged = charged - 1", "charges of account 1"),
    "leases_agree": ("UPDATE lease SET charged = charged + 1 WHERE state = 'SETTLED'", "charges of lease"),
    "settled_leases_hold_nothing": (
        "UPDATE lease SET held = 1 WHERE state = 'SETTLED'",
        "still holds 1",
    ),
    "expired_grants_are_empty": ("UPDATE grant_bucket SET expired_at = 1", "has expired and still has"),
    "devices_are_not_overcommitted": ("UPDATE slot SET released_at = NULL, share = 1000", "is given away 2000"),
    "live_leases_hold_their_slots": ("UPDATE slot SET released_at = 1", "is live without a slot"),
    "finished_leases_have_no_open_segment": ("UPDATE segment SET ended_at = NULL", "still counts time"),
}


#: On PostgreSQL a CHECK that is in the way has to go.
UNGUARDED = "ALTER TABLE lease DROP CONSTRAINT ck_lease_settled"


def test_every_check_is_tried() -> None:
    assert set(TAMPERING) == {check.__name__ for check in CHECKS}


@pytest.mark.parametrize("check", TAMPERING)
def test_tampering_is_found(desk: Desk, check: str) -> None:
    statements, words = TAMPERING[check]
    sqlite = desk.store.file is not None
    with desk.store.write() as connection:
        unguarded = "PRAGMA ignore_check_constraints = ON" if sqlite else UNGUARDED
        for statement in (unguarded, *statements.split("; ")):
            connection.execute(sa.text(statement))
        if sqlite:
            connection.execute(sa.text("PRAGMA ignore_check_constraints = OFF"))
    assert any(words in finding for finding in desk.bank.audit()), desk.bank.audit()


def test_a_hold_after_the_end_is_found(desk: Desk) -> None:
    with desk.store.write() as connection:
        connection.execute(sa.text("UPDATE slot SET released_at = NULL"))
    assert any("is over and still has a slot" in finding for finding in desk.bank.audit())
