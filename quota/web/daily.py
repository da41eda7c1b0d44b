"""What each day of a month cost, by profile. Pure. Days that have not begun are left out: they are not zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from itertools import pairwise

from quota.leases import Segment
from quota.pricing import charge_due
from quota.web.period import Period


@dataclass(frozen=True, slots=True)
class Daily:
    """`days` in order ("2026-03-01"); for each profile micro-credits, as many as there are days."""

    days: tuple[str, ...]
    profiles: Mapping[str, tuple[int, ...]]

    @property
    def totals(self) -> tuple[int, ...]:
        """Of all profiles, day by day."""
        return tuple(sum(amounts) for amounts in zip(*self.profiles.values(), strict=True))


def daily(sessions: Iterable[tuple[str, Sequence[Segment]]], period: Period, now: datetime, zone: tzinfo) -> Daily:
    """`sessions` are profiles with what ran. Differences of cumulative charges, so that the days sum to the month as
    metered; refunds are no use of a day and do not appear."""
    edges = list(_edges(period, now, zone))
    found: dict[str, list[int]] = {}
    for profile, segments in sessions:
        if not segments:
            continue
        amounts = found.setdefault(profile, [0] * (len(edges) - 1))
        first, last = segments[0].started_at, segments[-1].ended_at or now
        for index, (begin, end) in enumerate(pairwise(edges)):
            if begin < last and first < end:
                amounts[index] += charge_due(segments, end) - charge_due(segments, begin)
    days = tuple(f"{edge.astimezone(zone):%Y-%m-%d}" for edge in edges[:-1])
    return Daily(days, {name: tuple(found[name]) for name in sorted(found) if any(found[name])})


def _edges(period: Period, now: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Midnights of the zone (a day may have 23 or 25 hours), then the end of the month or now."""
    end, edge = min(period.end, now), period.start
    while edge < end:
        yield edge
        following = edge.astimezone(zone).date() + timedelta(days=1)
        edge = datetime.combine(following, time(), zone).astimezone(period.start.tzinfo)
    yield end


def day_ends(period: Period, now: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    """The end of each day of the period that has begun; of the one under way, now."""
    return tuple(_edges(period, now, zone))[1:]


def balances(now_there: int, changes: Iterable[tuple[datetime, int]], ends: Sequence[datetime]) -> tuple[int, ...]:
    """What was there at each of `ends`, counted back from what is there now."""
    after = list(changes)
    return tuple(now_there - sum(amount for at, amount in after if at >= end) for end in ends)
