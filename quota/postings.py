"""The ledger in SQL: one function posts, and keeps the cached balances in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from quota import ledger, schema
from quota.errors import Conflict
from quota.leases import HolderKind
from quota.ledger import Bucket, Kind, Posting, Transaction
from quota.records import LIVE
from quota.store import Late, insert_new, pending, upsert

_POSTING, _BALANCE, _BUCKET, _LEASE = schema.posting, schema.balance, schema.grant_bucket, schema.lease

_LEGS = sa.select(_POSTING.c.sub, _POSTING.c.amount).where(_POSTING.c.key == sa.bindparam("k")).order_by(_POSTING.c.leg)
_ADD_LEGS = sa.insert(_POSTING)
_ADD = (
    sa.update(_BALANCE)
    .where(_BALANCE.c.sub == sa.bindparam("s"))
    .values(amount=_BALANCE.c.amount + sa.bindparam("add", type_=sa.BigInteger))
)
_AMOUNT = sa.select(_BALANCE.c.amount).where(_BALANCE.c.sub == sa.bindparam("s"))
_OPEN_BUCKETS = (
    sa.select(_BUCKET, sa.func.coalesce(_BALANCE.c.amount, 0).label("balance"))
    .outerjoin(_BALANCE, _BALANCE.c.sub == sa.literal("grant:", sa.String) + sa.cast(_BUCKET.c.id, sa.String))
    .where(_BUCKET.c.account_id == sa.bindparam("a"), _BUCKET.c.expired_at.is_(None))
    .order_by(_BUCKET.c.id)
)

_PAGE = 200
_LAST_ID = 2**63 - 1
_RETURNING = _POSTING.c.kind.in_([Kind.RELEASE.value, Kind.SETTLE.value])
_DRAWS = (
    sa.select(_POSTING.c.id, _POSTING.c.sub, _POSTING.c.amount)
    .where(
        _POSTING.c.lease_id == sa.bindparam("lease"),
        _POSTING.c.id < sa.bindparam("before", type_=sa.BigInteger),
        _POSTING.c.kind != Kind.REFUND.value,
        _POSTING.c.sub.like("grant:%") | _POSTING.c.sub.like("debt:%"),
        ~(_RETURNING & (_POSTING.c.amount < 0)),
    )
    .order_by(_POSTING.c.id.desc())
    .limit(_PAGE)
)


def post(connection: sa.Connection, now: datetime, month: str, txn: Transaction) -> bool:
    """Write a transaction, its balances and the month's charges ("2026-03"); the only place that does.

    A key that is there already with the same legs: nothing happens, False. Raises `Conflict` with other legs.
    """
    known = [Posting(row.sub, row.amount) for row in connection.execute(_LEGS, {"k": txn.key})]
    if known:
        if tuple(known) == txn.legs:
            return False
        raise Conflict(f"{txn.key} was posted before with other legs")
    common = {"key": txn.key, "kind": txn.kind.value, "account_id": txn.account_id, "lease_id": txn.lease_id, "at": now}
    rows = [{**common, "leg": n, "sub": leg.sub, "amount": leg.amount} for n, leg in enumerate(txn.legs)]
    connection.execute(_ADD_LEGS, rows)
    _add_to_balances(connection, txn)
    charged = sum(leg.amount for leg in txn.legs if leg.sub == ledger.REVENUE)
    if charged:
        row = {"account_id": txn.account_id, "month": month, "charged": charged}
        upsert(connection, schema.month_charge, [row], add=["charged"])
    return True


def _add_to_balances(connection: sa.Connection, txn: Transaction) -> None:
    changes: dict[str, int] = {}
    for leg in txn.legs:
        changes[leg.sub] = changes.get(leg.sub, 0) + leg.amount
    shared = {sub: amount for sub, amount in changes.items() if sub.startswith(ledger.PLATFORM)}
    add_amounts(connection, {sub: amount for sub, amount in changes.items() if sub not in shared})
    late = pending(connection, add_amounts)
    for sub, amount in shared.items():
        late[sub] = late.get(sub, 0) + amount


def add_amounts(connection: sa.Connection, changes: Late) -> None:
    """Add to balances, in the order of their names, and make those that are missing."""
    for sub, amount in sorted(changes.items()):
        # Not an upsert: the CHECKs would test the change as if it were the balance. A row that is missing may be
        # made by another transaction at this moment.
        while amount and connection.execute(_ADD, {"s": sub, "add": amount}).rowcount == 0:
            if insert_new(connection, _BALANCE, {"sub": sub, "amount": amount}):
                break


def balance_of(connection: sa.Connection, sub: str) -> int:
    return connection.scalar(_AMOUNT, {"s": sub}) or 0


def bucket_value(row: sa.RowMapping) -> Bucket:
    return Bucket(
        id=row["id"],
        key=row["key"],
        amount=row["amount"],
        balance=row["balance"],
        granted_at=row["granted_at"],
        expires_at=row["expires_at"],
        by=row["by"],
        note=row["note"],
    )


def open_buckets(connection: sa.Connection, account_id: int) -> list[Bucket]:
    """The grants of an account that were not taken off as expired, oldest first, with what is left of each."""
    return [bucket_value(row) for row in connection.execute(_OPEN_BUCKETS, {"a": account_id}).mappings()]


def legs_of(connection: sa.Connection, lease_id: str) -> Iterator[Posting]:
    """A lease's legs on grants and debt, newest first, for `ledger.give_back`. What expired as it went back is no
    draw of the lease and is left out. Read a page at a time, as the first page nearly always is enough."""
    before, full = _LAST_ID, True
    while full:
        rows = connection.execute(_DRAWS, {"lease": lease_id, "before": before}).all()
        yield from (Posting(row.sub, row.amount) for row in rows)
        full = len(rows) == _PAGE
        before = rows[-1].id if rows else before


class Totals(NamedTuple):
    """The money of an account in one look: micro-credits held, charged this month, and its debt (never positive)."""

    held: int
    month_charged: int
    debt: int


class Going(NamedTuple):
    """Live leases and their milli-GPU, together."""

    servers: int
    gpu_milli: int


def _scalar(column: sa.ColumnElement[Any], *where: sa.ColumnElement[bool] | sa.TextClause) -> sa.ScalarSelect[Any]:
    return sa.select(sa.func.coalesce(column, 0)).where(*where).scalar_subquery()


_MONTH = schema.month_charge
_GOING = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_LEASE.c.share * _LEASE.c["count"]), 0)).where(LIVE)
_PAID_BY = _GOING.where(_LEASE.c.account_id == sa.bindparam("a"))
# All kinds, written out: so the index of living holders leads to them, and not to all that the user ever held.
_HELD_BY = _GOING.where(
    _LEASE.c.holder_kind.in_([kind.value for kind in HolderKind]), _LEASE.c.holder_user == sa.bindparam("u")
)
_MONTH_OF = (_MONTH.c.account_id == sa.bindparam("a"), _MONTH.c.month == sa.bindparam("m"))
_TOTALS = sa.select(
    _scalar(sa.func.sum(_LEASE.c.held), _LEASE.c.account_id == sa.bindparam("a"), sa.text("state <> 'SETTLED'")),
    _scalar(sa.func.sum(_MONTH.c.charged), *_MONTH_OF),
    _scalar(sa.func.sum(_BALANCE.c.amount), _BALANCE.c.sub == sa.bindparam("d")),
)


def totals(connection: sa.Connection, account_id: int, month: str) -> Totals:
    debt = ledger.debt_sub(account_id)
    row = connection.execute(_TOTALS, {"a": account_id, "m": month, "d": debt}).one()
    return Totals(*(int(value) for value in row))


def held_by(connection: sa.Connection, user: str) -> Going:
    """What a user holds, whoever pays for it."""
    servers, milli = connection.execute(_HELD_BY, {"u": user}).one()
    return Going(int(servers), int(milli))


def paid_by(connection: sa.Connection, account_id: int) -> Going:
    """What an account pays for, whoever holds it."""
    servers, milli = connection.execute(_PAID_BY, {"a": account_id}).one()
    return Going(int(servers), int(milli))
