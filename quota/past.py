"""What was: how an account's credits changed, and which parts of devices were held. Reads of the book by index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from quota import schema
from quota.ledger import EXPIRED, ISSUED, REVENUE
from quota.records import LIVE
from quota.store import Store

#: A bill is closed within seconds of a lease's end, and within days where the platform was down. Leases that ended, or
#: were asked for, up to this long before a stretch of time are looked at too.
LATE = timedelta(days=31)

_LEASE, _SLOT, _POSTING, _BUCKET = schema.lease, schema.slot, schema.posting, schema.grant_bucket


@dataclass(frozen=True, slots=True)
class Change:
    """Micro-credits that came to an account (or went, when negative), held ones counted as the account's."""

    at: datetime
    amount: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a device, in milli-GPU, that somebody held; `end` is None where it is held still."""

    device: str
    share: int
    begin: datetime
    end: datetime | None


def changes(store: Store, account_id: int, since: datetime) -> list[Change]:
    """All after `since`, in no order: grants, charges, refunds, what expired. What moves between a grant, a hold and a
    debt changes nothing."""
    with store.read() as connection:
        return [*_of_leases(connection, account_id, since), *_of_grants(connection, account_id, since)]


def _of_leases(connection: sa.Connection, account_id: int, since: datetime) -> Iterator[Change]:
    """Only what went to the platform or came from it: charges, refunds, and what expired as it was given back."""
    mine = sa.select(_LEASE.c.id).where(_LEASE.c.account_id == account_id)
    recent = mine.where(sa.text("state <> 'SETTLED'")).union(
        mine.where(_LEASE.c.ended_at > since - LATE), mine.where(sa.text(schema.REFUNDED_SQL))
    )
    asked = sa.select(_POSTING.c.at, _POSTING.c.amount).where(
        _POSTING.c.lease_id.in_(recent), _POSTING.c.sub.in_((REVENUE, EXPIRED)), _POSTING.c.at > since
    )
    for at, amount in connection.execute(asked):
        yield Change(at, -int(amount))


def _of_grants(connection: sa.Connection, account_id: int, since: datetime) -> Iterator[Change]:
    """By the keys of their transactions: a refund makes a bucket as well, and no grant."""
    known = sa.select(_BUCKET.c.id, _BUCKET.c.granted_at, _BUCKET.c.expired_at).where(
        _BUCKET.c.account_id == account_id
    )
    keys: list[str] = []
    for bucket, granted, expired in connection.execute(known):
        keys += [f"grant:{bucket}"] * (granted > since)
        keys += [f"expire:{bucket}"] * (expired is not None and expired > since)
    asked = sa.select(_POSTING.c.at, _POSTING.c.amount).where(
        _POSTING.c.key.in_(keys), _POSTING.c.sub.in_((ISSUED, EXPIRED))
    )
    for at, amount in connection.execute(asked) if keys else ():
        yield Change(at, -int(amount))


def stretches(store: Store, since: datetime) -> list[Stretch]:
    """What was held of devices after `since`. What a server that was asked for more than `LATE` before had, and gave
    back since, is not found: no index leads to it."""
    until = sa.func.coalesce(_SLOT.c.released_at, _LEASE.c.ended_at, type_=schema.UtcMicros)
    asked = (
        sa.select(_SLOT.c.device, _SLOT.c.share, _LEASE.c.requested_at, until)
        .join(_SLOT, _SLOT.c.lease_id == _LEASE.c.id)
        .where(_SLOT.c.device.is_not(None))
    )
    found = []
    with store.read() as connection:
        for where in (LIVE, (_LEASE.c.requested_at > since - LATE) & sa.text(f"NOT {schema.LIVE_SQL}")):
            for device, share, begin, end in connection.execute(asked.where(where)):
                if end is None or end > since:
                    found.append(Stretch(device, int(share), begin, end))
    return found
