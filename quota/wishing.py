"""Writes what users want of the end of their servers. What a wish to be kept will cost is held in the same transaction.

A wish to be kept reaches `keep_most` ahead of now at most, and never beyond the longest time that the server may run
nor the end that its user set: what would lie beyond is left out, and the answer says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from quota import billing, schema_stops
from quota.bank import Bank
from quota.billing import Bill
from quota.errors import BerthError, Stale
from quota.leases import Lease, State, Target
from quota.records import add_event, read_lease
from quota.store import retried, upsert
from quota.wish import Wish
from quota.wishes import read_wishes

__all__ = ["STEPS", "WHOLE", "Bounds", "WishRefused", "Wished", "Wishing"]

#: What people are offered; `offer_of` goes down them where there is not credit for more.
STEPS: Final = (timedelta(hours=1), timedelta(hours=3))
#: What is less than the shortest step is offered in whole ones of these.
WHOLE: Final = timedelta(minutes=5)
#: So long ahead an end is set at least: its user must be able to save.
SOONEST: Final = timedelta(minutes=1)

_TABLE = schema_stops.wish
_TRIES = 5

Code = Literal["not-running", "off", "too-long", "no-credit", "too-soon", "too-late"]
Bounded = Literal["", "max-age", "shutdown"]


class WishRefused(BerthError):
    """A wish that is not written. `offer`: for how long it could be kept instead; `latest`: the latest end."""

    def __init__(self, code: Code, offer: timedelta | None = None, latest: datetime | None = None) -> None:
        super().__init__(code)
        self.code, self.offer, self.latest = code, offer, latest


@dataclass(frozen=True, slots=True)
class Bounds:
    """`keep_most`: how far ahead of now a server is kept; None: nobody keeps any. `longest`: how long the server of a
    lease may run; None is no limit."""

    keep_most: timedelta | None
    longest: Callable[[Lease], timedelta | None]


@dataclass(frozen=True, slots=True)
class Wished:
    """The wish as it stands now; `bounded`: what cut it short. `held` is what the lease holds, in micro-credits."""

    wish: Wish
    bounded: Bounded = ""
    held: int = 0


class Wishing:
    """Each call is one transaction, and raises `NotFound`, `WishRefused`. Who may wish is for the caller to know."""

    def __init__(self, bank: Bank, bounds: Bounds) -> None:
        self._bank, self._bounds = bank, bounds

    @retried
    def keep(self, lease_id: str, span: timedelta, by: str) -> Wished:
        """Not to be stopped for want of use for so long from now; what that costs is held. An earlier wish to be kept
        is replaced, and what was held for more of it goes back."""
        most = self._bounds.keep_most
        if most is None:
            raise WishRefused("off")
        if span > most:
            raise WishRefused("too-long", offer=most)

        def step(bill: Bill, wish: Wish) -> Wished:
            until, bounded = self._cut(bill, wish, bill.now + span)
            reached = billing.hold_until(bill, until)
            if reached is not None:
                raise WishRefused("no-credit", offer=offer_of(reached - bill.now))
            return self._put(bill, replace(wish, keep_until=until), "kept", by, bounded)

        return self._write(lease_id, step)

    @retried
    def no_keep(self, lease_id: str, by: str) -> Wished:
        """No longer kept; what was held for it goes back. Nothing happens where it was not."""

        def step(bill: Bill, wish: Wish) -> Wished:
            if wish.keep_until is None:
                return Wished(wish, held=bill.lease.held)
            billing.hold_until(bill, None)
            return self._put(bill, replace(wish, keep_until=None), "keep-withdrawn", by)

        return self._write(lease_id, step)

    @retried
    def shut_down(self, lease_id: str, at: datetime | None, by: str) -> Wished:
        """To be stopped at `at`, whatever it does; None withdraws that. A wish to be kept is cut to it."""

        def step(bill: Bill, wish: Wish) -> Wished:
            if at is None:
                if wish.shutdown_at is None:
                    return Wished(wish, held=bill.lease.held)
                return self._put(bill, replace(wish, shutdown_at=None), "shutdown-withdrawn", by)
            latest = self._latest(bill.lease)
            if at < bill.now + SOONEST:
                raise WishRefused("too-soon", latest=latest)
            if latest is not None and at > latest:
                raise WishRefused("too-late", latest=latest)
            wished = replace(wish, shutdown_at=at)
            if wish.keep_until is not None and wish.keep_until > at:
                billing.hold_until(bill, at)
                wished = replace(wished, keep_until=at)
            return self._put(bill, wished, "shutdown-set", by)

        return self._write(lease_id, step)

    @retried
    def when_done(self, lease_id: str, wanted: bool, by: str) -> Wished:
        """To be stopped once nothing runs any more, or no longer so."""

        def step(bill: Bill, wish: Wish) -> Wished:
            if wish.when_done == wanted:
                return Wished(wish, held=bill.lease.held)
            kind = "when-done-set" if wanted else "when-done-withdrawn"
            return self._put(bill, replace(wish, when_done=wanted), kind, by)

        return self._write(lease_id, step)

    def _latest(self, lease: Lease) -> datetime | None:
        longest = self._bounds.longest(lease)
        return None if longest is None or lease.started_at is None else lease.started_at + longest

    def _cut(self, bill: Bill, wish: Wish, until: datetime) -> tuple[datetime, Bounded]:
        """Until when it is kept, and what cut that short."""
        bounded: Bounded = ""
        latest = self._latest(bill.lease)
        if latest is not None and latest < until:
            until, bounded = latest, "max-age"
        if wish.shutdown_at is not None and wish.shutdown_at < until:
            until, bounded = wish.shutdown_at, "shutdown"
        return until, bounded

    def _put(self, bill: Bill, wish: Wish, kind: str, by: str, bounded: Bounded = "") -> Wished:
        values = {"keep_until": wish.keep_until, "shutdown_at": wish.shutdown_at, "when_done": wish.when_done}
        row = {"lease_id": bill.lease.id, **values, "at": bill.now, "by": by}
        upsert(bill.connection, _TABLE, [row])
        lease = read_lease(bill.connection, bill.lease.id)
        plain = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
        detail = {**plain, "held": lease.held}
        add_event(bill.connection, bill.now, kind, lease_id=lease.id, account_id=lease.account_id, by=by, detail=detail)
        return Wished(wish, bounded, lease.held)

    def _write(self, lease_id: str, step: Callable[[Bill, Wish], Wished]) -> Wished:
        self._bank.seed()
        for _ in range(_TRIES - 1):
            try:
                return self._once(lease_id, step)
            except Stale:  # somebody else (on PostgreSQL) wrote the lease at this moment
                continue
        return self._once(lease_id, step)

    def _once(self, lease_id: str, step: Callable[[Bill, Wish], Wished]) -> Wished:
        with self._bank.store.write() as connection:
            lease = read_lease(connection, lease_id)
            if lease.state is not State.RUNNING or lease.target is not Target.RUN:
                raise WishRefused("not-running")
            bill = Bill(connection, lease, self._bank.clock.now(), self._bank.zone).claimed()
            return step(bill, read_wishes(connection, [lease_id])[lease_id])


def offer_of(lasting: timedelta) -> timedelta | None:
    """What is offered where credit lasts only so long: the longest step, or whole five minutes; None: nothing."""
    step = max((step for step in STEPS if step <= lasting), default=lasting // WHOLE * WHOLE)
    return step if step > timedelta(0) else None
