"""Accounts, their dated grants, limits and prices, inside a transaction that somebody else opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from quota import ledger, schema
from quota.entitlement import Limits
from quota.errors import Conflict, NotFound
from quota.findings import Site
from quota.groups import PREFIX, kind_of
from quota.leases import Price
from quota.ledger import Bucket
from quota.metering import month_name, month_window
from quota.own_prices import LISTED
from quota.postings import balance_of, held_by, open_buckets, paid_by, post
from quota.records import add_event
from quota.store import insert_new, upsert
from quota.units import CREDIT, MicroCredits

EVERYBODY = "*"
#: In `set_limits`: as everybody has it.
INHERIT = "inherit"
_NO_LIMIT = -1
_MONTHLY = MicroCredits(100 * CREDIT)
_NOTHING = MicroCredits(0)

#: Sums in a SQL integer stay far from its end.
MOST_CREDITS = 10**15


ACCOUNTS = sa.select(schema.account.c.id, schema.account.c.name, schema.account.c.kind, schema.account.c.created_at)
_BY_NAME = ACCOUNTS.where(schema.account.c.name == sa.bindparam("account"))
_LIMITS = sa.select(schema.limits).where(
    (schema.limits.c.scope == EVERYBODY) | (schema.limits.c.scope == sa.bindparam("own"))
)
_PLAN = schema.price_plan
_NEWEST_PLAN = (
    sa.select(_PLAN.c.id, _PLAN.c.gpu_hour, _PLAN.c.cpu_hour).where(LISTED).order_by(_PLAN.c.id.desc()).limit(1)
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Seeds for price plan 1 and the limits of everybody, in micro-credits and milli-GPU; once they are in the book
    the book owns them. `zone` names the site's time zone, in which months begin. None is "no limit"."""

    monthly_grant: MicroCredits = _MONTHLY
    zone: str = "UTC"
    max_servers: int | None = 2
    max_gpu_milli: int | None = 2000
    gpu_hour: MicroCredits = CREDIT
    cpu_hour: MicroCredits = _NOTHING


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays: a user or a group. The id stays when the name changes."""

    id: int
    name: str
    kind: str  # "user" or "group"
    created_at: datetime


def seed(connection: sa.Connection, defaults: Defaults, now: datetime) -> None:
    """Write price plan 1, the limits of everybody and the platform's own sub-accounts, where they are missing."""
    plan = {"id": 1, "gpu_hour": defaults.gpu_hour, "cpu_hour": defaults.cpu_hour, "created_at": now, "by": "setup"}
    insert_new(connection, schema.price_plan, plan)
    everybody = {
        "scope": EVERYBODY,
        "max_servers": _NO_LIMIT if defaults.max_servers is None else defaults.max_servers,
        "max_gpu_milli": _NO_LIMIT if defaults.max_gpu_milli is None else defaults.max_gpu_milli,
        "monthly_grant": defaults.monthly_grant,
    }
    insert_new(connection, schema.limits, everybody)
    for sub in (ledger.ISSUED, ledger.REVENUE, ledger.EXPIRED):
        insert_new(connection, schema.balance, {"sub": sub, "amount": 0})
    note_zone(connection, defaults.zone, now)


# The calendar

_ZONES = "zones"


def calendar(connection: sa.Connection, zone: str) -> Site:
    """The time zones by which this book counted its months; `zone` where that was never noted."""
    kept = connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == _ZONES))
    noted = [(schema.from_micros(int(since)), str(name)) for since, name in json.loads(kept or "[]")]
    return Site(tuple(noted) or ((schema.from_micros(0), zone),))


def note_zone(connection: sa.Connection, zone: str, now: datetime) -> None:
    """Note by which zone months are counted from now on, where that is another than before."""
    kept = connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == _ZONES))
    noted = json.loads(kept or "[]")
    if noted and noted[-1][1] == zone:
        return
    since = (now - schema.from_micros(0)) // timedelta(microseconds=1) if noted else 0
    upsert(connection, schema.meta, [{"key": _ZONES, "value": json.dumps([*noted, [since, zone]])}])


# Accounts


def find(connection: sa.Connection, name: str) -> Account | None:
    row = connection.execute(_BY_NAME, {"account": name}).one_or_none()
    return None if row is None else Account(*row)


def get(connection: sa.Connection, name: str) -> Account:
    """The account of that name. Raises `NotFound`."""
    found = find(connection, name)
    if found is None:
        raise NotFound(f"no account {name}")
    return found


def ensure(connection: sa.Connection, name: str, kind: str, now: datetime) -> Account:
    """The account of that name, made if there is none. Raises `Conflict` when the name is one of another kind."""
    if kind != kind_of(name):
        raise Conflict(f"{name} is the name of a {kind_of(name)}, not of a {kind}; a group's account is {PREFIX}NAME")
    found = find(connection, name)
    if found is None:
        values = {"name": name, "kind": kind, "created_at": now}
        if insert_new(connection, schema.account, values):
            found = get(connection, name)
            add_event(connection, now, "account-created", account_id=found.id, detail={"name": name, "kind": kind})
        else:
            found = get(connection, name)
    return found


def rename(connection: sa.Connection, account: Account, new: str) -> Account:
    """Write another name. Raises `Conflict` when it is taken or that of another kind, or while the account has or pays
    for servers: they carry the name."""
    if account.kind != kind_of(new):
        raise Conflict(f"{new} is no name for the account of a {account.kind}")
    if find(connection, new) is not None:
        raise Conflict(f"account {new} exists")
    held = 0 if account.kind == "group" else held_by(connection, account.name).servers
    if held or paid_by(connection, account.id).servers:
        raise Conflict(f"account {account.name} has servers; stop them first")
    this = sa.update(schema.account).where(schema.account.c.id == account.id)
    connection.execute(this.values(name=new))
    return replace(account, name=new)


# Grants


def add_bucket(
    connection: sa.Connection, account_id: int, key: str, amount: int, now: datetime, **more: Any
) -> tuple[int, bool]:
    """The id of the bucket with that key, and whether it is new. Raises `Conflict` when it is another one's."""
    table = schema.grant_bucket
    values: dict[str, Any] = {"by": "", "note": "", "expires_at": None, **more}
    fresh = insert_new(
        connection, table, {"account_id": account_id, "key": key, "amount": amount, "granted_at": now, **values}
    )
    row = connection.execute(sa.select(table).where(table.c.key == key)).mappings().one()
    if (row["account_id"], row["amount"]) != (account_id, amount):
        raise Conflict(f"grant {key} exists with another account or amount")
    return int(row["id"]), fresh


def fund(connection: sa.Connection, account_id: int, bucket_id: int, amount: int, now: datetime, zone: str) -> None:
    """Put the money into a new bucket; what the account owes is paid from it first."""
    month = month_name(now, zone)
    post(connection, now, month, ledger.grant(bucket_id, account_id, amount))
    debt = balance_of(connection, ledger.debt_sub(account_id))
    if debt < 0:
        post(connection, now, month, ledger.repay(bucket_id, account_id, min(amount, -debt)))


def freshen(connection: sa.Connection, account: Account, now: datetime, zone: str) -> list[Bucket]:
    """Bring an account's grants up to date: take off what expired, give this month's grant. Its open buckets, oldest
    first."""
    buckets = open_buckets(connection, account.id)
    stale = [bucket for bucket in buckets if bucket.expired(now)]
    for bucket in stale:
        _expire(connection, account, bucket, now, zone)
    granted = not _has_month(buckets, account, now, zone) and _grant_month(connection, account, now, zone)
    return open_buckets(connection, account.id) if stale or granted else buckets


def needs_freshening(connection: sa.Connection, account: Account, now: datetime, zone: str) -> bool:
    """Whether `freshen` has something to write."""
    buckets = open_buckets(connection, account.id)
    return is_stale(account, buckets, lambda: monthly_grant(connection, account), now, zone)


def is_stale(account: Account, buckets: Sequence[Bucket], monthly: Callable[[], int], now: datetime, zone: str) -> bool:
    """Whether time has brought an account with these open buckets something that is not written yet. `monthly` is its
    monthly grant, looked up only where it matters."""
    if any(bucket.expired(now) for bucket in buckets):
        return True
    return not _has_month(buckets, account, now, zone) and monthly() > 0


def _month_key(account: Account, now: datetime, zone: str) -> str:
    return f"monthly:{account.id}:{month_name(now, zone)}"


def _has_month(buckets: Iterable[Bucket], account: Account, now: datetime, zone: str) -> bool:
    key = _month_key(account, now, zone)
    return any(bucket.key == key for bucket in buckets)


def _grant_month(connection: sa.Connection, account: Account, now: datetime, zone: str) -> bool:
    amount = monthly_grant(connection, account)
    if amount <= 0:
        return False
    key = _month_key(account, now, zone)
    _, ends = month_window(now, zone)
    note = f"monthly grant {month_name(now, zone)}"
    bucket_id, fresh = add_bucket(connection, account.id, key, amount, now, expires_at=ends, by="setup", note=note)
    if fresh:
        fund(connection, account.id, bucket_id, amount, now, zone)
        detail = {"bucket": bucket_id, "amount": amount, "note": note}
        add_event(connection, now, "grant", account_id=account.id, by="setup", detail=detail)
    return fresh


def _expire(connection: sa.Connection, account: Account, bucket: Bucket, now: datetime, zone: str) -> None:
    if bucket.balance > 0:
        post(connection, now, month_name(now, zone), ledger.expire(bucket.id, account.id, bucket.balance))
        detail = {"bucket": bucket.id, "amount": bucket.balance}
        add_event(connection, now, "grant-expired", account_id=account.id, detail=detail)
    table = schema.grant_bucket
    connection.execute(sa.update(table).where(table.c.id == bucket.id).values(expired_at=now))


# Limits


def scopes_of(account: Account | None) -> tuple[str, ...]:
    """Which rows of limits hold for an account, its own first; only everybody's where it is None. Everybody is every
    user: what holds for them, and what they are given, is not meant for a group."""
    if account is None:
        return (EVERYBODY,)
    return (str(account.id), EVERYBODY) if account.kind == "user" else (str(account.id),)


def _rows(connection: sa.Connection, account: Account | None) -> list[sa.RowMapping]:
    scopes = scopes_of(account)
    rows = connection.execute(_LIMITS, {"own": scopes[0]}).mappings().all()
    return sorted((row for row in rows if row["scope"] in scopes), key=lambda row: row["scope"] == EVERYBODY)


def _first(rows: Iterable[Mapping[Any, Any]], column: str) -> Any:
    return next((row[column] for row in rows if row[column] is not None), None)


def _number(value: int | None) -> int | None:
    return None if value is None or value == _NO_LIMIT else value


def effective_limits(connection: sa.Connection, account: Account | None) -> Limits:
    """The limits of an account (a user's own before everybody's), or of everybody where it is None."""
    return limits_of(_rows(connection, account))


def limits_of(rows: Iterable[Mapping[Any, Any]]) -> Limits:
    """The limits that these rows make, an account's own before everybody's."""
    rows = list(rows)
    names = json.loads(_first(rows, "profiles") or "null")
    return Limits(
        max_servers=_number(_first(rows, "max_servers")),
        max_gpu_milli=_number(_first(rows, "max_gpu_milli")),
        monthly_micro=_number(_first(rows, "monthly_micro")),
        profiles=None if names is None else frozenset(names),
    )


def monthly_grant(connection: sa.Connection, account: Account | None) -> MicroCredits:
    """What the account is given each month."""
    return monthly_of(_rows(connection, account))


def monthly_of(rows: Iterable[Mapping[Any, Any]]) -> MicroCredits:
    """The monthly grant that these rows make, an account's own before everybody's."""
    return MicroCredits(_first(rows, "monthly_grant") or 0)


def limit_columns(changes: Mapping[str, object]) -> dict[str, object]:
    """Columns for changed limits: a number (not negative) or names, None for no limit, `INHERIT`.

    Raises `ValueError` with words for anything else.
    """
    known = {field.name for field in fields(Limits)}
    columns: dict[str, object] = {}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f"{name!r} is not a limit; there are {', '.join(sorted(known))}")
        if value == INHERIT:
            columns[name] = None
        elif name == "profiles":
            columns[name] = _profile_names(value)
        elif value is None:
            columns[name] = _NO_LIMIT
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_CREDITS:
            columns[name] = value
        else:
            raise ValueError(f"{name} must be a whole number, not negative, or null for no limit, not {value!r}")
    return columns


def _profile_names(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"profiles must be a list of names or null for no limit, not {value!r}")
    names = list(value)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"profiles must be a list of names or null for no limit, not {value!r}")
    return json.dumps(sorted(set(names)))


def write_limits(connection: sa.Connection, account_id: int | None, columns: Mapping[str, object]) -> bool:
    """Write columns of the row of an account, or of everybody; tells whether anything is different now."""
    table = schema.limits
    scope = EVERYBODY if account_id is None else str(account_id)
    insert_new(connection, table, {"scope": scope, "account_id": account_id})
    if not columns:
        return False
    differs = sa.or_(*(table.c[name].is_distinct_from(value) for name, value in columns.items()))
    change = sa.update(table).where(table.c.scope == scope, differs).values(**columns)
    return connection.execute(change).rowcount == 1


# Prices


def current_price(connection: sa.Connection) -> Price:
    """The newest price plan of the site's list."""
    row = connection.execute(_NEWEST_PLAN).one()
    return Price(row.id, MicroCredits(row.gpu_hour), MicroCredits(row.cpu_hour))
