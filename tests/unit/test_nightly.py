"""When a night's audit is due: by the site's clock, once each night, also where the clock leaves hours out."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.nightly import alert_words, is_due, latest_night, moment_of

NEW_YORK = "America/New_York"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("night", "at", "zone", "moment"),
    [
        ("2026-03-07", time(3, 30), NEW_YORK, "2026-03-07T08:30"),
        ("2026-03-08", time(3, 30), NEW_YORK, "2026-03-08T07:30"),
        ("2026-03-08", time(2, 30), NEW_YORK, "2026-03-08T07:30"),  # there is no 02:30 that night
        ("2026-11-01", time(1, 30), NEW_YORK, "2026-11-01T05:30"),  # of two the first
        ("2018-11-04", time(0, 0), "America/Sao_Paulo", "2018-11-04T03:00"),  # there is no midnight
        ("2026-10-04", time(2, 15), "Australia/Lord_Howe", "2026-10-03T15:45"),  # half an hour is left out
    ],
)
def test_b07_a_night_has_one_moment(night: str, at: time, zone: str, moment: str) -> None:
    assert moment_of(date.fromisoformat(night), at, zone) == utc(moment)


@given(
    start=st.integers(0, 20 * 365 * 24).map(lambda hours: datetime(2010, 1, 1, tzinfo=UTC) + timedelta(hours=hours)),
    minutes=st.lists(st.integers(1, 300), min_size=20, max_size=60),
    zone=st.sampled_from(["UTC", NEW_YORK, "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Kiritimati"]),
    at=st.times().map(lambda moment: moment.replace(second=0, microsecond=0)),
)
def test_every_night_is_audited_once(start: datetime, minutes: list[int], zone: str, at: time) -> None:
    done: date | None = None
    audited: list[date] = []
    now = start
    for minute in minutes:
        now += timedelta(minutes=minute)
        assert moment_of(latest_night(now, at, zone), at, zone) <= now
        if is_due(now, done, at, zone):
            done = latest_night(now, at, zone)
            audited.append(done)
    assert len(set(audited)) == len(audited)
    assert all(after - before == timedelta(days=1) for before, after in pairwise(audited))


def test_a_night_that_nobody_was_up_for_is_caught_up_once() -> None:
    now, at = utc("2026-05-10T12:00"), time(3, 30)
    assert is_due(now, date(2026, 5, 7), at, "UTC")
    assert not is_due(now, date(2026, 5, 10), at, "UTC")
    assert is_due(now, None, at, "UTC")


def test_a_clock_set_back_repeats_no_night_and_one_far_ahead_ends_none() -> None:
    at = time(3, 30)
    assert not is_due(utc("2026-05-10T02:00"), date(2026, 5, 10), at, "UTC"), "back by two hours"
    assert is_due(utc("2026-05-10T04:00"), date(2036, 5, 10), at, "UTC"), "noted while the clock was years ahead"


def test_a_day_that_a_zone_skipped_is_no_trap() -> None:
    """Samoa had no 30 December 2011."""
    assert latest_night(utc("2011-12-30T11:00"), time(3, 30), "Pacific/Apia") == date(2011, 12, 29)
    assert latest_night(utc("2011-12-30T14:00"), time(3, 30), "Pacific/Apia") == date(2011, 12, 31)


def test_the_words_name_the_first_difference_and_count_the_rest() -> None:
    assert alert_words(["a is 1, not 2"]) == (
        "The audit of the book found a difference: a is 1, not 2. Run: berth audit --all"
    )
    assert ", and 2 more. " in alert_words(["a", "b", "c"])
