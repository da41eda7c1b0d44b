"""A clock that moves only when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from quota.jumps import Reading

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class FakeClock:
    """`quota.ports.SteadyClock` in a test's hand: `advance` moves both hands, `jump` the wall clock alone."""

    def __init__(self, start: datetime = START, boot: str = "one-boot") -> None:
        self._now = start
        self._run = timedelta(hours=1)
        self.boot = boot

    def now(self) -> datetime:
        return self._now

    def reading(self) -> Reading:
        return Reading(self._now, self._run, self.boot)

    @property
    def run(self) -> timedelta:
        """How long the machine has run."""
        return self._run

    def advance(self, seconds: float) -> datetime:
        """Move on (never back) and return the new present."""
        if seconds < 0:
            raise ValueError("a clock does not run backwards")
        self._now += timedelta(seconds=seconds)
        self._run += timedelta(seconds=seconds)
        return self._now

    def set(self, moment: datetime) -> datetime:
        """Move on to a moment; one that is past changes nothing."""
        ahead = max(moment - self._now, timedelta(0))
        self._now, self._run = self._now + ahead, self._run + ahead
        return self._now

    def jump(self, seconds: float) -> datetime:
        """The wall clock is set forward or back; or, forward, the machine was suspended so long. Nothing runs on."""
        self._now += timedelta(seconds=seconds)
        return self._now
