"""Usage from segments: half-open, exact, and months in the site's own zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Price, Segment
from quota.metering import clip, elapsed, microseconds, month_name, month_window, usage
from quota.units import MicroCredits, MilliGpu

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
PRICE = Price(1, MicroCredits(1_000_000), MicroCredits(0))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def part(weight: int, start: float, end: float | None, number: int = 1) -> Segment:
    return Segment(number, MilliGpu(weight), PRICE, at(start), None if end is None else at(end))


def test_usage_is_weight_times_seconds() -> None:
    assert usage([part(500, 0, 50)], at(999)) == 25_000
    assert usage([part(500, 0, 10), part(1000, 10, None, 2)], at(20)) == 15_000
    assert usage([part(0, 0, 3600)], at(9999)) == 0


def test_x05_fractions_of_a_second_count() -> None:
    sessions = [part(1000, number * 100, number * 100 + 59.999999, number) for number in range(100)]
    assert usage(sessions, at(10**6)) == 6_000_000
    assert elapsed(sessions, at(10**6)) == 100 * 59_999_999


def test_clip_is_half_open() -> None:
    segments = [part(500, 0, 100), part(500, 100, None, 2)]
    assert clip(segments, at(100), at(100)) == ()
    assert [(one.started_at, one.ended_at) for one in clip(segments, at(50), at(150))] == [
        (at(50), at(100)),
        (at(100), at(150)),
    ]


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=12, unique=True), st.sampled_from([125, 333, 1000]))
def test_ranges_that_follow_each_other_sum_to_the_whole(cuts: list[int], weight: int) -> None:
    edges = [at(cut / 7) for cut in sorted(cuts)]
    segments = [part(weight, 1000.5, 90_000.25)]
    whole = elapsed(clip(segments, edges[0], edges[-1]), edges[-1])
    assert sum(elapsed(clip(segments, a, b), b) for a, b in pairwise(edges)) == whole


def test_microseconds_are_exact() -> None:
    assert microseconds(timedelta(days=365, microseconds=1)) == 365 * 86400 * 10**6 + 1
    with pytest.raises(ValueError, match="negative"):
        microseconds(timedelta(microseconds=-1))


@pytest.mark.parametrize(
    ("now", "zone", "start", "end"),
    [
        ("2026-03-31T23:59:59+00:00", "UTC", "2026-03-01T00:00:00+00:00", "2026-04-01T00:00:00+00:00"),
        ("2026-04-01T00:00:00+00:00", "UTC", "2026-04-01T00:00:00+00:00", "2026-05-01T00:00:00+00:00"),
        ("2026-03-31T20:00:00+00:00", "Asia/Shanghai", "2026-03-31T16:00:00+00:00", "2026-04-30T16:00:00+00:00"),
        # Clocks go forward inside this month: it is an hour short.
        ("2026-03-15T12:00:00+00:00", "Europe/Berlin", "2026-02-28T23:00:00+00:00", "2026-03-31T22:00:00+00:00"),
        ("2026-12-31T23:30:00+00:00", "Europe/Berlin", "2026-12-31T23:00:00+00:00", "2027-01-31T23:00:00+00:00"),
    ],
)
def test_a_month_is_the_sites_own(now: str, zone: str, start: str, end: str) -> None:
    moment = datetime.fromisoformat(now)
    assert month_window(moment, zone) == (datetime.fromisoformat(start), datetime.fromisoformat(end))


@given(st.integers(0, 90 * 365 * 86400), st.sampled_from(["UTC", "Asia/Shanghai", "Asia/Gaza"]))
def test_every_moment_lies_in_exactly_its_month(seconds: int, zone: str) -> None:
    moment = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    start, end = month_window(moment, zone)
    assert start <= moment < end
    assert month_name(moment, zone) == month_name(start, zone) != month_name(end, zone)


def test_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(ZoneInfoNotFoundError):
        month_window(START, "Mars/Olympus")
