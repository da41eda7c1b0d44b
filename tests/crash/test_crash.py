"""Seeded crash schedules against the real drift, agent and book, and wrong designs that they must catch.

A seed makes the same world every time: `violation(seed, template)` alone repeats what a failure names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from quota.leases import Lease, State, Target
from spawner.agent import Agent, AgentPolicy
from spawner.drift import Action, Release
from spawner.ports import Look, Unreachable
from tests.crash.world import POLICY, Template, Violation, World
from tests.integration.agent_site import quick_folder

pytestmark = pytest.mark.crash

SEEDS = 300
DEEP_SEEDS = 10_000
BATCHES = 10


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    logging.getLogger("berth").setLevel(logging.CRITICAL)  # it tells of every trouble, and trouble is all there is
    with quick_folder() as folder:
        made = Template(folder)
        yield made
        made.store.close()
    logging.getLogger("berth").setLevel(logging.NOTSET)


def violation(seed: int, template: Template, design: type[Agent] = Agent, policy: AgentPolicy = POLICY) -> str | None:
    """What is wrong in this seed's world, if anything."""
    try:
        World(seed, template, design, policy).run()
    except Violation as wrong:
        return f"seed {seed}: {wrong}"
    return None


@pytest.mark.timeout(3600)  # the long form is a thousand worlds in one test
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_crash_schedule_breaks_the_protocol(batch: int, template: Template, deep: bool) -> None:
    seeds = range(batch, DEEP_SEEDS if deep else SEEDS, BATCHES)
    assert [found for seed in seeds if (found := violation(seed, template))] == []


# ---- wrong designs ---------------------------------------------------------------------------------------------


class FreesOnRequest(Agent):
    """The slot is free as soon as somebody asked for a stop."""

    def plan(self, leases: Sequence[Lease], boots: dict[str, datetime], look: Look, now: datetime) -> list[Action]:
        freed = [Release(one, now) for one in leases if one.state is State.RUNNING and one.target is Target.STOP]
        return [*super().plan(leases, boots, look, now), *freed]


class OutageIsAbsence(Agent):
    """A runtime that does not answer has nothing."""

    def plan(self, leases: Sequence[Lease], boots: dict[str, datetime], look: Look, now: datetime) -> list[Action]:
        return super().plan(leases, boots, {} if isinstance(look, Unreachable) else look, now)


class TrustsItsList(Agent):
    """What was not in the list read before the look is an orphan; nothing is read again."""

    def _remove_orphan(self, lease_id: str, now: datetime) -> bool:
        self._runtime.remove(lease_id)
        return True


class DeadlineFrees(Agent):
    """A start that is late and not seen is over; its owner is not waited for."""

    def plan(self, leases: Sequence[Lease], boots: dict[str, datetime], look: Look, now: datetime) -> list[Action]:
        late = [
            Release(one, now)
            for one in leases
            if one.state is State.STARTING and one.target is Target.STOP and not isinstance(look, Unreachable)
            if one.id not in look
        ]
        return [*super().plan(leases, boots, look, now), *late]


class NoGraceForStartsOnTheirWay(Agent):
    """The owner is dead and nothing is seen, so nothing will come."""


WRONG = {
    FreesOnRequest: POLICY,
    OutageIsAbsence: POLICY,
    TrustsItsList: POLICY,
    DeadlineFrees: POLICY,
    NoGraceForStartsOnTheirWay: replace(POLICY, start_grace=0),
}


@pytest.mark.parametrize("design", WRONG)
def test_a_wrong_design_is_caught(design: type[Agent], template: Template) -> None:
    caught = any(violation(seed, template, design, WRONG[design]) for seed in range(SEEDS))
    assert caught, "the schedules have no teeth for it"


def test_a_seed_is_the_same_world_every_time(template: Template) -> None:
    def history(seed: int) -> list[tuple[str, int]]:
        world = World(seed, template)
        world.run()
        order = list(dict.fromkeys(name for _, name in world.runtime.calls))  # ids are random, their order is not
        return [(call, order.index(name)) for call, name in world.runtime.calls]

    first = history(7)
    assert first and first == history(7)
