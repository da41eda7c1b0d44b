"""Starts that users ask for at a time, as the book has them; `quota.dispatch` makes them.

A start waits, is `starting` while somebody asks the Hub for it, and ends as `started`, `failed`, `missed` or
`cancelled`. Whoever asks claims it first, by compare-and-swap for a bounded time, so two never ask at once, and what a
process left half-way is looked at again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal

import sqlalchemy as sa

from quota import schema, schema_stops
from quota.errors import BerthError, NotFound
from quota.ports import Clock
from quota.store import Store, retried

__all__ = ["LATEST", "ScheduleRefused", "Schedules", "Start", "StartState"]

#: How far ahead a start may be asked for.
LATEST: Final = timedelta(days=90)
#: A claim is good for so long; nobody waits longer for the Hub's answer.
CLAIMED: Final = timedelta(minutes=2)
#: Of starts that are over so many of each user are kept.
KEPT: Final = 50

_TABLE = schema_stops.scheduled_start

Code = Literal["off", "too-soon", "too-far", "too-many", "twice", "under-way", "over"]


class StartState(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    STARTED = "started"
    FAILED = "failed"
    MISSED = "missed"
    CANCELLED = "cancelled"


OPEN: Final = (StartState.WAITING, StartState.STARTING)


class ScheduleRefused(BerthError):
    """A start that is not taken, changed or taken off. `most`: how many one may have waiting."""

    def __init__(self, code: Code, most: int = 0) -> None:
        super().__init__(code)
        self.code: Code = code
        self.most = most


@dataclass(frozen=True, slots=True)
class Start:
    """One start. `server` is "" for the default one, `options` those of a start, complete; `by` asked for it.
    `tried_at` is when the Hub was last asked, or was about to be; `outcome` says in words how it ended, or what stood
    in the way so far."""

    id: str
    user: str
    server: str
    options: Mapping[str, str]
    start_at: datetime
    created_at: datetime
    by: str
    state: StartState = StartState.WAITING
    tried_at: datetime | None = None
    outcome: str = ""

    @property
    def profile(self) -> str:
        return self.options.get("profile", "")


class Schedules:
    """Each call is one transaction. `most` starts of one user may wait at a time; 0: nobody may ask for any."""

    def __init__(self, store: Store, clock: Clock, most: int = 10) -> None:
        self._store, self._clock, self._most = store, clock, most

    # ---- for users ----

    @retried
    def add(self, user: str, server: str, options: Mapping[str, str], start_at: datetime, by: str) -> Start:
        """Raises `ScheduleRefused`. Whether the options will be granted shows when it is made."""
        now = self._clock.now()
        if not self._most:
            raise ScheduleRefused("off")
        _check_time(start_at, now)
        with self._store.write() as connection:
            _in_turn(connection, user)
            mine = _open_of(connection, user)
            _check_twice(mine, server, start_at)
            if len(mine) >= self._most:
                raise ScheduleRefused("too-many", self._most)
            _forget(connection, user)
            start = Start(f"s{secrets.token_hex(8)}", user, server, dict(options), start_at, now, by)
            values = {name: getattr(start, name) for name in _COLUMNS}
            connection.execute(sa.insert(_TABLE).values({**values, "state": start.state.value}))
        return start

    @retried
    def change(self, start_id: str, options: Mapping[str, str], start_at: datetime) -> Start:
        """One that waits is made with these options at that time instead; what stood in its way before is forgotten.
        Raises `NotFound`; `ScheduleRefused` where it is being made or is over, and as `add` does."""
        with self._store.write() as connection:
            start = _one(connection, start_id)
            _in_turn(connection, start.user)
            if start.state is not StartState.WAITING:
                raise ScheduleRefused("under-way" if start.state is StartState.STARTING else "over")
            _check_time(start_at, self._clock.now())
            others = [each for each in _open_of(connection, start.user) if each.id != start_id]
            _check_twice(others, start.server, start_at)
            values = {"options": dict(options), "start_at": start_at, "tried_at": None, "outcome": ""}
            connection.execute(_on(start).values(**values))
            return _one(connection, start_id)

    @retried
    def cancel(self, start_id: str) -> Start:
        """Raises `NotFound`; `ScheduleRefused` where it is being made. One that is over stays as it is."""
        with self._store.write() as connection:
            start = _one(connection, start_id)
            if start.state is StartState.STARTING:
                raise ScheduleRefused("under-way")
            if start.state is StartState.WAITING:
                connection.execute(_on(start).values(state=StartState.CANCELLED.value))
            return _one(connection, start_id)

    def one(self, start_id: str) -> Start:
        """Raises `NotFound`."""
        with self._store.read() as connection:
            return _one(connection, start_id)

    def of(self, user: str) -> list[Start]:
        """All of a user that are kept: those to come first, the soonest first; then those that are over, the newest
        first."""
        with self._store.read() as connection:
            found = _read(connection, _TABLE.c.user == user)
        coming = [each for each in found if each.state in OPEN]
        return coming + [each for each in reversed(found) if each.state not in OPEN]

    # ---- for the dispatcher ----

    def due(self, pause: timedelta, limit: int = 200) -> list[Start]:
        """Those whose time has come, the longest due first: not asked for within the last `pause`, and no claim of
        somebody else's that may still be good."""
        now = self._clock.now()
        tried = _TABLE.c.tried_at
        rested = (_TABLE.c.state == "waiting") & (tried.is_(None) | (tried <= now - pause))
        left = (_TABLE.c.state == "starting") & (tried <= now - CLAIMED)
        with self._store.read() as connection:
            return _read(connection, _TABLE.c.start_at <= now, rested | left, limit=limit)

    @retried
    def claim(self, start: Start) -> Start | None:
        """Mine to make from now on; None where somebody else was first, or it was taken off."""
        now = self._clock.now()
        with self._store.write() as connection:
            if not connection.execute(_on(start).values(state="starting", tried_at=now)).rowcount:
                return None
            return _one(connection, start.id)

    @retried
    def wait(self, start: Start, outcome: str = "") -> bool:
        """A claimed one waits for its next try; `outcome`: what stood in the way. False where the claim was lost."""
        return self._put(start, StartState.WAITING, outcome)

    @retried
    def end(self, start: Start, state: StartState, outcome: str = "") -> bool:
        """A claimed one is over. False where the claim was lost."""
        return self._put(start, state, outcome)

    def _put(self, start: Start, state: StartState, outcome: str) -> bool:
        with self._store.write() as connection:
            return bool(connection.execute(_on(start).values(state=state.value, outcome=outcome)).rowcount)


_COLUMNS = tuple(column.name for column in _TABLE.columns)


def _in_turn(connection: sa.Connection, user: str) -> None:
    """On PostgreSQL two that add for one user wait for each other, at the row of the account, or both would count what
    there was before either. On SQLite they do so anyway."""
    account = schema.account
    connection.execute(sa.select(account.c.id).where(account.c.name == user).with_for_update(key_share=True))


def _on(start: Start) -> sa.Update:
    """Writes a start as it was read, else nothing."""
    seen = _TABLE.c.tried_at.is_(None) if start.tried_at is None else _TABLE.c.tried_at == start.tried_at
    return sa.update(_TABLE).where(_TABLE.c.id == start.id, _TABLE.c.state == start.state.value, seen)


def _check_time(start_at: datetime, now: datetime) -> None:
    """Raises `ScheduleRefused`."""
    if start_at <= now:
        raise ScheduleRefused("too-soon")
    if start_at > now + LATEST:
        raise ScheduleRefused("too-far")


def _check_twice(others: list[Start], server: str, start_at: datetime) -> None:
    """Raises `ScheduleRefused`."""
    if any(each.server == server and each.start_at == start_at for each in others):
        raise ScheduleRefused("twice")


def _open_of(connection: sa.Connection, user: str) -> list[Start]:
    return [each for each in _read(connection, _TABLE.c.user == user) if each.state in OPEN]


def _one(connection: sa.Connection, start_id: str) -> Start:
    found = _read(connection, _TABLE.c.id == start_id)
    if not found:
        raise NotFound(f"no scheduled start {start_id}")
    return found[0]


def _read(connection: sa.Connection, *where: sa.ColumnElement[bool], limit: int | None = None) -> list[Start]:
    chosen = sa.select(_TABLE).where(*where).order_by(_TABLE.c.start_at, _TABLE.c.id).limit(limit)
    return [_start(row) for row in connection.execute(chosen).mappings()]


def _start(row: Mapping[Any, Any]) -> Start:
    return Start(**{**row, "state": StartState(row["state"])})


def _forget(connection: sa.Connection, user: str) -> None:
    """All but the newest of a user's starts that are over."""
    over = (_TABLE.c.user == user) & _TABLE.c.state.not_in([each.value for each in OPEN])
    kept = sa.select(_TABLE.c.id).where(over).order_by(_TABLE.c.start_at.desc(), _TABLE.c.id).limit(KEPT)
    ids = list(connection.scalars(kept))
    if len(ids) == KEPT:
        connection.execute(sa.delete(_TABLE).where(over, _TABLE.c.id.not_in(ids)))
