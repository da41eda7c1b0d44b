"""One look at the book for a page or an answer: devices, verdicts, samples and segments around some leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any

from quota.leases import Device, Lease, Segment
from quota.rows import Sample, Verdict
from quota.web.figures import segments_of
from quota.web.parts import ServiceParts
from quota.wish import NO_WISH, Wish

#: Up to so many leases are asked for by id; of more, all that are live.
SOME = 500

Signals = Mapping[str, tuple[datetime, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What pages say about leases besides the leases themselves. Keys are UUIDs and lease ids."""

    now: datetime
    devices: Mapping[str, Device]
    parts: Mapping[str, Sequence[Segment]]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    samples: Mapping[str, Sample] = field(default_factory=dict)
    signals: Mapping[str, Signals] = field(default_factory=dict)
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    zone: tzinfo = UTC

    def segments(self, lease: Lease) -> Sequence[Segment]:
        return self.parts.get(lease.id, ())

    def verdict(self, lease: Lease) -> Verdict | None:
        return self.verdicts.get(lease.id)

    def wish(self, lease: Lease) -> Wish:
        return self.wishes.get(lease.id, NO_WISH)


def snapshot(parts: ServiceParts, leases: Iterable[Lease], *, use: bool = False) -> Snapshot:
    """Look at the book for these leases; with `use` also at what the servers do. Blocks."""
    rows, wanted = parts.rows, list(leases)
    segments = parts.book.segments([lease.id for lease in wanted])
    some = [lease.id for lease in wanted] if len(wanted) <= SOME else None
    return Snapshot(
        now=parts.clock.now(),
        devices={device.uuid: device for device in rows.devices()},
        parts={lease.id: segments_of(lease, segments[lease.id]) for lease in wanted},
        verdicts=rows.verdicts(some),
        samples=rows.samples(some) if use else {},
        signals=rows.all_signals(some) if use else {},
        wishes=parts.wishes.of([lease.id for lease in wanted if lease.live]),
        zone=parts.tz,
    )
