"""No statement of daily work reads a table that grows with history from one end to the other.

Every statement of a whole life, of reads and of money is caught as it is sent, and SQLite is asked how it would run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quota import schema
from quota.leases import State, StopReason
from quota.rows import Sample
from tests.fakes.book import BOOT, Desk, open_desk

pytestmark = pytest.mark.usefixtures("sqlite_only")

#: Tables that keep a row of everything that ever was.
GROWING = {
    "lease",
    "slot",
    "segment",
    "posting",
    "balance",
    "grant_bucket",
    "event",
    "sample",
    "signal",
    "verdict",
    "month_charge",
    "account",
    "answered",
}
#: Partial indexes whose rows are those of living leases and open grants alone, so that all of them may be read.
OF_THE_LIVING = {
    "uq_lease_live_holder",
    "ix_lease_live_account",
    "ix_lease_unsettled",
    "ix_slot_live_device",
    "ix_grant_bucket_open",
}

Sent = dict[str, tuple[Any, ...]]


@contextmanager
def caught(desk: Desk) -> Iterator[Sent]:
    """The statements that are sent in the block, each with the parameters of one run."""
    sent: Sent = {}

    def catch(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        sent[statement] = tuple(parameters[0] if many else parameters)

    sa.event.listen(desk.store.engine, "before_cursor_execute", catch)
    try:
        yield sent
    finally:
        sa.event.remove(desk.store.engine, "before_cursor_execute", catch)


def plan(desk: Desk, statement: str, parameters: tuple[Any, ...]) -> list[str]:
    """The steps in SQLite's words: "SEARCH lease USING INDEX …", "SCAN posting"."""
    if not statement.lstrip().upper().startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
        return []
    with desk.store.read() as connection:
        return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]


def whole_reads(statement: str, steps: list[str]) -> list[str]:
    """The steps that read a growing table from end to end. The first page of a list is none: it stops at its limit."""
    found = []
    sorts = any("TEMP B-TREE FOR" in step for step in steps)
    for step in steps:
        match = re.match(r"SCAN (\w+)(?:.* USING (?:COVERING )?INDEX (\w+))?", step)
        if not match or match[1] not in GROWING or match[2] in OF_THE_LIVING:
            continue
        if "LIMIT" in statement and not sorts and len(re.findall(r"^SCAN", "\n".join(steps), re.M)) == 1:
            continue
        found.append(step)
    return found


def wrong_ones(desk: Desk, sent: Sent) -> list[str]:
    return [
        f"{step}: {' '.join(statement.split())}"
        for statement, parameters in sent.items()
        for step in whole_reads(statement, plan(desk, statement, parameters))
    ]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        desk.devices(4)
        desk.session(600, user="alice")
        desk.run(user="bob")
        yield desk


def test_the_check_itself_finds_a_scan(desk: Desk) -> None:
    with caught(desk) as sent, desk.store.read() as connection:
        connection.execute(sa.select(schema.posting.c.id).where(schema.posting.c.amount > 5)).all()
        connection.execute(sa.select(schema.lease.c.id).order_by(schema.lease.c.profile).limit(3)).all()
        connection.execute(sa.select(schema.lease.c.id).where(schema.lease.c.id == "l")).all()
    assert [step.split(":")[0] for step in wrong_ones(desk, sent)] == ["SCAN posting", "SCAN lease"]


def test_a_whole_life_and_its_money_search_by_an_index(desk: Desk) -> None:
    with caught(desk) as sent:
        lease = desk.run(user="carol")
        desk.clock.advance(120)
        desk.book.meter(lease, desk.now)
        desk.book.observe_all([lease], desk.now)
        desk.rows.put_sample(lease.id, Sample(desk.now))
        desk.rows.put_signal(lease.id, "kit", {}, desk.now)
        desk.rows.put_verdict(lease.id, desk.now, "keep", "used", "", {})
        desk.rows.add_event("note", lease.id)
        desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + timedelta(minutes=5))
        desk.book.cancel_stop(lease.id, "carol")
        done = desk.end(desk.book.lease(lease.id))
        assert done.state is State.SETTLED
        desk.bank.refund(lease.id, 1, by="admin", note="")
        desk.bank.grant("carol", 10, by="admin")
        desk.bank.set_limits("carol", {"max_servers": 3}, "admin")
        gone = desk.run(user="dave")
        desk.clock.advance(40 * 86400)  # another month: old grants expire, new ones are given
        desk.book.close(desk.book.lease(gone.id), desk.now, StopReason.FAILED)
        desk.book.void(gone.id)
        desk.wind_up(desk.book.lease(gone.id))
        desk.reserve(user="carol")
    assert len(sent) > 40
    assert wrong_ones(desk, sent) == []


def test_what_agent_culler_and_pages_read_again_and_again_search_by_an_index(desk: Desk) -> None:
    lease = desk.book.leases(user="bob")[0]
    with caught(desk) as sent:
        for leases in (desk.book.live(), desk.book.unsettled(), desk.book.live("bob")):
            assert [each.id for each in leases] == [lease.id]
        assert [each.id for each in desk.book.holdings()] == [each.id for each in desk.book.some([lease.id])]
        desk.book.live_of(lease.holder)
        desk.book.leases()
        desk.book.leases(before=lease.id)
        desk.book.leases(user="alice", before=desk.now)
        desk.rows.devices(), desk.rows.samples(), desk.rows.all_signals(), desk.rows.verdicts()
        desk.rows.signals(lease.id), desk.rows.verdict(lease.id)
        desk.rows.events(), desk.rows.events(lease_id=lease.id), desk.rows.events(account_id=lease.account_id)
        desk.rows.beat(BOOT, "hub", "h"), desk.rows.boots("hub"), desk.rows.meta("x")
        desk.bank.account("alice"), desk.bank.ensure_account("alice"), desk.bank.limits("alice"), desk.bank.price()
        desk.bank.statement("alice", desk.now - timedelta(days=30), desk.now)
    assert len(sent) > 20
    assert wrong_ones(desk, sent) == []


def test_a_statement_reads_no_lease_that_ended_before_it(desk: Desk) -> None:
    with caught(desk) as sent:
        desk.bank.statement("alice", desk.now - timedelta(days=30), desk.now)
    steps = [step for statement, parameters in sent.items() for step in plan(desk, statement, parameters)]
    of_leases = [step for step in steps if re.match(r"SEARCH lease\b", step)]
    assert of_leases
    allowed = ("ix_lease_ended (account_id=? AND ended_at>?)", *sorted(OF_THE_LIVING), "ix_lease_refunded")
    assert all(any(name in step for name in allowed) for step in of_leases), of_leases
