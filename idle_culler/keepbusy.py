"""[P] A device that looks busy and does nothing: the pattern of tools that only keep a server from being stopped.

Such a tool launches an empty kernel again and again: utilisation stays the same for hours, the device's memory is
neither read nor written, and no cell runs. Honest work has at least one of the three. The pattern proves nothing, so
administrators are told that it is suspected and nobody is stopped for it. What cannot be read does not make a pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

#: A utilisation that stays within so many points is the same.
SPREAD = 5
#: The pattern is told after it was seen for so long without a gap.
LONG = timedelta(hours=3)
#: Looks further apart than this leave a gap.
GAP = timedelta(seconds=240)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A stretch of constant use, up to the look at `at`: utilisation from `low` to `high` percent."""

    since: datetime
    at: datetime
    low: int
    high: int

    def to_json(self) -> dict[str, object]:
        return {"since": self.since.isoformat(), "at": self.at.isoformat(), "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw of a lease: percent of utilisation and of memory traffic, None where that is not known, and
    when a kernel last ran code; `ran` None where nobody can tell."""

    util: int | None
    traffic: int | None
    ran: datetime | None


def follow(before: Pattern | None, look: Look, now: datetime) -> Pattern | None:
    """The pattern after another look; None where there is none, or not any more."""
    if not look.util or look.traffic != 0 or look.ran is None:
        return None
    fresh = Pattern(now, now, look.util, look.util)
    if before is None or not timedelta(0) <= now - before.at <= GAP or look.ran > before.since:
        return fresh if look.ran < now else None
    low, high = min(before.low, look.util), max(before.high, look.util)
    return fresh if high - low > SPREAD else Pattern(before.since, now, low, high)


def suspected(pattern: Pattern | None, now: datetime) -> bool:
    """Whether it has lasted long enough to tell administrators."""
    return pattern is not None and now - pattern.since >= LONG
