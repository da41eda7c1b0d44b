"""One story, from a start to the bill, with something wrong at every durable step of it, and at pairs of steps.

A durable step is a moment right before or right after a commit (of the book or of the Hub's own database) or a call
that changes the runtime. They are counted in a run without trouble, so that a new one is covered as soon as it exists.
"""

from __future__ import annotations

import itertools
import random

import pytest

from quota.leases import State, Target
from tests.crash.designs import WRONG
from tests.crash.hub import Session
from tests.crash.parts import BEFORE, BEGIN, COMMITTED, HUB_BEGIN, LOOK, Template
from tests.crash.trouble import KINDS, OUTAGES, At, no_answer, story
from tests.crash.world import RIGHT, AgentLife, Life, World

pytestmark = pytest.mark.crash

#: Of all that could happen at a step, these are tried at each by default; the others at a sample.
ALWAYS = ("dies", "no answer", "answer lost with the database")
SAMPLED = tuple(kind for kind in (*KINDS, *OUTAGES) if kind not in ALWAYS)
SAMPLE, PAIRS = 24, 30


@pytest.fixture(scope="module")
def steps(template: Template) -> list[tuple[str, str]]:
    at = At()
    assert story(template, at) is None
    return at.steps


def wrong(template: Template, cases: list[dict[int, str]]) -> list[str]:
    assert cases
    return [found for case in cases if (found := story(template, At(case)))]


def test_the_story_has_every_kind_of_step(steps: list[tuple[str, str]]) -> None:
    before = {(who, point) for who, point in steps if point in (BEGIN, BEFORE, HUB_BEGIN)}
    assert before == {
        *(("hub", point) for point in (BEGIN, BEFORE, HUB_BEGIN)),
        *(("agent", point) for point in (BEGIN, BEFORE)),
        ("service", BEGIN),
    }
    assert steps.count(("service", BEGIN)) >= 4, "a report, a farewell that begins, goes on and is done"
    assert len(steps) >= 80 and len(steps) % 2 == 0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ALWAYS)
def test_n02_trouble_at_any_one_durable_step_heals(kind: str, template: Template, steps: list[tuple[str, str]]) -> None:
    assert wrong(template, [{number: kind} for number in range(1, len(steps) + 1)]) == []


@pytest.mark.timeout(7200)
def test_n02_every_other_trouble_at_a_durable_step_heals(
    template: Template, steps: list[tuple[str, str]], deep: bool
) -> None:
    cases = [{number: kind} for number in range(1, len(steps) + 1) for kind in SAMPLED]
    assert wrong(template, cases if deep else random.Random(1).sample(cases, SAMPLE)) == []


@pytest.mark.timeout(7200)
def test_n02_deaths_at_any_two_durable_steps_heal(template: Template, steps: list[tuple[str, str]], deep: bool) -> None:
    """After the first the rest of the story differs; the second comes so many steps of that one later."""
    pairs = [{first: "dies", second: "dies"} for first, second in itertools.combinations(range(1, len(steps) + 1), 2)]
    assert wrong(template, pairs if deep else random.Random(2).sample(pairs, PAIRS)) == []


@pytest.mark.parametrize("name", [None, "a stop is not swapped on what it was decided on"])
def test_an_agent_that_takes_a_hub_for_dead_does_not_stop_what_it_confirmed_meanwhile(
    name: str | None, template: Template
) -> None:
    """A silent hub comes back and confirms its server after the agent has read the book, and before it writes."""
    met: list[str] = []

    def comes_back_while_the_agent_looks(world: World, life: Life, point: str) -> None:
        if point == LOOK and isinstance(life, AgentLife) and not met:
            met.append(world.book.live()[0].state.value)
            for _ in range(2):
                world.advance(1)
                world.turn(60)
            met.append(world.book.live()[0].state.value)

    world = World(template, comes_back_while_the_agent_looks, WRONG[name] if name else RIGHT)
    assert world.hub is not None
    try:
        world.start(Session("ada", "gpu-1-2", stays=30, boot=10.0))
        world.turn(60)
        world.hub.paused_until = world.hub.loop.time() + 35
        world.advance(34)
        world.cycle()
        (lease,) = world.book.live()
        assert met == ["STARTING", "RUNNING"]
        assert lease.target is (Target.STOP if name else Target.RUN)
    finally:
        world.close()


def test_a_hub_that_was_given_up_while_it_made_a_home_starts_nothing(template: Template) -> None:
    """It stands still for longer than an owner is waited for, and goes on when its room is free for others already."""
    world = World(template)
    assert world.hub is not None
    try:
        world.start(Session("ada", "gpu-1-2", slow=(20.0, 0.0)))
        for _ in range(5):
            world.second()
        (lease,) = world.book.live()
        assert lease.state.value == "STARTING" and not world.runtime.calls, "it is making the home"
        world.hub.paused_until = world.hub.loop.time() + 70
        for _ in range(69):
            world.second()
        assert world.book.live() == [], "the agent has given it up"
        for _ in range(5):
            world.second()  # it goes on; the world sees to it that nothing runs without a lease
        assert world.runtime.calls == []
        world.heal()
    finally:
        world.close()


@pytest.mark.parametrize("again", [False, True])
def test_a_reservation_that_was_committed_before_the_database_went_away_is_given_back(
    again: bool, template: Template
) -> None:
    """Its answer was lost and the book cannot be asked: the start knows of nothing, and its hub lives on. Also where
    the same user starts again meanwhile: the new start keeps what it holds."""
    lost: list[str] = []

    def goes_away(world: World, life: Life, point: str) -> None:
        if not lost and point == COMMITTED and not isinstance(life, AgentLife) and world.book.live():
            lost.append(world.book.live()[0].id)
            world.down = True
            no_answer(point)

    world = World(template, goes_away)
    try:
        world.start(Session("ada", "gpu-1"))
        for _ in range(12):
            world.second()
        world.down = False
        assert [lease.id for lease in world.book.live()] == lost, "the fault is there"
        if again:
            world.start(Session("ada", "gpu-1", stays=60))
        for _ in range(15):
            world.second()
        assert world.book.lease(lost[0]).state is State.SETTLED
        assert [lease.state for lease in world.book.live()] == [State.RUNNING] * again
        world.heal()
    finally:
        world.close()


@pytest.mark.timeout(3600)
def test_settlement_in_three_commits_is_caught_by_a_death_between_them(template: Template) -> None:
    design = WRONG["settlement in three commits without natural keys"]
    at = At()
    assert story(template, at, design) is None, "without a crash nobody sees the difference"
    found = [story(template, At({number: "dies"}), design) for number in range(len(at.steps) - 8, len(at.steps) + 1)]
    assert any(found)
