"""The table of the lease protocol, row by row, and what must hold for every world."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Holder, HolderKind, Lease, Price, State, StopReason, Target
from quota.transitions import LEGAL
from quota.units import MicroCredits, MilliGpu
from spawner.drift import (
    Action,
    AskStop,
    Close,
    DriftPolicy,
    Observe,
    Release,
    Remove,
    RemoveOrphan,
    RequestStop,
    Settle,
    drift,
)
from spawner.ports import Look, Seen, Unreachable
from tests.fakes.clock import START

POLICY = DriftPolicy()
NOW = START
FRESH = {"hub": NOW - timedelta(seconds=30)}
DEAD = {"hub": NOW - timedelta(seconds=31)}


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def lease(state: State, target: Target = Target.RUN, **changes: object) -> Lease:
    confirmed = state in (State.RUNNING, State.RELEASED)
    made = Lease(
        id="l1",
        version=3,
        state=state,
        target=target,
        holder=Holder("ada"),
        account_id=1,
        account="ada",
        profile="gpu-1-2",
        image="here",
        share=MilliGpu(500),
        count=1,
        slots=(),
        simulated=True,
        price=Price(1, MicroCredits(1_000_000), MicroCredits(0)),
        owner="hub",
        requested_at=at(-600),
        requested_by="ada",
        started_at=at(-590) if confirmed else None,
        last_seen=at(-2) if confirmed else None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


RUNNING = Seen("l1", True, at(-595))
LOST = Seen("l1", False, at(-595))


def ended(code: int | None = 3, when: datetime | None = None) -> Seen:
    return Seen("l1", False, at(-595), when or at(-1), code)


def plan(one: Lease, seen: Seen | None, boots: dict[str, datetime] = FRESH) -> list[Action]:
    look = {} if seen is None else {seen.lease_id: seen}
    return drift([one], boots, look, NOW, POLICY)


# ---- row by row ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("boots", [FRESH, DEAD])
def test_an_unreachable_runtime_means_nothing_at_all(state: State, boots: dict[str, datetime]) -> None:
    leases = [lease(s, t, deadline=at(-9), stop_after=at(-9)) for s, t in LEGAL if s is state]
    assert drift(leases, boots, Unreachable("no answer"), NOW, POLICY) == []


def test_a_running_server_is_observed() -> None:
    one = lease(State.RUNNING)
    assert plan(one, RUNNING) == [Observe(one)]


@pytest.mark.parametrize(
    ("seen", "end", "reason", "detail"),
    [
        (ended(0), at(-1), StopReason.USER, "ended from inside"),
        (ended(3), at(-1), StopReason.FAILED, "exit code 3"),
        (ended(-9), at(-1), StopReason.FAILED, "signal 9"),
        (ended(None), at(-1), StopReason.FAILED, "it ended"),
        (LOST, at(-2), StopReason.FAILED, "it ended without a record; charged to when it was last seen"),
        (None, at(-2), StopReason.FAILED, "it is gone; charged to when it was last seen"),
    ],
)
def test_x29_an_end_that_nobody_asked_for_is_closed(
    seen: Seen | None, end: datetime, reason: StopReason, detail: str
) -> None:
    one = lease(State.RUNNING)
    assert plan(one, seen) == [Close(one, end, reason, detail)]
    assert plan(one, seen, DEAD) == [Close(one, end, reason, detail)], "whatever became of the hub"


def test_an_end_is_never_before_the_start() -> None:
    early = ended(0, at(-700))
    for one, seen in (
        (lease(State.RUNNING, last_seen=None), early),
        (lease(State.RUNNING, last_seen=None), None),
        (lease(State.RUNNING, last_seen=at(-700)), None),
    ):
        (action,) = plan(one, seen)
        assert isinstance(action, Close) and action.ended_at == one.started_at


@pytest.mark.parametrize("forged", [at(-700), at(-3), at(+1), at(10**9)])
def test_an_end_on_record_is_not_before_the_last_look(forged: datetime) -> None:
    """Whoever can write the record cannot make their use shorter than what was seen. That it does not reach into the
    future either the book sees to: an end between `now` and the look is a true one."""
    one = lease(State.RUNNING)
    (action,) = plan(one, ended(0, forged))
    assert isinstance(action, Close) and action.ended_at == max(at(-2), forged)


@pytest.mark.parametrize("state", [State.RESERVED, State.STARTING])
@pytest.mark.parametrize("seen", [None, RUNNING, LOST, ended()])
def test_a_start_whose_owner_is_dead_is_given_up(state: State, seen: Seen | None) -> None:
    one = lease(state)
    for boots in (DEAD, {}, {"another-hub": NOW}):
        assert plan(one, seen, boots) == [RequestStop(one, StopReason.FAILED, "the hub that was starting it is gone")]


@pytest.mark.parametrize("seen", [None, RUNNING, LOST, ended()])
def test_a_start_whose_owner_lives_is_left_alone_until_its_deadline(seen: Seen | None) -> None:
    assert plan(lease(State.RESERVED), seen) == []
    assert plan(lease(State.STARTING, deadline=at(1)), seen) == []
    late = lease(State.STARTING, deadline=NOW)
    assert plan(late, seen) == [RequestStop(late, StopReason.FAILED, "it was not ready in time")]


@pytest.mark.parametrize("state", [State.RESERVED, State.STARTING])
def test_a_slot_waits_for_the_acknowledgement_of_a_living_owner(state: State) -> None:
    assert plan(lease(state, Target.STOP, deadline=at(-99)), None) == []


def test_an_acknowledged_start_is_released_when_nothing_is_there() -> None:
    one = lease(State.STOPPING, Target.STOP)
    assert plan(one, None) == [Release(one, NOW)]


def test_an_ownerless_start_is_released_after_the_grace_in_which_it_may_still_arrive() -> None:
    one = lease(State.STARTING, Target.STOP)
    assert plan(one, None, {"hub": at(-59)}) == []
    assert plan(one, None, {"hub": at(-60)}) == [Release(one, NOW)]
    assert plan(replace(one, requested_at=at(-29)), None, {}) == []
    assert plan(replace(one, requested_at=at(-30)), None, {}) == [Release(replace(one, requested_at=at(-30)), NOW)]


def test_an_ownerless_reservation_started_nothing_and_is_released_at_once() -> None:
    one = lease(State.RESERVED, Target.STOP)
    assert plan(one, None, DEAD) == [Release(one, NOW)]


@pytest.mark.parametrize("state", [State.RESERVED, State.STARTING, State.STOPPING])
@pytest.mark.parametrize("boots", [FRESH, DEAD])
def test_what_was_never_confirmed_is_removed_when_it_is_to_stop(state: State, boots: dict[str, datetime]) -> None:
    for seen in (RUNNING, LOST, ended()):
        one = lease(state, Target.STOP)
        assert plan(one, seen, boots) == [Remove(one)]


def test_a_running_server_has_its_notice_then_a_request_then_force() -> None:
    def planned(stop_after: datetime | None, state: State = State.RUNNING) -> list[Action]:
        one = lease(state, Target.STOP, stop_after=stop_after, started_at=at(-590))
        first, *others = plan(one, RUNNING)
        assert first == Observe(one), "the bill goes on until it is gone"
        return others

    one = lease(State.RUNNING, Target.STOP)
    assert planned(at(1)) == []
    assert planned(NOW) == [AskStop(replace(one, stop_after=NOW), 10.0)]
    assert planned(at(-3)) == [AskStop(replace(one, stop_after=at(-3)), 7.0)]
    assert planned(at(-10)) == [AskStop(replace(one, stop_after=at(-10)), 0.0)]
    assert planned(at(-29)) == [AskStop(replace(one, stop_after=at(-29)), 0.0)]
    assert planned(at(-30)) == [Remove(replace(one, stop_after=at(-30)))]
    assert planned(None) == [AskStop(one, 10.0)]
    assert [type(action) for action in planned(None, State.STOPPING)] == [Remove]


@pytest.mark.parametrize("state", [State.RUNNING, State.STOPPING])
def test_the_end_of_a_server_that_was_to_stop_goes_on_record_before_it_is_removed(state: State) -> None:
    one = lease(state, Target.STOP, started_at=at(-590), last_seen=at(-2), stop_after=at(100))
    assert plan(one, ended(0)) == [Close(one, at(-1), StopReason.USER, "ended from inside")]
    closed = replace(one, ended_at=at(-1))
    assert plan(closed, ended(0)) == [Remove(closed)]
    assert plan(closed, LOST) == [Remove(closed)]


@pytest.mark.parametrize("state", [State.RUNNING, State.STOPPING])
def test_a_server_that_was_to_stop_is_released_when_it_is_seen_to_be_gone(state: State) -> None:
    one = lease(state, Target.STOP, started_at=at(-590), last_seen=at(-2))
    assert plan(one, None) == [Release(one, at(-2))]
    assert plan(replace(one, ended_at=at(-7)), None) == [Release(replace(one, ended_at=at(-7)), at(-7))]


def test_a_released_lease_is_settled_when_nothing_is_there() -> None:
    one = lease(State.RELEASED, Target.STOP)
    assert plan(one, None) == [Settle(one)]
    assert plan(one, RUNNING) == [RemoveOrphan("l1")]


@pytest.mark.parametrize("seen", [RUNNING, LOST, ended()])
def test_s05_what_no_live_lease_asked_for_is_an_orphan(seen: Seen) -> None:
    other = lease(State.RUNNING, id="l2")
    look: Look = {"l1": seen, "l2": Seen("l2", True)}
    assert drift([other], FRESH, look, NOW, POLICY) == [Observe(other), RemoveOrphan("l1")]


@pytest.mark.parametrize("kind", [HolderKind.TICKET, HolderKind.BOOKING])
def test_room_held_by_tickets_and_bookings_has_no_server_and_no_owner(kind: HolderKind) -> None:
    one = lease(State.RESERVED, holder=Holder("ada", kind=kind), owner=None)
    assert plan(one, None, {}) == []


# ---- every world -----------------------------------------------------------------------------------------------

moments = st.none() | st.integers(-700, 100).map(at)
leases = st.builds(
    lambda pair, **changes: lease(*pair, **changes),
    st.sampled_from(sorted(LEGAL)),
    owner=st.sampled_from(["hub", "gone", None]),
    deadline=moments,
    last_seen=moments,
    ended_at=moments,
    stop_after=moments,
)
sights = st.none() | st.sampled_from([RUNNING, LOST, ended(0), ended(-9)])
hearts = st.sampled_from([FRESH, DEAD, {}])


@given(leases, sights, hearts)
def test_a_slot_is_only_freed_where_nothing_was_seen(one: Lease, seen: Seen | None, boots: dict[str, datetime]) -> None:
    for action in plan(one, seen, boots):
        if isinstance(action, Release | Settle):
            assert seen is None
        if isinstance(action, Release):
            assert one.target is Target.STOP, "the intent is on record first"
        if isinstance(action, Observe):
            assert seen is not None and seen.running


@given(leases, sights, hearts)
def test_a_confirmed_server_that_nobody_stops_is_never_touched(
    one: Lease, seen: Seen | None, boots: dict[str, datetime]
) -> None:
    if one.state is State.RUNNING and one.target is Target.RUN and seen == RUNNING:
        assert plan(one, seen, boots) == [Observe(one)]


@given(st.lists(leases, max_size=4), sights, hearts)
def test_each_lease_gets_its_own_actions_whatever_the_others_are(
    several: list[Lease], seen: Seen | None, boots: dict[str, datetime]
) -> None:
    named = [replace(one, id=f"l{number}") for number, one in enumerate(several)]
    look = {one.id: replace(seen, lease_id=one.id) for one in named} if seen else {}
    together = drift(named, boots, look, NOW, POLICY)
    alone = [
        a for one in named for a in drift([one], boots, {k: v for k, v in look.items() if k == one.id}, NOW, POLICY)
    ]
    assert sorted(map(repr, together)) == sorted(map(repr, alone))
