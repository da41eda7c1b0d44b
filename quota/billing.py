"""The money of one lease, inside a transaction that claimed it: hold, charge, top up, give back, refund.

Charges are `round(price x cumulative usage) - already posted`: however often this is called, the sum is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from quota import accounts, ledger, schema
from quota.accounts import Account
from quota.errors import Conflict
from quota.leases import Lease, Segment, State
from quota.ledger import Draw, Kind
from quota.metering import month_name, usage
from quota.postings import balance_of, legs_of, post, totals
from quota.pricing import carries, charge_due, hold_between, hold_for
from quota.records import Row, add_event, change, claim, lease_row, lock_account, read_lease, read_segments


@dataclass(frozen=True, slots=True)
class Metered:
    """A lease after it was metered. `paid_until`: how far what is held carries (None: nothing has to be paid).
    `exhausted`: the hold could not be filled up to `hold_seconds` ahead, so the server must end by `paid_until`."""

    lease: Lease
    paid_until: datetime | None
    exhausted: bool


@dataclass(frozen=True, slots=True)
class Bill:
    """One transaction's view of a lease, claimed before anything is written."""

    connection: sa.Connection
    lease: Lease
    now: datetime
    zone: str

    @property
    def month(self) -> str:
        return month_name(self.now, self.zone)

    def claimed(self) -> Bill:
        """The same with the lease taken for writing. Raises `Stale`."""
        return replace(self, lease=claim(self.connection, self.lease))

    def row(self) -> Row:
        return lease_row(self.connection, self.lease.id)

    def segments(self) -> list[Segment]:
        return read_segments(self.connection, [self.lease.id])[self.lease.id]

    def account(self) -> Account:
        """The paying account, locked for this transaction."""
        lock_account(self.connection, self.lease.account_id)
        return accounts.get(self.connection, self.lease.account)


def first_hold(bill: Bill, draws: Sequence[Draw]) -> None:
    """Hold what was drawn for a new lease; nothing where the price is 0."""
    if draws:
        lease = bill.lease
        post(bill.connection, bill.now, bill.month, ledger.hold(lease.id, lease.account_id, draws))


def meter(bill: Bill, until: datetime) -> Metered:
    """Charge what is due up to `until` and fill the hold up again."""
    segments = bill.segments()
    if not segments or bill.lease.state in (State.RELEASED, State.SETTLED):
        return Metered(bill.lease, None, False)
    row = bill.row()
    until = max(until, row["metered_until"] or until, segments[0].started_at)
    lease = _charge_to(bill, segments, until)
    if segments[-1].ended_at is not None:
        return Metered(lease, None, False)
    return _top_up(replace(bill, lease=lease), segments[-1], until)


def _charge_to(bill: Bill, segments: Sequence[Segment], until: datetime, *, free: bool = False) -> Lease:
    """Post the difference between what is due at `until` and what was posted; it may go back, when the end turned
    out to be earlier or the lease is void (`free`)."""
    row = bill.row()
    due = 0 if free else charge_due(segments, until)
    used = 0 if free else usage(segments, until)
    values: dict[str, object] = {"usage": used, "metered_until": until}
    amount = due - row["charged"]
    if amount:
        lock_account(bill.connection, row["account_id"])  # before anything of the account, as everybody does
        lacking = max(0, amount - row["held"])
        draws = _draw(bill, lacking) if lacking else []
        number = row["charges"] + 1
        txn = ledger.charge(row["id"], row["account_id"], number, amount, row["held"], draws)
        post(bill.connection, bill.now, bill.month, txn)
        values |= {"charged": due, "charges": number, "held": row["held"] - min(amount, row["held"])}
    return change(bill.connection, bill.lease, **values)


def close_segments(bill: Bill, end: datetime) -> None:
    """Time stops at `end`. What was charged beyond it goes back at once: a meter had gone on until the end was seen."""
    table = schema.segment
    open_ones = sa.update(table).where(table.c.lease_id == bill.lease.id, table.c.ended_at.is_(None))
    began_later = sa.case((table.c.started_at > end, table.c.started_at), else_=sa.literal(end, schema.UtcMicros))
    bill.connection.execute(open_ones.values(ended_at=began_later))
    segments = bill.segments()
    if segments and charge_due(segments, end) < bill.row()["charged"]:
        _charge_to(bill, segments, end)


def _draw(bill: Bill, amount: int) -> list[Draw]:
    buckets = accounts.freshen(bill.connection, bill.account(), bill.now, bill.zone)
    return ledger.draw(buckets, amount, bill.now)


def _top_up(bill: Bill, running: Segment, until: datetime) -> Metered:
    row = bill.row()
    price, weight = running.price, running.weight
    wanted = hold_for(price, weight, row["hold_seconds"]) - row["held"]
    lease, exhausted = bill.lease, False
    if wanted > 0:
        draws = _affordable(bill, wanted)
        exhausted = ledger.total(draws) < wanted
        if draws:
            number = row["holds"] + 1
            txn = ledger.hold(row["id"], row["account_id"], draws, number)
            post(bill.connection, bill.now, bill.month, txn)
            lease = change(bill.connection, bill.lease, held=row["held"] + ledger.total(draws), holds=number)
    lasting = carries(price, weight, lease.held)
    return Metered(lease, None if lasting is None else _later(until, lasting), exhausted)


def _later(moment: datetime, lasting: timedelta) -> datetime | None:
    """`moment + lasting`; None where that lies beyond the calendar."""
    try:
        return moment + lasting
    except OverflowError:
        return None


def _affordable(bill: Bill, wanted: int) -> list[Draw]:
    """Draws for a top-up: as much of `wanted` as the balance and the month's limit allow."""
    account = bill.account()
    buckets = accounts.freshen(bill.connection, account, bill.now, bill.zone)
    sums = totals(bill.connection, account.id, bill.month)
    most = ledger.available(buckets, sums.debt, bill.now)
    limit = accounts.effective_limits(bill.connection, account).monthly_micro
    room = wanted if limit is None else limit - sums.month_charged - sums.held
    return ledger.draw(buckets, max(0, min(wanted, most, room)), bill.now)


def give_back_excess(bill: Bill, ended_at: datetime) -> Lease:
    """With the slot, give back what the hold has beyond what will be charged."""
    row = bill.row()
    due = 0 if row["void"] else charge_due(bill.segments(), ended_at)
    return _hand_back(bill, Kind.RELEASE, row["held"] - max(0, due - row["charged"]))


def settle(bill: Bill) -> Lease:
    """The final charge (0 for a lease that never ran or is void), and the rest of the hold goes back."""
    row, segments = bill.row(), bill.segments()
    lease = bill.lease
    if segments:
        lease = _charge_to(bill, segments, segments[-1].ended_at or row["metered_until"], free=bool(row["void"]))
    return _hand_back(bill, Kind.SETTLE, lease.held)


def hold_until(bill: Bill, until: datetime | None) -> datetime | None:
    """Hold what carries a running server to `until`, never less than it holds anyway; None: no more than that.

    What is held beyond goes back. Returns None when all is held, else the moment up to which it could be: then
    nothing was written. Meters take what is due from the hold, so they leave it alone until it is nearly used up.
    """
    row, running = bill.row(), bill.segments()[-1]
    metered: datetime = row["metered_until"]
    usual = hold_for(running.price, running.weight, row["hold_seconds"])
    ahead = 0 if until is None else hold_between(running.price, running.weight, metered, until)
    wanted = max(usual, ahead) - row["held"]
    if until is not None and ahead > row["held"]:
        wanted = ahead - row["held"]
        draws = _affordable(bill, wanted)
        if ledger.total(draws) < wanted:
            lasting = carries(running.price, running.weight, row["held"] + ledger.total(draws))
            return until if lasting is None else min(until, metered + lasting)
        number = row["holds"] + 1
        post(bill.connection, bill.now, bill.month, ledger.hold(row["id"], row["account_id"], draws, number))
        change(bill.connection, bill.lease, held=row["held"] + wanted, holds=number)
    elif wanted < 0:
        _hand_back(bill, Kind.RELEASE, -wanted, bill.lease.version)
    return None


def _hand_back(bill: Bill, kind: Kind, amount: int, number: int = 0) -> Lease:
    lease_id, account_id = bill.lease.id, bill.lease.account_id
    if amount <= 0:
        return read_lease(bill.connection, lease_id)
    account = bill.account()
    back = ledger.give_back(legs_of(bill.connection, lease_id), amount)
    accounts.freshen(bill.connection, account, bill.now, bill.zone)
    expired = _expired_subs(bill, back)
    post(bill.connection, bill.now, bill.month, ledger.hand_back(kind, lease_id, account_id, back, expired, number))
    held = bill.row()["held"] - amount
    return change(bill.connection, bill.lease, held=held)


def _expired_subs(bill: Bill, back: Sequence[Draw]) -> set[str]:
    """Those of the grants in `back` whose time is over: money that comes back to them expires at once."""
    ids = [number for part in back if (number := ledger.bucket_of(part.sub)) is not None]
    table = schema.grant_bucket
    over = sa.select(table.c.id).where(table.c.id.in_(ids), table.c.expired_at.is_not(None))
    return {ledger.grant_sub(number) for number in bill.connection.scalars(over)}


def refunded(bill: Bill, amount: int | None) -> int | None:
    """What was refunded, where nothing is left to do; None where there is. Raises `Conflict` as `Bank.refund` says."""
    row = bill.row()
    if row["state"] != State.SETTLED.value:
        raise Conflict(f"lease {row['id']} is not settled yet, so its bill is not final")
    wanted = row["charged"] if amount is None else min(amount, row["charged"])
    if row["refunded"] and row["refunded"] != wanted:
        raise Conflict(f"refund:{row['id']} was posted before with another amount")
    return int(row["refunded"]) if row["refunded"] or not wanted else None


def refund(bill: Bill, amount: int | None, by: str, note: str) -> int:
    """Refund up to what was charged, once; see `Bank.refund`."""
    already = refunded(bill, amount)
    if already is not None:
        return already
    row = bill.row()
    wanted = row["charged"] if amount is None else min(amount, row["charged"])
    account = bill.account()
    to_debt = min(wanted, -balance_of(bill.connection, ledger.debt_sub(account.id)))
    bucket_id = None
    if wanted > to_debt:
        key = f"refund:{row['id']}"
        more = {"by": by, "note": note}
        bucket_id, _ = accounts.add_bucket(bill.connection, account.id, key, wanted - to_debt, bill.now, **more)
    txn = ledger.refund(row["id"], account.id, to_debt, wanted - to_debt, bucket_id)
    post(bill.connection, bill.now, bill.month, txn)  # in the open month: one that is over stays as it was billed
    change(bill.connection, bill.lease, refunded=wanted)
    detail = {"amount": wanted, "note": note}
    add_event(bill.connection, bill.now, "refund", lease_id=row["id"], account_id=account.id, by=by, detail=detail)
    return int(wanted)
