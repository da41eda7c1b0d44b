"""One look at the book for a page or an answer: devices, verdicts, samples and segments around some leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from quota.leases import Device, Lease, Segment
from quota.rows import Sample, Verdict
from quota.web.figures import segments_of
from quota.web.parts import ServiceParts

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

    def segments(self, lease: Lease) -> Sequence[Segment]:
        return self.parts.get(lease.id, ())

    def verdict(self, lease: Lease) -> Verdict | None:
        return self.verdicts.get(lease.id)


def snapshot(parts: ServiceParts, leases: Iterable[Lease], *, use: bool = False) -> Snapshot:
    """Look at the book for these leases; with `use` also at what the servers do. Blocks."""
    rows = parts.rows
    return Snapshot(
        now=parts.clock.now(),
        devices={device.uuid: device for device in rows.devices()},
        parts={lease.id: segments_of(lease) for lease in leases},
        verdicts=rows.verdicts(),
        samples=rows.samples() if use else {},
        signals=rows.all_signals() if use else {},
    )
