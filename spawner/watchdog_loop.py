"""The watchdog in the agent: tells and stops who uses more of a shared device than their share.

Each step is an event row "over-share" {"step", "device", "used_mib", "limit_mib"} of its lease. An agent that was
restarted finds in them when a lease was told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from quota import told
from quota.leases import Lease, StopReason, Target
from quota.notices import over_share
from quota.ports import Notifier
from quota.rows import Rows
from quota.way_out import WayOut
from spawner.devices import is_due
from spawner.ports import GpuReading
from spawner.watchdog import Account, Excess, OverShare, Rule, Step, excess, step

log = logging.getLogger("berth.agent")

EVENT: Final = "over-share"


class Watchdog:
    """Looks at each running lease every `every`."""

    def __init__(
        self, rows: Rows, way_out: WayOut, notifier: Notifier, policy: OverShare, every: timedelta, by: str
    ) -> None:
        self._rows, self._way_out, self._notifier = rows, way_out, notifier
        self._policy, self._every, self._by = policy, every, by
        self._accounts: dict[str, Account] = {}
        self._looked: datetime | None = None

    def run(
        self,
        running: Iterable[Lease],
        readings: Mapping[str, GpuReading] | None,
        pids: Mapping[str, frozenset[int]],
        now: datetime,
    ) -> None:
        """Judge those whose use can be told. One lease's trouble is logged."""
        leases = {lease.id: lease for lease in running if lease.target is Target.RUN}
        self._accounts = {lease_id: account for lease_id, account in self._accounts.items() if lease_id in leases}
        if readings is None or self._policy.rule is Rule.OFF or not is_due(self._looked, self._every, now):
            return
        self._looked = now
        for lease in leases.values():
            try:
                self._judge(lease, excess(lease, readings, pids.get(lease.id), self._policy.tolerance), now)
            except Exception:
                log.exception("Lease %s could not be held to its share", lease.id)

    def _judge(self, lease: Lease, seen: Excess | None, now: datetime) -> None:
        if seen is None:
            return
        if lease.id not in self._accounts:
            self._accounts[lease.id] = self._remembered(lease)
        account, do = step(self._accounts[lease.id], seen, now, self._policy)
        if do is not Step.NONE:
            self._act(lease, seen, do, now)
        self._accounts[lease.id] = account  # a step that failed is tried again

    def _act(self, lease: Lease, seen: Excess, do: Step, now: datetime) -> None:
        words = told.OVER_SHARE % {"used": seen.used, "limit": seen.limit}
        if do is Step.STOP:
            self._way_out.request(lease.id, StopReason.OVER_SHARE, detail=words, by=self._by)
        detail = {"step": do.value, "device": seen.device, "used_mib": seen.used, "limit_mib": seen.limit}
        self._rows.add_event(EVENT, lease_id=lease.id, account_id=lease.account_id, by=self._by, detail=detail)
        log.warning("Lease %s of %s: %s (%s)", lease.id, lease.holder, words, do.value)
        if do is Step.NOTICE:
            deadline = now + self._policy.patience if self._policy.rule is Rule.STOP else None
            self._notifier.deliver(over_share(lease, words, deadline, now))

    def _remembered(self, lease: Lease) -> Account:
        """When it was told last, by an agent before this one, unless it has been within its share since."""
        events = [event for event in self._rows.events(lease_id=lease.id, limit=100) if event.kind == EVENT]
        last = max(events, key=lambda event: event.at, default=None)
        if last is None or last.detail.get("step") != Step.NOTICE:
            return Account()
        return Account(told_at=last.at)
