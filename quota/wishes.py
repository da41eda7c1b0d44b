"""What users want of the end of their servers, as the book has it; `quota.wishing` writes it."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from quota import schema_stops
from quota.ports import Clock
from quota.store import Store
from quota.wish import NO_WISH, Wish

__all__ = ["NO_WISH", "Wish", "Wishes", "read_wishes"]

_CHUNK = 500  # ids in one statement
_TABLE = schema_stops.wish
_OF = sa.select(_TABLE).where(_TABLE.c.lease_id.in_(sa.bindparam("ids", expanding=True)))


class Wishes:
    """Reads wishes. Each call is one snapshot."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    def of(self, lease_ids: Sequence[str]) -> dict[str, Wish]:
        """The wish about each of these leases; `NO_WISH` where nobody wished anything."""
        with self.store.read() as connection:
            return read_wishes(connection, lease_ids)


def read_wishes(connection: sa.Connection, lease_ids: Sequence[str]) -> dict[str, Wish]:
    found = dict.fromkeys(lease_ids, NO_WISH)
    ids = list(found)
    for start in range(0, len(ids), _CHUNK):
        for row in connection.execute(_OF, {"ids": ids[start : start + _CHUNK]}).mappings():
            found[row["lease_id"]] = Wish(row["keep_until"], row["shutdown_at"], bool(row["when_done"]))
    return found
