"""Two processes that do the same thing at the same moment, again and again, each with its own store on one book."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from quota.errors import BerthError, Refused
from quota.store import Store
from tests.fakes.book import Desk, do_not_wait_for_the_disk
from tests.fakes.clock import FakeClock

SIDES = ("left", "right")
PATIENCE = 120.0

#: What one side does in one round; a string or number comes back.
Step = Callable[[Desk, str, int], Any]


def nothing(_desk: Desk, _side: str, _number: int) -> None:
    """No clearing up."""


@dataclass(frozen=True)
class Race:
    """`step` is done by both sides at once, `rounds` times; `after` clears up, the sides one after the other."""

    step: Step
    rounds: int
    after: Step = nothing


def outcome(step: Step, desk: Desk, side: str, number: int) -> Any:
    """What a step returned, or the error as a word: a refusal by its reason, another error of the book by its name.
    Anything else is a fault and ends the race."""
    try:
        return step(desk, side, number)
    except Refused as refused:
        return refused.reason.value
    except BerthError as error:
        return type(error).__name__


def run_side(url: str, races: Sequence[Race], side: str, barrier: Any, answers: Any) -> None:
    with Store(url) as store:
        do_not_wait_for_the_disk(store)
        desk = Desk(store, FakeClock())
        found: list[list[Any]] = []
        try:
            for race in races:
                found.append([])
                for number in range(race.rounds):
                    barrier.wait(PATIENCE)
                    found[-1].append(outcome(race.step, desk, side, number))
                    barrier.wait(PATIENCE)
                    if side == "left":
                        race.after(desk, side, number)
                    barrier.wait(PATIENCE)
                    if side == "right":
                        race.after(desk, side, number)
        except BaseException as error:
            barrier.abort()
            answers.put((side, repr(error)))
            raise
        answers.put((side, found))


def run(url: str, *races: Race) -> list[list[tuple[Any, Any]]]:
    """The races one after the other; for each the outcomes of all rounds, as (left, right)."""
    context = get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    workers = [context.Process(target=run_side, args=(url, races, side, barrier, answers)) for side in SIDES]
    for worker in workers:
        worker.start()
    try:
        found = dict(answers.get(timeout=PATIENCE * 5) for _ in SIDES)
    finally:
        for worker in workers:
            worker.join(30)
            worker.kill()
            worker.join(5)
            worker.close()
        answers.close()
        answers.join_thread()
    left, right = found["left"], found["right"]
    assert isinstance(left, list) and isinstance(right, list), found
    return [list(zip(one, other, strict=True)) for one, other in zip(left, right, strict=True)]
