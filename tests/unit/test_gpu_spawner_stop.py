"""The Hub's spawner against fakes: a stop, polls, what a new hub finds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyterhub.spawner import Spawner

from quota.leases import State, StopReason, Target
from quota.leaving import Graces
from quota.reported import Farewell
from spawner import stopping
from spawner.gpu_spawner import LocalGpuSpawner
from spawner.placement import best_fit
from tests.fakes.spawner_world import World, assert_given_back, refusal, until
from tests.harness.waiting import PATIENCE


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


# ---- stop ------------------------------------------------------------------------------------------------------


async def test_a_stop_is_written_first_and_ends_the_server_without_freeing_the_slot(world: World) -> None:
    spawner = world.spawner(profile="gpu-1")
    await spawner.start()
    await spawner.stop()
    lease = world.book.one()
    assert (lease.state, lease.target, lease.stop_reason) == (State.STOPPING, Target.STOP, StopReason.USER)
    server = world.runtime.servers["l1"]  # the agent reads the end record, then forgets it
    assert not server.running
    assert not world.book.voided
    assert await spawner.poll() is not None


async def test_a_reason_that_is_in_the_book_stays(world: World) -> None:
    spawner = world.spawner()
    await spawner.start()
    world.book.request_stop("l1", StopReason.IDLE, detail="idle for 30 min")
    await spawner.stop()
    assert world.book.one().stop_reason is StopReason.IDLE


async def test_s12_a_deaf_server_is_forced_at_the_end_of_the_grace(world: World) -> None:
    world.runtime.deaf.add("l1")
    spawner = world.spawner()
    await spawner.start()
    began = time.monotonic()
    await spawner.stop()
    assert 0.2 < time.monotonic() - began < PATIENCE * 10
    assert not world.runtime.alive()
    assert world.book.one().state is State.STOPPING


async def test_s02_a_server_that_ended_since_the_last_look_is_not_removed_with_its_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has not read the record of its end yet. A look may be shared, and as old as that."""

    async def look(runtime: object, lease_id: str, newer_than: float) -> int | None:
        return 0 if time.monotonic() - newer_than < 0.02 else None

    spawner = world.spawner()
    await spawner.start()
    world.runtime.deaf.add("l1")
    monkeypatch.setattr(stopping, "exit_code", look)
    await spawner.stop(now=True)
    assert "l1" in world.runtime.servers


async def test_stop_now_gives_no_grace(world: World) -> None:
    world.runtime.deaf.add("l1")
    spawner = world.spawner()
    spawner.stop_grace = 30
    await spawner.start()
    began = time.monotonic()
    await spawner.stop(now=True)
    assert time.monotonic() - began < PATIENCE * 10
    assert not world.runtime.alive()


async def test_a_stop_with_the_book_down_ends_the_server_all_the_same(world: World) -> None:
    spawner = world.spawner()
    await spawner.start()
    world.book.broken = {"request_stop", "acknowledge", "live_of", "lease", "void"}
    await spawner.stop()
    assert not world.runtime.alive()


async def test_a_stop_that_neither_book_nor_runtime_heard_of_is_in_the_book_once_it_is_back(world: World) -> None:
    """Else the server would go on, charged, and nobody would know that it was stopped."""
    spawner = world.spawner()
    await spawner.start()
    spawner._waiting_for_response = True  # in vain, too
    world.book.broken = {"request_stop", "acknowledge", "live_of", "lease", "void"}
    world.runtime.outage = "away"
    await spawner.stop()
    assert world.runtime.alive() == {"l1"}
    assert world.book.one().target is Target.RUN
    world.book.broken = set()
    await until(lambda: world.book.one().target is Target.STOP)
    assert world.book.one().stop_reason is StopReason.FAILED
    assert world.book.voided == {"l1"}


@pytest.mark.parametrize("flag", ["_waiting_for_response", "_proxy_pending"])
async def test_s06_a_start_that_fails_after_the_answer_costs_nothing(world: World, flag: str) -> None:
    spawner = world.spawner(profile="gpu-1")
    await spawner.start()
    setattr(spawner, flag, True)
    await spawner.stop()
    assert world.book.voided == {"l1"}
    assert world.book.one().stop_reason is StopReason.FAILED


async def test_a_stop_during_the_start_ends_the_start(world: World) -> None:
    world.answering = False
    spawner = world.spawner()
    begun = asyncio.ensure_future(refusal(spawner.start()))
    await until(lambda: "l1" in world.runtime.servers)
    await spawner.stop()
    assert (await begun).reason == "stop-requested"
    assert_given_back(world, StopReason.USER)


async def test_a_stop_of_a_server_that_never_was_is_nothing(world: World) -> None:
    await world.spawner().stop()
    assert world.book.calls == ["live_of"]


class Handler:
    """As the Hub's request handler stops a server: in a task whose coroutine closes over the handler."""

    def __init__(self, name: str, kind: str = "user") -> None:
        self.current_user = SimpleNamespace(name=name, kind=kind)

    async def stop_single_user(self, spawner: LocalGpuSpawner) -> None:
        async def stop() -> None:
            await spawner.stop()
            assert self is not None

        await asyncio.ensure_future(stop())


class User:
    """As the Hub's shut-down stops servers."""

    async def stop(self, spawner: LocalGpuSpawner) -> None:
        await spawner.stop()


@pytest.mark.parametrize(
    ("asker", "reason", "by"),
    [
        (Handler("alice"), StopReason.USER, "alice"),
        (Handler("root"), StopReason.ADMIN, "root"),
        (Handler("berth", "service"), StopReason.ADMIN, "service:berth"),
    ],
)
async def test_who_asked_for_a_stop_is_in_the_book(world: World, asker: Handler, reason: StopReason, by: str) -> None:
    spawner = world.spawner("alice")
    await spawner.start()
    await asker.stop_single_user(spawner)
    assert (world.book.one().stop_reason, world.book.one().stop_by) == (reason, by)


async def test_a_stop_by_the_hubs_own_end_is_the_platforms(world: World) -> None:
    spawner = world.spawner()
    await spawner.start()
    stop = User().stop(spawner)
    stop.__qualname__ = "User.stop"
    await asyncio.ensure_future(stop)
    assert world.book.one().stop_reason is StopReason.PLATFORM


# ---- poll, state, crash of the hub ---------------------------------------------------------------------------------


async def test_poll_tells_the_exit_code_and_unknown_is_not_dead(world: World) -> None:
    spawner = world.spawner()
    await spawner.start()
    world.runtime.outage = "it does not answer"
    await asyncio.sleep(1.1)  # older looks are shared for a second
    assert await spawner.poll() is None
    world.runtime.outage = ""
    world.runtime.end("l1", 137)
    await asyncio.sleep(1.1)
    assert await spawner.poll() == 137


async def test_poll_works_with_the_book_down(world: World) -> None:
    spawner = world.spawner()
    await spawner.start()
    world.book.broken = {"live_of", "lease"}
    assert await spawner.poll() is None
    assert await world.spawner("bob").poll() is None  # nothing is known, and unknown is not dead


async def test_a_look_from_before_the_start_says_nothing_about_it(world: World) -> None:
    idle = world.spawner("bob")
    idle._lease_id = "l9"
    assert await idle.poll() == 0  # a look is fresh now, and has no l1 in it
    spawner = world.spawner()
    await spawner.start()
    assert await spawner.poll() is None


async def test_s01_x04_a_new_hub_finds_the_lease_by_its_state_and_by_its_holder(world: World) -> None:
    spawner = world.spawner()
    await spawner.start()
    with_state = world.spawner()
    with_state.load_state(spawner.get_state())
    assert await with_state.poll() is None
    assert await world.spawner().poll() is None


async def test_a_start_of_a_dead_hub_is_not_adopted(world: World) -> None:
    request = world.spawner()._request(world.spawner().choose({}, world.wiring.profiles))
    lease = world.book.reserve(request, best_fit)
    assert await world.spawner().poll() is None  # ours: on its way
    world.book.put(lease, owner="hub-0")
    assert await world.spawner().poll() == 0


async def test_a_server_that_the_new_hub_cannot_reach_was_a_failed_start(world: World) -> None:
    await world.spawner().start()
    new = world.spawner()
    new.orm_spawner = None
    new._server = SimpleNamespace(url="http://127.0.0.1:1/")
    assert await new.get_url() == "http://127.0.0.1:1/"
    assert new.get_state() == {"lease_id": "l1"}
    await new.stop()
    assert world.book.voided == {"l1"}


async def test_state_is_the_lease_id_and_nothing_else(world: World) -> None:
    spawner = world.spawner()
    assert spawner.get_state() == {}
    await spawner.start()
    assert list(spawner.get_state()) == ["lease_id"]
    spawner.clear_state()
    assert spawner.get_state() == {}
    assert spawner.api_token == ""


def test_a_spawner_without_wiring_says_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match=r"c\.GpuSpawner\.wire"):
        _ = LocalGpuSpawner().wiring


def test_defaults_that_matter() -> None:
    spawner = LocalGpuSpawner()
    assert isinstance(spawner, Spawner)
    assert (spawner.poll_interval, spawner.default_url, spawner.will_resume) == (5, "/lab", False)
    assert "HTTP_PROXY" not in spawner.env_keep


# ---- the server saves first ----------------------------------------------------------------------------------------

KERNEL = {"kernels": [{"id": "k", "busy": True}], "terminals": 0}


def with_kit(world: World, payload: dict[str, object], by_hand: float = 30.0) -> LocalGpuSpawner:
    """A server whose kit has just reported."""
    world.wiring = replace(world.wiring, graces=Graces(timedelta(minutes=2), timedelta(seconds=by_hand)))
    world.book.kits["l1"] = (world.wiring.clock.now(), payload)
    return world.spawner()


async def test_i09_a_server_with_a_kernel_is_left_to_save_until_its_kit_is_done(world: World) -> None:
    spawner = with_kit(world, KERNEL)
    await spawner.start()
    stop = asyncio.ensure_future(spawner.stop())
    await until(lambda: world.book.one().target is Target.STOP)
    await asyncio.sleep(0.5)
    assert world.runtime.alive() == {"l1"}, "it is saving"
    now = world.wiring.clock.now()
    world.book.farewells["l1"] = Farewell(now, now, now, {})
    await asyncio.wait_for(stop, 3)
    assert not world.runtime.alive()


async def test_a_kit_that_never_answers_holds_a_stop_up_for_its_grace_and_no_longer(world: World) -> None:
    spawner = with_kit(world, KERNEL, by_hand=0.8)
    await spawner.start()
    began = time.monotonic()
    await spawner.stop()
    assert 0.7 < time.monotonic() - began < PATIENCE * 5
    assert not world.runtime.alive()


@pytest.mark.parametrize("payload", [{"kernels": [], "terminals": 0}, None])
async def test_with_nothing_to_save_a_stop_is_not_held_up(world: World, payload: dict[str, object] | None) -> None:
    spawner = with_kit(world, payload or {})
    if payload is None:
        world.book.kits.clear()
    await spawner.start()
    began = time.monotonic()
    await spawner.stop()
    assert time.monotonic() - began < PATIENCE * 2


async def test_stop_now_and_a_start_in_vain_save_nothing(world: World) -> None:
    spawner = with_kit(world, KERNEL)
    await spawner.start()
    began = time.monotonic()
    await spawner.stop(now=True)
    other = world.spawner("bob")
    world.book.kits["l2"] = world.book.kits["l1"]
    await other.start()
    other._proxy_pending = True
    await other.stop()
    assert time.monotonic() - began < PATIENCE * 5
    assert not world.runtime.alive()


async def test_a_server_that_ends_while_it_is_waited_for_is_not_waited_for_any_longer(world: World) -> None:
    spawner = with_kit(world, KERNEL)
    await spawner.start()
    stop = asyncio.ensure_future(spawner.stop())
    await until(lambda: world.book.one().target is Target.STOP)
    world.runtime.end("l1")
    await asyncio.wait_for(stop, 5)


async def test_a_book_that_goes_away_while_a_server_saves_makes_its_time_no_longer(world: World) -> None:
    spawner = with_kit(world, KERNEL, by_hand=1.2)
    await spawner.start()
    stop = asyncio.ensure_future(spawner.stop())
    await until(lambda: world.book.one().target is Target.STOP)
    await asyncio.sleep(0.2)
    world.book.broken = {"request_stop", "acknowledge", "live_of", "lease", "void"}
    await asyncio.sleep(0.3)
    assert world.runtime.alive() == {"l1"}, "its time goes on"
    await asyncio.wait_for(stop, 6)
    assert not world.runtime.alive()
