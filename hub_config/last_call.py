"""Before `berth up` ends everything: the servers are asked to save, all at once, while service berth still hears them.

The intent is in the book before anything is waited for, so that whatever dies meanwhile, every server ends. The agent
ends each as soon as its kit is done; nobody waits for longer than `save.by_hand`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from hub_config.compose import Parts
from quota.leases import HolderKind, Lease, State, StopReason
from quota.told import BERTH_STOPS

log = logging.getLogger("berth.up")

LOOK_SECONDS = 0.2
#: `berth up` by its name in the history of a lease.
BY = "berth up"


def let_save(made: Parts, hurry: threading.Event, say: Callable[[str], None], tend: Callable[[], None]) -> None:
    """Ask every running server to save and wait, in bounds, until they have. `hurry` ends the wait; `tend` is called
    between looks. Raises `Refused` where the book does not answer."""
    asked = [lease for lease in made.book.live() if _runs(lease)]
    for lease in asked:
        made.way_out.request(lease.id, StopReason.PLATFORM, detail=BERTH_STOPS, by=BY)
    saving = _still_saving(made, asked)
    if not saving:
        return
    until = made.clock.now() + made.way_out.graces.by_hand + timedelta(seconds=1)
    number, seconds = len(saving), int(made.way_out.graces.by_hand.total_seconds())
    what = "1 user server saves" if number == 1 else f"{number} user servers save"
    say(f"\nStopping: {what} what is open, up to {seconds} s (Ctrl-C again: do not wait) …")
    left = number
    while saving and made.clock.now() < until and not hurry.wait(LOOK_SECONDS):
        tend()
        saving = _still_saving(made, saving)
        if len(saving) < left:
            left = len(saving)
            say(f"  {number - left} of {number} done")
    told = {"event": "up-saved", "servers": number, "unfinished": len(saving)}
    log.info("%d of %d servers have saved", number - len(saving), number, extra=told)


def _runs(lease: Lease) -> bool:
    return lease.holder.kind is HolderKind.SERVER and lease.state is State.RUNNING


def _still_saving(made: Parts, leases: list[Lease]) -> list[Lease]:
    """Those that are left to save, each no longer than somebody who waits should."""
    most = made.clock.now() + made.way_out.graces.by_hand
    found = [(lease, made.way_out.wait_until(lease.id)) for lease in leases]
    return [lease for lease, until in found if until is not None and until <= most]
