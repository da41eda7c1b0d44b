"""What the Hub keeps of the options of a start that was refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from quota.errors import Reason, Refused
from spawner.options import kept_after
from tests.fakes.spawner_world import World, refusal


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def test_refused_options_are_not_taken_again_by_a_start_that_brings_none(world: World) -> None:
    spawner = world.spawner()
    spawner.orm_spawner.user_options = {"profile": "h100"}  # the Hub stores before it asks
    await refusal(spawner._run_apply_user_options({"profile": "h100"}))
    assert spawner.orm_spawner.user_options == {}


async def test_a_refused_start_leaves_the_options_of_the_last_one(world: World) -> None:
    """In the hook, and in the start itself where the book refuses it; one that was granted has new ones."""
    last, asked = {"profile": "gpu-1-4"}, {"profile": "h100"}
    spawner = world.spawner(**last)
    spawner.user_options = spawner.orm_spawner.user_options = asked
    await refusal(spawner._run_apply_user_options(asked))
    assert spawner.orm_spawner.user_options == spawner.user_options == last
    world.book.refusal = Refused(Reason.NO_ROOM)
    for wanted in ({"profile": "gpu-1"}, last):
        spawner.user_options = spawner.orm_spawner.user_options = wanted
        await refusal(spawner.start())
        assert spawner.orm_spawner.user_options == last
        assert spawner.user_options == wanted, "the form that says why still has it"
    spawner.handler = SimpleNamespace(current_user=SimpleNamespace(name="berth", kind="service"))
    spawner.user_options = spawner.orm_spawner.user_options = {"profile": "gpu-1"}
    await refusal(spawner.start())
    assert spawner.orm_spawner.user_options == spawner.user_options == last, "nobody sees that form"
    world.book.refusal = None
    spawner.user_options = spawner.orm_spawner.user_options = {"profile": "gpu-1"}
    await spawner.start()
    spawner.orm_spawner.user_options = asked
    await refusal(spawner._run_apply_user_options(asked))
    assert spawner.orm_spawner.user_options == {"profile": "gpu-1"}


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        (Reason.PROFILE_FORBIDDEN, False),
        (Reason.ACCOUNT_FORBIDDEN, False),
        (Reason.RULE_FAILED, True),
        (Reason.NO_ROOM, True),
        (Reason.NO_CREDIT, True),
        (Reason.PROFILE_UNKNOWN, False),
        (Reason.IMAGE_UNKNOWN, False),
        (Reason.OPTION_INVALID, False),
    ],
)
def test_last_options_that_are_refused_stay_where_they_may_be_granted_again(reason: Reason, kept: bool) -> None:
    options = {"profile": "gpu-1-4"}
    assert kept_after(reason, options, options) == (options if kept else {})
    assert kept_after(reason, {"profile": "other"}, options) == options
