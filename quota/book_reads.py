"""What can be asked of the book about leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from quota import schema
from quota.leases import Holder, Lease, Segment
from quota.records import LIVE, read_lease, read_leases, read_segments
from quota.store import Store

_UNSETTLED = sa.text("state <> 'SETTLED'")


class BookReads:
    """Reads of the book; each is one snapshot. Leases come newest first."""

    store: Store

    def lease(self, lease_id: str) -> Lease:
        """Raises `NotFound`."""
        with self.store.read() as connection:
            return read_lease(connection, lease_id)

    def segments(self, lease_ids: Sequence[str]) -> dict[str, list[Segment]]:
        """What each of these leases counts, in order; an empty list for one that never ran or is not there."""
        with self.store.read() as connection:
            return read_segments(connection, lease_ids)

    def live(self, user: str | None = None) -> list[Lease]:
        """All leases that hold a slot, of one user's servers or of all."""
        where = [] if user is None else [schema.lease.c.holder_user == user]
        with self.store.read() as connection:
            return read_leases(connection, LIVE, *where)

    def live_of(self, holder: Holder) -> Lease | None:
        """The one live lease of a holder, if any."""
        table = schema.lease
        with self.store.read() as connection:
            found = read_leases(
                connection,
                LIVE,
                table.c.holder_kind == holder.kind.value,
                table.c.holder_user == holder.user,
                table.c.holder_server == holder.server,
            )
        return found[0] if found else None

    def unsettled(self) -> list[Lease]:
        """All leases with something left to do: the live ones, and the released ones whose bill is open."""
        with self.store.read() as connection:
            return read_leases(connection, _UNSETTLED)

    def leases(self, user: str | None = None, limit: int = 100, before: datetime | str | None = None) -> list[Lease]:
        """Up to `limit` leases, of one user's servers or of all.

        `before` pages on: the id of the last lease of the page before (exact), or a moment. Raises `NotFound` for
        an id that is not there.
        """
        table = schema.lease
        where = [] if user is None else [table.c.holder_user == user]
        with self.store.read() as connection:
            if isinstance(before, str):
                last = read_lease(connection, before)
                same_moment = (table.c.requested_at == last.requested_at) & (table.c.id < last.id)
                where.append((table.c.requested_at < last.requested_at) | same_moment)
            elif before is not None:
                where.append(table.c.requested_at < before)
            return read_leases(connection, *where, limit=limit)
