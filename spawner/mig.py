"""How a card is divided by MIG: which parts fit beside each other, where they are put, what a change takes. Pure.

A card has eight slices of memory and seven of compute. A part of a profile takes `memory` slices in a row, from one of
the starts that the card allows, and `compute` slices. All of this is read from the driver; none of it is known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quota.errors import BerthError

#: Slices of a card: what can be given to parts.
MEMORY_SLICES: Final = 8
COMPUTE_SLICES: Final = 7
#: Milli-GPU of one slice of memory; room and price of a part go by its memory.
SLICE_MILLI: Final = 125

_PART = re.compile(r"([A-Za-z0-9][\w.+]{0,31})(?:@([0-9]{1,2}))?")


class MigRefused(BerthError):
    """A layout that the card cannot have; the words say why, and what it can."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One way of cutting a part. `starts` are the first memory slices at which the card allows it, `number` is the
    driver's own of the profile, `memory_mib` what a program gets of it (None: not told), `most` how many a card may
    have at once."""

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]
    number: int = -1
    memory_mib: int | None = None
    most: int = COMPUTE_SLICES

    @property
    def share(self) -> int:
        """Milli-GPU that a part counts for: its memory slices."""
        return SLICE_MILLI * self.memory


@dataclass(frozen=True, slots=True, order=True)
class Placed:
    """A part in its place: `start` is its first memory slice."""

    profile: str
    start: int

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


Layout = frozenset[Placed]
Profiles = Mapping[str, MigProfile]
EMPTY: Final[Layout] = frozenset()


def named(profiles: Iterable[MigProfile]) -> dict[str, MigProfile]:
    """By their names."""
    return {profile.name: profile for profile in profiles}


def fits(layout: Layout, profiles: Profiles) -> bool:
    """Whether the card can have all these parts at once."""
    taken = 0
    compute = 0
    for part in layout:
        profile = profiles.get(part.profile)
        if profile is None or part.start not in profile.starts or taken & _slices(profile, part.start):
            return False
        taken |= _slices(profile, part.start)
        compute += profile.compute
    counts = Counter(part.profile for part in layout)
    few = all(number <= profiles[name].most for name, number in counts.items())
    return few and compute <= COMPUTE_SLICES and taken < 1 << MEMORY_SLICES


def _slices(profile: MigProfile, start: int) -> int:
    """The memory slices that it takes, a bit each."""
    return ((1 << profile.memory) - 1) << start


def layouts(profiles: Profiles) -> frozenset[Layout]:
    """Every layout that the card can have, the empty one as well."""
    found = {EMPTY}
    edge = [EMPTY]
    while edge:
        larger = {more for layout in edge for more in _one_more(layout, profiles)} - found
        found |= larger
        edge = list(larger)
    return frozenset(found)


def _one_more(layout: Layout, profiles: Profiles) -> Iterator[Layout]:
    for profile in profiles.values():
        for start in profile.starts:
            more = layout | {Placed(profile.name, start)}
            if len(more) > len(layout) and fits(more, profiles):
                yield more


def counts(layout: Layout) -> tuple[tuple[str, int], ...]:
    """How many parts of each profile, by name."""
    return tuple(sorted(Counter(part.profile for part in layout).items()))


def most_of(name: str, profiles: Profiles) -> int:
    """How many parts of this one profile a card can have: 7, 3 and 2 of an eighth, a quarter and a half, as one of the
    eight memory slices has no compute beside it."""
    profile = profiles[name]
    taken, compute, number = 0, 0, 0
    for start in sorted(profile.starts):
        free = not taken & _slices(profile, start) and start + profile.memory <= MEMORY_SLICES
        if free and compute + profile.compute <= COMPUTE_SLICES and number < profile.most:
            taken |= _slices(profile, start)
            compute, number = compute + profile.compute, number + 1
    return number


def plan(wanted: Sequence[str], profiles: Profiles, fixed: Layout = EMPTY) -> Layout:
    """Places for parts of these profiles beside those that are `fixed`: of all layouts that hold them the one to which
    most can still be added, then the one whose parts start highest (a part at a low start is in the way of large ones).

    Raises `MigRefused`: a profile that the card does not have, or parts that do not fit on it together.
    """
    for name in (*wanted, *(part.profile for part in fixed)):
        if name not in profiles:
            raise MigRefused(f"this card has no MIG profile {name}; it has {', '.join(sorted(profiles))}")
    found = set(_placings(_largest_first(wanted, profiles), fixed, profiles)) if fits(fixed, profiles) else set()
    if not found:
        asked = ", ".join([*(str(part) for part in sorted(fixed)), *wanted])
        raise MigRefused(
            f"{asked} do not fit on one card together: it has {MEMORY_SLICES} slices of memory and {COMPUTE_SLICES} of "
            "compute, and a part can begin only at certain slices"
        )
    return max(found, key=lambda layout: (freedom(layout, profiles), _heights(layout, profiles)))


def _largest_first(wanted: Sequence[str], profiles: Profiles) -> tuple[str, ...]:
    return tuple(sorted(wanted, key=lambda name: (-profiles[name].memory, -profiles[name].compute, name)))


def _placings(wanted: tuple[str, ...], layout: Layout, profiles: Profiles) -> Iterator[Layout]:
    if not wanted:
        yield layout
        return
    for start in sorted(profiles[wanted[0]].starts, reverse=True):
        more = layout | {Placed(wanted[0], start)}
        if len(more) > len(layout) and fits(more, profiles):
            yield from _placings(wanted[1:], more, profiles)


def freedom(layout: Layout, profiles: Profiles) -> int:
    """In how many ways the rest of the card could be used: sets of parts that still fit beside these, by their numbers
    alone."""
    seen = {layout}
    edge = [layout]
    while edge:
        edge = list({more for each in edge for more in _one_more(each, profiles)} - seen)
        seen.update(edge)
    return len({counts(each - layout) for each in seen})


def _heights(layout: Layout, profiles: Profiles) -> tuple[tuple[int, int, str], ...]:
    """The starts, of large parts first."""
    return tuple(sorted(((profiles[part.profile].memory, part.start, part.profile) for part in layout), reverse=True))


@dataclass(frozen=True, slots=True)
class Change:
    """What makes the present layout the desired one: first what goes, then what comes, the highest start first."""

    destroy: tuple[Placed, ...]
    create: tuple[Placed, ...]

    def __bool__(self) -> bool:
        return bool(self.destroy or self.create)


def transitions(present: Layout, desired: Layout) -> Change:
    """Parts that both have stay as they are, with the UUIDs that the driver gave them."""
    ordered = [
        tuple(sorted(parts, key=lambda part: (-part.start, part.profile)))
        for parts in (present - desired, desired - present)
    ]
    return Change(*ordered)


def parse(text: str) -> tuple[tuple[str, ...], Layout]:
    """ "3g.20gb,2g.10gb@0": profiles without a place, and parts with one. Raises `MigRefused`."""
    wanted: list[str] = []
    fixed: set[Placed] = set()
    for word in (each.strip() for each in text.split(",")):
        found = _PART.fullmatch(word)
        if found is None:
            raise MigRefused(
                f"{word!r} is no part: write a profile of the card, as in 3g.20gb, or with its start, 3g.20gb@4"
            )
        if found[2] is None:
            wanted.append(found[1])
            continue
        part = Placed(found[1], int(found[2]))
        if part in fixed:
            raise MigRefused(f"{part} stands there twice")
        fixed.add(part)
    return tuple(wanted), frozenset(fixed)


def show(layout: Layout) -> str:
    """As `parse` reads it, the highest start first; "" for none."""
    return ",".join(str(part) for part in sorted(layout, key=lambda part: (-part.start, part.profile)))
