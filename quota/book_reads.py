"""What can be asked of the book about leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from quota import schema
from quota.leases import Holder, HolderKind, Lease, Segment, Slot, State
from quota.records import LIVE, read_lease, read_leases, read_segments
from quota.store import Store
from quota.units import MilliGpu

_UNSETTLED = sa.text("state <> 'SETTLED'")


@dataclass(frozen=True, slots=True)
class Holding:
    """As much of a live lease as says who holds what: a third of the cost of a whole one, where there are thousands."""

    id: str
    holder: Holder
    profile: str
    share: MilliGpu
    count: int
    simulated: bool
    requested_at: datetime
    slots: tuple[Slot, ...]
    account_id: int = 0


_HOLDINGS = (
    sa.select(
        schema.lease.c.id,
        schema.lease.c.holder_user,
        schema.lease.c.holder_server,
        schema.lease.c.holder_kind,
        schema.lease.c.profile,
        schema.lease.c.share,
        schema.lease.c["count"],
        schema.lease.c.simulated,
        schema.lease.c.requested_at,
        schema.lease.c.account_id,
        schema.slot.c.host,
        schema.slot.c.device,
        schema.slot.c.share.label("part"),
    )
    .join(schema.slot, schema.slot.c.lease_id == schema.lease.c.id, isouter=True)
    .where(LIVE)
)


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

    def holdings(self) -> list[Holding]:
        """Who holds what, the longest first."""
        found: dict[str, Holding] = {}
        with self.store.read() as connection:
            for row in connection.execute(_HOLDINGS):
                lease_id, user, server, kind, profile, share, count, simulated, asked, payer, host, device, part = row
                slots = () if part is None else (Slot(host, device, MilliGpu(part)),)
                known = found.get(lease_id)
                if known is None:
                    holder = Holder(user, server, HolderKind(kind))
                    share, simulated = MilliGpu(share), bool(simulated)
                    found[lease_id] = Holding(lease_id, holder, profile, share, count, simulated, asked, slots, payer)
                else:
                    found[lease_id] = replace(known, slots=known.slots + slots)
        return sorted(found.values(), key=lambda each: (each.requested_at, each.id))

    def unseen(self, since: datetime) -> list[Lease]:
        """Running leases that nobody has seen since then."""
        table = schema.lease
        silent = sa.func.coalesce(table.c.last_seen, table.c.started_at, type_=schema.UtcMicros) < since
        with self.store.read() as connection:
            return read_leases(connection, LIVE, table.c.state == State.RUNNING.value, silent)

    def some(self, lease_ids: Sequence[str]) -> list[Lease]:
        """These leases (a page of them) in their order; those that are not there are left out."""
        with self.store.read() as connection:
            found = {lease.id: lease for lease in read_leases(connection, schema.lease.c.id.in_(lease_ids))}
        return [found[lease_id] for lease_id in lease_ids if lease_id in found]

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
