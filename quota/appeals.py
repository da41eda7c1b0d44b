""" "This was wrong", said of a stop by the platform: once, by its user, within thirty days; an administrator decides.

Who grants one refunds in the same transaction, by the lease's one refund: granted twice gives back once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa

from quota import billing, schema_stops
from quota.bank import Bank
from quota.billing import Bill
from quota.errors import BerthError, NotFound, Stale
from quota.leases import Lease, Segment, State, StopReason
from quota.notices import appeal_decided, appeal_made
from quota.ports import Notifier
from quota.pricing import charge_due
from quota.records import add_event, read_lease
from quota.store import insert_new, retried

__all__ = ["LONGEST", "OPEN_FOR", "Appeal", "AppealRefused", "Appeals", "may_appeal", "proposed"]

#: How long after its end somebody may still say that it was wrong, and in how many characters.
OPEN_FOR: Final = timedelta(days=30)
LONGEST: Final = 1000
#: Ends that its user made, or that nobody decided upon.
OWN: Final = frozenset({StopReason.USER, StopReason.SHUTDOWN, StopReason.FAILED, StopReason.LEAK})

_TABLE = schema_stops.appeal
_TRIES = 5

Code = Literal["not-yours", "not-ended", "own-stop", "too-late", "made-before", "not-settled", "decided", "no-words"]


class AppealRefused(BerthError):
    """What cannot be done with an appeal, and nothing was."""

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code: Code = code


@dataclass(frozen=True, slots=True)
class Appeal:
    """One of a lease. `granted` is None while nobody has decided; `refund` in micro-credits."""

    lease_id: str
    user: str
    words: str
    at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""
    granted: bool | None = None
    answer: str = ""
    refund: int = 0


def may_appeal(lease: Lease, user: str, now: datetime) -> Code | None:
    """What stands in the way, None: nothing. That there is one already is for the book to know."""
    if lease.holder.user != user:
        return "not-yours"
    if lease.live:
        return "not-ended"
    if lease.stop_reason is None or lease.stop_reason in OWN:
        return "own-stop"
    ended = lease.ended_at or lease.requested_at
    return "too-late" if now - ended > OPEN_FOR else None


def proposed(lease: Lease, segments: Sequence[Segment], evidence: Mapping[str, Any] | None) -> int:
    """Micro-credits that would be given back by default: what the time since its last use cost, where the verdict
    says when that was, else all of it; never more than is charged."""
    since = _moment((evidence or {}).get("idle_since"))
    if since is None or lease.ended_at is None or lease.stop_reason is not StopReason.IDLE:
        return lease.charged
    lost = charge_due(segments, lease.ended_at) - charge_due(segments, min(since, lease.ended_at))
    return max(0, min(lease.charged, lost))


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


class Appeals:
    """Each call is one transaction; the notices are told after it, once however often it is repeated."""

    def __init__(self, bank: Bank, notifier: Notifier) -> None:
        self._bank, self._notifier = bank, notifier

    @retried
    def make(self, lease_id: str, user: str, words: str) -> Appeal:
        """Raises `NotFound`, `AppealRefused`."""
        now, said = self._bank.clock.now(), " ".join(words.split())[:LONGEST]
        if not said:
            raise AppealRefused("no-words")
        with self._bank.store.write() as connection:
            lease = read_lease(connection, lease_id)
            wrong = may_appeal(lease, user, now)
            if wrong is not None:
                raise AppealRefused(wrong)
            if not insert_new(connection, _TABLE, {"lease_id": lease_id, "user": user, "words": said, "at": now}):
                raise AppealRefused("made-before")
            add_event(connection, now, "appeal-made", lease_id=lease_id, account_id=lease.account_id, by=user)
        self._notifier.deliver(appeal_made(lease, said, now))
        return Appeal(lease_id, user, said, now)

    @retried
    def grant(self, lease_id: str, amount: int, answer: str, by: str) -> Appeal:
        """Refund `amount` (0 is none), never above what was charged. The same again changes nothing. Raises
        `NotFound`, `AppealRefused`, `Conflict` where it was refunded before with another amount."""

        def step(bill: Bill) -> int:
            if bill.lease.state is not State.SETTLED:
                raise AppealRefused("not-settled")
            most = int(bill.row()["charged"])
            return billing.refund(bill, min(amount, most), by, "appeal") if amount and most else 0

        return self._decide(lease_id, True, answer, by, step)

    @retried
    def deny(self, lease_id: str, answer: str, by: str) -> Appeal:
        """It stands as it was; that needs words. Raises `NotFound`, `AppealRefused`."""
        if not answer.strip():
            raise AppealRefused("no-words")
        return self._decide(lease_id, False, answer, by, lambda bill: 0)

    def of(self, lease_ids: Sequence[str]) -> dict[str, Appeal]:
        """Those of some leases (a page of them)."""
        return {each.lease_id: each for each in self._read(_TABLE.c.lease_id.in_(list(lease_ids)), len(lease_ids))}

    def open(self, limit: int = 100) -> list[Appeal]:
        """Those that nobody has decided, the oldest first."""
        return self._read(_TABLE.c.decided_at.is_(None), limit)

    def _read(self, where: sa.ColumnElement[bool], limit: int) -> list[Appeal]:
        chosen = sa.select(_TABLE).where(where).order_by(_TABLE.c.at, _TABLE.c.lease_id).limit(limit)
        with self._bank.store.read() as connection:
            return [Appeal(**row) for row in connection.execute(chosen).mappings()]

    def _decide(self, lease_id: str, granted: bool, answer: str, by: str, step: Callable[[Bill], int]) -> Appeal:
        self._bank.seed()
        for _ in range(_TRIES - 1):
            try:
                return self._once(lease_id, granted, answer, by, step)
            except Stale:  # somebody else (on PostgreSQL) wrote the lease at this moment
                continue
        return self._once(lease_id, granted, answer, by, step)

    def _once(self, lease_id: str, granted: bool, answer: str, by: str, step: Callable[[Bill], int]) -> Appeal:
        said, now = " ".join(answer.split())[:LONGEST], self._bank.clock.now()
        with self._bank.store.write() as connection:
            bill = Bill(connection, read_lease(connection, lease_id), now, self._bank.zone).claimed()
            mine = sa.select(_TABLE).where(_TABLE.c.lease_id == lease_id)
            row = connection.execute(mine).mappings().one_or_none()
            if row is None:
                raise NotFound(f"no appeal about lease {lease_id}")
            found = Appeal(**row)
            if found.granted is not None and found.granted != granted:
                raise AppealRefused("decided")
            if found.granted is None:
                values = {"decided_at": now, "decided_by": by, "granted": granted, "answer": said}
                values["refund"] = step(bill)
                connection.execute(sa.update(_TABLE).where(_TABLE.c.lease_id == lease_id).values(**values))
                detail = {"granted": granted, "amount": values["refund"]}
                payer = bill.lease.account_id
                add_event(connection, now, "appeal-decided", lease_id=lease_id, account_id=payer, by=by, detail=detail)
                found = Appeal(**connection.execute(mine).mappings().one())
        self._notifier.deliver(appeal_decided(bill.lease, granted, found.answer, found.refund, now))
        return found
