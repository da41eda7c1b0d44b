"""The one place that reads the clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from quota.jumps import Reading

#: Two looks at two hands are one reading where they lie closer together than this; else they are taken again.
_AT_ONCE_NS = 1_000_000
_TRIES = 20


class SystemClock:
    """The machine's clock, in UTC, and the time that the machine has really run."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def reading(self) -> Reading:
        """Both hands at one moment. CLOCK_MONOTONIC stands still while the machine is suspended and no step of the
        clock moves it (clock_gettime(2)); it is the same for all processes of one boot."""
        best = None
        for _ in range(_TRIES):
            before = time.monotonic_ns()
            wall = self.now()
            took = time.monotonic_ns() - before
            if best is None or took < best[0]:
                best = (took, wall, before)
            if took < _AT_ONCE_NS:
                break
        assert best is not None
        return Reading(best[1], timedelta(microseconds=best[2] // 1000), self.boot)

    @cached_property
    def boot(self) -> str:
        """The kernel's random id of this boot; "" on a system that has none."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""
