"""Statements: what is told for a range, summed over ranges and users, is what the ledger says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from quota.bank import StatementLine
from quota.leases import StopReason
from quota.ledger import REVENUE
from quota.postings import balance_of
from tests.fakes.book import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(2)
        yield opened
        assert opened.bank.audit() == []


def revenue(desk: Desk) -> int:
    with desk.store.read() as connection:
        return balance_of(connection, REVENUE)


def charged(lines: list[StatementLine]) -> int:
    return sum(line.charged for line in lines)


def test_b02_the_statements_of_two_users_sum_to_the_ledger(desk: Desk) -> None:
    start = desk.now
    desk.session(50, "alice", share=500)
    desk.session(3599.999999, "bob", share=125)
    running = desk.run("alice", "open", share=1000)
    desk.clock.advance(123.456)
    running = desk.book.meter(running, desk.now).lease
    settled = desk.session(77, "bob", share=1000)
    desk.bank.refund(settled.id, 1000, "admin", "a part")
    lines = {name: desk.bank.statement(name, start, desk.now) for name in ("alice", "bob")}
    assert charged(lines["alice"]) + charged(lines["bob"]) == revenue(desk) > 0
    for name, found in lines.items():
        assert charged(found) == desk.bank.account(name).month_charged
        assert charged(found) == sum(lease.charged for lease in desk.book.leases(name))
        assert sum(line.milli_gpu_seconds for line in found) == sum(lease.usage for lease in desk.book.leases(name))


def test_ranges_that_follow_each_other_sum_to_the_whole(desk: Desk) -> None:
    start = desk.now
    for seconds, share in ((50, 125), (0.123456, 1000), (7200.5, 500)):
        desk.session(seconds, share=share)
    cuts = [start + timedelta(seconds=step * 311.7) for step in range(40)]
    cuts = [cut for cut in cuts if cut < desk.now] + [desk.now]
    whole = desk.bank.statement("alice", start, desk.now)
    parts = [line for a, b in pairwise(cuts) for line in desk.bank.statement("alice", a, b)]
    assert len(parts) > 20
    for lease in whole:
        mine = [line for line in parts if line.lease_id == lease.lease_id]
        assert sum(line.seconds for line in mine) == lease.seconds
        assert sum(line.milli_gpu_seconds for line in mine) == lease.milli_gpu_seconds
        assert sum(line.charged for line in mine) == lease.charged


def test_a_line_tells_what_ran_and_is_clipped_to_the_range(desk: Desk) -> None:
    lease = desk.session(100, share=500, profile="gpu-1-2", image="env")
    assert lease.started_at is not None
    begin = lease.started_at
    (line,) = desk.bank.statement("alice", begin + timedelta(seconds=10), begin + timedelta(seconds=46))
    assert line == StatementLine(
        lease_id=lease.id,
        profile="gpu-1-2",
        image="env",
        share=500,
        count=1,
        simulated=True,
        started_at=begin,
        ended_at=lease.ended_at,
        seconds=36 * 10**6,
        milli_gpu_seconds=18_000,
        charged=5_000,
        user="alice",
    )


def test_the_range_is_half_open(desk: Desk) -> None:
    lease = desk.session(100)
    begin, end = lease.started_at, lease.ended_at
    assert begin is not None
    assert end is not None
    hour = timedelta(hours=1)
    assert desk.bank.statement("alice", end, end + hour) == []
    assert desk.bank.statement("alice", begin - hour, begin) == []
    assert len(desk.bank.statement("alice", begin, begin + timedelta(microseconds=1))) == 1


def test_what_was_not_posted_is_not_told(desk: Desk) -> None:
    """A running lease reaches to where it was metered, so that the page and the ledger never differ."""
    start = desk.now
    lease = desk.run(share=1000)
    desk.clock.advance(36)
    (line,) = desk.bank.statement("alice", start, desk.now)
    assert (line.charged, line.seconds) == (0, 0)
    desk.book.meter(lease, desk.now)
    desk.clock.advance(36)
    (line,) = desk.bank.statement("alice", start, desk.now)
    assert (line.charged, line.seconds, line.ended_at) == (10_000, 36 * 10**6, None)


def test_a_correction_of_the_end_is_told(desk: Desk) -> None:
    start = desk.now
    lease = desk.run(share=1000)
    desk.clock.advance(72)
    lease = desk.book.meter(lease, desk.now).lease
    lease = desk.book.close(lease, start + timedelta(seconds=36), StopReason.FAILED)
    assert charged(desk.bank.statement("alice", start, desk.now)) == revenue(desk) == 10_000
    desk.wind_up(lease)
    (line,) = desk.bank.statement("alice", start, desk.now)
    assert (line.charged, line.seconds) == (10_000, 36 * 10**6)
    assert revenue(desk) == 10_000


def test_the_order_is_the_order_of_the_starts(desk: Desk) -> None:
    start = desk.now
    made = [desk.session(10).id for _ in range(4)]
    assert [line.lease_id for line in desk.bank.statement("alice", start, desk.now)] == made


def test_statements_of_a_year_are_empty_where_nothing_ran(desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    beginning = datetime.fromisoformat("2020-01-01T00:00:00+00:00")
    assert desk.bank.statement("alice", beginning, desk.now) == []
