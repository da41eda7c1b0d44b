"""Integers in named units, and their conversion at the edge."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.units import parse_credits, round_credits, show_credits, show_share


@pytest.mark.parametrize(
    ("text", "micro"),
    [("12.5", 12_500_000), ("0", 0), (" 3 ", 3_000_000), ("0.000001", 1), ("-2", -2_000_000), ("1e3", 1_000_000_000)],
)
def test_credits_are_read_as_people_write_them(text: str, micro: int) -> None:
    assert parse_credits(text) == micro


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-inf", "0.0000001", "1e12", "1,5", "1_0"])
def test_what_is_no_plain_number_of_credits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"credits|places"):
        parse_credits(text)


@given(st.integers(-(10**15), 10**15))
def test_six_places_of_credits_read_back_exactly(micro: int) -> None:
    assert parse_credits(show_credits(micro, places=6)) == micro


@given(st.integers(0, 10**15))
def test_nobody_is_shown_more_than_they_have(micro: int) -> None:
    assert 0 <= micro - parse_credits(show_credits(micro)) < 10_000


@pytest.mark.parametrize(("amount", "micro"), [(Fraction(1, 2), 0), (Fraction(3, 2), 2), (Fraction(7, 3), 2)])
def test_rounding_favours_no_direction(amount: Fraction, micro: int) -> None:
    assert round_credits(amount) == micro


@pytest.mark.parametrize(
    ("share", "count", "words"),
    [
        (0, 0, "CPU only"),
        (125, 1, "1/8 GPU"),
        (250, 1, "1/4 GPU"),
        (500, 1, "1/2 GPU"),
        (100, 1, "1/10 GPU"),
        (1000, 1, "1 GPU"),
        (1000, 2, "2 GPUs"),
        (300, 1, "0.3 GPU"),
    ],
)
def test_p15_a_share_has_a_name(share: int, count: int, words: str) -> None:
    assert show_share(share, count) == words
