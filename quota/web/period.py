"""Stretches of time that people and programs ask for: months of the site's calendar, RFC 3339 moments. Pure.

All stretches are half-open, [start, end), in UTC; the site's zone only says where a day or a month begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from quota.i18n import _

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")
_LOST_PLUS = re.compile(r" ([0-9]{2}:?[0-9]{2})$")  # "+02:00" in a query that was not escaped arrives as " 02:00"
FIRST_YEAR, LAST_YEAR = 2000, 2999


@dataclass(frozen=True, slots=True)
class Period:
    """[start, end) in UTC; `name` is "2026-03" for a calendar month, else ""."""

    start: datetime
    end: datetime
    name: str = ""


class _Unfit(ValueError):
    """A moment that can be read and not be taken."""


def parse_moment(text: str, zone: tzinfo) -> datetime:
    """An RFC 3339 moment, or a day (its midnight in the site's zone), in UTC. Raises `ValueError` with words."""
    shown = repr(text[:40])
    wrong = _("%(text)s is not a moment such as 2026-03-01T12:00:00Z, nor a day such as 2026-03-01", text=shown)
    try:
        moment = datetime.fromisoformat(_LOST_PLUS.sub(r"+\1", text).upper())  # RFC 3339 allows "t" and "z"
        if _DAY.fullmatch(text):
            moment = moment.replace(tzinfo=zone)
        if moment.tzinfo is None:
            raise _Unfit(_("%(text)s does not say its time zone; end it with Z or an offset", text=shown))
        if not FIRST_YEAR <= moment.year <= LAST_YEAR:
            raise _Unfit(
                _("%(text)s is not in the years %(first)s to %(last)s", text=shown, first=FIRST_YEAR, last=LAST_YEAR)
            )
        return moment.astimezone(UTC)
    except _Unfit:
        raise
    except (ValueError, OverflowError):
        raise ValueError(wrong) from None


def month(year: int, number: int, zone: tzinfo) -> Period:
    """One calendar month of the site's zone."""
    following = (year + 1, 1) if number == 12 else (year, number + 1)
    start = datetime(year, number, 1, tzinfo=zone).astimezone(UTC)
    end = datetime(*following, 1, tzinfo=zone).astimezone(UTC)
    return Period(start, end, f"{year:04d}-{number:02d}")


def month_of(moment: datetime, zone: tzinfo) -> Period:
    """The calendar month that a moment falls in."""
    local = moment.astimezone(zone)
    return month(local.year, local.month, zone)


def parse_month(text: str, zone: tzinfo) -> Period:
    """A month such as "2026-03". Raises `ValueError` with words."""
    match = _MONTH.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 12 or not FIRST_YEAR <= int(match[1]) <= LAST_YEAR:
        raise ValueError(_("%(text)s is not a month such as 2026-03", text=repr(text[:40])))
    return month(int(match[1]), int(match[2]), zone)


def months(first: datetime, last: datetime, zone: tzinfo, at_most: int = 36) -> tuple[str, ...]:
    """Names of the months from `first` to `last`, newest first; the oldest are left out beyond `at_most`."""
    oldest, newest = month_of(first, zone).name, month_of(last, zone)
    names = [newest.name]
    year, number = int(newest.name[:4]), int(newest.name[5:])
    while names[-1] > oldest and len(names) < at_most:
        year, number = (year - 1, 12) if number == 1 else (year, number - 1)
        names.append(f"{year:04d}-{number:02d}")
    return tuple(names)
