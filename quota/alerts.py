"""What an administrator should look at, as rows of the book: written by whoever sees the trouble, shown by pages, REST,
metrics and `berth status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.ports import Clock
from quota.records import add_event
from quota.store import Store, insert_new, retried

__all__ = ["Alert", "Alerts"]

_TABLE = schema.alert


@dataclass(frozen=True, slots=True)
class Alert:
    """One trouble. `key` names it for ever ("audit"), `kind` groups keys for metrics, `words` are for a person;
    `since` is when it was seen first, `seen_at` when last. It stands while `cleared_at` is None."""

    key: str
    kind: str
    words: str
    detail: Mapping[str, Any]
    since: datetime
    seen_at: datetime
    cleared_at: datetime | None = None


class Alerts:
    """Raises and clears alerts. Safe from several processes: the last word about a key counts."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    @retried
    def put(self, key: str, kind: str, words: str, detail: Mapping[str, Any] | None = None) -> bool:
        """The trouble is there (still). Tells whether it is new: it was not open before."""
        now = self.clock.now()
        values = {"kind": kind, "words": words, "detail": dict(detail or {}), "seen_at": now, "cleared_at": None}
        with self.store.write() as connection:
            this = sa.update(_TABLE).where(_TABLE.c.key == key)
            if connection.execute(this.where(_TABLE.c.cleared_at.is_(None)).values(**values)).rowcount:
                return False
            reopened = connection.execute(this.where(_TABLE.c.cleared_at.is_not(None)).values(since=now, **values))
            if not reopened.rowcount and not insert_new(connection, _TABLE, {"key": key, "since": now, **values}):
                connection.execute(this.values(**values))  # another process raised it at this moment
                return False
            add_event(connection, now, "alert-raised", detail={"key": key, "words": words})
            return True

    @retried
    def clear(self, key: str) -> bool:
        """The trouble is over. Tells whether there was one."""
        now = self.clock.now()
        with self.store.write() as connection:
            over = sa.update(_TABLE).where(_TABLE.c.key == key, _TABLE.c.cleared_at.is_(None)).values(cleared_at=now)
            if not connection.execute(over).rowcount:
                return False
            add_event(connection, now, "alert-cleared", detail={"key": key})
            return True

    def open(self) -> list[Alert]:
        """Those that stand, the oldest first."""
        with self.store.read() as connection:
            chosen = sa.select(_TABLE).where(_TABLE.c.cleared_at.is_(None)).order_by(_TABLE.c.since, _TABLE.c.key)
            return [Alert(**row) for row in connection.execute(chosen).mappings()]
