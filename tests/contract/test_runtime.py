"""What every runtime keeps, the fake included. Whoever writes the next one adds a world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spawner.ports import Load, Unreachable
from tests.contract.runtime_worlds import FakeWorld, LocalWorld, World, seen_in


@pytest.fixture(params=["fake", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    local = LocalWorld(tmp_path)
    yield local
    local.clean()


def test_an_empty_runtime_shows_nothing(world: World) -> None:
    assert world.runtime.look() == {}


def test_a_started_server_is_seen_running(world: World) -> None:
    world.start("l1")
    seen = seen_in(world.runtime.look(), "l1")
    assert seen is not None and seen.running and seen.started_at is not None
    assert seen.ended_at is None and seen.exit_code is None


def test_a_lease_is_started_once(world: World) -> None:
    world.start("l1")
    with pytest.raises(RuntimeError, match="started before"):
        world.ask_start("l1")
    assert seen_in(world.runtime.look(), "l1").running  # type: ignore[union-attr]


def test_an_ended_server_is_not_started_again(world: World) -> None:
    world.start("l1")
    world.finish("l1", 0)
    world.until(lambda: not seen_in(world.runtime.look(), "l1").running)  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="started before"):
        world.ask_start("l1")


@pytest.mark.parametrize("code", [0, 3])
def test_an_end_is_on_record_with_its_exit_code(world: World, code: int) -> None:
    world.start("l1")
    world.finish("l1", code)
    world.until(lambda: seen_in(world.runtime.look(), "l1").ended_at)  # type: ignore[union-attr]
    seen = seen_in(world.runtime.look(), "l1")
    assert seen is not None and not seen.running and seen.exit_code == code
    assert seen.started_at is not None and seen.ended_at is not None and seen.ended_at >= seen.started_at


def test_x29_a_killed_server_is_on_record_with_its_signal(world: World) -> None:
    world.start("l1")
    world.kill("l1")
    world.until(lambda: seen_in(world.runtime.look(), "l1").ended_at)  # type: ignore[union-attr]
    assert seen_in(world.runtime.look(), "l1").exit_code == -9  # type: ignore[union-attr]


def test_stop_ends_a_server_that_listens(world: World) -> None:
    world.start("l1")
    world.runtime.stop("l1", 60)
    world.until(lambda: seen_in(world.runtime.look(), "l1").ended_at)  # type: ignore[union-attr]
    assert seen_in(world.runtime.look(), "l1").exit_code == -15  # type: ignore[union-attr]


def test_s12_a_server_that_ignores_the_request_is_forced_at_the_grace(world: World) -> None:
    world.start("l1", deaf=True)
    world.runtime.stop("l1", 0.5)
    assert seen_in(world.runtime.look(), "l1").running  # type: ignore[union-attr]
    world.until(lambda: seen_in(world.runtime.look(), "l1").ended_at)  # type: ignore[union-attr]
    assert seen_in(world.runtime.look(), "l1").exit_code == -9  # type: ignore[union-attr]


def test_the_earlier_of_two_graces_holds(world: World) -> None:
    world.start("l1", deaf=True)
    for grace in (3600, 0.2, 3600):
        world.runtime.stop("l1", grace)
    world.until(lambda: seen_in(world.runtime.look(), "l1").ended_at)  # type: ignore[union-attr]


def test_remove_leaves_nothing_and_may_be_repeated(world: World) -> None:
    world.start("l1", deaf=True)
    world.start("l2")
    world.runtime.remove("l1")
    assert seen_in(world.runtime.look(), "l1") is None
    assert seen_in(world.runtime.look(), "l2").running  # type: ignore[union-attr]
    world.runtime.remove("l1")


def test_stop_and_remove_of_the_unknown_do_nothing(world: World) -> None:
    world.runtime.stop("l9", 1)
    world.runtime.remove("l9")
    assert world.runtime.look() == {}


def test_a_runtime_that_cannot_be_asked_is_unreachable_and_not_empty(world: World) -> None:
    world.start("l1")
    world.lose()
    look = world.runtime.look()
    assert isinstance(look, Unreachable) and look.why


def test_the_load_of_a_running_server_is_known_and_of_no_server_unknown(world: World) -> None:
    world.start("l1")
    load = world.runtime.load("l1")
    assert load.cpu_seconds is not None and load.cpu_seconds >= 0
    assert load.memory_bytes is not None and load.memory_bytes > 1 << 20
    world.finish("l1", 0)
    world.until(lambda: not seen_in(world.runtime.look(), "l1").running)  # type: ignore[union-attr]
    assert world.runtime.load("l1") == Load(None, None)
    assert world.runtime.load("l9") == Load(None, None)


def test_the_log_is_told_from_its_end(world: World) -> None:
    world.start("l1")
    assert world.runtime.log_tail("l1", 5) == ("the server is up",)
    assert world.runtime.log_tail("l1", 0) == ()
    assert world.runtime.log_tail("l9", 5) == ()
