"""How often one caller may come: a token bucket each, on the service's clock. Pure but for the memory it keeps."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime

#: The kit reports every ten seconds and a second after a change; twice that, and a burst for many changes at once.
RATE_PER_SECOND = 2.0
BURST = 30
#: Callers that are remembered; the one that was heard longest ago goes first.
MOST_CALLERS = 10_000


@dataclass
class Throttle:
    """Each caller has `burst` tokens at first and gains `rate` of them a second, up to `burst`. For one thread."""

    rate: float = RATE_PER_SECOND
    burst: int = BURST
    most: int = MOST_CALLERS
    _left: OrderedDict[Hashable, tuple[float, datetime]] = field(default_factory=OrderedDict)

    def take(self, caller: Hashable, now: datetime) -> int:
        """Use a token. 0 where there was one, else the whole seconds until there is.

        A clock that goes back gives nothing and takes nothing.
        """
        left, before = self._left.pop(caller, (float(self.burst), now))
        left = min(float(self.burst), left + max(0.0, (now - before).total_seconds()) * self.rate)
        allowed = left >= 1
        left -= allowed
        self._left[caller] = (left, now)
        while len(self._left) > self.most:
            self._left.popitem(last=False)
        return 0 if allowed else max(1, math.ceil((1 - left) / self.rate))
