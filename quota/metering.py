"""What was used, from the segments of a lease. Pure.

A segment is the half-open stretch [started_at, ended_at); an open one reaches to the `until` that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from zoneinfo import ZoneInfo

from quota.leases import Segment
from quota.units import MICROSECONDS, MilliGpuSeconds

_MICROSECOND = timedelta(microseconds=1)
_NOTHING = timedelta(0)


def microseconds(duration: timedelta) -> int:
    """The duration in whole microseconds, exactly. Raises `ValueError` when it is negative."""
    if duration < _NOTHING:
        raise ValueError(f"duration {duration} is negative")
    return duration // _MICROSECOND


def span(segment: Segment, until: datetime) -> timedelta:
    """How much of the segment lies before `until`; nothing when it starts later."""
    end = until if segment.ended_at is None else min(segment.ended_at, until)
    return max(end - segment.started_at, _NOTHING)


def usage(segments: Iterable[Segment], until: datetime) -> MilliGpuSeconds:
    """Milli-GPU-seconds used up to `until`, rounded once; CPU segments (weight 0) use none."""
    total = sum(part.weight * microseconds(span(part, until)) for part in segments)
    return MilliGpuSeconds(round(Fraction(total, MICROSECONDS)))


def elapsed(segments: Iterable[Segment], until: datetime) -> int:
    """Microseconds of wall time inside the segments up to `until`, whatever their weight."""
    return sum(microseconds(span(part, until)) for part in segments)


def clip(segments: Iterable[Segment], start: datetime, end: datetime) -> tuple[Segment, ...]:
    """The parts of the segments inside the half-open [start, end). Open segments come out closed at `end`;
    parts of no length are left out."""
    parts = []
    for part in segments:
        begin = max(part.started_at, start)
        finish = end if part.ended_at is None else min(part.ended_at, end)
        if begin < finish:
            parts.append(replace(part, started_at=begin, ended_at=finish))
    return tuple(parts)


def month_window(now: datetime, zone: str) -> tuple[datetime, datetime]:
    """The calendar month that holds `now` in the site's time zone, as half-open UTC moments [start, end).

    `zone` is a name of the tz database ("Asia/Shanghai"); raises `zoneinfo.ZoneInfoNotFoundError` for another.
    """
    local = now.astimezone(_zone(zone))
    first = datetime(local.year, local.month, 1, tzinfo=_zone(zone))
    following = datetime(local.year + local.month // 12, local.month % 12 + 1, 1, tzinfo=_zone(zone))
    return first.astimezone(UTC), following.astimezone(UTC)


def month_name(now: datetime, zone: str) -> str:
    """The month that holds `now` in the site's zone, as "2026-03"."""
    local = now.astimezone(_zone(zone))
    return f"{local.year:04d}-{local.month:02d}"


@lru_cache(maxsize=32)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
