"""What must be true of the book, as a list of small checks. Each returns what is wrong, in words; none raises.

The first ones recompute from the ledger what is cached elsewhere; they are never skipped, since a cache that is
wrong is how a balance and its ledger come to disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.ledger import REVENUE, Kind
from quota.records import LIVE

Check = Callable[[sa.Connection], Iterable[str]]

_POSTING, _LEASE, _SLOT = schema.posting, schema.lease, schema.slot


def _sums(connection: sa.Connection, *group: sa.ColumnElement[Any], where: Iterable[Any] = ()) -> dict[Any, int]:
    total = sa.func.sum(_POSTING.c.amount)
    rows = connection.execute(sa.select(*group, total).where(*where).group_by(*group)).all()
    return {row[0] if len(group) == 1 else tuple(row[:-1]): int(row[-1]) for row in rows}


def _differ(what: str, cached: Mapping[Any, int], true: Mapping[Any, int]) -> Iterable[str]:
    for key in sorted({*cached, *true}, key=str):
        if cached.get(key, 0) != true.get(key, 0):
            yield f"{what} {key} is {cached.get(key, 0)}, the ledger says {true.get(key, 0)}"


def transactions_balance(connection: sa.Connection) -> Iterable[str]:
    for key, total in _sums(connection, _POSTING.c.key).items():
        if total:
            yield f"transaction {key} sums to {total}, not 0"


def balances_agree(connection: sa.Connection) -> Iterable[str]:
    cached = {row.sub: row.amount for row in connection.execute(sa.select(schema.balance))}
    yield from _differ("balance", cached, _sums(connection, _POSTING.c.sub))


def months_agree(connection: sa.Connection) -> Iterable[str]:
    table = schema.month_charge
    total = sa.func.sum(table.c.charged)
    rows = connection.execute(sa.select(table.c.account_id, total).group_by(table.c.account_id))
    cached = {row[0]: int(row[1]) for row in rows}
    true = _sums(connection, _POSTING.c.account_id, where=[_POSTING.c.sub == REVENUE])
    yield from _differ("charges of account", cached, true)


def leases_agree(connection: sa.Connection) -> Iterable[str]:
    rows = connection.execute(sa.select(_LEASE.c.id, _LEASE.c.charged, _LEASE.c.refunded, _LEASE.c.held)).all()
    revenue = _sums(connection, _POSTING.c.lease_id, _POSTING.c.kind, where=[_POSTING.c.sub == REVENUE])
    charged = {lease: total for (lease, kind), total in revenue.items() if kind == Kind.CHARGE.value}
    refunded = {lease: -total for (lease, kind), total in revenue.items() if kind == Kind.REFUND.value}
    held = _sums(connection, _POSTING.c.lease_id, where=[_POSTING.c.sub.like("held:%")])
    yield from _differ("charges of lease", {row.id: row.charged for row in rows}, charged)
    yield from _differ("refunds of lease", {row.id: row.refunded for row in rows}, refunded)
    yield from _differ("hold of lease", {row.id: row.held for row in rows}, held)


def settled_leases_hold_nothing(connection: sa.Connection) -> Iterable[str]:
    statement = sa.select(_LEASE.c.id, _LEASE.c.held).where(_LEASE.c.state == "SETTLED", _LEASE.c.held != 0)
    for row in connection.execute(statement):
        yield f"lease {row.id} is settled and still holds {row.held}"


def expired_grants_are_empty(connection: sa.Connection) -> Iterable[str]:
    bucket, balance = schema.grant_bucket, schema.balance
    sub = sa.literal("grant:", sa.String) + sa.cast(bucket.c.id, sa.String)
    statement = (
        sa.select(bucket.c.id, balance.c.amount)
        .join(balance, balance.c.sub == sub)
        .where(bucket.c.expired_at.is_not(None), balance.c.amount != 0)
    )
    for row in connection.execute(statement):
        yield f"grant {row.id} has expired and still has {row.amount}"


def devices_are_not_overcommitted(connection: sa.Connection) -> Iterable[str]:
    total = sa.func.sum(_SLOT.c.share)
    held = sa.select(_SLOT.c.device, total).where(_SLOT.c.released_at.is_(None), _SLOT.c.device.is_not(None))
    for device, share in connection.execute(held.group_by(_SLOT.c.device).having(total > 1000)):
        yield f"device {device} is given away {share} times in a thousand"


def live_leases_hold_their_slots(connection: sa.Connection) -> Iterable[str]:
    open_slots = sa.select(_SLOT.c.lease_id).where(_SLOT.c.released_at.is_(None))
    for row in connection.execute(sa.select(_LEASE.c.id).where(LIVE, _LEASE.c.id.not_in(open_slots))):
        yield f"lease {row.id} is live without a slot"
    live = sa.select(_LEASE.c.id).where(LIVE)
    for row in connection.execute(open_slots.where(_SLOT.c.lease_id.not_in(live)).distinct()):
        yield f"lease {row.lease_id} is over and still has a slot"


def finished_leases_have_no_open_segment(connection: sa.Connection) -> Iterable[str]:
    part = schema.segment
    statement = (
        sa.select(part.c.lease_id)
        .join(_LEASE, _LEASE.c.id == part.c.lease_id)
        .where(part.c.ended_at.is_(None), _LEASE.c.state.in_(["RELEASED", "SETTLED"]))
    )
    for row in connection.execute(statement):
        yield f"lease {row.lease_id} is over and still counts time"


CHECKS: tuple[Check, ...] = (
    transactions_balance,
    balances_agree,
    months_agree,
    leases_agree,
    settled_leases_hold_nothing,
    expired_grants_are_empty,
    devices_are_not_overcommitted,
    live_leases_hold_their_slots,
    finished_leases_have_no_open_segment,
)


def findings(connection: sa.Connection) -> list[str]:
    """All that is wrong, check by check."""
    return [finding for check in CHECKS for finding in check(connection)]
