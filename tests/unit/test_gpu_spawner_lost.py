"""The Hub's spawner against fakes: the book has committed, and its answer was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quota.leases import State, StopReason, Target
from tests.fakes.spawner_world import World, assert_given_back, refusal, until


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def test_s06_x08_a_reservation_that_was_committed_and_not_answered_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The book has it and the start does not know: without asking again it would be held until the next start."""
    reserve = world.book.reserve

    def committed_and_lost(*args: Any) -> Any:
        reserve(*args)
        raise OSError("the connection was lost")

    monkeypatch.setattr(world.book, "reserve", committed_and_lost)
    refused = await refusal(world.spawner(profile="gpu-1").start())
    assert refused.reason == "book-unavailable"
    assert_given_back(world, StopReason.FAILED)


async def test_s06_x08_a_confirmation_that_was_committed_and_not_answered_is_undone_and_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intent first: what the book may have as running is not ended before it can be told."""
    mark_running = world.book.mark_running

    def committed_and_lost(*args: Any) -> Any:
        mark_running(*args)
        world.book.broken = {"request_stop"}
        raise OSError("the connection was lost")

    monkeypatch.setattr(world.book, "mark_running", committed_and_lost)
    assert (await refusal(world.spawner(profile="gpu-1").start())).reason == "book-unavailable"
    lease = world.book.one()
    assert (lease.state, lease.target) == (State.RUNNING, Target.RUN)
    assert world.runtime.alive() == {lease.id}
    world.book.broken = set()
    await until(lambda: world.book.one().state is State.STOPPING)
    lease = world.book.one()
    assert (lease.stop_reason, world.runtime.servers, world.book.voided) == (StopReason.FAILED, {}, {lease.id})
