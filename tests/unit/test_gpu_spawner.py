"""The Hub's spawner against fakes: a start, a refusal, a failure at every step, progress."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quota.errors import Reason, Refused
from quota.leases import Holder, State, StopReason, Target
from spawner import start
from spawner.gpu_spawner import Wiring
from spawner.placement import best_fit
from spawner.progress import Progress
from spawner.start import EARLIER_SECONDS
from tests.fakes.runtime import FakeRuntime
from tests.fakes.spawner_world import BOOT, World, assert_given_back, messages, refusal, until
from tests.harness.waiting import PATIENCE


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


# ---- a good start ----------------------------------------------------------------------------------------------


async def test_a_start_becomes_a_running_lease(world: World) -> None:
    spawner = world.spawner(profile="gpu-1-4")
    assert await spawner.start() == ("127.0.0.1", 12345)
    lease = world.book.one()
    assert (lease.state, lease.target) == (State.RUNNING, Target.RUN)
    assert (lease.holder, lease.account, lease.owner) == (Holder("alice"), "alice", BOOT)
    assert (lease.share, lease.count, lease.requested_by) == (250, 1, "alice")
    assert lease.started_at is not None
    assert lease.deadline is not None
    assert spawner.get_state() == {"lease_id": lease.id}
    assert await spawner.poll() is None


async def test_the_server_gets_its_home_its_devices_and_none_of_the_hubs_secrets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUPYTERHUB_CRYPT_KEY", "CONFIGPROXY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "BERTH_DATA"):
        monkeypatch.setenv(name, "a secret")
    spawner = world.spawner("用户", profile="gpu-1-8")
    spawner.env_keep = [*spawner.env_keep, "JUPYTERHUB_CRYPT_KEY"]
    await spawner.start()
    spec = world.runtime.servers["l1"].spec
    assert "a secret" not in spec.env.values()
    home = Path(spec.cwd)
    assert home.parent == world.wiring.homes
    assert os.stat(home).st_mode & 0o777 == 0o700
    assert os.listdir(home / "berth-examples") == ["digits.ipynb"]
    assert spec.env["HOME"] == str(home) == spec.env["JUPYTERHUB_ROOT_DIR"]
    assert spec.env["CUDA_VISIBLE_DEVICES"] == spec.env["NVIDIA_VISIBLE_DEVICES"] == "SIM-0"
    assert spec.env["BERTH_GPU_MEMORY_MIB"] == "3072"
    assert spec.env["BERTH_SERVICE_URL"] == "http://127.0.0.1:9/services/berth/"
    assert (spec.env["BERTH_LEASE"], spec.env["BERTH_PROFILE"], spec.env["BERTH_SIMULATED"]) == ("l1", "gpu-1-8", "1")
    assert spec.env["JUPYTERHUB_API_TOKEN"] == "secret"
    assert spec.env["JUPYTERHUB_SERVICE_URL"].startswith("http://127.0.0.1:12345/")
    assert spec.argv[1:3] == ("-m", "berth_lab.launch")


async def test_p06_a_cpu_profile_sees_no_device_whatever_the_image_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    spawner = world.spawner(profile="cpu")
    spawner.environment = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0"}
    await spawner.start()
    env = world.runtime.servers["l1"].spec.env
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["BERTH_SIMULATED"] == "0"


async def test_every_step_is_told_to_early_and_late_followers(world: World) -> None:
    world.answering = False
    spawner = world.spawner(profile="gpu-1-2")
    begun = asyncio.ensure_future(spawner.start())
    early = asyncio.ensure_future(messages(spawner))
    await until(lambda: "l1" in world.runtime.servers)
    await asyncio.sleep(2.2)
    world.answering = True
    await begun
    told = await early
    assert told == await messages(spawner)
    assert told[0] == "Checking your request"
    assert told[1] == "Room found: 1/2 simulated GPU on simulated GPU, 24 GB"
    assert told[2] == "Starting the server"
    assert told[3].startswith("Waiting for JupyterLab (")
    assert told[-1] == "JupyterLab answers"
    percents = [event["progress"] async for event in spawner.progress()]
    assert percents == sorted(percents)


async def test_s19_a_start_without_options_by_an_admin_takes_the_default_and_charges_the_target(world: World) -> None:
    spawner = world.spawner("alice")
    spawner.handler = SimpleNamespace(current_user=SimpleNamespace(name="root", kind="user"))
    await spawner.start()
    lease = world.book.one()
    assert (lease.profile, lease.account, lease.holder.user, lease.requested_by) == ("cpu", "alice", "alice", "root")


async def test_a_named_server_has_a_lease_of_its_own_and_the_same_home(world: World) -> None:
    await world.spawner("alice").start()
    await world.spawner("alice", "train").start()
    assert {lease.holder for lease in world.book.leases.values()} == {Holder("alice"), Holder("alice", "train")}
    assert len({server.spec.cwd for server in world.runtime.servers.values()}) == 1


async def test_the_hubs_loop_is_never_blocked_by_the_book(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = world.book.reserve

    def slow(*args: Any) -> Any:
        time.sleep(1.5)
        return reserve(*args)

    monkeypatch.setattr(world.book, "reserve", slow)
    begun = asyncio.ensure_future(world.spawner().start())
    longest, last = 0.0, time.monotonic()
    while not begun.done():
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    await begun
    assert longest < 1


# ---- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason", "code"),
    [
        ({"profile": "h100"}, "profile-unknown", 400),
        ({"image": "evil"}, "image-unknown", 400),
        ({"share": "1"}, "option-unknown", 400),
        ({"gpu": 8, "image": "evil"}, "option-unknown", 400),
        ({"profile": -1}, "option-invalid", 400),
        ({"profile": 10**9}, "option-invalid", 400),
        ({"profile": "1e3"}, "profile-unknown", 400),
        ({"profile": ""}, "option-invalid", 400),
        ({"profile": ["cpu", "gpu-1"]}, "option-invalid", 400),
        ({"payer": "bob"}, "account-forbidden", 403),
    ],
)
async def test_s16_x03_bad_options_are_refused_in_the_hook_and_in_start(
    world: World, options: dict[str, Any], reason: str, code: int
) -> None:
    spawner = world.spawner()
    first = await refusal(spawner._run_apply_user_options(options))
    spawner.user_options = options
    second = await refusal(spawner.start())
    for refused in (first, second):
        assert (refused.reason, refused.status_code) == (reason, code)
        assert refused.message
        assert refused.jupyterhub_message == refused.message
    assert not world.book.leases
    assert not world.runtime.servers
    assert not world.wiring.homes.exists()


async def test_good_options_pass_the_hook(world: World) -> None:
    spawner = world.spawner()
    await spawner._run_apply_user_options({})
    await spawner._run_apply_user_options({"profile": "gpu-2", "image": "this-environment", "payer": "alice"})


async def test_a_form_is_flattened(world: World) -> None:
    spawner = world.spawner()
    form = {"profile": ["gpu-1-4"], "image": ["this-environment"]}
    assert spawner.run_options_from_form(form) == {"profile": "gpu-1-4", "image": "this-environment"}
    twice = spawner.run_options_from_form({"profile": ["cpu", "gpu-1"]})
    assert (await refusal(spawner._run_apply_user_options(twice))).reason == "option-invalid"


@pytest.mark.parametrize("reason", [Reason.NO_ROOM, Reason.NO_CREDIT, Reason.TOO_MANY_SERVERS, Reason.MONTHLY_LIMIT])
async def test_s15_x28_what_the_book_refuses_is_a_spawn_exception_with_the_reason(world: World, reason: Reason) -> None:
    world.book.refusal = Refused(reason)
    spawner = world.spawner(profile="gpu-1")
    refused = await refusal(spawner.start())
    assert (refused.reason, refused.status_code) == (reason.value, 409)
    assert await spawner.poll() == 0


async def test_a_refused_start_does_not_remember_the_lease_of_an_earlier_one(world: World) -> None:
    spawner = world.spawner()
    await spawner.start()
    spawner.clear_state()
    spawner.user_options = {"profile": "h100"}
    await refusal(spawner.start())
    assert spawner.get_state() == {}


async def test_p14_a_site_without_gpus_refuses_one_at_once(world: World) -> None:
    world.book.fleet = []
    began = time.monotonic()
    refused = await refusal(world.spawner(profile="gpu-1-2").start())
    assert (refused.reason, refused.status_code) == ("no-devices", 409)
    assert time.monotonic() - began < PATIENCE * 1


async def test_a_user_name_that_slipped_in_is_refused(world: World) -> None:
    refused = await refusal(world.spawner("a`b").start())
    assert (refused.reason, refused.status_code) == ("user-name-invalid", 400)


@pytest.mark.parametrize("call", ["live_of", "reserve", "mark_starting", "mark_running"])
async def test_x28_a_broken_book_is_a_spawn_exception_too(world: World, call: str) -> None:
    world.book.broken = {call}
    refused = await refusal(world.spawner().start())
    assert (refused.reason, refused.status_code) == ("book-unavailable", 503)


async def test_an_error_of_our_own_is_a_spawn_exception_with_the_traceback_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    spawner = world.spawner()
    spawner.get_env = lambda: 1 / 0  # type: ignore[assignment,return-value]
    logger = logging.getLogger("traitlets")
    logger.propagate, spawner.log = True, logger
    refused = await refusal(spawner.start())
    assert refused.reason == "start-failed"
    assert "ZeroDivisionError" in caplog.text


# ---- a failure at every step leaves nothing ----------------------------------------------------------------------


@pytest.mark.parametrize("call", ["mark_starting", "devices", "mark_running"])
async def test_s06_x08_the_book_failing_after_the_reservation_leaves_nothing(world: World, call: str) -> None:
    world.book.broken = {call}
    if call == "devices":
        world.book.broken = set()
        world.wiring = Wiring(**{**vars(world.wiring), "rows": SimpleNamespace(devices=lambda: 1 / 0)})
    spawner = world.spawner(profile="gpu-1")
    await refusal(spawner.start())
    assert_given_back(world, StopReason.FAILED)
    assert await spawner.poll() == 0


async def test_s06_a_runtime_that_cannot_start_leaves_nothing(world: World) -> None:
    def broken(spec: Any) -> None:
        FakeRuntime.start(world.runtime, spec)  # created, and then it fails
        raise RuntimeError("no more processes")

    world.runtime.start = broken  # type: ignore[method-assign]
    refused = await refusal(world.spawner().start())
    assert (refused.reason, refused.status_code) == ("start-failed", 500)
    assert_given_back(world, StopReason.FAILED)


async def test_s06_a_home_that_cannot_be_made_leaves_nothing(world: World) -> None:
    world.wiring.homes.write_text("a file in the way")
    refused = await refusal(world.spawner().start())
    assert refused.reason == "start-failed"
    assert_given_back(world, StopReason.FAILED)


async def test_s06_an_early_exit_is_told_at_once_with_the_end_of_the_log(world: World) -> None:
    world.answering = False
    spawner = world.spawner(profile="gpu-1")
    begun = asyncio.ensure_future(refusal(spawner.start()))
    await until(lambda: "l1" in world.runtime.servers)
    world.runtime.servers["l1"].log = ("first line", "ImportError: no module named lab", "")
    died = time.monotonic()
    world.runtime.end("l1", 3)
    refused = await begun
    assert time.monotonic() - died < PATIENCE * 5  # long before the start would be given up
    assert refused.reason == "start-failed"
    assert "exit code 3" in refused.message
    assert "ImportError: no module named lab" in refused.message
    assert "first line" in refused.log_message
    assert_given_back(world, StopReason.FAILED)
    assert "exit_code 3" in world.book.one().stop_detail


async def test_a_server_that_never_answers_is_given_up_with_words(world: World) -> None:
    world.answering = False
    world.wiring = Wiring(**{**vars(world.wiring), "start_timeout_s": 0.3})
    refused = await refusal(world.spawner().start())
    assert (refused.reason, refused.status_code) == ("start-timeout", 504)
    assert_given_back(world, StopReason.FAILED)


async def test_an_unreachable_runtime_is_not_an_early_exit(world: World) -> None:
    world.answering = False
    begun = asyncio.ensure_future(world.spawner().start())
    await until(lambda: "l1" in world.runtime.servers)
    world.runtime.outage = "it does not answer"
    await asyncio.sleep(0.7)
    assert not begun.done()
    world.runtime.outage = ""
    world.answering = True
    await begun


async def test_s14_a_cancelled_start_gives_back_lease_and_server_at_once(world: World) -> None:
    world.answering = False
    spawner = world.spawner(profile="gpu-1")
    begun = asyncio.ensure_future(spawner.start())
    await until(lambda: "l1" in world.runtime.servers)
    assert await spawner.poll() is None
    cancelled = time.monotonic()
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert time.monotonic() - cancelled < PATIENCE * 2
    assert_given_back(world, StopReason.USER)
    assert world.book.one().stop_detail == "the start was cancelled"
    assert await spawner.poll() == 0


async def test_s14_a_start_cancelled_while_the_book_commits_is_given_back_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve, entered = world.book.reserve, asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(*args: Any) -> Any:
        loop.call_soon_threadsafe(entered.set)
        time.sleep(1.0)
        return reserve(*args)

    monkeypatch.setattr(world.book, "reserve", slow)
    begun = asyncio.ensure_future(world.spawner().start())
    await entered.wait()
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert not world.book.leases  # the commit is still to come
    await until(lambda: bool(world.book.leases) and world.book.one().state is State.STOPPING)
    assert_given_back(world, StopReason.USER)


async def test_a_stop_wished_by_somebody_else_ends_the_start(world: World) -> None:
    world.answering = False
    begun = asyncio.ensure_future(refusal(world.spawner().start()))
    await until(lambda: "l1" in world.runtime.servers)
    world.book.request_stop("l1", StopReason.ADMIN, by="root")
    refused = await begun
    assert (refused.reason, refused.status_code) == ("stop-requested", 409)
    assert "root" in refused.message
    assert_given_back(world, StopReason.ADMIN)


async def test_a_write_that_met_anothers_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = world.book.mark_running

    def meddled(lease: Any, *args: Any) -> Any:
        if world.book.calls.count("mark_running") < 2:
            world.book.put(lease)  # an observation of the agent
        return mark(lease, *args)

    monkeypatch.setattr(world.book, "mark_running", meddled)
    await world.spawner().start()
    assert world.book.one().state is State.RUNNING


async def test_giving_up_is_tried_until_the_book_can_be_written(world: World) -> None:
    world.answering = False
    begun = asyncio.ensure_future(refusal(world.spawner(profile="gpu-1").start()))
    await until(lambda: "l1" in world.runtime.servers)
    world.book.broken = {"request_stop", "acknowledge", "lease"}
    assert (await begun).reason == "book-unavailable"
    assert world.book.one().state is State.STARTING
    world.book.broken = set()
    await until(lambda: world.book.one().state is State.STOPPING)
    assert_given_back(world, StopReason.FAILED)


async def test_a_server_that_cannot_be_removed_is_left_to_the_agent(world: World) -> None:
    world.answering = False
    world.wiring = Wiring(**{**vars(world.wiring), "start_timeout_s": 0.3})
    world.runtime.stuck.add("l1")
    spawner = world.spawner()
    await refusal(spawner.start())
    assert world.book.one().state is State.STOPPING  # nothing more will come from this hub
    assert "l1" in world.runtime.servers
    assert await spawner.poll() is None  # so the Hub calls stop, which tries again


# ---- an earlier run ------------------------------------------------------------------------------------------------


async def test_s12_a_start_waits_visibly_for_the_last_run_to_end(world: World) -> None:
    old = world.spawner()
    await old.start()
    await old.stop()
    assert world.book.one().state is State.STOPPING
    fresh = world.spawner()
    begun = asyncio.ensure_future(fresh.start())
    await asyncio.sleep(1.3)
    assert not begun.done()
    world.book.free("l1")
    await begun
    assert (await messages(fresh))[1].startswith("Waiting for the last run of this server to end (")
    assert world.book.leases["l2"].state is State.RUNNING


async def test_s12_a_last_run_that_does_not_end_is_a_refusal_with_words(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "EARLIER_SECONDS", 0.3)
    assert EARLIER_SECONDS == 20
    old = world.spawner()
    await old.start()
    await old.stop()
    refused = await refusal(world.spawner().start())
    assert (refused.reason, refused.status_code) == ("still-stopping", 409)


async def test_a_run_that_the_hub_has_lost_is_stopped_for_the_new_start(world: World) -> None:
    await world.spawner().start()
    begun = asyncio.ensure_future(world.spawner().start())
    await until(lambda: world.book.leases["l1"].target is Target.STOP)
    assert world.book.leases["l1"].stop_reason is StopReason.PLATFORM
    await until(lambda: not world.runtime.servers["l1"].running)
    world.book.free("l1")
    await begun


async def test_a_reservation_that_a_start_of_ours_could_not_give_back_is_given_back(world: World) -> None:
    request = world.spawner()._request(world.spawner().choose({"profile": "gpu-1"}, world.wiring.profiles))
    world.book.reserve(request, best_fit)
    begun = asyncio.ensure_future(world.spawner(profile="gpu-1").start())
    await until(lambda: world.book.leases["l1"].state is State.STOPPING)
    world.book.free("l1")
    await begun


# ---- progress --------------------------------------------------------------------------------------------------


async def test_followers_of_an_old_start_are_let_go() -> None:
    told = Progress()
    told.say(1, "one")
    seen: list[str] = []

    async def follow(events: AsyncIterator[Any]) -> None:
        async for event in events:
            seen.append(event["message"])

    following = asyncio.ensure_future(follow(told.follow()))
    await until(lambda: seen == ["one"])
    told.restart()
    await following
    told.say(1, "two")
    told.finish()
    assert [event["message"] async for event in told.follow()] == ["two"]
