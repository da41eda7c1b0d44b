"""Figures of the whole book for metrics, the watch and `berth status`: each function is one snapshot, and its cost does
not grow with history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from quota import ledger, schema
from quota.alerts import Alert
from quota.leases import Device, Lease
from quota.outbox import Waiting, read_waiting
from quota.records import LIVE, read_devices, read_leases
from quota.rows import Heartbeat
from quota.store import Store

_LEASE, _BALANCE, _BUCKET, _ACCOUNT = schema.lease, schema.balance, schema.grant_bucket, schema.account
_UNSETTLED = sa.text("state <> 'SETTLED'")
#: Small facts of other chapters: when the book was last checked.
META = ("audit",)


@dataclass(frozen=True, slots=True)
class Facts:
    """One look. Money in micro-credits; `leases` that are not settled by (state, profile); `waiting` is
    what each channel has still to tell people."""

    leases: Mapping[tuple[str, str], int]
    oldest_unsettled: datetime | None
    devices: Sequence[Device]
    boots: Sequence[Heartbeat]
    alerts: Sequence[Alert]
    meta: Mapping[str, str]
    available: int
    held: int
    debt: int
    revenue: int
    waiting: Mapping[str, Waiting] = field(default_factory=dict)


def names_since(store: Store, since: datetime) -> list[tuple[str, datetime]]:
    """All users with an account and when it was made; nothing where none was made at or after `since`. Blocks."""
    users = sa.select(_ACCOUNT.c.name, _ACCOUNT.c.created_at).where(_ACCOUNT.c.kind == "user")
    with store.read() as connection:
        if connection.execute(users.where(_ACCOUNT.c.created_at >= since).limit(1)).one_or_none() is None:
            return []
        return [(row.name, row.created_at) for row in connection.execute(users)]


def read_facts(store: Store, now: datetime) -> Facts:
    """Raises what the book raises when it does not answer. Blocks."""
    with store.read() as connection:
        counted = sa.select(_LEASE.c.state, _LEASE.c.profile, sa.func.count()).where(_UNSETTLED)
        leases = connection.execute(counted.group_by(_LEASE.c.state, _LEASE.c.profile))
        waiting = sa.select(sa.func.min(_LEASE.c.ended_at)).where(_UNSETTLED, _LEASE.c.ended_at.is_not(None))
        alerts = sa.select(schema.alert).where(schema.alert.c.cleared_at.is_(None)).order_by(schema.alert.c.since)
        beats = sa.select(schema.heartbeat).order_by(schema.heartbeat.c.beat_at.desc())
        meta = sa.select(schema.meta).where(schema.meta.c.key.in_(META))
        return Facts(
            leases={(state, profile): number for state, profile, number in leases},
            oldest_unsettled=connection.scalar(waiting),
            devices=read_devices(connection),
            boots=[Heartbeat(**row) for row in connection.execute(beats).mappings()],
            alerts=[Alert(**row) for row in connection.execute(alerts).mappings()],
            meta={row.key: row.value for row in connection.execute(meta)},
            available=_available(connection, now),
            held=_sum(connection, sa.select(sa.func.sum(_LEASE.c.held)).where(_UNSETTLED)),
            debt=_sum(connection, _amounts("debt:", _ACCOUNT.c.id)),
            revenue=_sum(connection, sa.select(_BALANCE.c.amount).where(_BALANCE.c.sub == ledger.REVENUE)),
            waiting=read_waiting(connection, now),
        )


def _available(connection: sa.Connection, now: datetime) -> int:
    good = _BUCKET.c.expired_at.is_(None) & (_BUCKET.c.expires_at.is_(None) | (_BUCKET.c.expires_at > now))
    return _sum(connection, _amounts("grant:", _BUCKET.c.id).where(good))


def _amounts(kind: str, number: sa.ColumnElement[int]) -> sa.Select[tuple[int]]:
    """The sum of sub-accounts by name. So the rows are looked up, however many others there are."""
    name = sa.literal(kind, sa.String) + sa.cast(number, sa.String)
    return sa.select(sa.func.sum(_BALANCE.c.amount)).where(_BALANCE.c.sub == name)


def _sum(connection: sa.Connection, statement: sa.Select[tuple[int]]) -> int:
    return int(connection.scalar(statement) or 0)


def unbilled(store: Store, before: datetime) -> list[Lease]:
    """Leases that run and were last charged before that moment, though somebody should have since."""
    last = sa.func.coalesce(_LEASE.c.metered_until, _LEASE.c.started_at)
    with store.read() as connection:
        return read_leases(connection, LIVE, _LEASE.c.state == "RUNNING", _LEASE.c.ended_at.is_(None), last < before)


@dataclass(frozen=True, slots=True)
class Size:
    """How large the book is. `wal_bytes` is None where there is no such file beside it."""

    revision: str
    bytes: int
    wal_bytes: int | None
    rows: Mapping[str, int]


def read_size(store: Store) -> Size:
    """Raises what the book raises. Counting a million rows takes some hundredths of a second."""
    counted = {"leases": _LEASE, "postings": schema.posting, "events": schema.event, "accounts": _ACCOUNT}
    with store.read() as connection:
        revision = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        rows = {
            name: int(connection.scalar(sa.select(sa.func.count()).select_from(t)) or 0) for name, t in counted.items()
        }
        if store.file is None:
            size = int(connection.scalar(sa.text("SELECT pg_database_size(current_database())")) or 0)
            return Size(str(revision), size, None, rows)
    wal = store.file.with_name(f"{store.file.name}-wal")
    return Size(str(revision), store.file.stat().st_size, wal.stat().st_size if wal.exists() else 0, rows)
