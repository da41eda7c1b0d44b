"""What the kit of a server saved before its server was stopped, by its own word.

A row is one farewell of one lease: it begins with the kit's first word after the stop was asked for, and once it is
done whoever waits need not wait any longer (`quota.leaving`). A stop that is taken back takes the row with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from quota import schema, schema_stops
from quota.errors import Stale
from quota.leases import Target
from quota.ports import Clock
from quota.records import add_event, read_lease
from quota.reported import Farewell, clamped
from quota.store import Store, insert_new, retried

__all__ = ["BEGUN", "DONE", "KIT", "Farewell", "Farewells", "NotStopping", "forgotten"]

BEGUN, DONE = "farewell-begun", "farewell-done"
#: Who wrote these lines of history.
KIT = "kit"

_TABLE = schema_stops.farewell
_TAKE = (
    sa.select(schema.lease.c.id).where(schema.lease.c.id == sa.bindparam("lease_id")).with_for_update(key_share=True)
)


class NotStopping(Stale):
    """Nobody has asked this server to stop, or its stop was taken back, or it is over."""


class Farewells:
    """Reads and writes farewells; each call is one transaction."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    @retried
    def begin(self, lease_id: str) -> None:
        """The kit has begun to save. Once more is nothing. Raises `NotFound`, `NotStopping`."""
        with self.store.write() as connection:
            self._begin(connection, lease_id)

    @retried
    def heard(self, lease_id: str, report: Mapping[str, Any], done: bool) -> Farewell:
        """What the kit says now, put into bounds. The first `done` stays. Raises `NotFound`, `NotStopping`."""
        with self.store.write() as connection:
            now = self._begin(connection, lease_id)
            before = _read(connection, [lease_id])[lease_id]
            values: dict[str, Any] = {"heard_at": max(now, before.heard_at), "report": clamped(report)}
            if done and before.done_at is None:
                values["done_at"] = values["heard_at"]
                counts = {name: len(values["report"][name]) + values["report"][f"{name}_left_out"] for name in _LISTS}
                took = (values["done_at"] - before.began_at).total_seconds()
                detail = {**counts, "seconds": took}
                add_event(connection, now, DONE, lease_id=lease_id, by=KIT, detail=detail)
            connection.execute(sa.update(_TABLE).where(_TABLE.c.lease_id == lease_id).values(**values))
            return _read(connection, [lease_id])[lease_id]

    def of(self, lease_id: str) -> Farewell | None:
        """The farewell of a lease, also long after its end; None where its kit said nothing."""
        return self.of_some([lease_id]).get(lease_id)

    def of_some(self, lease_ids: Sequence[str]) -> dict[str, Farewell]:
        """Those of some leases (a page of them), by lease id."""
        if not lease_ids:
            return {}
        with self.store.read() as connection:
            return _read(connection, lease_ids)

    def _begin(self, connection: sa.Connection, lease_id: str) -> datetime:
        now = self.clock.now()
        # On PostgreSQL the row is taken first: a stop is not taken back between this look and the commit.
        connection.execute(_TAKE, {"lease_id": lease_id})
        lease = read_lease(connection, lease_id)
        if not lease.live or lease.target is not Target.STOP:
            raise NotStopping(f"lease {lease_id} is not being stopped")
        values = {"lease_id": lease_id, "began_at": now, "heard_at": now, "done_at": None, "report": {}}
        if insert_new(connection, _TABLE, values):
            add_event(connection, now, BEGUN, lease_id=lease_id, by=KIT)
        return now


def forgotten(connection: sa.Connection, lease_id: str) -> bool:
    """Take the farewell off in the transaction that takes the stop back; False where its kit is done already. The
    lease has been claimed."""
    mine = sa.delete(_TABLE).where(_TABLE.c.lease_id == lease_id, _TABLE.c.done_at.is_(None))
    connection.execute(mine)
    return connection.scalar(sa.select(_TABLE.c.lease_id).where(_TABLE.c.lease_id == lease_id)) is None


_LISTS = ("saved", "lost")


def _read(connection: sa.Connection, lease_ids: Sequence[str]) -> dict[str, Farewell]:
    rows = connection.execute(sa.select(_TABLE).where(_TABLE.c.lease_id.in_(list(lease_ids)))).mappings()
    names = ("began_at", "heard_at", "done_at", "report")
    return {row["lease_id"]: Farewell(**{name: row[name] for name in names}) for row in rows}
