"""The one table of legal pairs and moves."""

from __future__ import annotations

from itertools import product

import pytest

from quota.leases import LIVE, Holder, Lease, Price, State, Target
from quota.transitions import LEGAL, MOVES, IllegalMove, check
from quota.units import MicroCredits, MilliGpu
from tests.fakes.clock import START


def lease(state: State, target: Target) -> Lease:
    price = Price(1, MicroCredits(0), MicroCredits(0))
    return Lease(
        id="l1",
        version=1,
        state=state,
        target=target,
        holder=Holder("alice"),
        account_id=1,
        account="alice",
        profile="p",
        image="i",
        share=MilliGpu(500),
        count=1,
        slots=(),
        simulated=True,
        price=price,
        owner="b",
        requested_at=START,
        requested_by="alice",
    )


def test_the_table_is_closed() -> None:
    assert set(MOVES) == LEGAL
    assert {pair for pairs in MOVES.values() for pair in pairs} <= LEGAL


def test_every_pair_can_be_reached_and_every_life_ends() -> None:
    reached = {(State.RESERVED, Target.RUN)}
    while new := {pair for here in reached for pair in MOVES[here]} - reached:
        reached |= new
    assert reached == LEGAL
    ends = {pair for pair, following in MOVES.items() if not following}
    assert ends == {(State.SETTLED, Target.STOP)}


def test_a_slot_is_freed_only_after_a_stop_was_meant() -> None:
    for (state, target), following in MOVES.items():
        for state_after, _ in following:
            if state in LIVE and state_after not in LIVE:
                assert (target, state_after) == (Target.STOP, State.RELEASED)


def test_nobody_goes_on_from_a_start_that_was_stopped() -> None:
    assert (State.RUNNING, Target.RUN) not in MOVES[State.STARTING, Target.STOP]
    assert (State.STARTING, Target.RUN) not in MOVES[State.RESERVED, Target.STOP]


@pytest.mark.parametrize("here", sorted(LEGAL))
def test_only_the_moves_of_the_table_are_let_through(here: tuple[State, Target]) -> None:
    for there in product(State, Target):
        if there in MOVES[here]:
            check(lease(*here), *there)
        else:
            with pytest.raises(IllegalMove, match="not a legal move"):
                check(lease(*here), *there)
