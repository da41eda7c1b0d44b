"""The audit has teeth: whatever somebody changes behind the book's back, it says so, with the id and both figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from quota.audit import CHECKS, audit
from quota.bank import Bank, Defaults
from quota.findings import Finding, Site
from quota.schema import from_micros
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import FakeClock

#: Shortly before a month ends, so that the book's charges fall into two.
START = datetime(2026, 3, 31, 23, 50, tzinfo=UTC)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Settled, refunded, failed after ready, running and metered: all that a lease can be; a grant that expired."""
    with open_desk(tmp_path, FakeClock(START)) as opened:
        opened.devices(2)
        opened.bank.ensure_account("bob")
        opened.bank.grant("bob", 5_000_000, "admin", key="short", expires_at=START + timedelta(minutes=30))
        opened.session(100, "alice", server="done")
        refunded = opened.session(720, "bob", share=1000)
        opened.bank.refund(refunded.id, 70_000, "admin", "slow disk")
        failed = opened.run("bob", "failed", 250)
        opened.book.void(failed.id)
        opened.end(opened.book.lease(failed.id))
        running = opened.run("alice", "running")
        opened.clock.advance(1200)
        opened.book.meter(running, opened.now)
        opened.bank.account("bob")
        yield opened


def test_a_book_in_order_has_no_findings(desk: Desk) -> None:
    report = desk.bank.audited()
    assert report.findings == ()
    assert (report.leases, report.accounts) == (4, 2)
    assert report.postings > 20


DONE, REFUNDED = "(SELECT id FROM lease WHERE holder_server = 'done')", "(SELECT id FROM lease WHERE refunded > 0)"
LAST = "(SELECT max(id) FROM posting)"

#: By check: what somebody writes into the book, and what the audit says of it (a pattern).
TAMPERING: dict[str, list[tuple[str, str]]] = {
    "rows_refer_to_rows_that_are_there": [
        (
            f"DELETE FROM lease WHERE id = {DONE}",
            r"\d+ rows of posting are of lease l\w+, which is not there",
        ),
        (
            "DELETE FROM grant_bucket WHERE id = 1",
            "there is a balance grant:1, and nothing in the book that it is of",
        ),
        (
            "DELETE FROM account WHERE id = 2",
            "rows of lease are of account 2, which is not there",
        ),
        (
            "DELETE FROM price_plan",
            r"rows of segment are of price_plan \d+, which is not there",
        ),
        (
            "UPDATE slot SET device = 'GPU-none'",
            r"\d+ rows of slot are of device GPU-none, which is not there",
        ),
        (
            "INSERT INTO balance (sub, amount) VALUES ('grant:88', 5)",
            "there is a balance grant:88, and nothing in the book",
        ),
    ],
    "transactions_balance": [
        (
            "UPDATE posting SET amount = amount + 1 WHERE id = 1",
            r"transaction \S+ sums to 1, not 0",
        ),
        (
            f"DELETE FROM posting WHERE id = {LAST}",
            r"transaction \S+ sums to -?\d+, not 0",
        ),
        (
            f"UPDATE posting SET kind = 'grant' WHERE id = {LAST}",
            "of several kinds",
        ),
    ],
    "balances_agree": [
        (
            "UPDATE balance SET amount = amount + 5 WHERE sub = 'grant:1'",
            r"balance grant:1 is (\d+), .* (\d+)$",
        ),
        (
            "DELETE FROM balance WHERE sub = 'platform:revenue'",
            r"balance platform:revenue is 0, .* \d+$",
        ),
        (
            "UPDATE posting SET sub = 'grant:2' WHERE sub = 'grant:1' AND amount < 0",
            "balance grant:1 is",
        ),
    ],
    "months_agree": [
        (
            "UPDATE month_charge SET charged = charged - 1 WHERE month = '2026-03'",
            r"of account \d in 2026-03 are",
        ),
        (
            "UPDATE month_charge SET month = '2026-02' WHERE month = '2026-03'",
            r"of account \d in 2026-02 are",
        ),
        (
            "DELETE FROM month_charge WHERE month = '2026-04'",
            "in 2026-04 are 0, the ledger says",
        ),
        (
            "UPDATE posting SET at = at - 2678400000000 WHERE kind = 'charge'",
            "in 2026-02 are 0, the ledger says",
        ),
    ],
    "grants_agree": [
        (
            "UPDATE grant_bucket SET amount = amount + 9 WHERE id = 1",
            r"grant 1 is one of (\d+), \d+ were posted",
        ),
        (
            "UPDATE grant_bucket SET account_id = 3 - account_id WHERE id = 1",
            "for another account than its own",
        ),
    ],
    "expired_grants_are_empty": [
        (
            "UPDATE grant_bucket SET expired_at = 1",
            r"grant \d+ has expired and still has \d+",
        ),
    ],
    "nothing_is_overdrawn": [
        (
            "UPDATE balance SET amount = -3 WHERE sub = 'grant:1'",
            "balance grant:1 is -3, which",
        ),
        (
            "INSERT INTO balance (sub, amount) VALUES ('debt:1', 4)",
            "balance debt:1 is 4, which",
        ),
    ],
    "keys_tell_what_they_are": [
        (
            f"UPDATE posting SET key = 'x' || key WHERE lease_id = {DONE}",
            "has the key xhold:",
        ),
        (
            "UPDATE posting SET key = 'grant:99' WHERE key = 'grant:1'",
            "has the key grant:99, and is a grant on grant:1",
        ),
        (
            "UPDATE posting SET sub = 'pocket' WHERE sub = 'platform:revenue'",
            "a charge on pocket",
        ),
        (
            f"UPDATE posting SET lease_id = {REFUNDED} WHERE lease_id = {DONE}",
            "has the key",
        ),
    ],
    "postings_are_their_accounts_own": [
        (
            f"UPDATE posting SET account_id = 3 - account_id WHERE lease_id = {DONE}",
            "should be of",
        ),
        (
            f"UPDATE lease SET account_id = 3 - account_id WHERE id = {DONE}",
            "should be of",
        ),
        (
            "UPDATE posting SET sub = 'debt:7' WHERE sub = 'grant:1'",
            "goes to debt:7",
        ),
    ],
    "postings_are_in_order": [
        (
            f"UPDATE posting SET id = id + 9000 WHERE kind = 'hold' AND lease_id = {DONE}",
            r"came before hold:l\w+, which cannot be",
        ),
    ],
    "leases_agree": [
        (
            "UPDATE lease SET charged = charged + 1 WHERE state = 'SETTLED'",
            r"charges of lease l\w+: .* says \d+, .* \d+$",
        ),
        (
            f"UPDATE lease SET refunded = 1 WHERE id = {REFUNDED}",
            r"refunds of lease l\w+: its row says 1, .* 70000$",
        ),
        (
            "UPDATE lease SET held = held + 2 WHERE state = 'RUNNING'",
            r"hold of lease l\w+: its row says \d+, .* \d+$",
        ),
        (
            f"UPDATE lease SET charges = 7 WHERE id = {DONE}",
            r"number of charges of lease l\w+: its row says 7, .* 1$",
        ),
        (
            f"UPDATE lease SET holds = 5 WHERE id = {DONE}",
            r"top-ups of lease l\w+: its row says 5, the ledger says 0",
        ),
    ],
    "leases_cost_what_their_time_costs": [
        (
            f"UPDATE segment SET ended_at = ended_at - 9000000 WHERE lease_id = {DONE}",
            r"is charged \d+, its time costs \d+$",
        ),
        (
            f"UPDATE segment SET started_at = started_at + 9 WHERE lease_id = {DONE}",
            r"lease l\w+",
        ),
        (
            f"UPDATE segment SET weight = 125 WHERE lease_id = {DONE}",
            "holds 500 thousandths, and counts 125",
        ),
        (
            "UPDATE price_plan SET gpu_hour = gpu_hour + 1000",
            r"is charged \d+, its time costs \d+$",
        ),
        (
            f"UPDATE lease SET usage = usage - 1 WHERE id = {DONE}",
            "has used 49999 .* makes 50000$",
        ),
        (
            f"DELETE FROM segment WHERE lease_id = {DONE}",
            "has 0 segments and began at",
        ),
        (
            f"UPDATE lease SET ended_at = ended_at + 60000000 WHERE id = {DONE}",
            r"lease l\w+ ended at",
        ),
        (
            f"UPDATE lease SET ended_at = NULL WHERE id = {DONE}",
            r"lease l\w+ is over, and no end is on record",
        ),
        (
            f"UPDATE lease SET started_at = started_at + 5 WHERE id = {DONE}",
            "counts time from",
        ),
        (
            (
                "INSERT INTO segment SELECT lease_id, 2, weight, plan_id, started_at, ended_at"
                f" FROM segment WHERE lease_id = {DONE}"
            ),
            "segments 1 and 2 of lease",
        ),
        (
            f"UPDATE lease SET void = true WHERE id = {DONE}",
            "is charged 13889, its time costs 0$",
        ),
    ],
    "settled_leases_hold_nothing": [
        (
            f"UPDATE lease SET held = 1 WHERE id = {DONE}",
            r"lease l\w+ is settled and still holds 1",
        ),
    ],
    "no_figure_is_negative": [
        (
            f"UPDATE lease SET usage = -1 WHERE id = {DONE}",
            "usage -1",
        ),
        (
            f"UPDATE lease SET refunded = charged + 1 WHERE id = {REFUNDED}",
            "figures that cannot be",
        ),
    ],
    "devices_are_not_overcommitted": [
        (
            "UPDATE slot SET released_at = NULL, share = 1000",
            r"device \S+ is given away \d000 times",
        ),
    ],
    "live_leases_hold_their_slots": [
        (
            "UPDATE slot SET released_at = 1",
            r"lease l\w+ is live without a slot",
        ),
        (
            "UPDATE slot SET released_at = NULL",
            r"lease l\w+ is over and still has a slot",
        ),
        (
            "UPDATE slot SET share = 1",
            r"lease l\w+ is of 500 thousandths, its slots hold 1$",
        ),
    ],
    "finished_leases_have_no_open_segment": [
        (
            "UPDATE segment SET ended_at = NULL",
            r"lease l\w+ is over and still counts time",
        ),
    ],
}


def tamper(connection: sa.Connection, statement: str) -> None:
    """Write past every CHECK: what is asked is what the audit sees, not what the database would have refused."""
    if connection.dialect.name == "sqlite":
        connection.execute(sa.text("PRAGMA ignore_check_constraints = ON"))
        connection.execute(sa.text("PRAGMA defer_foreign_keys = ON"))
        connection.execute(sa.text(statement))
        connection.execute(sa.text("PRAGMA ignore_check_constraints = OFF"))
        return
    guards = "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype IN ('c', 'f')"
    for table, name in connection.execute(sa.text(f"{guards} AND connamespace = 'public'::regnamespace")).all():
        connection.execute(sa.text(f"ALTER TABLE {table} DROP CONSTRAINT {name}"))
    connection.execute(sa.text(statement))


class Undone(Exception):
    """So that the next tampering finds a book in order."""


def found_after(desk: Desk, statement: str) -> list[Finding]:
    found: list[Finding] = []
    with suppress(Undone), desk.store.write() as connection:
        tamper(connection, statement)
        found += audit(connection).findings
        raise Undone
    return found


def test_every_check_is_tried() -> None:
    assert set(TAMPERING) == {check.__name__ for check in CHECKS}


def test_tampering_is_found_by_the_check_that_is_for_it(desk: Desk) -> None:
    missed = []
    for check, tampering in TAMPERING.items():
        for statement, words in tampering:
            found = found_after(desk, statement)
            told = [str(finding) for finding in found if finding.check == check]
            if not any(re.search(words, one) for one in told):
                missed.append((check, statement, [str(one) for one in found]))
    assert missed == []
    assert desk.bank.audit() == []


def test_the_first_difference_names_ids_and_both_figures(desk: Desk) -> None:
    first, *more = found_after(desk, "UPDATE balance SET amount = amount + 5 WHERE sub = 'platform:revenue'")
    assert more == []
    assert (first.check, first.subject) == ("balances_agree", "platform:revenue")
    assert first.said is not None
    assert first.truth == first.said - 5
    assert str(first) == f"balance platform:revenue is {first.said}, the ledger says {first.truth}"


def test_a_row_that_cannot_be_read_hides_no_other_finding(desk: Desk) -> None:
    with desk.store.write() as connection:
        tamper(connection, f"UPDATE segment SET ended_at = 9000000000000000000 WHERE lease_id = {DONE}")
    found = [str(finding) for finding in found_after(desk, "UPDATE slot SET released_at = 1")]
    assert any("a row cannot be read" in words for words in found), found
    assert any("is live without a slot" in words for words in found), found


def test_the_audit_writes_nothing_and_hears_of_its_progress(desk: Desk) -> None:
    heard: list[tuple[str, int, int]] = []
    desk.bank.audited(lambda *told: heard.append(told))
    assert [number for _, number, _ in heard] == list(range(1, len(CHECKS) + 1))
    assert all(most == len(CHECKS) for _, _, most in heard)


def test_months_are_counted_by_the_zone_of_their_time(desk: Desk) -> None:
    """A site that moves to another zone has its old months as they were."""
    desk.clock.set(datetime(2026, 4, 30, 20, 30, tzinfo=UTC))
    moved = Desk(desk.store, desk.clock, Defaults(zone="Asia/Shanghai"))
    desk.session(60, "alice", server="by-utc")
    desk.clock.advance(1)
    moved.bank.seed()
    moved.session(60, "alice", server="in-shanghai-it-is-may")
    assert moved.bank.audit() == []
    assert Bank(desk.store, desk.clock, Defaults(zone="Asia/Shanghai")).audit() == []
    found = found_after(moved, "DELETE FROM month_charge WHERE month = '2026-05'")
    assert any("in 2026-05 are 0" in str(finding) for finding in found)


def test_the_calendar_of_an_audit_has_every_month_once() -> None:
    since = datetime(2026, 2, 10, tzinfo=UTC)
    site = Site(((from_micros(0), "UTC"), (since, "America/New_York")))
    months = site.months(datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2026, 4, 1, 3, tzinfo=UTC))
    assert months == [
        (datetime(2026, 1, 1, tzinfo=UTC), "2025-12"),
        (datetime(2026, 2, 1, tzinfo=UTC), "2026-01"),
        (since, "2026-02"),
        (datetime(2026, 3, 1, 5, tzinfo=UTC), "2026-02"),
        (datetime(2026, 4, 1, 4, tzinfo=UTC), "2026-03"),
    ]
