"""Accounts as of now, many in one look: what costs five statements for one account costs five for a thousand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from quota import accounts, ledger, schema
from quota.accounts import EVERYBODY, Account
from quota.entitlement import Limits
from quota.ledger import Bucket
from quota.metering import month_name
from quota.postings import bucket_value
from quota.units import MicroCredits

_CHUNK = 500  # accounts in one statement
_BUCKET, _BALANCE, _LEASE, _MONTH = schema.grant_bucket, schema.balance, schema.lease, schema.month_charge
_IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
_NAMES: sa.BindParameter[Any] = sa.bindparam("names", expanding=True)

_BUCKETS = (
    sa.select(_BUCKET, sa.func.coalesce(_BALANCE.c.amount, 0).label("balance"))
    .outerjoin(_BALANCE, _BALANCE.c.sub == sa.literal("grant:", sa.String) + sa.cast(_BUCKET.c.id, sa.String))
    .where(_BUCKET.c.account_id.in_(_IDS), _BUCKET.c.expired_at.is_(None))
    .order_by(_BUCKET.c.id)
)
_HELD = (
    sa.select(_LEASE.c.account_id, sa.func.sum(_LEASE.c.held))
    .where(_LEASE.c.account_id.in_(_IDS), sa.text("state <> 'SETTLED'"))
    .group_by(_LEASE.c.account_id)
)
_CHARGED = sa.select(_MONTH.c.account_id, _MONTH.c.charged).where(
    _MONTH.c.account_id.in_(_IDS), _MONTH.c.month == sa.bindparam("m")
)
_DEBT = sa.select(_BALANCE.c.sub, _BALANCE.c.amount).where(_BALANCE.c.sub.in_(_NAMES))
_LIMITS = sa.select(schema.limits).where(schema.limits.c.scope.in_(_NAMES))


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account as of now. `available`: what can still be spent (grants that have not expired, less debt);
    `held`: for leases that are not settled; `month_charged`: in this calendar month of the site; `debt` is not
    positive; `buckets`: the grants that have not expired, in the order they are burnt."""

    account: Account
    available: MicroCredits
    held: MicroCredits
    month_charged: MicroCredits
    limits: Limits
    buckets: tuple[Bucket, ...]
    debt: int = 0


def read_views(
    connection: sa.Connection, found: Sequence[Account], now: datetime, zone: str
) -> Iterator[tuple[AccountView, bool]]:
    """Each account as it stands in the book, in the order of `found`, and whether time has brought something that is
    not written yet (a new month, an expired grant: `accounts.freshen`)."""
    for start in range(0, len(found), _CHUNK):
        yield from _read_chunk(connection, found[start : start + _CHUNK], now, zone)


def _read_chunk(
    connection: sa.Connection, found: Sequence[Account], now: datetime, zone: str
) -> Iterator[tuple[AccountView, bool]]:
    ids = [account.id for account in found]
    buckets: dict[int, list[Bucket]] = {account.id: [] for account in found}
    for row in connection.execute(_BUCKETS, {"ids": ids}).mappings():
        buckets[row["account_id"]].append(bucket_value(row))
    held = {row[0]: int(row[1]) for row in connection.execute(_HELD, {"ids": ids})}
    month = {"ids": ids, "m": month_name(now, zone)}
    charged = {row[0]: int(row[1]) for row in connection.execute(_CHARGED, month)}
    subs = {"names": [ledger.debt_sub(key) for key in ids]}
    debts = {row.sub: int(row.amount) for row in connection.execute(_DEBT, subs)}
    scopes = {"names": [EVERYBODY, *map(str, ids)]}
    limits = {row["scope"]: row for row in connection.execute(_LIMITS, scopes).mappings()}
    for account in found:
        rows = [limits[scope] for scope in accounts.scopes_of(account) if scope in limits]
        mine, debt = buckets[account.id], debts.get(ledger.debt_sub(account.id), 0)
        view = AccountView(
            account=account,
            available=ledger.available(mine, debt, now),
            held=MicroCredits(held.get(account.id, 0)),
            month_charged=MicroCredits(charged.get(account.id, 0)),
            limits=accounts.limits_of(rows),
            buckets=_in_order(mine, now),
            debt=debt,
        )
        monthly = accounts.monthly_of(rows)
        yield view, accounts.is_stale(account, mine, partial(int, monthly), now, zone)


def _in_order(buckets: Sequence[Bucket], now: datetime) -> tuple[Bucket, ...]:
    """Those that have not expired, as they are burnt; the empty ones last."""
    alive = [bucket for bucket in buckets if not bucket.expired(now)]
    return (*ledger.burn_order(alive, now), *(bucket for bucket in alive if bucket.balance == 0))
