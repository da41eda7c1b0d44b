"""Every legal (state, target) pair of a lease and every move between them, in one place. Pure.

A lease is freed only after its server has been *seen* to be gone (ARCHITECTURE, "The lease protocol"): so every way
out of a live state leads through the target STOP.
"""

from __future__ import annotations

from quota.errors import BerthError
from quota.leases import Lease, State, Target

Pair = tuple[State, Target]

LEGAL: frozenset[Pair] = frozenset(
    {
        (State.RESERVED, Target.RUN),
        (State.RESERVED, Target.STOP),
        (State.STARTING, Target.RUN),
        (State.STARTING, Target.STOP),
        (State.RUNNING, Target.RUN),
        (State.RUNNING, Target.STOP),
        (State.STOPPING, Target.STOP),
        (State.RELEASED, Target.STOP),
        (State.SETTLED, Target.STOP),
    }
)

#: From a pair to the pairs that one write may reach.
MOVES: dict[Pair, frozenset[Pair]] = {
    (State.RESERVED, Target.RUN): frozenset(
        {(State.STARTING, Target.RUN), (State.RESERVED, Target.STOP), (State.STOPPING, Target.STOP)}
    ),
    (State.STARTING, Target.RUN): frozenset(
        {(State.RUNNING, Target.RUN), (State.STARTING, Target.STOP), (State.STOPPING, Target.STOP)}
    ),
    (State.RUNNING, Target.RUN): frozenset({(State.RUNNING, Target.STOP), (State.STOPPING, Target.STOP)}),
    # The owner is dead or has given up, and nothing was seen: gone.
    (State.RESERVED, Target.STOP): frozenset({(State.STOPPING, Target.STOP), (State.RELEASED, Target.STOP)}),
    (State.STARTING, Target.STOP): frozenset({(State.STOPPING, Target.STOP), (State.RELEASED, Target.STOP)}),
    # Back to RUN: an idle server came back to life inside its notice.
    (State.RUNNING, Target.STOP): frozenset(
        {(State.RUNNING, Target.RUN), (State.STOPPING, Target.STOP), (State.RELEASED, Target.STOP)}
    ),
    (State.STOPPING, Target.STOP): frozenset({(State.RELEASED, Target.STOP)}),
    (State.RELEASED, Target.STOP): frozenset({(State.SETTLED, Target.STOP)}),
    (State.SETTLED, Target.STOP): frozenset(),
}


class IllegalMove(BerthError):
    """A move that is not in the table: a fault of the caller, never of timing."""


def check(lease: Lease, state: State, target: Target) -> None:
    """Raise `IllegalMove` unless the table allows the lease to go to (state, target)."""
    here = (lease.state, lease.target)
    if (state, target) not in MOVES.get(here, frozenset()):
        raise IllegalMove(f"lease {lease.id}: {here[0]}/{here[1]} to {state}/{target} is not a legal move")
