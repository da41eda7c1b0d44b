"""Processes are killed in mid-session: nobody's work ends for it, every bill is right, nothing leaks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.harness import Kernel, Stack, until, while_true
from tests.harness.waiting import PATIENCE

pytestmark = pytest.mark.hub

TOML = """
[gpus]
source = "simulated"
simulated = 2

[first_start]
monthly_credits = 1000000
credits_per_gpu_hour = 3600
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("death") / "data", TOML) as stack:
        yield stack


@pytest.fixture(autouse=True)
def tidy(stack: Stack) -> Iterator[None]:
    yield
    stack.tidy()


def exact(lease: dict[str, object]) -> None:
    """The bill is its length times its share, to a second."""
    start, end = (datetime.fromisoformat(str(lease[key])) for key in ("started_at", "ended_at"))
    milli_seconds = float(str(lease["share_milli"])) * (end - start).total_seconds()
    assert lease["milli_gpu_seconds"] == pytest.approx(milli_seconds, abs=1)
    assert lease["charged_micro_credits"] == pytest.approx(milli_seconds * 1000, abs=1)


def test_s01_x04_kill_of_the_hub_keeps_leases_meters_and_notebooks(stack: Stack) -> None:
    me, other = stack.researcher, stack.add("second")
    me.start("gpu-1-4")
    me.start("cpu", server="side")
    other.start("gpu-1-8")
    before = {lease["id"]: lease for lease in stack.admin.leases() if lease["state"] == "RUNNING"}
    assert len(before) == 3
    kernel = Kernel(me)
    with kernel:
        kernel.run("x = 41")
    servers = sorted(process.pid for process in stack.server_processes())
    stack.wait_for_new("hub", stack.kill("hub"))
    until(lambda: me.ready() and me.ready("side") and other.ready(), 40, "the new hub has adopted all servers")
    assert sorted(process.pid for process in stack.server_processes()) == servers
    after = {lease["id"]: lease for lease in stack.admin.leases() if lease["state"] == "RUNNING"}
    assert after.keys() == before.keys()
    assert all(after[key]["started_at"] == before[key]["started_at"] for key in before)
    with kernel:
        assert kernel.run("print(x + 1)") == "42\n"
    me.stop()
    me.stop(server="side")
    other.stop()
    for lease_id in before:
        exact(stack.admin.settled(lease_id))
    until(lambda: not stack.server_processes() and not stack.runner_processes(), 10, "nothing is left")


def test_s04_an_orderly_restart_of_the_hub_keeps_servers_and_websockets_come_back(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1-4")
    lease = me.lease()
    kernel = Kernel(me)
    with kernel:
        kernel.run("kept = 'yes'")
    pid = stack.pid("hub")
    assert pid
    os.kill(pid, signal.SIGTERM)
    started = time.monotonic()
    stack.wait_for_new("hub", pid)

    def answers() -> str:
        try:
            with kernel:
                return kernel.run("print(kept)", 5)
        except Exception:  # while the proxy comes back, anything may happen to a websocket
            return ""

    assert until(answers, 30, "the websocket is back").strip() == "yes"
    assert time.monotonic() - started < PATIENCE * 30
    assert me.lease(lease["id"])["state"] == "RUNNING"
    until(me.ready, 30, "the hub has adopted the server")
    me.stop()
    exact(me.settled(lease["id"]))


def test_s02_a_server_that_died_while_the_hub_was_down_is_charged_to_its_end(stack: Stack) -> None:
    """`berth up` would bring the hub back at once; stopping it (SIGSTOP) keeps the hub down while time goes by."""
    me = stack.researcher
    me.start("gpu-1-4")
    lease = me.lease()
    assert stack.process is not None
    stack.process.send_signal(signal.SIGSTOP)
    try:
        old = stack.kill("hub")
        agent = stack.kill("agent")
        (server,) = stack.server_processes()
        server.kill()
        died = datetime.now(UTC)
        until(lambda: not stack.runner_processes(), 10, "the runner has written the end")
        until(lambda: (datetime.now(UTC) - died).total_seconds() > 4, 10, "time goes by")
    finally:
        stack.process.send_signal(signal.SIGCONT)
    stack.wait_for_new("hub", old)
    stack.wait_for_new("agent", agent)
    done = me.settled(lease["id"])
    ended = datetime.fromisoformat(done["ended_at"])
    assert abs((ended - died).total_seconds()) <= 1
    exact(done)
    until(me.gone, 40, "the hub knows that the server is gone")


def test_x19_x29_a_server_that_dies_is_charged_to_its_end_free_in_one_cycle_and_leaves_its_last_words(
    stack: Stack,
) -> None:
    """SIGKILL, as the kernel ends what takes too much memory."""
    me = stack.researcher
    me.start("gpu-1-2")
    lease = me.lease()
    (server,) = stack.server_processes()
    server.kill()
    died = datetime.now(UTC)
    done = me.settled(lease["id"], seconds=6)
    assert abs((datetime.fromisoformat(done["ended_at"]) - died).total_seconds()) <= 1
    exact(done)
    assert done["charged_micro_credits"] > 0
    until(me.gone, 40, "the hub has noticed")
    receipt = me.browser.get(f"/services/berth/lease/{lease['id']}").text
    assert 'id="log" open>' in receipt and "lines of its log" in receipt
    assert "is running at" in receipt and "signal 9" in receipt
    assert me.token not in receipt and "token=[secret]" in receipt


def test_a_runner_killed_under_a_living_server_frees_nothing(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1")
    lease = me.lease()
    (runner,) = stack.runner_processes()
    (server,) = stack.server_processes()
    runner.kill()
    while_true(lambda: me.lease(lease["id"])["state"] == "RUNNING" and server.is_running(), 4, "still held")
    assert me.free_now()["gpu-1"] == 1
    me.stop()
    exact(me.settled(lease["id"]))
    until(lambda: not stack.server_processes(), 10, "the server is ended without its runner too")


def test_a_killed_agent_comes_back_and_no_second_is_lost(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1-8")
    lease = me.lease()
    stack.wait_for_new("agent", stack.kill("agent"))
    assert me.lease(lease["id"])["state"] == "RUNNING"
    me.stop()
    exact(me.settled(lease["id"]))


@pytest.mark.parametrize("name", ["proxy", "berth", "idle-culler"])
def test_a_killed_part_comes_back(stack: Stack, name: str) -> None:
    stack.wait_for_new(name, stack.kill(name))


def test_kill_of_everything_and_the_next_up_heals(stack: Stack) -> None:
    me = stack.researcher
    before = me.available()
    me.start("gpu-1-4")
    lease_id = me.lease()["id"]
    until(lambda: me.lease(lease_id)["state"] == "RUNNING", 10)
    while_true(lambda: me.ready(), 5, "it runs for longer than from one note of its sight to the next")
    stack.kill_everything()
    assert stack.leftovers() == []
    stack.up()
    me = stack.researcher
    done = me.settled(lease_id)
    assert done["charged_micro_credits"] > 0
    exact(done)
    assert before - me.available() == done["charged_micro_credits"]
    until(me.gone, 40, "the hub has no server any more")
    me.start("gpu-2")  # all devices are free
    me.stop()


def test_ctrl_c_ends_everything_and_the_next_up_carries_on(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1-4")
    lease_id = me.lease()["id"]
    (stack.data / "homes" / "researcher" / "mine.txt").write_text("kept", encoding="utf-8")
    stack.close()
    assert stack.leftovers() == []
    stack.up()
    me = stack.researcher
    done = me.lease(lease_id)
    assert (done["state"], done["stop_reason"]) == ("SETTLED", "platform")
    exact(done)
    until(me.gone, 40, "the hub has no server any more")
    assert (stack.data / "homes" / "researcher" / "mine.txt").read_text(encoding="utf-8") == "kept"
