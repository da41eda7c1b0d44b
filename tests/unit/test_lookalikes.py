"""Names that a person takes for one another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.lookalikes import pairs, skeleton, spelled

START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ada", "аda"),
        ("toml", "tom1"),
        ("bob0", "bobo"),
        ("arnold", "amold"),
        ("vvendy", "wendy"),
        ("li", "ⅼi"),
        ("пaul", "паul"),
        ("scope", "ѕсоре"),
    ],
)
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    assert one != other and skeleton(one) == skeleton(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("ada", "ida"), ("li", "lee"), ("a.b", "a-b"), ("李明", "李鸣"), ("josé", "jose")],
)
def test_names_that_can_be_told_apart_do_not(one: str, other: str) -> None:
    assert skeleton(one) != skeleton(other)


@given(st.text(max_size=30))
def test_a_skeleton_is_its_own(name: str) -> None:
    assert skeleton(skeleton(name)) == skeleton(skeleton(skeleton(name)))


def test_a_newcomer_is_paired_with_the_oldest_name_it_can_be_taken_for() -> None:
    day = timedelta(days=1)
    known = [("аda", START + 9 * day), ("ada", START), ("adа", START + day), ("bob", START), ("tom", START + 9 * day)]
    assert pairs(known, START + 2 * day) == [("аda", "ada")]
    assert pairs(known, START) == [("adа", "ada"), ("аda", "ada")]
    assert pairs([], START) == []


def test_the_difference_is_spelled_out() -> None:
    assert spelled("аda") == "аda (а is CYRILLIC SMALL LETTER A)"
    assert spelled("ada") == "ada"
