"""The way out of a server as the processes go it: the intent into the book with its time to save, and the wait for it.

The rules are in `quota.leaving`; here they meet what the book knows of a server's kit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from quota.book import TooLate
from quota.errors import NotFound
from quota.leases import Lease, State, StopReason, Target
from quota.leaving import NO_GRACE, Graces, hastened, may_take_back, stop_after, wait_until
from quota.ports import Clock
from quota.reported import Farewell


class LeavingBook(Protocol):
    """The leases (`quota.book.Book`)."""

    def lease(self, lease_id: str) -> Lease: ...

    def request_stop(
        self, lease_id: str, reason: StopReason, *, detail: str = "", by: str = "", stop_after: datetime | None = None
    ) -> Lease: ...

    def cancel_stop(self, lease_id: str, by: str) -> Lease: ...


class LeavingRows(Protocol):
    """What kits reported (`quota.rows.Rows`)."""

    def signals(self, lease_id: str) -> Mapping[str, tuple[datetime, Mapping[str, Any]]]: ...


class LeavingFarewells(Protocol):
    """What they saved (`quota.farewells.Farewells`)."""

    def of_some(self, lease_ids: Sequence[str]) -> Mapping[str, Farewell]: ...


class WayOut:
    """All calls block."""

    def __init__(
        self,
        book: LeavingBook,
        rows: LeavingRows,
        farewells: LeavingFarewells,
        clock: Clock,
        graces: Graces = NO_GRACE,
    ) -> None:
        self.graces = graces
        self._book, self._rows, self._farewells, self._clock = book, rows, farewells, clock

    def request(
        self, lease_id: str, reason: StopReason, *, detail: str = "", by: str = "", at_once: bool = False
    ) -> Lease:
        """Write the intent to stop, with the time that its kit has to save (none where `at_once`). As with
        `Book.request_stop` the first reason stays, and the earlier moment."""
        heard = None if at_once else self._rows.signals(lease_id).get("kit")
        after = stop_after(reason, heard, self._clock.now(), self.graces)
        return self._book.request_stop(lease_id, reason, detail=detail, by=by, stop_after=after)

    def wait_until(self, lease_id: str) -> datetime | None:
        """Until when this server is left to save at most; None where it may be ended now."""
        try:
            lease = self._book.lease(lease_id)
        except NotFound:
            return None
        return wait_until(lease, self._farewells.of_some([lease_id]).get(lease_id), self._clock.now())

    def hastened(self, leases: Sequence[Lease]) -> list[Lease]:
        """The leases; those whose kit is done are due since then."""
        ids = [each.id for each in leases if each.state is State.RUNNING and each.target is Target.STOP]
        return hastened(leases, self._farewells.of_some(ids)) if ids else list(leases)

    def take_back(self, lease_id: str, by: str) -> Lease:
        """Its user works on: it is to run again. Raises `NotFound`, `TooLate` where it is, or was never theirs to."""
        lease = self._book.lease(lease_id)
        if lease.target is Target.RUN:
            return lease
        if not may_take_back(lease, self._farewells.of_some([lease_id]).get(lease_id), self._clock.now()):
            raise TooLate(f"the stop of lease {lease_id} ({lease.stop_reason}) is not taken back any more")
        return self._book.cancel_stop(lease_id, by)
