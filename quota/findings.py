"""The words of the audit: a finding, what a check is, and the calendar it counts months by. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from quota.metering import month_name, month_window


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference. `subject` is the id of what it is about, `said` what a row has, `truth` what it should have."""

    check: str
    subject: str
    words: str
    said: int | None = None
    truth: int | None = None

    def __str__(self) -> str:
        return self.words


class Wrong(NamedTuple):
    """What a check yields: a finding without the check's name."""

    subject: str
    words: str
    said: int | None = None
    truth: int | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """The time zones by which months were counted, each since a moment; the first since ever."""

    zones: tuple[tuple[datetime, str], ...]

    def months(self, first: datetime, last: datetime) -> list[tuple[datetime, str]]:
        """Every month's end and name from the one of `first` to the one of `last`, each as the zone of then has it."""
        found: list[tuple[datetime, str]] = []
        for number, (since, zone) in enumerate(self.zones):
            until = self.zones[number + 1][0] if number + 1 < len(self.zones) else None
            at = max(since, first)
            while at <= last and (until is None or at < until):
                end = month_window(at, zone)[1]
                end = end if until is None else min(end, until)
                found.append((end, month_name(at, zone)))
                at = end
        return found


#: Yields what is wrong. The connection is a read transaction.
Check = Callable[[Any, Site], Iterable[Wrong]]
