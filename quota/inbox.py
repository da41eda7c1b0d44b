"""Notices as their readers see them: what somebody has been told, what is unread, and how they want to be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from quota import schema, schema_stops
from quota.leases import State
from quota.notices import TO_ADMINS, URGENT, NoticeKind
from quota.ports import Clock
from quota.routing import Preference, from_choices, to_choices
from quota.store import Store, retried, upsert

__all__ = ["MOST_COUNTED", "Glance", "Inbox", "Letter"]

_NOTICE, _PREFERENCE, _WISH = schema_stops.notice, schema_stops.preference, schema_stops.wish
_LEASE, _VERDICT = schema.lease, schema.verdict
#: Warnings of the idle rules, which the next verdict may withdraw.
RULED: Final = (NoticeKind.IDLE_WARNING, NoticeKind.SHUTDOWN_WARNING, NoticeKind.MAX_AGE_WARNING)
PAGE: Final = 50
#: Unread ones are counted up to here: "99+".
MOST_COUNTED: Final = 100


@dataclass(frozen=True, slots=True)
class Letter:
    """One notice as its reader has it; `words` are the book's (`quota.told.retold` tells them again)."""

    id: int
    user: str
    kind: str
    lease_id: str | None
    at: datetime
    expires_at: datetime | None
    words: str
    link: str
    data: Mapping[str, Any]
    read_at: datetime | None


@dataclass(frozen=True, slots=True)
class Glance:
    """How many notices somebody has not read (up to `MOST_COUNTED`), and those on which something can still be done."""

    unread: int
    urgent: tuple[Letter, ...]


class Inbox:
    """Reads and marks; each call is one transaction. With `admin`, those to all administrators are one's own too."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def of(
        self, user: str, admin: bool, before: int | None = None, limit: int = PAGE, read: bool | None = None
    ) -> list[Letter]:
        """The newest first; older than the one with the id `before`. `read`: only those that are, or are not."""
        chosen = sa.select(*_COLUMNS).where(_mine(user, admin)).order_by(_NOTICE.c.id.desc()).limit(limit)
        if before is not None:
            chosen = chosen.where(_NOTICE.c.id < before)
        if read is not None:
            chosen = chosen.where(_NOTICE.c.read_at.is_not(None) if read else _NOTICE.c.read_at.is_(None))
        return self._read(chosen)

    def one(self, user: str, admin: bool, number: int) -> Letter | None:
        """One of one's own; None for what is somebody else's, or nobody's."""
        found = self._read(sa.select(*_COLUMNS).where(_mine(user, admin), _NOTICE.c.id == number))
        return found[0] if found else None

    def unread(self, user: str, admin: bool) -> int:
        """How many one has not read, up to `MOST_COUNTED`."""
        with self._store.read() as connection:
            return _unread(connection, user, admin)

    def urgent(self, user: str) -> list[Letter]:
        """Unread ones on which something can still be done, the latest of each running server; none withdrawn."""
        with self._store.read() as connection:
            return _urgent(connection, user, self._clock.now())

    def glance(self, user: str, admin: bool) -> Glance:
        """What every page shows of one's notices, in one look."""
        with self._store.read() as connection:
            urgent = _urgent(connection, user, self._clock.now())
            return Glance(_unread(connection, user, admin), tuple(urgent))

    @retried
    def mark_read(self, user: str, admin: bool, number: int | None = None, up_to: int | None = None) -> int:
        """One, all up to an id, or all of one's own are read. How many were not."""
        with self._store.write() as connection:
            mine = sa.update(_NOTICE).where(_mine(user, admin), _NOTICE.c.read_at.is_(None))
            if number is not None:
                mine = mine.where(_NOTICE.c.id == number)
            if up_to is not None:
                mine = mine.where(_NOTICE.c.id <= up_to)
            return connection.execute(mine.values(read_at=self._clock.now())).rowcount

    def last_test(self, user: str) -> Letter | None:
        """The test message that somebody asked for last."""
        mine = sa.select(*_COLUMNS).where(_NOTICE.c.user == user, _NOTICE.c.kind == NoticeKind.TEST.value)
        found = self._read(mine.order_by(_NOTICE.c.id.desc()).limit(1))
        return found[0] if found else None

    def tests_since(self, user: str, moment: datetime) -> int:
        """How many test messages somebody has asked for since then."""
        mine = sa.select(sa.func.count()).where(_NOTICE.c.user == user, _NOTICE.c.kind == NoticeKind.TEST.value)
        with self._store.read() as connection:
            return int(connection.scalar(mine.where(_NOTICE.c.at > moment)) or 0)

    # How they want to be told

    def preference(self, user: str) -> Preference:
        with self._store.read() as connection:
            row = connection.execute(sa.select(_PREFERENCE).where(_PREFERENCE.c.user == user)).mappings().one_or_none()
            return from_choices(row["email"], row["choices"], row["secret"]) if row else Preference()

    @retried
    def set_preference(self, user: str, chosen: Preference) -> None:
        values = {"user": user, "email": chosen.email, "choices": to_choices(chosen), "secret": chosen.chat}
        with self._store.write() as connection:
            upsert(connection, _PREFERENCE, [{**values, "at": self._clock.now()}])

    def _read(self, chosen: Any) -> list[Letter]:
        with self._store.read() as connection:
            return _letters(connection, chosen)


#: The idle rules found since that it is kept, or its user wished so: nothing is coming.
_WITHDRAWN: Final = sa.or_(
    sa.and_(_NOTICE.c.kind.in_([kind.value for kind in RULED]), sa.func.coalesce(_VERDICT.c.kind, "") == "keep"),
    sa.and_(
        _NOTICE.c.kind == NoticeKind.IDLE_WARNING.value,
        _WISH.c.keep_until.is_not(None),
        _WISH.c.keep_until > _NOTICE.c.expires_at,
    ),
)
_COLUMNS: Sequence[sa.ColumnElement[object]] = [_NOTICE.c[name] for name in Letter.__dataclass_fields__]


def _letters(connection: sa.Connection, chosen: Any) -> list[Letter]:
    return [Letter(**row) for row in connection.execute(chosen).mappings()]


def _unread(connection: sa.Connection, user: str, admin: bool) -> int:
    first = sa.select(_NOTICE.c.id).where(_mine(user, admin), _NOTICE.c.read_at.is_(None)).limit(MOST_COUNTED)
    return int(connection.scalar(sa.select(sa.func.count()).select_from(first.subquery())) or 0)


def _urgent(connection: sa.Connection, user: str, now: datetime) -> list[Letter]:
    chosen = (
        sa.select(*_COLUMNS)
        .join(_LEASE, _LEASE.c.id == _NOTICE.c.lease_id)
        .outerjoin(_VERDICT, _VERDICT.c.lease_id == _LEASE.c.id)
        .outerjoin(_WISH, _WISH.c.lease_id == _LEASE.c.id)
        .where(_NOTICE.c.user == user, _NOTICE.c.read_at.is_(None), _NOTICE.c.expires_at > now)
        .where(_NOTICE.c.kind.in_([kind.value for kind in URGENT]), _LEASE.c.state == State.RUNNING.value)
        .where(~_WITHDRAWN)
    )
    found = _letters(connection, chosen.order_by(_NOTICE.c.id.desc()).limit(PAGE))
    return list({(letter.lease_id, letter.kind): letter for letter in reversed(found)}.values())


def _mine(user: str, admin: bool) -> sa.ColumnElement[bool]:
    return _NOTICE.c.user.in_([user, TO_ADMINS] if admin else [user])
