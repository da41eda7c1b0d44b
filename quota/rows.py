"""Facts about devices, servers and processes, written by the agent, the kit, the culler and every heart that beats.

Nobody else opens NVML or a runtime: pages, culler and placement read these rows. Unknown is None, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.errors import NotFound
from quota.leases import Device, DeviceState
from quota.ports import Clock
from quota.records import LIVE, add_event, read_devices
from quota.store import Store, insert_new, retried, upsert
from quota.verdicts import Told, Verdict

__all__ = ["Event", "Heartbeat", "Rows", "Sample", "Verdict"]

#: A boot whose heart stopped this long ago is taken off when a new one begins.
FORGET_BOOTS = timedelta(days=7)

#: A boot id lives while its heartbeat is not older than this.
BOOT_FRESH = timedelta(seconds=30)

#: Why a device that its host withdrew counts as lost while somebody holds it.
WITHDRAWN = "its host no longer has it"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One process of Berth. `boot` is its random id, `role` what it is ("hub", "agent", "berth", ...)."""

    boot: str
    role: str
    host: str
    started_at: datetime
    beat_at: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The latest reading of one lease's server. Seconds of CPU since its start, MiB, percent."""

    at: datetime
    cpu_seconds: float | None = None
    memory_mib: int | None = None
    gpu_util: int | None = None
    gpu_memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history."""

    id: int
    at: datetime
    kind: str
    lease_id: str | None
    account_id: int | None
    by: str
    detail: Mapping[str, Any]


Signals = dict[str, tuple[datetime, dict[str, Any]]]


class Rows:
    """Reads and writes these rows; each call is one transaction."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    # Heartbeats

    @retried
    def beat(self, boot: str, role: str, host: str, note: str = "") -> None:
        """This process is alive now."""
        table = schema.heartbeat
        with self.store.write() as connection:
            now = self.clock.now()
            again = sa.update(table).where(table.c.boot == boot).values(beat_at=now, note=note)
            if connection.execute(again).rowcount == 0:
                values = {"boot": boot, "role": role, "host": host, "started_at": now, "beat_at": now, "note": note}
                insert_new(connection, table, values)
                connection.execute(sa.delete(table).where(table.c.beat_at < now - FORGET_BOOTS))

    def boots(self, role: str | None = None) -> list[Heartbeat]:
        """All boots that were not taken off, the latest beat first; whether one is alive says `beat_at`."""
        table = schema.heartbeat
        statement = sa.select(table).order_by(table.c.beat_at.desc(), table.c.boot)
        if role is not None:
            statement = statement.where(table.c.role == role)
        with self.store.read() as connection:
            return [Heartbeat(**row) for row in connection.execute(statement).mappings()]

    @retried
    def drop_beat(self, boot: str) -> None:
        """This process has ended in good order."""
        with self.store.write() as connection:
            connection.execute(sa.delete(schema.heartbeat).where(schema.heartbeat.c.boot == boot))

    @retried
    def bury(self, boot: str) -> None:
        """This process was seen to be dead: its heart counts as stale from now on. The row stays, since what it may
        have begun last is waited for from here."""
        table = schema.heartbeat
        with self.store.write() as connection:
            stale = self.clock.now() - BOOT_FRESH - timedelta(microseconds=1)
            mine = sa.update(table).where(table.c.boot == boot, table.c.beat_at > stale)
            connection.execute(mine.values(beat_at=stale))

    # Devices

    @retried
    def put_devices(self, host: str, devices: Sequence[Device]) -> None:
        """The devices of `host` as its agent sees them now: the whole list. Known ones that are not in it are
        withdrawn: no longer told, but as lost while a lease holds them. States that somebody ordered
        (`set_device_state`) stay; `used` is not written, it is a fold."""
        with self.store.write() as connection:
            now = self.clock.now()
            upsert(connection, schema.host, [{"name": host, "seen_at": now}])
            upsert(connection, schema.device, [_device_columns(host, device, now) for device in devices])
            table = schema.device
            missing = sa.update(table).where(
                table.c.host == host, table.c.uuid.not_in([device.uuid for device in devices])
            )
            connection.execute(missing.values(state=DeviceState.LOST.value, why=WITHDRAWN, withdrawn=True))

    def devices(self) -> list[Device]:
        """All devices, with what live leases hold of each, by host and position."""
        with self.store.read() as connection:
            return read_devices(connection)

    @retried
    def set_device_state(self, uuid: str, state: DeviceState, why: str, by: str = "") -> None:
        """Order a state, which goes before what the agent sees; OK takes the order back. Raises `NotFound`."""
        ordered = None if state is DeviceState.OK else state.value
        table = schema.device
        with self.store.write() as connection:
            values = {"ordered_state": ordered, "ordered_why": why}
            differs = sa.or_(*(table.c[name].is_distinct_from(value) for name, value in values.items()))
            update = sa.update(table).where(table.c.uuid == uuid, differs).values(**values)
            if connection.execute(update).rowcount == 0:
                if connection.scalar(sa.select(table.c.uuid).where(table.c.uuid == uuid)) is None:
                    raise NotFound(f"no device {uuid}")
                return
            detail = {"device": uuid, "state": state.value, "why": why}
            add_event(connection, self.clock.now(), "device-state", by=by, detail=detail)

    # Samples and signals

    @retried
    def put_sample(self, lease_id: str, sample: Sample) -> None:
        """The latest sample of a lease. Raises `NotFound`."""
        values = {
            "lease_id": lease_id,
            "at": sample.at,
            "cpu_seconds": sample.cpu_seconds,
            "memory_mib": sample.memory_mib,
            "gpu_util": sample.gpu_util,
            "gpu_memory_mib": sample.gpu_memory_mib,
        }
        with self._about(lease_id) as connection:
            upsert(connection, schema.sample, [values])

    def samples(self, of: Sequence[str] | None = None) -> dict[str, Sample]:
        """The latest sample of every live lease, or of some, by lease id."""
        with self.store.read() as connection:
            rows = connection.execute(_of(schema.sample, of)).mappings()
            return {row["lease_id"]: Sample(**_without(row, "lease_id")) for row in rows}

    @retried
    def put_signal(self, lease_id: str, source: str, payload: Mapping[str, Any], at: datetime) -> None:
        """The latest signal of a lease from one source ("kit", "host", "gpu"). Raises `NotFound`."""
        values = {"lease_id": lease_id, "source": source, "at": at, "payload": dict(payload)}
        with self._about(lease_id) as connection:
            upsert(connection, schema.signal, [values])

    def signals(self, lease_id: str) -> Signals:
        """The latest signals of one lease by source: when, and what."""
        table = schema.signal
        with self.store.read() as connection:
            rows = connection.execute(sa.select(table).where(table.c.lease_id == lease_id)).mappings()
            return {row["source"]: (row["at"], row["payload"]) for row in rows}

    def all_signals(self, of: Sequence[str] | None = None) -> dict[str, Signals]:
        """The same for every live lease, or for some, by lease id."""
        found: dict[str, Signals] = {}
        with self.store.read() as connection:
            for row in connection.execute(_of(schema.signal, of)).mappings():
                found.setdefault(row["lease_id"], {})[row["source"]] = (row["at"], row["payload"])
        return found

    def watched(self) -> dict[str, dict[str, tuple[datetime, Any]]]:
        """The same for every live lease, with None in place of a payload that cannot be read: one mangled row hides
        no other."""
        table = schema.signal
        columns = (table.c.lease_id, table.c.source, table.c.at, sa.cast(table.c.payload, sa.Text).label("payload"))
        found: dict[str, dict[str, tuple[datetime, Any]]] = {}
        with self.store.read() as connection:
            for row in connection.execute(_of(table, None).with_only_columns(*columns)):
                found.setdefault(row.lease_id, {})[row.source] = (row.at, _parsed(row.payload))
        return found

    # Verdicts

    @retried
    def put_verdict(
        self,
        lease_id: str,
        at: datetime,
        kind: str,
        rule: str,
        words: str,
        evidence: Mapping[str, Any],
        deadline: datetime | None = None,
    ) -> None:
        """The latest verdict on a lease; `kind` is keep, warn or reclaim. Raises `NotFound`, `ValueError`."""
        if kind not in ("keep", "warn", "reclaim"):
            raise ValueError(f"a verdict is keep, warn or reclaim, not {kind!r}")
        values = {"lease_id": lease_id, "at": at, "kind": kind, "rule": rule, "words": words}
        with self._about(lease_id) as connection:
            upsert(connection, schema.verdict, [{**values, "evidence": dict(evidence), "deadline": deadline}])

    @retried
    def put_verdicts(self, verdicts: Sequence[Verdict], told: Sequence[Told] = ()) -> None:
        """The latest verdicts on many leases, all of them there, and what of it becomes history: one transaction."""
        with self.store.write() as connection:
            now = self.clock.now()
            upsert(connection, schema.verdict, [_verdict_columns(verdict) for verdict in verdicts])
            for each in told:
                about, account = each.lease_id, each.account_id
                add_event(
                    connection, now, "idle-verdict", lease_id=about, account_id=account, by=each.by, detail=each.detail
                )

    def verdict(self, lease_id: str) -> Verdict | None:
        """The latest verdict on a lease, also after it has ended."""
        table = schema.verdict
        with self.store.read() as connection:
            row = connection.execute(sa.select(table).where(table.c.lease_id == lease_id)).mappings().one_or_none()
            return None if row is None else Verdict(**row)

    def verdicts(self, of: Sequence[str] | None = None) -> dict[str, Verdict]:
        """The latest verdict on every live lease, or on some, by lease id."""
        with self.store.read() as connection:
            rows = connection.execute(_of(schema.verdict, of)).mappings()
            return {row["lease_id"]: Verdict(**row) for row in rows}

    # History

    @retried
    def add_event(
        self,
        kind: str,
        lease_id: str | None = None,
        account_id: int | None = None,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Append a line to the history."""
        with self.store.write() as connection:
            now = self.clock.now()
            add_event(connection, now, kind, lease_id=lease_id, account_id=account_id, by=by, detail=detail)

    def events(self, lease_id: str | None = None, account_id: int | None = None, limit: int = 100) -> list[Event]:
        """The latest lines of history, newest first, of one lease or account or of all."""
        table = schema.event
        statement = sa.select(table).order_by(table.c.id.desc()).limit(limit)
        if lease_id is not None:
            statement = statement.where(table.c.lease_id == lease_id)
        if account_id is not None:
            statement = statement.where(table.c.account_id == account_id)
        with self.store.read() as connection:
            return [Event(**row) for row in connection.execute(statement).mappings()]

    # Small facts

    def meta(self, key: str) -> str | None:
        """A small fact about this deployment."""
        with self.store.read() as connection:
            return connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == key))

    @retried
    def set_meta(self, key: str, value: str) -> None:
        with self.store.write() as connection:
            upsert(connection, schema.meta, [{"key": key, "value": value}])

    @contextmanager
    def _about(self, lease_id: str) -> Iterator[sa.Connection]:
        """A write about a lease that must be there."""
        with self.store.write() as connection:
            if connection.scalar(sa.select(schema.lease.c.id).where(schema.lease.c.id == lease_id)) is None:
                raise NotFound(f"no lease {lease_id}")
            yield connection


def _of(table: sa.Table, ids: Sequence[str] | None) -> sa.Select[Any]:
    """Rows of these leases (a page of them, not thousands), or of the live ones."""
    wanted = sa.select(schema.lease.c.id).where(LIVE) if ids is None else list(ids)
    return sa.select(table).where(table.c.lease_id.in_(wanted))


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _verdict_columns(verdict: Verdict) -> dict[str, Any]:
    return {
        "lease_id": verdict.lease_id,
        "at": verdict.at,
        "kind": verdict.kind,
        "rule": verdict.rule,
        "words": verdict.words,
        "evidence": dict(verdict.evidence),
        "deadline": verdict.deadline,
    }


def _without(row: Mapping[Any, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _device_columns(host: str, device: Device, now: datetime) -> dict[str, Any]:
    return {
        "uuid": device.uuid,
        "host": host,
        "position": device.position,
        "name": device.name,
        "memory_mib": device.memory_mib,
        "mode": device.mode,
        "simulated": device.simulated,
        "state": device.state.value,
        "why": device.why,
        "seen_at": device.seen_at or now,
        "withdrawn": False,
        "capacity": device.capacity,
        "handle": device.handle,
    }
