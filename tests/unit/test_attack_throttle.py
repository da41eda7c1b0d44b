"""How often one caller may come: whatever callers and clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from quota.web.throttle import BURST, MOST_CALLERS, RATE_PER_SECOND, Throttle

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(-7200, 7200, allow_nan=False)), max_size=200)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_a_burst_then_so_many_a_second() -> None:
    throttle = Throttle()
    assert [throttle.take("a", NOW) for _ in range(BURST)] == [0] * BURST
    assert throttle.take("a", NOW) == 1
    taken = sum(throttle.take("a", at(number / 100)) == 0 for number in range(1, 1001))
    assert taken == 10 * RATE_PER_SECOND


def test_one_callers_flood_is_not_anothers() -> None:
    throttle = Throttle()
    for _ in range(1_000):
        throttle.take(("alice", ""), NOW)
    assert throttle.take(("alice", ""), NOW) > 0
    assert throttle.take(("alice", "two"), NOW) == 0
    assert throttle.take(("bob", ""), NOW) == 0


def test_who_keeps_to_the_kits_pace_is_never_refused() -> None:
    throttle = Throttle()
    assert not any(throttle.take("a", at(number)) for number in range(3600)), "a report a second, for an hour"


def test_what_is_waited_for_is_what_was_told() -> None:
    throttle = Throttle(rate=0.1, burst=1)
    throttle.take("a", NOW)
    wait = throttle.take("a", NOW)
    assert wait == 10
    assert throttle.take("a", at(wait)) == 0


@given(STEPS)
def test_no_clock_and_no_crowd_gives_more_than_the_rate(steps: list[tuple[str, float]]) -> None:
    """Clocks that jump to and fro: at most the burst, and the rate for every second that went forwards."""
    throttle, forwards, taken, before = Throttle(), 0.0, 0, 0.0
    for caller, second in steps:
        if caller != "a":
            throttle.take(caller, at(second))
            continue
        forwards += max(0.0, second - before)
        before = second
        taken += throttle.take("a", at(second)) == 0
    assert taken <= BURST + forwards * RATE_PER_SECOND


def test_a_crowd_of_callers_does_not_fill_the_memory() -> None:
    throttle = Throttle()
    for number in range(3 * MOST_CALLERS):
        throttle.take(number, NOW)
    assert len(throttle._left) == MOST_CALLERS
