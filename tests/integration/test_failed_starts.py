"""A start that fails at any step, a cancelled one, a server that will not end: nothing is left, nothing is charged.

The deployment's own `extra_config` breaks single steps while a file of that name lies in the data folder.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.harness import Person, Stack, until
from tests.harness.waiting import PATIENCE

pytestmark = pytest.mark.hub

TOML = """
[gpus]
source = "simulated"
simulated = 1

[hub]
start_timeout = "15 s"

[first_start]
monthly_credits = 1000000
credits_per_gpu_hour = 3600
"""

EXTRA = """
import dataclasses, os
from pathlib import Path
from hub_config.proxy import BerthProxy
from spawner.local_runtime import LocalRuntime

data, add_route, start = Path(os.environ["BERTH_DATA"]), BerthProxy.add_route, LocalRuntime.start


def broken(step):
    return (data / f"break-{step}").exists()


def start_broken(self, spec):
    if broken("before-create"):
        raise RuntimeError("broken before create")
    if broken("ends-at-once"):
        spec = dataclasses.replace(spec, argv=("sh", "-c", "echo last words; exit 3"))
    if broken("never-answers"):
        spec = dataclasses.replace(spec, argv=("sleep", "600"))
    start(self, spec)
    if broken("after-start"):
        raise RuntimeError("broken after start")


async def add_route_broken(self, routespec, target, data):
    if broken("proxy-add") and "/user/" in routespec:
        raise RuntimeError("broken at the proxy")
    await add_route(self, routespec, target, data)


def hook(spawner):
    if broken("hook"):
        spawner.orm_spawner.state["no such key"]


c.Spawner.pre_spawn_hook = hook
c.GpuSpawner.stop_grace = 3
LocalRuntime.start = start_broken
BerthProxy.add_route = add_route_broken
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("failed") / "data", TOML, EXTRA) as stack:
        yield stack


@pytest.fixture(autouse=True)
def tidy(stack: Stack) -> Iterator[None]:
    yield
    stack.tidy()


@contextmanager
def broken(stack: Stack, step: str) -> Iterator[None]:
    flag = stack.data / f"break-{step}"
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()


def routes(stack: Stack) -> list[str]:
    return [route for route in stack.admin.hub("GET", "/proxy").json() if "/user/" in route]


def no_residue(stack: Stack, me: Person, available: int) -> None:
    """Nothing is left of a failed start."""
    until(me.gone, 20, "the hub has no server")
    until(lambda: all(lease["state"] == "SETTLED" for lease in me.leases()), 10, "all leases are settled")
    assert stack.server_processes() == stack.runner_processes() == []
    assert routes(stack) == []
    assert (me.available(), me.held()) == (available, 0)
    assert all(lease["charged_micro_credits"] == 0 for lease in me.leases() if lease["stop_reason"] == "failed")
    assert me.free_now()["gpu-1"] == 1


@pytest.mark.parametrize("step", ["before-create", "after-start", "ends-at-once", "never-answers", "proxy-add"])
def test_s06_x08_a_failure_at_any_step_leaves_nothing_and_costs_nothing(stack: Stack, step: str) -> None:
    me = stack.researcher
    available = me.available()
    with broken(stack, step):
        answer = me.ask_start({"profile": "gpu-1-2"})  # the Hub itself says 201 where only its proxy failed
        assert answer.status_code < 300 or answer.json()["message"], answer.text
        until(me.gone, 40, "the start has failed")
    no_residue(stack, me, available)
    assert me.lease()["stop_reason"] == "failed"
    assert stack.answers()


def test_x23_a_hook_that_always_fails_ends_no_hub_and_is_said(stack: Stack) -> None:
    """Six starts, and five failures in a row are what the Hub itself takes for its own."""
    me, hub = stack.researcher, stack.pid("hub")
    available = me.available()
    with broken(stack, "hook"):
        for _ in range(6):
            answer = me.ask_start({"profile": "gpu-1-2"})
            assert answer.status_code == 500
            assert "pre_spawn_hook) failed" in answer.json()["message"]
            until(me.gone, 10)
    no_residue(stack, me, available)
    assert stack.pid("hub") == hub and stack.answers()
    assert "KeyError" in (stack.data / "logs" / "hub.log").read_text(encoding="utf-8")
    me.start("gpu-1-2")
    me.stop()


def test_s06_after_a_failure_the_same_server_starts(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1-2")
    lease = me.lease()
    me.stop()
    assert me.settled(lease["id"])["charged_micro_credits"] > 0


def test_a_server_that_ends_while_starting_says_so_with_its_last_words(stack: Stack) -> None:
    with broken(stack, "ends-at-once"):
        answer = stack.researcher.ask_start({"profile": "cpu"})
    assert answer.status_code == 500
    assert "exit code 3" in answer.json()["message"]
    until(stack.researcher.gone, 20)


def test_s14_a_slow_start_can_be_cancelled_and_gives_room_and_hold_back(stack: Stack) -> None:
    me = stack.researcher
    available = me.available()
    with broken(stack, "never-answers"), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(me.ask_start, {"profile": "gpu-1"})
        until(lambda: me.held() > 0 and (me.server() or {}).get("pending") == "spawn", 5)
        assert me.ask_stop().status_code in (202, 204)
        cancelled = time.monotonic()
        until(lambda: me.held() == 0, 4, "the hold is released")
        until(lambda: me.free_now()["gpu-1"] == 1, 4, "the GPU is free")
        assert time.monotonic() - cancelled < PATIENCE * 2
        asked.result(30)
    no_residue(stack, me, available)


def test_s12_a_server_deaf_to_every_signal_is_ended_by_force(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1-2")
    lease = me.lease()
    (server,) = stack.server_processes()
    server.send_signal(signal.SIGSTOP)
    asked = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(me.ask_stop)
        until(lambda: (me.server() or {}).get("pending") == "stop", 10, "the stop is visibly pending")
        assert me.ask_start({"profile": "cpu"}).status_code in (400, 409), "a start meanwhile is told to wait"
        assert stopping.result().status_code in (202, 204)
    done = me.settled(lease["id"], seconds=40)
    assert time.monotonic() - asked < PATIENCE * 40
    assert done["stop_reason"] == "user"
    until(me.gone, 20, "the stop is not pending for ever")
    assert not server.is_running()
    me.start("gpu-1-2")
    me.stop()
