"""The planner of MIG layouts against every layout that a card can have."""

from __future__ import annotations

import itertools

import pytest

from spawner import mig
from spawner.mig import MigProfile, MigRefused, Placed

#: What a real A100-SXM4-40GB tells (`nvidia-smi mig -lgip`, `-lgipp`).
ONE = MigProfile("1g.5gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), most=7)
WIDE = MigProfile("1g.10gb", 1, 2, (0, 2, 4, 6), most=4)
TWO = MigProfile("2g.10gb", 2, 2, (0, 2, 4), most=3)
THREE = MigProfile("3g.20gb", 3, 4, (0, 4), most=2)
FOUR = MigProfile("4g.20gb", 4, 4, (0,), most=1)
SEVEN = MigProfile("7g.40gb", 7, 8, (0,), most=1)
A100 = mig.named((ONE, WIDE, TWO, THREE, FOUR, SEVEN))
PLAIN = mig.named((ONE, TWO, THREE, FOUR, SEVEN))


def by_slices(profiles: mig.Profiles) -> set[mig.Layout]:
    """All layouts once more, by going through the card from its first slice to its last."""
    found = set()

    def go(at: int, compute: int, layout: tuple[Placed, ...]) -> None:
        if at >= 8:
            found.add(frozenset(layout))
            return
        go(at + 1, compute, layout)
        for profile in profiles.values():
            if at in profile.starts and at + profile.memory <= 8 and compute + profile.compute <= 7:
                go(at + profile.memory, compute + profile.compute, (*layout, Placed(profile.name, at)))

    go(0, 0, ())
    return found


@pytest.mark.parametrize(("profiles", "number"), [(A100, 723), (PLAIN, 298)])
def test_every_layout_of_a_card_is_known(profiles: mig.Profiles, number: int) -> None:
    found = mig.layouts(profiles)
    assert found == by_slices(profiles)
    assert len(found) == number


def test_nothing_that_overlaps_fits() -> None:
    everything = [Placed(each.name, start) for each in A100.values() for start in each.starts]
    allowed = mig.layouts(A100)
    for pair in itertools.combinations(everything, 2):
        assert mig.fits(frozenset(pair), A100) == (frozenset(pair) in allowed)
    assert not mig.fits(frozenset({Placed("2g.10gb", 1)}), A100)
    assert not mig.fits(frozenset({Placed("9g.90gb", 0)}), A100)


@pytest.mark.parametrize("profiles", [A100, PLAIN])
def test_what_fits_at_all_is_placed_and_nothing_else(profiles: mig.Profiles) -> None:
    possible = {mig.counts(layout) for layout in mig.layouts(profiles)}
    best = {
        counted: max(mig.freedom(each, profiles) for each in mig.layouts(profiles) if mig.counts(each) == counted)
        for counted in possible
        if sum(number for _name, number in counted) <= 2
    }
    for counted in possible:
        layout = mig.plan([name for name, number in counted for _each in range(number)], profiles)
        assert mig.fits(layout, profiles) and mig.counts(layout) == counted
        if counted in best:
            assert mig.freedom(layout, profiles) == best[counted]
    for names in itertools.combinations_with_replacement(profiles, 3):
        counted = tuple(sorted((name, names.count(name)) for name in set(names)))
        if counted not in possible:
            with pytest.raises(MigRefused, match="do not fit on one card"):
                mig.plan(names, profiles)


@pytest.mark.parametrize(
    ("wanted", "placed"),
    [
        (["3g.20gb"], "3g.20gb@4"),
        (["3g.20gb", "2g.10gb", "2g.10gb"], "3g.20gb@4,2g.10gb@2,2g.10gb@0"),
        (["4g.20gb", "3g.20gb"], "3g.20gb@4,4g.20gb@0"),
        (["7g.40gb"], "7g.40gb@0"),
        ([], ""),
    ],
)
def test_small_parts_stand_where_large_ones_still_fit(wanted: list[str], placed: str) -> None:
    assert mig.show(mig.plan(wanted, A100)) == placed


def test_one_small_part_stands_high() -> None:
    assert mig.show(mig.plan(["1g.5gb"], PLAIN)) == "1g.5gb@6"
    (alone,) = mig.plan(["1g.5gb"], A100)
    assert alone.start >= 4  # four slices from 0 on are left for the larger half


@pytest.mark.parametrize(("name", "number"), [("1g.5gb", 7), ("2g.10gb", 3), ("3g.20gb", 2), ("1g.10gb", 4)])
def test_a_card_has_seven_eighths_three_quarters_two_halves(name: str, number: int) -> None:
    assert mig.most_of(name, A100) == number
    assert number == max(dict(mig.counts(each)).get(name, 0) for each in mig.layouts(A100))


def test_parts_that_a_person_placed_stay_there() -> None:
    wanted, fixed = mig.parse("2g.10gb@4, 1g.5gb,1g.5gb")
    layout = mig.plan(wanted, A100, fixed)
    assert Placed("2g.10gb", 4) in layout and len(layout) == 3
    assert mig.parse(mig.show(layout)) == ((), layout)


@pytest.mark.parametrize("text", ["", "3g.20gb,", "3g 20gb", "1g.5gb@x", "1g.5gb@0,1g.5gb@0", "ä", "1g.5gb@"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(MigRefused):
        mig.parse(text)


def test_a_profile_that_the_card_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(MigRefused, match=r"no MIG profile 1g.12gb; it has 1g.5gb, 2g.10gb"):
        mig.plan(["1g.12gb"], PLAIN)
    with pytest.raises(MigRefused):
        mig.plan([], A100, frozenset({Placed("3g.20gb", 2)}))


def test_a_change_takes_what_it_must_and_keeps_the_rest() -> None:
    before, after = mig.parse("3g.20gb@4,2g.10gb@2,2g.10gb@0")[1], mig.parse("3g.20gb@4,4g.20gb@0")[1]
    change = mig.transitions(before, after)
    assert change.destroy == (Placed("2g.10gb", 2), Placed("2g.10gb", 0))
    assert change.create == (Placed("4g.20gb", 0),)
    assert change and not mig.transitions(after, after)
    assert mig.transitions(mig.EMPTY, before).create[0] == Placed("3g.20gb", 4)
