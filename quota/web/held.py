"""How much of the devices was held on each of the last days. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from itertools import pairwise

from quota.leases import Device
from quota.units import WHOLE_GPU

HOUR = timedelta(hours=1)
#: With more devices than this they are told by model.
MOST = 6


@dataclass(frozen=True, slots=True)
class Held:
    """`days` in order ("2026-03-01"); GPU-hours that were held, by device or model; `possible` ones of all."""

    days: tuple[str, ...]
    parts: Mapping[str, tuple[float, ...]]
    possible: tuple[float, ...]

    @property
    def rows(self) -> tuple[tuple[str, float, float], ...]:
        """Day by day: held and possible."""
        sums = [sum(found) for found in zip(*self.parts.values(), strict=True)] or [0.0] * len(self.days)
        return tuple(zip(self.days, sums, self.possible, strict=True))


#: Device, milli-GPU, from, to (None: still).
Stretch = tuple[str, int, datetime, datetime | None]


def held(
    devices: Sequence[Device], stretches: Iterable[Stretch], edges: Sequence[datetime], names: Sequence[str]
) -> Held:
    """`edges` are the beginnings of the days and the end of the last; `names` what the days are called."""
    key = {device.uuid: f"GPU {device.position}" if len(devices) <= MOST else device.name for device in devices}
    found = {name: [timedelta()] * len(names) for name in sorted(set(key.values()))}
    for device, share, begin, end in stretches:
        if device not in key:
            continue
        for index, (first, last) in enumerate(pairwise(edges)):
            common = min(end or last, last) - max(begin, first)
            if common > timedelta():
                found[key[device]][index] += common * share / WHOLE_GPU
    return Held(
        tuple(names),
        {name: tuple(part / HOUR for part in parts) for name, parts in found.items() if any(parts)},
        tuple(len(devices) * (last - first) / HOUR for first, last in pairwise(edges)),
    )


def last_days(now: datetime, zone: tzinfo, count: int = 7) -> tuple[tuple[datetime, ...], tuple[str, ...]]:
    """Edges and names of the last days of the zone; the last of them is under way and ends now."""
    today = now.astimezone(zone).date()
    days = [today - timedelta(days=count - 1 - index) for index in range(count)]
    edges = [datetime.combine(day, time(), zone).astimezone(now.tzinfo) for day in days]
    return (*edges, now), tuple(f"{day:%Y-%m-%d}" for day in days)
