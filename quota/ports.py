"""Seams of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from quota.jumps import Reading
from quota.leases import Device, LeaseRequest, Slot


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...


class SteadyClock(Clock, Protocol):
    """A clock that also knows how long the machine has run, so that a jump of its other hand is seen."""

    def reading(self) -> Reading:
        """Both hands at one moment."""
        ...


#: Chooses slots for a request among devices whose `used` is true at this moment; raises
#: `Refused(NO_ROOM | NO_DEVICES)`. Pure: `book.reserve` calls it inside its transaction.
Place = Callable[[Sequence[Device], LeaseRequest], tuple[Slot, ...]]
