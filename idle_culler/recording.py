"""[A] Verdicts on their way into the book: written together, told to users and administrators, remembered after that.

Only what was written is remembered, so a warning that nobody could have read is none. A verdict that says the same as
the one before is written again after a minute, so that readers see that somebody looks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from idle_culler import keepbusy
from idle_culler.decide import LAST_CALL, Decision, Keep, Warn
from idle_culler.evidence import UNUSED, Rule, span
from idle_culler.ports import CullerAlerts, CullerRows
from idle_culler.signals import STALE, Memory, recall
from quota import notices, told
from quota.errors import Reason, Refused
from quota.leases import Lease
from quota.ports import Clock, Notifier
from quota.verdicts import Told, Verdict

log = logging.getLogger("berth.idle_culler")

ROLE = "idle-culler"
#: A verdict that says the same is written again this often.
SAME_AGAIN = timedelta(seconds=60)
#: Kinds of alerts that are the culler's.
KEEP_BUSY, GPU_UNUSED, BLIND = "keep-busy", "gpu-unused", "idle-blind"
#: Minutes before the end at which the two warnings are given, as their notices name them.
FIRST, LAST = 10, 2

Looked = tuple[Lease, Decision]


@dataclass(frozen=True, slots=True)
class Written:
    """The last verdict on record about a lease."""

    kind: str
    rule: str
    deadline: datetime | None
    at: datetime | None
    told_blind: bool  # whether the history says that it is blind
    last_call: bool = False  # whether its user was given the last warning


class Recorder:
    """Writes verdicts, and holds the last one of each lease. Blocks; threads may write of different leases at once."""

    def __init__(self, rows: CullerRows, clock: Clock, notifier: Notifier, alerts: CullerAlerts | None) -> None:
        self._rows, self._clock, self._notifier, self._alerts = rows, clock, notifier, alerts
        self._written: dict[str, Written] = {}
        self._raised: dict[str, str] | None = None  # words of our alerts that stand; None: not yet asked

    def blind(self) -> int:
        """Leases whose last verdict is blind."""
        return sum(written.rule == Rule.BLIND for written in self._written.values())

    def knows(self, lease_id: str) -> bool:
        return lease_id in self._written

    def forget(self, there: Collection[str]) -> None:
        self._written = {key: written for key, written in self._written.items() if key in there}

    # What a culler before this one knew

    def recall(self, lease_ids: Sequence[str]) -> dict[str, Memory]:
        """What the verdicts on record remember. A verdict that cannot be read is as good as none."""
        now = self._clock.now()
        try:
            found = dict(self._rows.verdicts(lease_ids))
        except Refused:
            raise
        except Exception:
            log.exception("Verdicts could not be read together")
            found = {key: verdict for key in lease_ids if (verdict := self._readable(key)) is not None}
        for key, verdict in found.items():
            close = verdict.deadline is not None and verdict.deadline - verdict.at <= LAST_CALL
            blind = verdict.rule == Rule.BLIND
            self._written[key] = Written(verdict.kind, verdict.rule, verdict.deadline, None, blind, close)
        return {key: recall(found[key].evidence if key in found else None, now) for key in lease_ids}

    def _readable(self, lease_id: str) -> Verdict | None:
        try:
            return self._rows.verdict(lease_id)
        except Refused:
            raise
        except Exception:
            log.exception("The last verdict on lease %s could not be read", lease_id)
            return None

    # Writing

    def write(self, looked: Sequence[Looked]) -> list[Looked]:
        """Those whose verdict is on record now. Raises only when the book does not answer."""
        now = self._clock.now()
        due = [(lease, decision) for lease, decision in looked if not self._same_again(lease, decision, now)]
        failed = self._put(due, now)
        for lease, decision in due:
            if lease.id not in failed:
                self._settle(lease, decision, now)
        return [(lease, decision) for lease, decision in looked if lease.id not in failed]

    def _put(self, due: Sequence[Looked], now: datetime) -> set[str]:
        """Ids of those that could not be written: together, or else each alone."""
        if not due:
            return set()
        try:
            self._put_some(due, now)
            return set()
        except Refused as refused:
            if refused.reason is Reason.BOOK_UNAVAILABLE:
                raise
            log.exception("Verdicts could not be written together")
        except Exception:
            log.exception("Verdicts could not be written together")
        if len(due) == 1:
            return {due[0][0].id}
        return set().union(*(self._put([one], now) for one in due))

    def _put_some(self, due: Sequence[Looked], now: datetime) -> None:
        lines = []
        for lease, decision in due:
            before, after = self._written.get(lease.id), self._after(lease, decision, now)
            if _worth_telling(before, after):
                said = {"kind": after.kind, "rule": after.rule, "words": decision.evidence.words}
                lines.append(
                    Told(lease.id, lease.account_id, ROLE, {**said, "before": before.kind if before else None})
                )
        self._rows.put_verdicts([_row(lease, decision, now) for lease, decision in due], lines)

    def _settle(self, lease: Lease, decision: Decision, now: datetime) -> None:
        """It is on record: tell its user, and remember."""
        before, after = self._written.get(lease.id), self._after(lease, decision, now)
        self._written[lease.id] = after
        if isinstance(decision, Warn) and not _told_of(before, after):
            self._notifier.deliver(warning_of(lease, decision, now))

    def _after(self, lease: Lease, decision: Decision, now: datetime) -> Written:
        kind, rule, deadline = kind_of(decision), decision.evidence.rule, _deadline(decision)
        before = self._written.get(lease.id)
        up_for = now - (lease.started_at or lease.requested_at)
        blind = rule is Rule.BLIND and (_told_blind(before) or up_for > STALE)
        return Written(kind, rule.value, deadline, now, blind, isinstance(decision, Warn) and decision.last)

    def _same_again(self, lease: Lease, decision: Decision, now: datetime) -> bool:
        """The same was written a moment ago."""
        before = self._written.get(lease.id)
        if before is None or before.at is None or not timedelta(0) <= now - before.at < SAME_AGAIN:
            return False  # a clock may be set back
        after = self._after(lease, decision, now)
        same = (before.kind, before.rule, before.deadline) == (after.kind, after.rule, after.deadline)
        return same and before.last_call >= after.last_call

    # Alerts

    def alert(self, looked: Iterable[Looked]) -> None:
        """Raise what administrators should see of the running servers, take back what is over. Raises what the book
        raises; the next look does it all again."""
        if self._alerts is None:
            return
        if self._raised is None:
            ours = (KEEP_BUSY, GPU_UNUSED, BLIND)
            self._raised = {each.key: "" for each in self._alerts.open() if each.kind in ours}
        now, wanted = self._clock.now(), dict[str, tuple[str, str, dict[str, object]]]()
        for lease, decision in looked:
            wanted |= {
                f"{kind}:{lease.id}": (kind, words, _about(lease)) for kind, words in _alerts_of(lease, decision, now)
            }
        blind = sum(written.told_blind for written in self._written.values())
        if blind:
            wanted[BLIND] = (BLIND, told.ALERT_BLIND % {"number": blind}, {"leases": blind})
        for key, (kind, words, detail) in wanted.items():
            if self._raised.get(key) != words:
                self._alerts.put(key, kind, words, detail)
                self._raised[key] = words
        for key in self._raised.keys() - wanted.keys():
            self._alerts.clear(key)
            del self._raised[key]


def kind_of(decision: Decision) -> str:
    return "keep" if isinstance(decision, Keep) else "warn" if isinstance(decision, Warn) else "reclaim"


def warning_of(lease: Lease, decision: Warn, now: datetime) -> notices.Notice:
    """What its user is told of a warning."""
    stage, words = LAST if decision.last else FIRST, decision.evidence.words
    if decision.evidence.rule is Rule.SHUTDOWN:
        return notices.shutdown_warning(lease, decision.deadline, now, stage)
    if decision.evidence.rule is Rule.MAX_AGE:
        return notices.max_age_warning(lease, words, decision.deadline, now, stage)
    return notices.idle_warning(lease, words, decision.deadline, now, stage)


def _deadline(decision: Decision) -> datetime | None:
    return None if isinstance(decision, Keep) else decision.deadline


def _row(lease: Lease, decision: Decision, now: datetime) -> Verdict:
    evidence = decision.evidence
    kind, deadline = kind_of(decision), _deadline(decision)
    return Verdict(lease.id, now, kind, evidence.rule.value, evidence.words, evidence.facts, deadline)


def _told_blind(before: Written | None) -> bool:
    return before is not None and before.told_blind


def _told_of(before: Written | None, after: Written) -> bool:
    """Its user was told of this end before, and this is not yet the last call."""
    if before is None or (before.kind, before.rule, before.deadline) != (after.kind, after.rule, after.deadline):
        return False
    return before.last_call or not after.last_call


def _worth_telling(before: Written | None, after: Written) -> bool:
    """What becomes history: another verdict, and blindness that lasts beyond a server's first moments. The coming
    and going of use is not history."""
    changed = after.kind != (before.kind if before else "keep")
    return changed or after.told_blind != _told_blind(before)


def _about(lease: Lease) -> dict[str, object]:
    return {"lease": lease.id, "user": lease.holder.user, "server": lease.holder.server}


def _alerts_of(lease: Lease, decision: Decision, now: datetime) -> list[tuple[str, str]]:
    """Kinds and words of what administrators should see of one server; it is never stopped for it."""
    found, who = [], {"user": str(lease.holder), "profile": lease.profile}
    pattern = decision.memory.pattern
    if pattern is not None and keepbusy.suspected(pattern, now):
        facts = {**who, "percent": pattern.high, "time": f"{pattern.since:%Y-%m-%d %H:%M}"}
        found.append((KEEP_BUSY, told.ALERT_KEEP_BUSY % facts))
    unused = decision.evidence.facts.get("gpu_unused_s")
    used = decision.evidence.rule in (Rule.BUSY_KERNEL, Rule.CPU_ACTIVE, Rule.IO_ACTIVE)
    if used and isinstance(unused, int) and unused >= UNUSED.total_seconds():
        facts = {**who, "span": span(timedelta(hours=unused // 3600))}
        found.append((GPU_UNUSED, told.ALERT_GPU_UNUSED % facts))
    return found
