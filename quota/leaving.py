"""May a server that is to stop be ended yet? One answer for everybody who ends servers, whatever the reason. Pure.

Whoever wants the end writes the intent with `stop_after`, the moment until which the kit in the server may save. It
may be ended before that only once there is nothing left to save: the kit has said so.
"""

from __future__ import annotations

from datetime import datetime

from quota.leases import Lease, Target
from quota.reported import Farewell


def wait_until(lease: Lease, farewell: Farewell | None, now: datetime) -> datetime | None:
    """Until when a stopping server is left alone at most; None where it may be ended now."""
    if lease.target is not Target.STOP or lease.stop_after is None or lease.stop_after <= now:
        return None
    return None if farewell is not None and farewell.done_at is not None else lease.stop_after
