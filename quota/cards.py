"""Tells users how their servers ended, once the final charge is made: the card, as a notice.

Whoever ends a server waits for none of this. A look goes through the history after the point that the last one
reached, and tells of each settled lease that nobody told of. Where the first look of a deployment began stays in
`meta`, so that what ended before it is not told of.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa

from quota import schema, schema_stops
from quota.errors import BerthError
from quota.farewells import Farewells
from quota.leases import HolderKind, Lease
from quota.notices import ENDS, FRESH, Notice, stopped
from quota.ports import Clock
from quota.records import read_leases
from quota.store import Store, insert_new, retried, upsert

__all__ = ["Cards"]

log = logging.getLogger("berth.notices")

#: In `meta`: the numbers of history at which the first look began, and up to which all was told, as JSON.
META: Final = "stopped-cards"
#: Two transactions may come into history in another order than their numbers: so many are looked at once more.
AGAIN: Final = 1000
#: Leases of one look.
MOST: Final = 100

_EVENT, _NOTICE, _LEASE = schema.event, schema_stops.notice, schema.lease
_MARK = sa.select(schema.meta.c.value).where(schema.meta.c.key == META)
_KINDS: Final = tuple(kind.value for kind in ENDS)


class Cards:
    """Looks for leases that are settled; `put` writes a notice now, once for its key."""

    def __init__(self, store: Store, clock: Clock, put: Callable[[Notice], object]) -> None:
        self._store, self._clock, self._put = store, clock, put
        self._farewells = Farewells(store, clock)

    def look(self) -> int:
        """Tell of what has been settled since. How many. Raises what the book raises."""
        first, seen, newest = self._mark()
        found = self._settled(max(first, seen - AGAIN))
        heard = self._farewells.of_some([lease.id for lease in found])
        told = 0
        for lease in found:
            try:
                told += self._put(stopped(lease, self._clock.now(), heard.get(lease.id))) is not None
            except (BerthError, sa.exc.OperationalError):  # the book is away: all of it is looked at once more
                raise
            except Exception:
                log.exception("The end of %s could not be told", lease.id, extra={"event": "card-failed"})
        if len(found) < MOST and (found or newest - seen >= AGAIN):
            self._reached(first, newest)
        return told

    def _mark(self) -> tuple[int, int, int]:
        """Where looking began, what is told already, and the newest number of history."""
        with self._store.read() as connection:
            newest = int(connection.scalar(sa.select(sa.func.max(_EVENT.c.id))) or 0)
            kept = connection.scalar(_MARK)
        mark = json.loads(kept or self._begun(newest))
        return int(mark["first"]), int(mark["seen"]), newest

    @retried
    def _begun(self, newest: int) -> str:
        """The mark of the first look: this one, or another process's that was faster."""
        with self._store.write() as connection:
            insert_new(connection, schema.meta, {"key": META, "value": _written(newest, newest)})
            return str(connection.scalar(_MARK))

    def _settled(self, after: int) -> Sequence[Lease]:
        """Leases whose end came into history after that number, and which nobody was told of; the oldest first. An end
        longer than `FRESH` ago is no news."""
        told = sa.select(_NOTICE.c.id).where(_NOTICE.c.lease_id == _EVENT.c.lease_id, _NOTICE.c.kind.in_(_KINDS))
        settled = (
            sa.select(_EVENT.c.lease_id)
            .join(_LEASE, _LEASE.c.id == _EVENT.c.lease_id)
            .where(_EVENT.c.id > after, _EVENT.c.kind == "lease-settled", ~told.exists())
            .where(_LEASE.c.holder_kind == HolderKind.SERVER.value, _LEASE.c.started_at.is_not(None))
            .where(_LEASE.c.ended_at > self._clock.now() - FRESH)  # the notice of an older one may be tidied away
            .order_by(_EVENT.c.id)
            .limit(MOST)
        )
        with self._store.read() as connection:
            ids = list(connection.scalars(settled))
            return read_leases(connection, _LEASE.c.id.in_(ids))[::-1] if ids else []

    @retried
    def _reached(self, first: int, seen: int) -> None:
        with self._store.write() as connection:
            upsert(connection, schema.meta, [{"key": META, "value": _written(first, seen)}])


def _written(first: int, seen: int) -> str:
    return json.dumps({"first": first, "seen": seen})
