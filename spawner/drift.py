"""What differs between the book and the runtime, and what to do about it. Pure.

`drift` compares the leases (read first) with a look at the runtime (taken afterwards) and returns actions as values;
`spawner.agent` carries them out by compare-and-swap. The table it follows, row by row (ARCHITECTURE, "The lease
protocol"):

| lease | server | action |
|---|---|---|
| any | unreachable | nothing at all |
| confirmed | running | record that it was seen |
| confirmed, target RUN | ended / absent | close: its record's end, or the last observation (doubt favours the user) |
| RESERVED or STARTING, owner dead | any | target STOP: only what was once confirmed is carried on |
| RESERVED or STARTING, owner alive, deadline passed | any | target STOP only; its owner acknowledges |
| target STOP, after stop_after | present | ask it to end, force it after `term`, remove what is still there |
| target STOP, confirmed or acknowledged or owner dead | absent | release |
| RELEASED | absent | settle |
| none live | present | remove the orphan, once the lease was read again |

"Confirmed" is a lease that was RUNNING once (`started_at`). Applied to a world that has converged it only records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from quota import told
from quota.leases import HolderKind, Lease, State, StopReason, Target
from spawner.ports import Look, Seen, Unreachable

#: A confirmed server that neither ends nor can be forced is removed after so many times `term`.
LAST_RESORT = 3


@dataclass(frozen=True, slots=True)
class DriftPolicy:
    """`boot_fresh`: how old the heartbeat of a living owner may be. `start_grace`: how long after its owner's death a
    start may still be in flight. `term`: how long a server is given to end by itself."""

    boot_fresh: timedelta = timedelta(seconds=30)
    start_grace: timedelta = timedelta(seconds=30)
    term: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Observe:
    """It runs: the bill may go up to here."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Close:
    """Its end was seen; the lease keeps an earlier stop reason."""

    lease: Lease
    ended_at: datetime
    reason: StopReason
    detail: str


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Set the target STOP."""

    lease: Lease
    reason: StopReason
    detail: str


@dataclass(frozen=True, slots=True)
class AskStop:
    """Ask the server to end; the runtime forces it after the grace."""

    lease: Lease
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Remove:
    """End what is there by force and forget it."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Release:
    """Seen to be gone: free the slot."""

    lease: Lease
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Settle:
    """Post the final charge and give the rest of the hold back."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class RemoveOrphan:
    """No live lease was read for it. Read the lease again before removing it: it may be newer than the list."""

    lease_id: str


Action = Observe | Close | RequestStop | AskStop | Remove | Release | Settle | RemoveOrphan


def drift(
    leases: Sequence[Lease], boots: Mapping[str, datetime], look: Look, now: datetime, policy: DriftPolicy
) -> list[Action]:
    """The actions that bring book and runtime together.

    `leases` are those of this runtime's host that are not settled; `boots` tells when each owner's heartbeat was last
    written. Both must have been read before `look` was taken, and `now` before both.
    """
    if isinstance(look, Unreachable):
        return []
    actions: list[Action] = []
    for lease in leases:
        actions += _of_lease(lease, boots, look.get(lease.id), now, policy)
    live = {lease.id for lease in leases if lease.live}
    actions += [RemoveOrphan(lease_id) for lease_id in look if lease_id not in live]
    return actions


def owner_alive(lease: Lease, boots: Mapping[str, datetime], now: datetime, policy: DriftPolicy) -> bool:
    """Whether the process that is starting this lease beat its heart lately."""
    beat = boots.get(lease.owner) if lease.owner is not None else None
    return beat is not None and now - beat <= policy.boot_fresh


def _of_lease(
    lease: Lease, boots: Mapping[str, datetime], seen: Seen | None, now: datetime, policy: DriftPolicy
) -> Iterator[Action]:
    if lease.holder.kind is not HolderKind.SERVER:
        return  # offers and bookings have no server and no owner here
    if lease.state is State.RELEASED:
        if seen is None:
            yield Settle(lease)
    elif lease.started_at is not None:
        yield from _confirmed(lease, lease.started_at, seen, now, policy)
    elif lease.target is Target.RUN:
        yield from _starting(lease, boots, now, policy)
    else:
        yield from _abandoned(lease, boots, seen, now, policy)


# ---- never confirmed -------------------------------------------------------------------------------------------


def _starting(lease: Lease, boots: Mapping[str, datetime], now: datetime, policy: DriftPolicy) -> Iterator[Action]:
    if not owner_alive(lease, boots, now, policy):
        yield RequestStop(lease, StopReason.FAILED, told.HUB_GONE)
    elif lease.deadline is not None and now >= lease.deadline:
        yield RequestStop(lease, StopReason.FAILED, told.NOT_READY)


def _abandoned(
    lease: Lease, boots: Mapping[str, datetime], seen: Seen | None, now: datetime, policy: DriftPolicy
) -> Iterator[Action]:
    if seen is not None:
        if not seen.running or _due(lease, now):
            yield Remove(lease)
    elif lease.state is State.STOPPING or _surely_ownerless(lease, boots, now, policy):
        yield Release(lease, now)


def _surely_ownerless(lease: Lease, boots: Mapping[str, datetime], now: datetime, policy: DriftPolicy) -> bool:
    """Whether the owner is dead and nothing it began can arrive any more."""
    if owner_alive(lease, boots, now, policy):
        return False
    if lease.state is State.RESERVED:
        return True  # nothing is started before STARTING is on record, and that can no longer be written
    beat = boots.get(lease.owner) if lease.owner is not None else None
    gone_since = lease.requested_at if beat is None else beat + policy.boot_fresh
    return now - gone_since >= policy.start_grace


# ---- confirmed -------------------------------------------------------------------------------------------------


def _confirmed(
    lease: Lease, started_at: datetime, seen: Seen | None, now: datetime, policy: DriftPolicy
) -> Iterator[Action]:
    last = lease.ended_at or max(started_at, lease.last_seen or started_at)
    if seen is None:
        if lease.target is Target.RUN:
            yield Close(lease, last, StopReason.FAILED, told.GONE)
        else:
            yield Release(lease, last)
    elif seen.running:
        yield Observe(lease)
        if lease.target is Target.STOP:
            yield from _ending(lease, now, policy)
    elif lease.ended_at is None:
        # Its record may have been forged, or its clock have jumped: not before it was last seen. Nor after the moment
        # of writing: the book sees to that, since `now` is older than the look, and it may have ended in between.
        ended_at = last if seen.ended_at is None else max(last, seen.ended_at)
        yield Close(lease, ended_at, *_why_ended(seen))
    else:
        yield Remove(lease)  # its end is in the book: what is left may go


def _ending(lease: Lease, now: datetime, policy: DriftPolicy) -> Iterator[Action]:
    """Until `stop_after` is the user's time to save. Then it is asked to end in good order, and soon made to.

    Both leave a record of the end, which a removal would take away before it is in the book: so that comes last.
    """
    if lease.stop_after is None:
        # No notice was given, so there is no moment to count from: the runtime itself forces what it was asked to end.
        yield AskStop(lease, policy.term.total_seconds()) if lease.state is State.RUNNING else Remove(lease)
    elif now >= lease.stop_after + LAST_RESORT * policy.term:
        yield Remove(lease)
    elif now >= lease.stop_after:
        yield AskStop(lease, max(0.0, (lease.stop_after + policy.term - now).total_seconds()))


def _due(lease: Lease, now: datetime) -> bool:
    return lease.stop_after is None or now >= lease.stop_after


def _why_ended(seen: Seen) -> tuple[StopReason, str]:
    """The reason and words for an end that nobody asked for."""
    if seen.ended_at is None:
        return StopReason.FAILED, told.NO_RECORD
    if seen.out_of_memory:
        return StopReason.FAILED, told.OUT_OF_MEMORY
    if seen.exit_code == 0:
        return StopReason.USER, told.FROM_INSIDE
    if seen.exit_code is None:
        return StopReason.FAILED, told.ENDED
    if seen.exit_code < 0:
        return StopReason.FAILED, told.SIGNAL % {"number": -seen.exit_code}
    return StopReason.FAILED, told.EXIT_CODE % {"code": seen.exit_code}
