"""The agent's clock: the present, and every jump of it made good in the book before anything else is done.

Agent, hub and services of one host share its wall clock, so one of them is enough to see a jump. It is the agent, since
only it meters. What it remembers is in the book too: a jump while no agent ran is seen by the next.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from quota.alerts import Alerts
from quota.jumping import JUMPED, ClockLook, Jumps, Made
from quota.jumps import SLACK, Jump, Reading, carried, measure
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
        self._last: ClockLook | None = None
        self._remembered: timedelta | None = None
        self._told: timedelta | None = None  # how long the machine had run when the alert was raised
        self._jump: Jump | None = None  # the last one that this process has made good
        self._good: datetime | None = None  # when the runtime was last seen, by the clock of then
        self._ends: dict[str, datetime | None] = {}  # ends recorded by a clock of before; None: nobody can tell when

    def look(self) -> tuple[datetime, bool]:
        """The present, and whether the clock has jumped since the last look. Raises what the book raises; then
        nothing was made good, and the next look sees the same jump."""
        mark, reading = self._jumps.mark(), self._clock.reading()
        before = self._last or self._jumps.last(self._host)
        made = None
        if before is not None and measure(before.reading, reading) is not None:
            made = self._jumps.make_good(self._host, before)
        if made is not None:
            self._last, self._jump = made.look, made.jump
            reading, self._remembered = made.look.reading, made.look.reading.run
            self._tell(made)
        elif before is None or before.reading.boot != reading.boot or reading.run < before.reading.run:
            self._last = ClockLook(reading, mark)
        else:
            self._last = ClockLook(carried(before.reading, reading), mark, before.unseen)
        if self._remembered is None or reading.run - self._remembered >= REMEMBER_EVERY:
            self._jumps.remember(self._host, self._last)
            self._remembered = reading.run
            self._tell_no_longer(reading)
        return reading.wall, made is not None

    def by_new_clock(self, look: Look) -> Look:
        """A look in which ends that were recorded before a jump are told by the new clock; an end of which that cannot
        be told has no time, and then the last observation counts."""
        if isinstance(look, Unreachable) or self._last is None:
            return look
        now = self._clock.now()
        if self._last.unseen:
            self._ends |= {seen.lease_id: self._end(seen, now) for seen in look.values() if seen.ended_at is not None}
            self._last = replace(self._last, unseen=0)
            self._jumps.remember(self._host, self._last)
        self._good = now
        ahead = {
            seen.lease_id: None for seen in look.values() if seen.ended_at is not None and seen.ended_at > now + SLACK
        }
        self._ends = {lease_id: end for lease_id, end in {**ahead, **self._ends}.items() if lease_id in look}
        moved = {lease_id: replace(look[lease_id], ended_at=end) for lease_id, end in self._ends.items()}
        return {**look, **moved} if moved else look

    def _end(self, seen: Seen, now: datetime) -> datetime | None:
        """When a server ended whose record may be of the clock before the jump; where both may be, the earlier."""
        jump, end = self._jump, seen.ended_at
        if jump is None or end is None or self._last is None or self._last.unseen > 1:
            return None  # by which clock of several nobody knows, or only the agent before this one did
        new = jump.now - jump.blind <= end <= now + SLACK
        old = end <= jump.before and (self._good is None or end >= self._good - SLACK)
        found = [moment for moment, may in ((end, new), (end + jump.by, old)) if may]
        return min(found, default=None)

    def _tell(self, made: Made) -> None:
        words = jump_words(self._host, made.jump, made.running)
        log.warning("%s", words, extra={"event": JUMPED})
        if self._alerts is not None and abs(made.jump.by) >= TELL_FROM:
            self._alerts.put(self._alert, "clock", words, {"seconds": made.jump.by / timedelta(seconds=1)})
            self._told = made.look.reading.run

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


def jump_words(host: str, jump: Jump, running: int) -> str:
    """One sentence for an administrator."""
    seconds = round(abs(jump.by) / timedelta(seconds=1))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    size = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
    what = "was set back by" if jump.by < timedelta(0) else "was set forward, or the machine slept, by"
    servers = f"{running} running server{'' if running == 1 else 's'}"
    return f"The clock of {host} {what} {size}; {servers} kept the time that really ran as the time to pay"
