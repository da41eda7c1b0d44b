"""The one way out of a server: how long it is left to save before it is ended, for every reason there is. Pure.

Whoever wants an end writes the intent with `stop_after`, the moment until which the kit in the server may save
(`stop_after` below says which). Whoever ends servers does so at that moment, or as soon as the kit has said that it is
done, whichever comes first (`wait_until`, `hastened`): a kit that says nothing, or lies, holds up nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from quota.leases import Lease, State, StopReason, Target
from quota.reported import Farewell

#: A kit that has not reported for so long is not waited for where a person waits.
KIT_FRESH: Final = timedelta(seconds=30)
#: So long before the end busy kernels are interrupted: from then on a stop is not taken back.
INTERRUPTS: Final = timedelta(seconds=30)

#: Somebody waits for these, in a browser or at a terminal.
BY_HAND: Final = frozenset({StopReason.USER, StopReason.ADMIN, StopReason.PLATFORM})
#: There is no kit, or nothing that it could save.
AT_ONCE: Final = frozenset({StopReason.NO_SHOW, StopReason.LEAK, StopReason.FAILED})
#: What its user can take back by using the server: it was about use, or their own wish.
TAKEN_BACK: Final = frozenset({StopReason.IDLE, StopReason.SHUTDOWN})

#: What the kit reported last: when, and the payload of the signal "kit".
Heard = tuple[datetime, Mapping[str, Any]]

_NOTHING: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class Graces:
    """How long servers may save at most: before stops that nobody waits for, and before those by hand."""

    automatic: timedelta = timedelta(minutes=2)
    by_hand: timedelta = timedelta(seconds=15)


NO_GRACE: Final = Graces(_NOTHING, _NOTHING)


def grace(reason: StopReason, heard: Heard | None, now: datetime, graces: Graces) -> timedelta:
    """How long a server that is stopped for `reason` at `now` may save.

    Nothing where no kit ever spoke, and where it has just said that there is nothing to save. A stop by hand waits
    for a kit only that spoke a moment ago; one that nobody waits for gives a silent kit its time too.
    """
    if reason in AT_ONCE or heard is None:
        return _NOTHING
    fresh = now - heard[0] <= KIT_FRESH
    if fresh and not has_work(heard[1]):
        return _NOTHING
    if reason in BY_HAND:
        return graces.by_hand if fresh else _NOTHING
    return graces.automatic


def has_work(payload: Mapping[str, Any]) -> bool:
    """Whether a kit's report tells of anything that an end could lose: kernels, terminals, documents not saved."""
    counts = (payload.get(name) for name in ("terminals", "children", "unsaved"))
    return bool(payload.get("kernels")) or any(isinstance(count, int) and count > 0 for count in counts)


def stop_after(reason: StopReason, heard: Heard | None, now: datetime, graces: Graces) -> datetime:
    """Not before this moment, or the kit's word that it is done, a server that is stopped now is ended."""
    return now + grace(reason, heard, now, graces)


def wait_until(lease: Lease, farewell: Farewell | None, now: datetime) -> datetime | None:
    """Until when a server that is to stop is left to save at most; None where it may be ended now."""
    if lease.state is not State.RUNNING or lease.target is not Target.STOP:
        return None
    if lease.stop_after is None or lease.stop_after <= now or (farewell is not None and farewell.done_at is not None):
        return None
    return lease.stop_after


def hastened(leases: Iterable[Lease], farewells: Mapping[str, Farewell]) -> list[Lease]:
    """The leases; one whose kit is done is due since then."""
    return [_hastened(lease, farewells.get(lease.id)) for lease in leases]


def _hastened(lease: Lease, farewell: Farewell | None) -> Lease:
    if farewell is None or farewell.done_at is None or lease.stop_after is None or lease.target is not Target.STOP:
        return lease
    return replace(lease, stop_after=min(lease.stop_after, farewell.done_at))


def may_take_back(lease: Lease, farewell: Farewell | None, now: datetime) -> bool:
    """Whether somebody who works on in a server that is to stop keeps it: nothing of it was interrupted yet, and
    nobody has begun to end it."""
    until = wait_until(lease, farewell, now)
    return lease.stop_reason in TAKEN_BACK and until is not None and until - now > INTERRUPTS
