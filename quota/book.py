"""The book: the single truth about who holds what. Every write is one transaction and one compare-and-swap.

The protocol (ARCHITECTURE, "The lease protocol"): intent is written as the target, facts as the state; a slot is
free only when the server was seen to be gone; only the living owner takes a lease out of STARTING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

import sqlalchemy as sa

from quota import billing, entitlement, schema, schema_stops, transitions
from quota.bank import Bank
from quota.billing import Bill, Metered
from quota.book_reads import BookReads
from quota.errors import NotFound, Reason, Refused, Stale
from quota.farewells import forgotten
from quota.groups import group_of, kind_of
from quota.leases import Lease, LeaseRequest, State, StopReason, Target
from quota.ports import Clock, Place
from quota.records import add_event, change, claim, read_lease
from quota.reserving import Reservation
from quota.rows import BOOT_FRESH
from quota.store import Store, retried
from quota.transitions import IllegalMove

__all__ = ["BOOT_FRESH", "Book", "Metered", "TooLate"]

#: A start that waits for the book waits no longer than this.
_CREDIBLE = timedelta(minutes=1)

_CHUNK = 500  # ids in one statement
_TRIES = 5
_STOPPABLE = frozenset({State.RESERVED, State.STARTING, State.RUNNING})

T = TypeVar("T")


class TooLate(Stale):
    """The lease has gone on so far that the write makes no sense any more; reading again will not help."""


class Book(BookReads):
    """Writes leases. Methods that take a `Lease` swap on its version and raise `Stale` when it was written since;
    those that take an id read it themselves. All raise `NotFound` for a lease that is not there."""

    def __init__(self, store: Store, clock: Clock, bank: Bank) -> None:
        self.store = store
        self.clock = clock
        self.bank = bank
        self._known: set[str] = set()  # names of accounts; none is ever deleted

    @retried
    def reserve(self, request: LeaseRequest, place: Place) -> Lease:
        """Entitlement, hold and placement in one commit: a RESERVED lease with its slots, or `Refused`.

        The account is the holder's own or a group's; that the holder is a member is for the caller to know. Whoever
        pays, servers and GPUs are counted by who holds them.

        Reasons: OPTION_INVALID, ACCOUNT_FORBIDDEN, ALREADY_HELD, STOPPING, PROFILE_FORBIDDEN, TOO_MANY_SERVERS,
        TOO_MANY_GPUS, MONTHLY_LIMIT, NO_CREDIT, and what `place` says (NO_ROOM, NO_DEVICES).
        """
        entitlement.check_shape(request)
        names = dict.fromkeys((request.holder.user, request.account))
        if (request.account == request.holder.user) == (group_of(request.account) is not None):
            raise Refused(Reason.ACCOUNT_FORBIDDEN, account=request.account)
        self._know(*names)
        try:
            return self._reserve(request, place)
        except NotFound:
            self._known.difference_update(names)  # one was renamed since, and the name is free for a new one
            self._know(*names)
            return self._reserve(request, place)

    def _reserve(self, request: LeaseRequest, place: Place) -> Lease:
        try:
            with self.store.write() as connection:
                return Reservation(connection, request, self.clock.now(), self.bank.zone).run(place)
        except sa.exc.IntegrityError as error:
            earlier = self.live_of(request.holder)
            if earlier is None:
                raise
            # On PostgreSQL the same holder may have won the race in another transaction.
            raise Refused(Reason.ALREADY_HELD, lease=earlier.id, state=earlier.state.value) from error

    def _know(self, *names: str) -> None:
        for name in names:
            if name not in self._known:
                self.bank.ensure_account(name, kind_of(name))
                self._known.add(name)

    # The way up

    @retried
    def mark_starting(self, lease: Lease, deadline: datetime) -> Lease:
        """RESERVED to STARTING; the owner has until `deadline`. Raises `Refused(STOP_REQUESTED)`."""
        _still_wanted(lease)
        with self._claimed(lease) as bill:
            transitions.check(bill.lease, State.STARTING, Target.RUN)
            return _write(bill, "lease-starting", {"state": State.STARTING, "deadline": deadline})

    @retried
    def mark_running(self, lease: Lease, boot: str, ready_at: datetime) -> Lease:
        """STARTING to RUNNING: the server answered at `ready_at`, and from then on it is charged.

        Raises `Refused(STOP_REQUESTED)`, and `Stale` when the lease was written since, when `boot` is not its
        owner, or when that boot's heartbeat is older than 30 s: then the agent may already have taken it for dead.
        """
        _still_wanted(lease)
        table, beat = schema.lease, schema.heartbeat
        fresh = sa.exists().where(beat.c.boot == boot, beat.c.beat_at >= self.clock.now() - BOOT_FRESH)
        with self._claimed(lease, table.c.owner == boot, fresh) as bill:
            transitions.check(bill.lease, State.RUNNING, Target.RUN)
            ready = _ready(bill, ready_at)
            weight = sum(slot.share for slot in bill.lease.slots)
            values = {"lease_id": lease.id, "number": 1, "weight": weight, "plan_id": bill.lease.price.plan_id}
            bill.connection.execute(sa.insert(schema.segment).values(**values, started_at=ready))
            times = {"started_at": ready, "metered_until": ready, "last_seen": ready}
            return _write(bill, "lease-running", {"state": State.RUNNING, **times})

    # Stopping

    @retried
    def request_stop(
        self,
        lease_id: str,
        reason: StopReason,
        *,
        detail: str = "",
        by: str = "",
        stop_after: datetime | None = None,
        expect: Lease | None = None,
    ) -> Lease:
        """Write the durable intent to stop, at `stop_after` or at once.

        The first reason stays; an earlier `stop_after` wins. Nothing happens to a lease that is being removed or
        is over. Who decided on a lease gives it as `expect`: raises `Stale` when it was written since.
        """

        def step(bill: Bill) -> Lease:
            lease, after = bill.lease, stop_after or bill.now
            if expect is not None and expect.version != lease.version:
                raise TooLate(f"lease {lease.id} is at version {lease.version}, not {expect.version} any more")
            if lease.state not in _STOPPABLE:
                return lease
            if lease.target is Target.RUN:
                transitions.check(lease, lease.state, Target.STOP)
                why = {"stop_reason": reason, "stop_detail": detail, "stop_by": by, "stop_after": after}
                return _write(bill.claimed(), "stop-requested", {"target": Target.STOP, **why}, by=by)
            if lease.stop_after is not None and after < lease.stop_after:
                return _write(bill.claimed(), "stop-sooner", {"stop_after": after}, by=by)
            return lease

        return self._by_id(lease_id, step)

    @retried
    def cancel_stop(self, lease_id: str, by: str) -> Lease:
        """Take a stop back before its time has come: an idle server came back to life. An end that its user had set
        and that was due is withdrawn with it; it would be asked for again at once.

        Raises `Stale` when it is too late: the lease is not RUNNING any more, `stop_after` has passed, or its kit has
        said that all is saved, upon which anybody may have begun to end it.
        """

        def step(bill: Bill) -> Lease:
            lease = bill.lease
            if lease.state is State.RUNNING and lease.target is Target.RUN:
                return lease
            if lease.state is not State.RUNNING or lease.stop_after is None or lease.stop_after <= bill.now:
                raise TooLate(f"lease {lease.id} is {lease.state}, too late to go on")
            bill = bill.claimed()
            if not forgotten(bill.connection, lease_id):
                raise TooLate(f"the kit of lease {lease_id} is done, too late to go on")
            if lease.stop_reason is StopReason.SHUTDOWN:
                _withdraw_shutdown(bill, by)
            nothing = {"stop_reason": None, "stop_detail": "", "stop_by": "", "stop_after": None}
            return _write(bill, "stop-cancelled", {"target": Target.RUN, **nothing}, by=by)

        return self._by_id(lease_id, step)

    @retried
    def acknowledge(self, lease_id: str, boot: str) -> Lease:
        """To STOPPING: the owner gives up a start (its target becomes STOP, reason `failed`, unless one is there),
        or the removal of a RUNNING server with target STOP has begun. Does nothing from STOPPING on.

        Raises `Stale` when `boot` does not own the start, `IllegalMove` for a RUNNING lease that is to run.
        """

        def step(bill: Bill) -> Lease:
            lease = bill.lease
            if lease.state not in _STOPPABLE:
                return lease
            if lease.state is State.RUNNING and lease.target is Target.RUN:
                raise IllegalMove(f"lease {lease.id} is to run; request its stop first")
            if lease.state is not State.RUNNING and lease.owner != boot:
                raise TooLate(f"lease {lease.id} is started by {lease.owner}, not by {boot}")
            bill = bill.claimed()
            return _write(bill, "lease-stopping", _stopping(bill, StopReason.FAILED), by=boot)

        return self._by_id(lease_id, step)

    # What was seen

    def observe(self, lease: Lease, seen_at: datetime) -> Lease:
        """The server was seen alive. Not a decision, so the version stays as it is."""
        self.observe_all([lease], seen_at)
        return self.lease(lease.id)

    @retried
    def observe_all(self, leases: Sequence[Lease], seen_at: datetime) -> None:
        """The same for many, in one transaction; `last_seen` only ever grows, and only while RUNNING."""
        table = schema.lease
        ids = sorted(lease.id for lease in leases)
        if not ids:
            return
        older = table.c.last_seen.is_(None) | (table.c.last_seen < seen_at)
        with self.store.write() as connection:
            for start in range(0, len(ids), _CHUNK):
                mine = sa.select(table.c.id).where(table.c.id.in_(ids[start : start + _CHUNK]))
                # On PostgreSQL: in the same order as everybody who writes several.
                chosen = table.c.id.in_(mine.order_by(table.c.id).with_for_update(key_share=True))
                seen = sa.update(table).where(chosen, table.c.state == State.RUNNING.value, older)
                connection.execute(seen.values(last_seen=seen_at))

    @retried
    def close(self, lease: Lease, ended_at: datetime | None, reason: StopReason, detail: str = "") -> Lease:
        """The end of a server was seen: its time stops at `ended_at` (None: at the last observation), and the lease
        goes to STOPPING. The first end and the first reason stay. Raises `IllegalMove` for one that never ran."""
        if not lease.live:
            return lease
        with self._claimed(lease) as bill:
            if bill.lease.started_at is None:
                raise IllegalMove(f"lease {lease.id} never ran, so it has no end")
            if bill.lease.ended_at is not None:
                return bill.lease
            end = _end(bill, ended_at)
            billing.close_segments(bill, end)
            moved: dict[str, object] = {} if bill.lease.state is State.STOPPING else _stopping(bill, reason, detail)
            return _write(bill, "lease-ended", {**moved, "ended_at": end})

    @retried
    def release(self, lease: Lease, ended_at: datetime | None = None) -> Lease:
        """The server was seen to be gone: the slot is free, the segment closed, and what the hold has too much goes
        back, in one transaction. `ended_at` counts unless an end is known; None is the last observation."""
        if not lease.live:
            return lease
        with self._claimed(lease) as bill:
            transitions.check(bill.lease, State.RELEASED, Target.STOP)
            end = bill.lease.ended_at or _end(bill, ended_at)
            billing.close_segments(bill, end)
            table = schema.slot
            slots = sa.update(table).where(table.c.lease_id == lease.id, table.c.released_at.is_(None))
            bill.connection.execute(slots.values(released_at=bill.now))
            billing.give_back_excess(bill, end)
            return _write(bill, "lease-released", {"state": State.RELEASED, "ended_at": end})

    # Money

    @retried
    def meter(self, lease: Lease, until: datetime) -> Metered:
        """Charge what is due up to `until` (not beyond now) and fill the hold up to `hold_seconds` ahead."""
        if lease.started_at is None or not lease.live:
            return Metered(lease, None, False)
        with self._claimed(lease) as bill:
            return billing.meter(bill, min(until, bill.now))

    @retried
    def settle(self, lease: Lease) -> Lease:
        """The final charge (0 for a lease that never ran or is void), the rest of the hold back, SETTLED."""
        if lease.state is State.SETTLED:
            return lease
        with self._claimed(lease) as bill:
            transitions.check(bill.lease, State.SETTLED, Target.STOP)
            settled = billing.settle(bill)
            return _write(replace(bill, lease=settled), "lease-settled", {"state": State.SETTLED})

    @retried
    def void(self, lease_id: str) -> None:
        """The start failed after the server was ready, so nothing is charged; what was charged already goes back."""

        def step(bill: Bill) -> None:
            if bill.row()["void"]:
                return
            bill = bill.claimed()
            if bill.lease.state is State.SETTLED:
                billing.refund(bill, None, by="platform", note="the start failed")
                _write(bill, "lease-void", {"void": True, "usage": 0})
            else:
                _write(bill, "lease-void", {"void": True})

        self._by_id(lease_id, step)

    # How it is written

    def _bill(self, connection: sa.Connection, lease: Lease) -> Bill:
        return Bill(connection, lease, self.clock.now(), self.bank.zone)

    @contextmanager
    def _claimed(self, lease: Lease, *where: sa.ColumnElement[bool]) -> Iterator[Bill]:
        with self.store.write() as connection:
            yield self._bill(connection, claim(connection, lease, *where))

    def _by_id(self, lease_id: str, step: Callable[[Bill], T]) -> T:
        """Run `step` on the lease as it is now; read it again when somebody else (on PostgreSQL) was faster."""
        for _ in range(_TRIES - 1):
            try:
                return self._once(lease_id, step)
            except TooLate:
                raise
            except Stale:
                continue
        return self._once(lease_id, step)

    def _once(self, lease_id: str, step: Callable[[Bill], T]) -> T:
        with self.store.write() as connection:
            return step(self._bill(connection, read_lease(connection, lease_id)))


def _still_wanted(lease: Lease) -> None:
    if lease.target is Target.STOP:
        raise Refused(Reason.STOP_REQUESTED, lease=lease.id, stop_reason=str(lease.stop_reason or ""))


def _stopping(bill: Bill, reason: StopReason, detail: str = "") -> dict[str, object]:
    """Columns for STOPPING; an earlier reason stays."""
    transitions.check(bill.lease, State.STOPPING, Target.STOP)
    values: dict[str, object] = {"state": State.STOPPING, "target": Target.STOP}
    if bill.lease.target is Target.RUN:
        values |= {"stop_reason": reason, "stop_detail": detail, "stop_after": bill.now}
    return values


def _withdraw_shutdown(bill: Bill, by: str) -> None:
    """The time that its user had set and that has come is none any more."""
    wish, lease = schema_stops.wish, bill.lease
    due = sa.update(wish).where(wish.c.lease_id == lease.id, wish.c.shutdown_at <= bill.now)
    if bill.connection.execute(due.values(shutdown_at=None, at=bill.now, by=by)).rowcount:
        add_event(
            bill.connection, bill.now, "shutdown-withdrawn", lease_id=lease.id, account_id=lease.account_id, by=by
        )


def _ready(bill: Bill, ready_at: datetime) -> datetime:
    """When charging begins: as was seen, after the request and not ahead. A moment so long ago that no wait for the
    book explains it is of a clock that was set since; then it begins now."""
    ready = max(min(bill.lease.requested_at, bill.now), min(ready_at, bill.now))
    return ready if bill.now - ready <= _CREDIBLE else bill.now


def _end(bill: Bill, ended_at: datetime | None) -> datetime:
    """When a server ended: as was recorded, else at the last observation; inside its life whatever a clock said.
    A lease that never ran ends now."""
    lease = bill.lease
    if lease.started_at is None:
        return min(ended_at or bill.now, bill.now)
    end = ended_at or lease.last_seen or lease.started_at
    # The clock may be set back between a look and this: what was seen of it was so all the same.
    latest = max(bill.now, lease.last_seen or bill.now)
    begun = [lease.started_at, *(part.started_at for part in bill.segments())]
    return max(*begun, min(end, latest))


def _write(bill: Bill, kind: str, values: Mapping[str, object], *, by: str = "") -> Lease:
    """Write columns of a claimed lease, and a line of its history."""
    plain = {name: value.value if isinstance(value, StrEnum) else value for name, value in values.items()}
    lease = change(bill.connection, bill.lease, **plain)
    detail: dict[str, object] = {"state": lease.state.value, "target": lease.target.value}
    if lease.stop_reason is not None:
        detail |= {"reason": lease.stop_reason.value, "detail": lease.stop_detail}
    if lease.state is State.SETTLED:
        detail |= {"usage": lease.usage, "charged": lease.charged}
    add_event(bill.connection, bill.now, kind, lease_id=lease.id, account_id=lease.account_id, by=by, detail=detail)
    return lease
