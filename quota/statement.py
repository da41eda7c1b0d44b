"""What an account used and paid in a stretch of time, lease by lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from quota import schema
from quota.leases import Segment
from quota.ledger import REVENUE
from quota.metering import elapsed, month_name, usage
from quota.pricing import charge_due
from quota.records import Row, read_segments


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One lease inside a half-open range. `seconds` is wall time inside the range in *microseconds*,
    `milli_gpu_seconds` and `charged` (micro-credits) are the parts that fall into the range: over ranges that
    follow each other without a gap they sum to the lease's own totals. A refund after the month of
    the end is taken off where it was given, so a month that is over stays as it was billed; `charged` is negative where
    nothing but such a refund falls into the range.
    `started_at` and `ended_at` are the lease's."""

    lease_id: str
    profile: str
    image: str
    share: int
    count: int
    simulated: bool
    started_at: datetime
    ended_at: datetime | None
    seconds: int
    milli_gpu_seconds: int
    charged: int
    user: str = ""  # who held it


@dataclass(frozen=True, slots=True)
class Late:
    """A refund that was given when the month of the lease's end was over."""

    at: datetime
    amount: int


def read_statement(
    connection: sa.Connection, account_id: int, start: datetime, end: datetime, zone: str, user: str | None = None
) -> list[StatementLine]:
    """Lines of the account's leases (of one user's, or all) that ran, or were refunded late, inside [start, end),
    oldest first."""
    table, part = schema.lease, schema.segment
    inside = (
        sa.select(part.c.lease_id)
        .where(part.c.started_at < end, part.c.ended_at.is_(None) | (part.c.ended_at > start))
        .where(part.c.lease_id == table.c.id)
        .exists()
    )
    held = sa.true() if user is None else table.c.holder_user == user
    mine = sa.select(table).where(table.c.account_id == account_id, held, inside)
    rows: list[Row] = []
    # `inside` says as much, but by these an index leads past all that ended before; one for both would not.
    for late_enough in (sa.text("state <> 'SETTLED'") & table.c.ended_at.is_(None), table.c.ended_at > start):
        rows += connection.execute(mine.where(late_enough)).mappings()
    late = _late_refunds(connection, account_id, zone)
    only = {lease_id for lease_id, refund in late.items() if start <= refund.at < end} - {row["id"] for row in rows}
    if only:
        rows += connection.execute(sa.select(table).where(table.c.id.in_(sorted(only)), held)).mappings()
    rows.sort(key=lambda row: (row["started_at"], row["id"]))
    segments = read_segments(connection, [row["id"] for row in rows])
    return [line(row, segments[row["id"]], start, end, late.get(row["id"])) for row in rows]


def _late_refunds(connection: sa.Connection, account_id: int, zone: str) -> dict[str, Late]:
    """Refunds of the account's leases that fall into another month than the end, by lease; found by their keys."""
    table, leg = schema.lease, schema.posting
    key = sa.literal("refund:", sa.String) + table.c.id
    chosen = (
        sa.select(table.c.id, table.c.ended_at, leg.c.at, leg.c.amount)
        .join(leg, leg.c.key == key)
        .where(table.c.account_id == account_id, sa.text(schema.REFUNDED_SQL), leg.c.sub == REVENUE)
    )
    return {
        row.id: Late(row.at, -int(row.amount))
        for row in connection.execute(chosen)
        if month_name(row.ended_at or row.at, zone) != month_name(row.at, zone)
    }


def line(
    row: Row, segments: Sequence[Segment], start: datetime, end: datetime, late: Late | None = None
) -> StatementLine:
    """The line of one lease. What was not posted yet is not told: an open lease reaches to where it was metered.

    Everything is the difference of two cumulative values, so adjacent ranges sum exactly. A refund takes off the end
    of a lease first: charges are counted up to what was charged in the end. A late one leaves them as they were.
    """
    until = row["metered_until"] or row["started_at"]
    paid = row["charged"] - (0 if late else row["refunded"])
    given_back = late.amount if late is not None and start <= late.at < end else 0
    first, last = min(start, until), min(end, until)
    free = bool(row["void"])
    return StatementLine(
        lease_id=row["id"],
        profile=row["profile"],
        image=row["image"],
        share=row["share"],
        count=row["count"],
        simulated=bool(row["simulated"]),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        seconds=0 if free else elapsed(segments, last) - elapsed(segments, first),
        milli_gpu_seconds=0 if free else usage(segments, last) - usage(segments, first),
        charged=min(charge_due(segments, last), paid) - min(charge_due(segments, first), paid) - given_back,
        user=row["holder_user"],
    )
