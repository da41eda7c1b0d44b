"""What a stretch of time costs: cumulative, exact, rounded once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Price, Segment
from quota.pricing import carries, charge_due, cost, hold_for, hourly
from quota.units import MicroCredits, MilliGpu

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
PRICE = Price(1, MicroCredits(1_000_000), MicroCredits(50_000))

prices = st.builds(Price, st.just(1), st.integers(0, 10**9).map(MicroCredits), st.integers(0, 10**9).map(MicroCredits))
weights = st.sampled_from([0, 100, 125, 250, 333, 500, 1000, 2000]).map(MilliGpu)
moments = st.integers(0, 10**12).map(lambda us: START + timedelta(microseconds=us))


def part(weight: int, start: float, end: float | None, price: Price = PRICE, number: int = 1) -> Segment:
    finish = None if end is None else START + timedelta(seconds=end)
    return Segment(number, MilliGpu(weight), price, START + timedelta(seconds=start), finish)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_one_gpu_hour_costs_its_price() -> None:
    assert charge_due([part(1000, 0, 3600)], at(9999)) == 1_000_000
    assert charge_due([part(500, 0, 3600)], at(9999)) == 500_000
    assert charge_due([part(2000, 0, 1800)], at(9999)) == 1_000_000


def test_a_cpu_server_has_its_own_rate() -> None:
    assert charge_due([part(0, 0, 7200)], at(9999)) == 100_000
    assert hourly(PRICE, MilliGpu(0)) == 50_000
    assert hourly(PRICE, MilliGpu(250)) == 250_000


def test_an_open_segment_is_due_up_to_the_moment_asked_for() -> None:
    assert charge_due([part(1000, 0, None)], at(36)) == 10_000
    assert charge_due([part(1000, 100, None)], at(36)) == 0


def test_every_segment_has_its_own_price_and_weight() -> None:
    dear = Price(2, MicroCredits(3_000_000), MicroCredits(0))
    segments = [part(1000, 0, 3600), part(500, 3600, 7200, dear, 2)]
    assert charge_due(segments, at(7200)) == 1_000_000 + 1_500_000


def test_cost_is_exact() -> None:
    assert cost(PRICE, MilliGpu(1), timedelta(microseconds=1)) == Fraction(1000, 3600 * 10**6)


@given(prices, weights, st.lists(moments, min_size=1, max_size=20))
def test_a_split_period_costs_as_much_as_the_whole(price: Price, weight: MilliGpu, cuts: list[datetime]) -> None:
    segment = [Segment(1, weight, price, START)]
    posted = 0
    for cut in sorted(cuts):
        posted += charge_due(segment, cut) - posted
    assert posted == charge_due(segment, max(cuts))


@given(prices, weights, moments, moments)
def test_what_is_due_never_shrinks(price: Price, weight: MilliGpu, one: datetime, two: datetime) -> None:
    segment = [Segment(1, weight, price, START)]
    assert charge_due(segment, min(one, two)) <= charge_due(segment, max(one, two))


@given(prices, weights, st.integers(0, 10**6))
def test_a_hold_covers_what_it_was_made_for(price: Price, weight: MilliGpu, seconds: int) -> None:
    hold = hold_for(price, weight, seconds)
    assert hold >= charge_due([Segment(1, weight, price, START)], at(seconds))
    lasting = carries(price, weight, hold)
    assert lasting is None or lasting >= timedelta(seconds=seconds)


def test_a_price_of_nothing_lasts_for_ever() -> None:
    free = Price(1, MicroCredits(0), MicroCredits(0))
    assert hold_for(free, MilliGpu(1000), 900) == 0
    assert carries(free, MilliGpu(1000), 0) is None
    assert carries(PRICE, MilliGpu(1000), 250_000) == timedelta(minutes=15)


def test_negative_weights_and_times_are_errors() -> None:
    with pytest.raises(ValueError, match="negative"):
        hourly(PRICE, MilliGpu(-1))
    with pytest.raises(ValueError, match="negative"):
        cost(PRICE, MilliGpu(1), timedelta(seconds=-1))
