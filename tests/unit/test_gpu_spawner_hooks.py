"""Hooks of the site: what fails is counted and said, and disturbs nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jupyterhub.spawner import SpawnException
from tornado.web import HTTPError

from spawner import metrics
from tests.fakes.spawner_world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def failures(hook: str) -> float:
    (family,) = metrics.HOOK_ERRORS.collect()
    return sum(each.value for each in family.samples if each.name.endswith("_total") and each.labels["hook"] == hook)


async def later(_spawner: Any) -> None:
    raise KeyError("state")


def at_once(_spawner: Any) -> None:
    raise KeyError("state")


@pytest.mark.parametrize("hook", [later, at_once])
async def test_x23_a_hook_that_fails_before_a_start_is_counted_and_told(world: World, hook: Any) -> None:
    """A `SpawnException` does not count towards the Hub's own end, and the user reads what it was."""
    spawner, before = world.spawner(), failures("pre_spawn_hook")
    spawner.pre_spawn_hook = hook
    with pytest.raises(SpawnException) as caught:
        await spawner.run_pre_spawn_hook()
    assert (caught.value.reason, caught.value.status_code) == ("hook-failed", 500)
    assert "pre_spawn_hook) failed" in caught.value.jupyterhub_message
    assert "administrator" in caught.value.jupyterhub_message
    assert failures("pre_spawn_hook") == before + 1
    assert not world.book.calls
    spawner.pre_spawn_hook = None
    await spawner.run_pre_spawn_hook()
    await spawner.start()
    assert failures("pre_spawn_hook") == before + 1


async def test_x23_what_a_hook_refuses_by_itself_goes_through(world: World) -> None:
    spawner, before = world.spawner(), failures("pre_spawn_hook")

    def refuse(_spawner: Any) -> None:
        raise HTTPError(403, "not before noon")

    spawner.pre_spawn_hook = refuse
    with pytest.raises(HTTPError) as caught:
        await spawner.run_pre_spawn_hook()
    assert (caught.value.status_code, caught.value.log_message) == (403, "not before noon")
    assert failures("pre_spawn_hook") == before


@pytest.mark.parametrize("hook", [later, at_once])
async def test_x23_a_hook_that_fails_after_a_stop_is_counted(world: World, hook: Any) -> None:
    spawner, before = world.spawner(), failures("post_stop_hook")
    await spawner.run_post_stop_hook()
    spawner.post_stop_hook = hook
    await spawner.run_post_stop_hook()
    assert failures("post_stop_hook") == before + 1
