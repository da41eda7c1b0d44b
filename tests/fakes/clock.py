"""A clock that moves only when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class FakeClock:
    """`quota.ports.Clock` in a test's hand."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Move on (never back) and return the new present."""
        if seconds < 0:
            raise ValueError("a clock does not run backwards")
        self._now += timedelta(seconds=seconds)
        return self._now

    def set(self, moment: datetime) -> datetime:
        """Move on to a moment; one that is past changes nothing."""
        self._now = max(self._now, moment)
        return self._now
