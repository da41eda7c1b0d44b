"""Charges running leases at intervals, warns while credit runs out, and writes the intent to stop when it has."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from quota.book import Book
from quota.errors import Stale
from quota.leases import Lease, StopReason, Target
from quota.notices import credit_low, credit_stop
from quota.ports import Nobody, Notifier
from quota.rows import Rows
from quota.told import CREDIT_GONE, MONTH_GONE
from spawner.devices import is_due

log = logging.getLogger("berth.agent")

#: Per cent of what an account can pay for one lease at which its user is warned, each once.
WARN_AT = (80, 95)
WARNED = "credit-low"


class MeteringLoop:
    """Meters each lease every `every`; a lease that can no longer be paid gets target STOP with at least `grace` to
    save, so that it is over, `ending` after it was asked to end, when what is held is used up."""

    def __init__(
        self,
        book: Book,
        rows: Rows,
        every: timedelta,
        grace: timedelta,
        ending: timedelta = timedelta(0),
        notifier: Notifier | None = None,
    ) -> None:
        self._book = book
        self._rows = rows
        self._every = every
        self._grace = grace
        self._ending = ending
        self._notifier = notifier or Nobody()
        self._done: dict[str, datetime] = {}
        self._warned: dict[str, int] = {}

    def run(self, running: Iterable[Lease], now: datetime) -> None:
        """Meter those of the leases that are due. They were seen running at `now`. One lease's trouble is logged."""
        leases = list(running)
        ids = {lease.id for lease in leases}
        self._done = {lease_id: done for lease_id, done in self._done.items() if lease_id in ids}
        self._warned = {lease_id: mark for lease_id, mark in self._warned.items() if lease_id in ids}
        for lease in leases:
            if is_due(self._done.get(lease.id), self._every, now):
                try:
                    self._meter(lease, now)
                except Stale:
                    continue  # somebody wrote it meanwhile: the next cycle has the new version
                except Exception:
                    log.exception("Lease %s could not be metered", lease.id)
                self._done[lease.id] = now

    def _meter(self, lease: Lease, now: datetime) -> None:
        metered = self._book.meter(lease, now)
        if metered.paid_until is None:
            return  # costs nothing
        available = self._book.bank.account(lease.account).available
        self._warn(metered.lease, available, now)
        last_moment = metered.paid_until - self._ending
        last_call = metered.exhausted and last_moment <= now + self._grace + self._every
        if last_call and metered.lease.target is Target.RUN:
            stop_after = max(last_moment, now + self._grace)
            words = (MONTH_GONE if available > 0 else CREDIT_GONE) % {"account": lease.account}
            log.info("Lease %s: %s; it ends at %s", lease.id, words, stop_after.isoformat())
            self._book.request_stop(lease.id, StopReason.QUOTA, detail=words, by="agent", stop_after=stop_after)
            self._notifier.deliver(credit_stop(lease, words, stop_after, now))

    def _warn(self, lease: Lease, available: int, now: datetime) -> None:
        left = lease.held + available
        percent = 100 * lease.charged // max(1, lease.charged + left)
        crossed = max((mark for mark in WARN_AT if percent >= mark), default=0)
        if crossed > self._told(lease.id):
            detail = {"percent": crossed, "left_micro_credits": left}
            self._rows.add_event(WARNED, lease_id=lease.id, account_id=lease.account_id, by="agent", detail=detail)
            self._warned[lease.id] = crossed
            self._notifier.deliver(credit_low(lease, crossed, left, now))

    def _told(self, lease_id: str) -> int:
        """The last warning of this lease; an agent that was restarted finds it among the events."""
        if lease_id not in self._warned:
            events = self._rows.events(lease_id=lease_id, limit=100)
            told = (int(event.detail.get("percent", 0)) for event in events if event.kind == WARNED)
            self._warned[lease_id] = max(told, default=0)
        return self._warned[lease_id]
