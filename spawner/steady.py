"""The agent's clock: the present, and every jump of it made good in the book before anything else is done.

Agent, hub and services of one host share its wall clock, so one of them is enough to see a jump. It is the agent, since
only it meters. What it remembers is in the book too: a jump while no agent ran is seen by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from quota.alerts import Alerts
from quota.jumping import JUMPED, Jumps, Made
from quota.jumps import Jump, Reading, carried, measure
from quota.ports import SteadyClock
from spawner.ports import Look, Seen, Unreachable

log = logging.getLogger("berth.agent")

#: How long the machine runs between two readings that are put into the book.
REMEMBER_EVERY = timedelta(seconds=5)
#: A jump from this size on is shown to administrators, for so long.
TELL_FROM = timedelta(minutes=1)
TELL_FOR = timedelta(days=1)


class SteadyHand:
    """Looks at the clock once each cycle. `alerts` may be None: then jumps are told by log and history alone."""

    def __init__(self, clock: SteadyClock, jumps: Jumps, host: str, alerts: Alerts | None = None) -> None:
        self._clock = clock
        self._jumps = jumps
        self._host = host
        self._alerts = alerts
        self._last: Reading | None = None
        self._remembered: timedelta | None = None
        self._told: timedelta | None = None  # how long the machine had run when the alert was raised
        self._pending: Jump | None = None
        self._ends: dict[str, datetime] = {}  # ends that were recorded by the old clock, by the new one

    def look(self) -> tuple[datetime, bool]:
        """The present, and whether the clock has jumped since the last look. Raises what the book raises; then
        nothing was made good, and the next look sees the same jump."""
        reading = self._clock.reading()
        before = self._last or self._jumps.last(self._host)
        made = None
        if before is not None and measure(before, reading) is not None:
            made = self._jumps.make_good(self._host, before)
        if made is not None:
            reading = self._last = made.reading
            self._pending, self._remembered = made.jump, reading.run
            self._tell(made)
        elif before is None or before.boot != reading.boot or reading.run < before.run:
            self._last = reading
        else:
            self._last = carried(before, reading)
        if self._remembered is None or reading.run - self._remembered >= REMEMBER_EVERY:
            self._jumps.remember(self._host, self._last)
            self._remembered = reading.run
            self._tell_no_longer(reading)
        return reading.wall, made is not None

    def by_new_clock(self, look: Look) -> Look:
        """A look in which ends that were recorded before the jump are told by the new clock."""
        if isinstance(look, Unreachable):
            return look
        if self._pending is not None:
            self._ends = _old_ends(look, self._pending)
            self._pending = None
        self._ends = {lease_id: end for lease_id, end in self._ends.items() if lease_id in look}
        moved = {lease_id: replace(look[lease_id], ended_at=end) for lease_id, end in self._ends.items()}
        return {**look, **moved} if moved else look

    def _tell(self, made: Made) -> None:
        words = jump_words(self._host, made.jump, made.running)
        log.warning("%s", words, extra={"event": JUMPED})
        if self._alerts is not None and abs(made.jump.by) >= TELL_FROM:
            self._alerts.put(self._alert, "clock", words, {"seconds": made.jump.by / timedelta(seconds=1)})
            self._told = made.reading.run

    def _tell_no_longer(self, reading: Reading) -> None:
        if self._alerts is None:
            return
        if self._told is None:  # the first time: an agent before this one may have raised it
            self._told = reading.run if any(alert.key == self._alert for alert in self._alerts.open()) else _NEVER
        elif self._told is not _NEVER and reading.run - self._told >= TELL_FOR:
            self._alerts.clear(self._alert)
            self._told = _NEVER

    @property
    def _alert(self) -> str:
        return f"clock:{self._host}"


_NEVER = timedelta.max


def _old_ends(look: Mapping[str, Seen], jump: Jump) -> dict[str, datetime]:
    return {
        seen.lease_id: seen.ended_at + jump.by
        for seen in look.values()
        if not seen.running and seen.ended_at is not None and jump.old(seen.ended_at)
    }


def jump_words(host: str, jump: Jump, running: int) -> str:
    """One sentence for an administrator."""
    seconds = round(abs(jump.by) / timedelta(seconds=1))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    size = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
    what = "was set back by" if jump.by < timedelta(0) else "was set forward, or the machine slept, by"
    servers = f"{running} running server{'' if running == 1 else 's'}"
    return f"The clock of {host} {what} {size}; {servers} kept the time that really ran as the time to pay"
