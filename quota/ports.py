"""Seams of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from quota.leases import Device, LeaseRequest, Slot


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...


#: Chooses slots for a request among devices whose `used` is true at this moment; raises
#: `Refused(NO_ROOM | NO_DEVICES)`. Pure: `book.reserve` calls it inside its transaction.
Place = Callable[[Sequence[Device], LeaseRequest], tuple[Slot, ...]]
