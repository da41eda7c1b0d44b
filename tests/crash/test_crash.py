"""Seeded crash schedules against the real book, drift, agent and spawner, and wrong designs that they must catch.

A seed makes the same world every time: `violation(seed, template)` alone repeats what a failure names.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from tests.crash.designs import WRONG
from tests.crash.parts import Template
from tests.crash.trouble import Chaos, violation
from tests.crash.world import World

pytestmark = pytest.mark.crash

SEEDS = 300
DEEP_SEEDS = 10_000
BATCHES = 10


@pytest.mark.timeout(7200)  # the long form is a thousand worlds in one test
@pytest.mark.parametrize("batch", range(BATCHES))
def test_n02_no_crash_schedule_breaks_the_protocol(batch: int, template: Template, deep: bool) -> None:
    seeds = range(batch, DEEP_SEEDS if deep else SEEDS, BATCHES)
    assert [found for seed in seeds if (found := violation(seed, template))] == []


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_design_is_caught(
    name: str, template: Template, deep: bool, record_property: Callable[[str, object], None]
) -> None:
    """By default up to the first seed that catches it; the long form counts how many of 300 do."""
    tried, caught = 0, 0
    for seed in range(SEEDS):
        tried += 1
        caught += violation(seed, template, WRONG[name]) is not None
        if caught and not deep:
            break
    print(f"{name}: caught by {caught} of {tried} seeds")
    record_property("caught", f"{caught} of {tried} seeds")
    assert caught, "the schedules have no teeth for it"


def test_a_seed_is_the_same_world_every_time(template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    def history(seed: int) -> list[tuple[str, int]]:
        numbers = count()  # ids are random, and decide who comes first of two that end in the same moment
        monkeypatch.setattr("quota.reserving.secrets.token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
        chaos = Chaos(seed)
        world = World(template, chaos)
        for _ in range(20):
            world.start(chaos.session())
            world.second(chaos.draw.choice((1, 3)))
        world.heal()
        world.close()
        order = list(dict.fromkeys(name for _, name in world.runtime.calls))
        return [(call, order.index(name)) for call, name in world.runtime.calls]

    first = history(8)
    assert len(first) > 3 and first == history(8)
