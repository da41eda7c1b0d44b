"""Rows of the book as values, and the compare-and-swap by which a lease is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.errors import NotFound, Stale
from quota.leases import (
    Device,
    DeviceState,
    Holder,
    HolderKind,
    Lease,
    Price,
    Segment,
    ServiceClass,
    Slot,
    State,
    StopReason,
    Target,
)
from quota.tracing import request_id
from quota.units import MicroCredits, MilliGpu

Row = Mapping[Any, Any]

LIVE = sa.text(schema.LIVE_SQL)
NEWEST_FIRST = (schema.lease.c.requested_at.desc(), schema.lease.c.id.desc())

_CHUNK = 500  # ids in one statement

#: What a price plan says, with its row of `rule_price` where it has one.
PRICE: tuple[sa.ColumnElement[Any], ...] = (
    schema.price_plan.c.gpu_hour,
    schema.price_plan.c.cpu_hour,
    schema.rule_price.c.per_hour,
    schema.rule_price.c.rule,
)

_LEASES = (
    sa.select(
        schema.lease,
        schema.account.c.name.label("account"),
        *PRICE,
    )
    .join(schema.account, schema.account.c.id == schema.lease.c.account_id)
    .join(schema.price_plan, schema.price_plan.c.id == schema.lease.c.plan_id)
    .outerjoin(schema.rule_price, schema.rule_price.c.plan_id == schema.lease.c.plan_id)
)
_ONE_LEASE = _LEASES.where(schema.lease.c.id == sa.bindparam("lease_id"))
_SLOTS = sa.select(schema.slot).order_by(schema.slot.c.lease_id, schema.slot.c.number)
_SLOTS_OF = _SLOTS.where(schema.slot.c.lease_id.in_(sa.bindparam("ids", expanding=True)))
_SEGMENTS_OF = (
    sa.select(schema.segment, *PRICE)
    .join(schema.price_plan, schema.price_plan.c.id == schema.segment.c.plan_id)
    .outerjoin(schema.rule_price, schema.rule_price.c.plan_id == schema.segment.c.plan_id)
    .where(schema.segment.c.lease_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(schema.segment.c.lease_id, schema.segment.c.number)
)
_USED = (
    sa.select(schema.slot.c.device, sa.func.sum(schema.slot.c.share).label("used"))
    .where(sa.text("slot.released_at IS NULL"))
    .group_by(schema.slot.c.device)
    .subquery()
)
_DEVICE = schema.device
#: In the order of `Device`. What was ordered (by a person or a rule) goes before what the agent sees.
_DEVICES: sa.Select[Any] = (
    sa.select(
        _DEVICE.c.host,
        _DEVICE.c.uuid,
        _DEVICE.c.position,
        _DEVICE.c.name,
        _DEVICE.c.memory_mib,
        _DEVICE.c.mode,
        _DEVICE.c.simulated,
        sa.func.coalesce(_DEVICE.c.ordered_state, _DEVICE.c.state),
        sa.case((_DEVICE.c.ordered_state.is_(None), _DEVICE.c.why), else_=_DEVICE.c.ordered_why),
        sa.type_coerce(_DEVICE.c.seen_at, sa.BigInteger),
        sa.func.coalesce(_USED.c.used, 0),
        _DEVICE.c.capacity,
        _DEVICE.c.handle,
    )
    .outerjoin(_USED, _USED.c.device == _DEVICE.c.uuid)
    .where(~_DEVICE.c.withdrawn | _USED.c.used.is_not(None))
    .order_by(_DEVICE.c.host, _DEVICE.c.position, _DEVICE.c.uuid)
)

_CLAIM = (
    sa.update(schema.lease)
    .where(schema.lease.c.id == sa.bindparam("lease_id"), schema.lease.c.version == sa.bindparam("expected"))
    .values(version=schema.lease.c.version + 1)
)
# On PostgreSQL these take the rows' locks, always in the same order: what is read afterwards stays true until the
# commit. On SQLite the whole database is already ours (`FOR UPDATE` is left out), and they only count.
_BUMP_HOSTS = (
    sa.update(schema.host)
    .where(
        schema.host.c.name.in_(
            sa.select(schema.host.c.name).order_by(schema.host.c.name).with_for_update(key_share=True)
        )
    )
    .values(version=schema.host.c.version + 1)
)
_BUMP_ACCOUNT = (
    sa.update(schema.account)
    .where(schema.account.c.id == sa.bindparam("account"))
    .values(version=schema.account.c.version + 1)
)
_ADD_EVENT = sa.insert(schema.event)
_ADD_SLOTS = sa.insert(schema.slot)


def price_of(row: Row) -> Price:
    own = None if row["per_hour"] is None else MicroCredits(row["per_hour"])
    return Price(row["plan_id"], MicroCredits(row["gpu_hour"]), MicroCredits(row["cpu_hour"]), own, row["rule"] or "")


def slot_of(row: Row) -> Slot:
    return Slot(row["host"], row["device"], MilliGpu(row["share"]))


def lease_of(row: Row, slots: Sequence[Slot]) -> Lease:
    """A row of the lease table, with `account` (its name) and `PRICE` joined in, as a value."""
    return Lease(
        id=row["id"],
        version=row["version"],
        state=State(row["state"]),
        target=Target(row["target"]),
        holder=Holder(row["holder_user"], row["holder_server"], HolderKind(row["holder_kind"])),
        account_id=row["account_id"],
        account=row["account"],
        profile=row["profile"],
        image=row["image"],
        share=MilliGpu(row["share"]),
        count=row["count"],
        slots=tuple(slots),
        simulated=bool(row["simulated"]),
        price=price_of(row),
        owner=row["owner"],
        requested_at=row["requested_at"],
        requested_by=row["requested_by"],
        deadline=row["deadline"],
        started_at=row["started_at"],
        last_seen=row["last_seen"],
        ended_at=row["ended_at"],
        stop_reason=None if row["stop_reason"] is None else StopReason(row["stop_reason"]),
        stop_detail=row["stop_detail"],
        stop_by=row["stop_by"],
        stop_after=row["stop_after"],
        usage=row["usage"],
        charged=row["charged"] - row["refunded"],
        held=row["held"],
        service_class=ServiceClass(row["service_class"]),
        groups=None if row["groups"] is None else tuple(row["groups"]),
    )


def segment_of(row: Row) -> Segment:
    return Segment(row["number"], MilliGpu(row["weight"]), price_of(row), row["started_at"], row["ended_at"])


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def read_slots(connection: sa.Connection, ids: Sequence[str]) -> dict[str, list[Slot]]:
    """Slots by lease id, released ones too."""
    found: dict[str, list[Slot]] = {lease_id: [] for lease_id in ids}
    for chunk in _chunks(ids):
        for row in connection.execute(_SLOTS_OF, {"ids": list(chunk)}).mappings():
            found[row["lease_id"]].append(slot_of(row))
    return found


def read_segments(connection: sa.Connection, ids: Sequence[str]) -> dict[str, list[Segment]]:
    """Segments by lease id, in order."""
    found: dict[str, list[Segment]] = {lease_id: [] for lease_id in ids}
    for chunk in _chunks(ids):
        for row in connection.execute(_SEGMENTS_OF, {"ids": list(chunk)}).mappings():
            found[row["lease_id"]].append(segment_of(row))
    return found


def read_devices(connection: sa.Connection) -> list[Device]:
    """All devices, with what live leases hold of each at this moment. One that its host has withdrawn is there, as
    lost, for as long as somebody holds it."""
    return [_device(*row) for row in connection.execute(_DEVICES)]


@lru_cache(maxsize=4096)
def _device(*row: Any) -> Device:
    """A row of `_DEVICES` as a value. From one reservation to the next nearly all rows are the same."""
    host, uuid, position, name, memory, mode, simulated, state, why, seen, used, *part = row
    seen_at = None if seen is None else schema.from_micros(seen)
    return Device(
        host, uuid, position, name, memory, mode, simulated, DeviceState(state), why, seen_at, int(used), *part
    )


def read_leases(
    connection: sa.Connection, *where: sa.ColumnElement[bool] | sa.TextClause, limit: int | None = None
) -> list[Lease]:
    """Leases as values, newest first."""
    statement = _LEASES.where(*where)
    if limit is not None:
        statement = statement.order_by(*NEWEST_FIRST).limit(limit)
    rows = list(connection.execute(statement).mappings())
    if limit is None:
        # Asked to sort, SQLite reads all leases there ever were in the order of an index, instead of the living ones.
        rows.sort(key=lambda row: (row["requested_at"], row["id"]), reverse=True)
    slots = read_slots(connection, [row["id"] for row in rows])
    return [lease_of(row, slots[row["id"]]) for row in rows]


def lease_row(connection: sa.Connection, lease_id: str) -> Row:
    """The row of one lease. Raises `NotFound`."""
    row = connection.execute(_ONE_LEASE, {"lease_id": lease_id}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"no lease {lease_id}")
    return row


def read_lease(connection: sa.Connection, lease_id: str) -> Lease:
    """One lease as a value. Raises `NotFound`."""
    return lease_of(lease_row(connection, lease_id), read_slots(connection, [lease_id])[lease_id])


def lock_hosts(connection: sa.Connection) -> None:
    """Bump the hosts before deciding on their room. Hosts are locked before leases, leases before accounts."""
    connection.execute(_BUMP_HOSTS)


def lock_account(connection: sa.Connection, account_id: int) -> None:
    """Bump the account before deciding on its money."""
    connection.execute(_BUMP_ACCOUNT, {"account": account_id})


def claim(connection: sa.Connection, lease: Lease, *where: sa.ColumnElement[bool]) -> Lease:
    """Take the lease for writing: compare-and-swap its version (and `where`), then read what it is now.

    Raises `Stale` when somebody wrote it since, `NotFound` when there is no such lease. The version is raised
    *before* the row is read, so that on PostgreSQL too nobody changes it in between.
    """
    key = {"lease_id": lease.id, "expected": lease.version}
    if connection.execute(_CLAIM.where(*where) if where else _CLAIM, key).rowcount != 1:
        version = lease_row(connection, lease.id)["version"]
        if version == lease.version:
            raise Stale(f"lease {lease.id} may not be written: its owner is another, or has not been heard of")
        raise Stale(f"lease {lease.id} is at version {version}, not {lease.version} any more")
    return lease_of(lease_row(connection, lease.id), lease.slots)  # slots do not change under one version


def change(connection: sa.Connection, lease: Lease, **values: object) -> Lease:
    """Write columns of a lease that was claimed in this transaction, and read it again."""
    connection.execute(sa.update(schema.lease).where(schema.lease.c.id == lease.id).values(**values))
    return lease_of(lease_row(connection, lease.id), lease.slots)


def add_event(
    connection: sa.Connection,
    now: datetime,
    kind: str,
    *,
    lease_id: str | None = None,
    account_id: int | None = None,
    by: str = "",
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Append to the history, with the id of the request that it is part of. Nothing is ever taken from it but by
    age."""
    values = {"at": now, "kind": kind, "lease_id": lease_id, "account_id": account_id, "by": by}
    request = {"request_id": request_id()} if request_id() else {}
    connection.execute(_ADD_EVENT, {**values, "detail": {**(detail or {}), **request}})


def insert_slots(connection: sa.Connection, lease_id: str, slots: Iterable[Slot]) -> None:
    rows = [
        {"lease_id": lease_id, "number": number, "host": slot.host, "device": slot.device, "share": int(slot.share)}
        for number, slot in enumerate(slots)
    ]
    if rows:
        connection.execute(_ADD_SLOTS, rows)
