"""Seams of the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from quota.jumps import Reading
from quota.leases import Device, LeaseRequest, Slot
from quota.notices import Notice


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...


class SteadyClock(Clock, Protocol):
    """A clock that also knows how long the machine has run, so that a jump of its other hand is seen."""

    def reading(self) -> Reading:
        """Both hands at one moment."""
        ...


class Notifier(Protocol):
    """Tells people what happened or is about to happen to their servers."""

    def deliver(self, notice: Notice) -> None:
        """Take charge of a notice. Returns at once and never raises: no decision waits for its telling."""
        ...

    def counts(self) -> Mapping[str, int]:
        """What became of notices, in words of `quota.vitals`; empty where nobody delivers any."""
        ...


class Nobody:
    """The notifier of a site that has none: people read it on their pages."""

    def deliver(self, notice: Notice) -> None:
        pass

    def counts(self) -> Mapping[str, int]:
        return {}


#: Chooses slots for a request among devices whose `used` is true at this moment; raises
#: `Refused(NO_ROOM | NO_DEVICES)`. Pure: `book.reserve` calls it inside its transaction.
Place = Callable[[Sequence[Device], LeaseRequest], tuple[Slot, ...]]
