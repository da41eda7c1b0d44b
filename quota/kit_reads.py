"""What the streams to the kits in servers are told, read for all of them at once.

`look` is cheap and made every second: which leases were written, and what is told of them beside. `whole` reads leases
with their money, for those that were written and for each one now and then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from quota import schema, schema_stops
from quota.account_views import AccountView
from quota.bank import Bank
from quota.leases import Device, Lease, Segment
from quota.records import LIVE, read_devices, read_leases, read_segments
from quota.wish import Wish

#: A notice is written in a transaction that may end after that of a later one: so many are looked at again.
SLACK = 200
#: Notices of one look; who has more waiting reads them on the page.
MOST_NOTICES = 1000

_IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
_VERDICT, _SAMPLE, _WISH, _NOTICE = schema.verdict.c, schema.sample.c, schema_stops.wish.c, schema_stops.notice.c
_VERSIONS = sa.select(schema.lease.c.id, schema.lease.c.version).where(schema.lease.c.id.in_(_IDS))
_VERDICTS = sa.select(_VERDICT.lease_id, _VERDICT.kind, _VERDICT.rule, _VERDICT.words, _VERDICT.deadline).where(
    _VERDICT.lease_id.in_(_IDS)
)
_SAMPLES = sa.select(_SAMPLE.lease_id, _SAMPLE.gpu_util, _SAMPLE.gpu_memory_mib).where(_SAMPLE.lease_id.in_(_IDS))
_WISHES = sa.select(_WISH.lease_id, _WISH.keep_until, _WISH.shutdown_at, _WISH.when_done).where(
    _WISH.lease_id.in_(_IDS)
)
_NOTICES = (
    sa.select(schema_stops.notice)
    .where(_NOTICE.lease_id.in_(_IDS), _NOTICE.id > sa.bindparam("after"))
    .where(_NOTICE.expires_at.is_(None) | (_NOTICE.expires_at > sa.bindparam("now", type_=schema.UtcMicros)))
    .order_by(_NOTICE.id.desc())
    .limit(MOST_NOTICES)
)


@dataclass(frozen=True, slots=True)
class Said:
    """The last verdict of the idle rules, as far as a kit is told."""

    kind: str
    rule: str
    words: str
    deadline: datetime | None


@dataclass(frozen=True, slots=True)
class Use:
    """Of the GPU, by this lease: percent and MiB, None where nobody knows."""

    util: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A notice of the book, for the user whose server it is about."""

    id: int
    user: str
    kind: str
    lease_id: str
    at: datetime
    expires_at: datetime | None
    words: str
    link: str


@dataclass(frozen=True, slots=True)
class Look:
    """By lease id; `notices` oldest first."""

    versions: Mapping[str, int]
    verdicts: Mapping[str, Said]
    uses: Mapping[str, Use]
    wishes: Mapping[str, Wish]
    notices: Sequence[Told]


@dataclass(frozen=True, slots=True)
class Whole:
    """Leases by id, with all that pay for the same accounts; `payers` by account name, `devices` by UUID."""

    leases: Mapping[str, Lease] = field(default_factory=dict)
    segments: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    payers: Mapping[str, AccountView] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)


class KitReads:
    """Each call is one look at the book; `whole` also writes a month's grant where one is due, as every look at an
    account does."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    def look(self, ids: Sequence[str], after_notice: int) -> Look:
        """What may have changed for these leases; notices newer than that one, and a few older ones again."""
        mine = {"ids": list(ids)}
        with self._bank.store.read() as connection:
            versions = {row.id: row.version for row in connection.execute(_VERSIONS, mine)}
            verdicts = {row[0]: Said(*row[1:]) for row in connection.execute(_VERDICTS, mine)}
            uses = {row[0]: Use(*row[1:]) for row in connection.execute(_SAMPLES, mine)}
            wishes = {row[0]: Wish(row[1], row[2], bool(row[3])) for row in connection.execute(_WISHES, mine)}
            since = {"after": max(0, after_notice - SLACK), "now": self._bank.clock.now()}
            found = [_told(row) for row in connection.execute(_NOTICES, mine | since).mappings()]
        return Look(versions, verdicts, uses, wishes, found[::-1])

    def whole(self, ids: Sequence[str]) -> Whole:
        """These leases and what else their accounts pay for, with what it takes to tell their cost."""
        lease = schema.lease.c
        payers = sa.select(lease.account_id).where(lease.id.in_(ids))
        with self._bank.store.read() as connection:
            paid = connection.scalars(sa.select(lease.id).where(LIVE, lease.account_id.in_(payers)))
            found = read_leases(connection, lease.id.in_({*ids, *paid}))
            segments = read_segments(connection, [each.id for each in found])
            devices = {device.uuid: device for device in read_devices(connection)}
        accounts = self._bank.views_of(sorted({each.account for each in found}))
        return Whole({each.id: each for each in found}, segments, accounts, devices)


def _told(row: Mapping[Any, Any]) -> Told:
    names = ("id", "user", "kind", "lease_id", "at", "expires_at", "words", "link")
    return Told(**{name: row[name] for name in names})
