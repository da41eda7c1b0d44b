"""Makes a jump of a host's clock good in the book (`quota.jumps` says how): one transaction, once for each jump."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.jumps import (
    RESERVED,
    RUNNING,
    SOONER,
    STARTING,
    STOP,
    TOLERANCE,
    Jump,
    Life,
    Reading,
    Written,
    made_good,
    measure,
)
from quota.leases import Segment, StopReason
from quota.ports import SteadyClock
from quota.records import LIVE, Row, add_event, lease_row, read_segments
from quota.schema import from_micros
from quota.store import Store, retried, upsert

JUMPED = "clock-jumped"

_LEASE, _SLOT, _SEGMENT, _EVENT, _BEAT = schema.lease, schema.slot, schema.segment, schema.event, schema.heartbeat
_EPOCH = from_micros(0)
_MICROSECOND = timedelta(microseconds=1)
_NONE = timedelta(0)
_COLUMNS = ("requested_at", "deadline", "started_at", "last_seen", "metered_until", "stop_after")
_CHUNK = 500  # ids in one statement


@dataclass(frozen=True, slots=True)
class ClockLook:
    """A look of the agent at its clock: the reading, the number of the latest event then, and how many jumps there
    were since the runtime was last seen (what ended since may have been recorded by the clock of before)."""

    reading: Reading
    mark: int
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """A jump that was made good: the look it was made good by, and how many servers were running."""

    jump: Jump
    look: ClockLook
    running: int


class Jumps:
    """What the agent of a host remembers of its clock, and what it does about a jump."""

    def __init__(self, store: Store, clock: SteadyClock) -> None:
        self.store = store
        self.clock = clock

    def last(self, host: str) -> ClockLook | None:
        """The last look that was remembered; None where there is none, or what is there cannot be read."""
        with self.store.read() as connection:
            found = connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == _key(host)))
        try:
            wall, run, boot, mark, unseen = json.loads(found or "")
            reading = Reading(from_micros(int(wall)), timedelta(microseconds=int(run)), str(boot))
            return ClockLook(reading, int(mark), int(unseen))
        except (ValueError, TypeError, OverflowError):
            return None

    def mark(self) -> int:
        """The number of the latest event: what comes later has a higher one."""
        with self.store.read() as connection:
            return connection.scalar(sa.select(sa.func.max(_EVENT.c.id))) or 0

    @retried
    def remember(self, host: str, look: ClockLook) -> None:
        """For an agent that comes after this one."""
        with self.store.write() as connection:
            _remember(connection, host, look)

    @retried
    def make_good(self, host: str, before: ClockLook) -> Made | None:
        """Bring everything of this host to the new clock and remember it, in one transaction: whoever dies before or
        after it, no jump is made good twice. None where there has been none since `before`.

        The clock is read inside, so that what others have written until then lies before that reading.
        """
        with self.store.write() as connection:
            reading = self.clock.reading()
            jump = measure(before.reading, reading)
            if jump is None:
                return None
            ids = list(connection.scalars(_live_ids(host)))
            written = _written(connection, ids, before.mark)
            running = sum(_make_good(connection, jump, lease_id, written.get(lease_id, {})) for lease_id in ids)
            _move_hearts(connection, host, jump)
            detail = {"host": host, "seconds": jump.by / timedelta(seconds=1), "running": running}
            add_event(connection, jump.now, JUMPED, by="agent", detail=detail)
            mark = connection.scalar(sa.select(sa.func.max(_EVENT.c.id))) or 0
            look = ClockLook(reading, mark, before.unseen + 1)
            _remember(connection, host, look)
            return Made(jump, look, running)


def _key(host: str) -> str:
    return f"clock:{host}"[:100]


def _remember(connection: sa.Connection, host: str, look: ClockLook) -> None:
    wall, run = (look.reading.wall - _EPOCH) // _MICROSECOND, look.reading.run // _MICROSECOND
    value = json.dumps([wall, run, look.reading.boot, look.mark, look.unseen])
    upsert(connection, schema.meta, [{"key": _key(host), "value": value}])


def _live_ids(host: str) -> sa.Select[Any]:
    """Live leases that are this host's alone (or of no host yet), in the order in which everybody locks them."""
    elsewhere = sa.select(_SLOT.c.lease_id).where(_SLOT.c.host.is_not(None), _SLOT.c.host != host)
    return sa.select(_LEASE.c.id).where(LIVE, _LEASE.c.id.not_in(elsewhere)).order_by(_LEASE.c.id)


def _written(connection: sa.Connection, ids: Sequence[str], mark: int) -> dict[str, dict[str, Written]]:
    """When each lease's start and stop were last written. A later row was written later, whatever its time says."""
    found: dict[str, dict[str, Written]] = {}
    kinds = (RESERVED, STARTING, RUNNING, STOP, SOONER)
    for start in range(0, len(ids), _CHUNK):
        mine = _EVENT.c.lease_id.in_(ids[start : start + _CHUNK])
        columns = (_EVENT.c.lease_id, _EVENT.c.kind, _EVENT.c.at, _EVENT.c.id)
        chosen = sa.select(*columns).where(mine, _EVENT.c.kind.in_(kinds)).order_by(_EVENT.c.id)
        for lease_id, kind, at, number in connection.execute(chosen):
            found.setdefault(lease_id, {})[STOP if kind == SOONER else kind] = Written(at, number > mark)
    return found


def _make_good(connection: sa.Connection, jump: Jump, lease_id: str, written: Mapping[str, Written]) -> bool:
    """One lease, claimed whoever has written it. Tells whether it was running."""
    bump = sa.update(_LEASE).where(_LEASE.c.id == lease_id, LIVE).values(version=_LEASE.c.version + 1)
    if connection.execute(bump).rowcount != 1:
        return False  # it ended meanwhile, on PostgreSQL
    row = lease_row(connection, lease_id)
    segments = read_segments(connection, [lease_id])[lease_id]
    before = _life(row, segments, written)
    after = made_good(before, jump)
    changes = {name: getattr(after, name) for name in _COLUMNS if getattr(after, name) != getattr(before, name)}
    if changes:
        connection.execute(sa.update(_LEASE).where(_LEASE.c.id == lease_id).values(**changes))
    _write_segments(connection, lease_id, before.segments, after.segments)
    if after.segments != before.segments:
        detail = {"seconds": jump.by / timedelta(seconds=1)}
        add_event(connection, jump.now, JUMPED, lease_id=lease_id, account_id=row["account_id"], detail=detail)
    return before.running is not None


def _life(row: Row, segments: Iterable[Segment], written: Mapping[str, Written]) -> Life:
    return Life(
        requested_at=row["requested_at"],
        deadline=row["deadline"],
        started_at=row["started_at"],
        last_seen=row["last_seen"],
        metered_until=row["metered_until"],
        stop_reason=None if row["stop_reason"] is None else StopReason(row["stop_reason"]),
        stop_after=row["stop_after"],
        segments=tuple(segments),
        written=written,
    )


def _write_segments(
    connection: sa.Connection, lease_id: str, before: Sequence[Segment], after: Sequence[Segment]
) -> None:
    known = {part.number: part for part in before}
    for part in after:
        times = {"started_at": part.started_at, "ended_at": part.ended_at}
        if part.number not in known:
            new = {"lease_id": lease_id, "number": part.number, "weight": int(part.weight)}
            connection.execute(sa.insert(_SEGMENT).values(**new, plan_id=part.price.plan_id, **times))
        elif part != known[part.number]:
            this = sa.update(_SEGMENT).where(_SEGMENT.c.lease_id == lease_id, _SEGMENT.c.number == part.number)
            connection.execute(this.values(**times))


def _move_hearts(connection: sa.Connection, host: str, jump: Jump) -> None:
    """A heart that beat before the jump is as old after it as it was: nobody is thought dead, or alive, for it."""
    by = jump.by // _MICROSECOND
    forward = jump.by > _NONE
    chosen = [_BEAT.c.host == host]
    chosen.append(_BEAT.c.beat_at < jump.now - jump.blind if forward else _BEAT.c.beat_at > jump.now + TOLERANCE)
    moved = {name: sa.type_coerce(_BEAT.c[name], sa.BigInteger) + by for name in ("beat_at", "started_at")}
    connection.execute(sa.update(_BEAT).where(*chosen).values(**moved))
