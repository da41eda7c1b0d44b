"""kill -9 at chosen steps of a start and a stop, on a real hub: the site converges, and the bill is right.

The hub and the agent end themselves at a named step (tests/integration/killing), so each case is the same every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness import Person, Stack, until

pytestmark = pytest.mark.hub

KILLING = Path(__file__).with_name("killing")
TOML = """
[gpus]
source = "simulated"
simulated = 1

[hub]
start_timeout = "30 s"

[first_start]
monthly_credits = 1000000
credits_per_gpu_hour = 3600
"""
EXTRA = "import kill_points; kill_points.install('hub')\nc.GpuSpawner.stop_grace = 3\n"

#: From when the killed process is back: what a dead hub was starting is waited for 5 s; a server that it had confirmed
#: and not yet written down is asked for 30 s by the next hub before it is given up, free of charge.
CONVERGED_S = 45


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(KILLING))
        with Stack(tmp_path_factory.mktemp("nine") / "data", TOML, EXTRA) as stack:
            yield stack


@pytest.fixture
def me(stack: Stack) -> Iterator[Person]:
    """Somebody whose account is as it was before, less what the leases since were charged, once each."""
    until(stack.answers, 60, "the site answers")
    person = stack.researcher
    available, before = person.available(), {lease["id"] for lease in person.leases()}
    yield person
    person = stack.researcher  # another after a power cut
    since = [lease for lease in person.leases() if lease["id"] not in before]
    assert since and all(lease["state"] == "SETTLED" for lease in since)
    for lease in since:
        exact(lease)
    assert available - person.available() == sum(lease["charged_micro_credits"] for lease in since)
    assert person.held() == 0
    stack.run("audit")


def exact(lease: dict[str, Any]) -> None:
    if lease["started_at"] is None or (lease["stop_reason"] == "failed" and not lease["charged_micro_credits"]):
        assert lease["charged_micro_credits"] == 0  # it never ran, or the Hub never reached it
        return
    start, end = (datetime.fromisoformat(lease[key]) for key in ("started_at", "ended_at"))
    milli_seconds = lease["share_milli"] * (end - start).total_seconds()
    assert lease["charged_micro_credits"] == pytest.approx(milli_seconds * 1000, abs=1)


def at(stack: Stack, what: str, step: str) -> Path:
    """Have a process die (`kill-at`) or stand still (`wait-at`) at a step; the file that appears when it has."""
    taken = stack.data / f"{what}.taken"
    taken.unlink(missing_ok=True)
    (stack.data / "next").write_text(step, encoding="utf-8")
    (stack.data / "next").rename(stack.data / what)
    return taken


def asked(call: Any) -> Any:
    """What was asked of a hub that is killed meanwhile has no answer, or the proxy's."""
    try:
        return call()
    except httpx.HTTPError:
        return None


def converged(stack: Stack, me: Person) -> None:
    """Book, processes and Hub say the same: a live lease has one server, and nothing else runs or is half done."""

    def same() -> bool:
        if not stack.answers():
            return False
        leases = [lease for lease in me.leases() if lease["state"] != "SETTLED"]
        server = me.server()
        if any(lease["state"] != "RUNNING" or lease["target"] != "RUN" for lease in leases):
            return False
        if not len(leases) == len(stack.server_processes()) == len(stack.runner_processes()):
            return False
        return bool(server and server["ready"]) if leases else me.gone()

    until(same, CONVERGED_S, "the site has converged", every=0.2)


def ends_well(stack: Stack, me: Person) -> None:
    """Whatever is left is stopped, and the whole GPU can be had again."""
    converged(stack, me)
    if not me.gone():
        me.stop()
    me.start("gpu-1")
    lease = me.lease()
    me.stop()
    assert me.settled(lease["id"])["charged_micro_credits"] > 0
    until(lambda: not stack.server_processes() and not stack.runner_processes(), 10, "nothing is left")


def kill_in_a_start(stack: Stack, me: Person, step: str, name: str = "hub") -> dict[str, Any]:
    old = stack.pid(name)
    assert old
    taken = at(stack, "kill-at", step)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asked, lambda: me.ask_start({"profile": "gpu-1"}))
        until(taken.exists, 20, step)
        stack.wait_for_new(name, old)
    return me.lease()


@pytest.mark.parametrize("step", ["after reserve", "after mark_starting", "before start", "after start"])
def test_n02_hub_killed_before_a_start_was_confirmed(stack: Stack, me: Person, step: str) -> None:
    lease = kill_in_a_start(stack, me, f"hub {step}")
    done = me.settled(lease["id"], CONVERGED_S)
    assert (done["stop_reason"], done["charged_micro_credits"], done["started_at"]) == ("failed", 0, None)
    ends_well(stack, me)


def test_n02_hub_killed_when_a_start_was_confirmed_and_not_yet_known_to_the_hub(stack: Stack, me: Person) -> None:
    lease = kill_in_a_start(stack, me, "hub after mark_running")
    assert lease["started_at"] is not None
    ends_well(stack, me)


@pytest.mark.parametrize("step", ["after request_stop", "after stop", "before acknowledge", "after acknowledge"])
def test_n02_hub_killed_during_a_stop(stack: Stack, me: Person, step: str) -> None:
    me.start("gpu-1")
    lease, old = me.lease(), stack.pid("hub")
    assert old
    taken = at(stack, "kill-at", f"hub {step}")
    asked(me.ask_stop)
    until(taken.exists, 20, step)
    stack.wait_for_new("hub", old)
    assert me.settled(lease["id"], CONVERGED_S)["stop_reason"] == "user"
    ends_well(stack, me)


@pytest.mark.parametrize("step", ["before close", "before release", "after release", "before settle", "after settle"])
def test_n02_agent_killed_around_the_release_and_the_bill(stack: Stack, me: Person, step: str) -> None:
    me.start("gpu-1")
    lease, old = me.lease(), stack.pid("agent")
    assert old
    taken = at(stack, "kill-at", f"agent {step}")
    assert me.ask_stop().status_code in (202, 204)
    until(taken.exists, 20, step)
    stack.wait_for_new("agent", old)
    me.settled(lease["id"], CONVERGED_S)
    ends_well(stack, me)


def test_n02_agent_killed_when_it_had_metered(stack: Stack, me: Person) -> None:
    lease = kill_in_a_start(stack, me, "agent after meter", "agent")
    until(me.ready, 20, "the start went on")
    assert me.lease(lease["id"])["state"] == "RUNNING"
    ends_well(stack, me)


# ---- others die while the hub stands still at a step ---------------------------------------------------------------


class Held:
    """The hub stands at a step of what was asked, until `go`."""

    def __init__(self, stack: Stack, step: str, call: Any) -> None:
        self._taken = at(stack, "wait-at", step)
        self._pool = ThreadPoolExecutor(1)
        self.answer: Future[Any] = self._pool.submit(asked, call)
        until(self._taken.exists, 20, step)

    def go(self) -> Any:
        self._taken.unlink(missing_ok=True)
        try:
            return self.answer.result(60)
        finally:
            self._pool.shutdown()


def test_n02_runner_killed_while_its_server_starts(stack: Stack, me: Person) -> None:
    held = Held(stack, "hub after start", lambda: me.ask_start({"profile": "gpu-1"}))
    (runner,) = stack.runner_processes()
    runner.kill()
    held.go()
    # The server lives without its runner: it is found by its marks, held, charged and ended like any other.
    until(me.ready, 30, "the start went on")
    assert len(stack.server_processes()) == 1
    me.stop()
    me.settled(me.lease()["id"])
    ends_well(stack, me)


def test_x29_server_killed_while_it_is_being_stopped(stack: Stack, me: Person) -> None:
    me.start("gpu-1")
    lease = me.lease()
    (server,) = stack.server_processes()
    held = Held(stack, "hub after request_stop", me.ask_stop)
    server.kill()
    held.go()
    done = me.settled(lease["id"])
    assert (done["stop_reason"], done["charged_micro_credits"] > 0) == ("user", True)
    ends_well(stack, me)


def test_n02_service_and_proxy_killed_during_a_start(stack: Stack, me: Person) -> None:
    held = Held(stack, "hub after mark_starting", lambda: me.ask_start({"profile": "gpu-1"}))
    berth, proxy = stack.kill("berth"), stack.kill("proxy")
    held.go()
    stack.wait_for_new("berth", berth)
    stack.wait_for_new("proxy", proxy)
    until(me.ready, 30, "the start went on")
    ends_well(stack, me)


def test_n02_everything_killed_during_a_start(stack: Stack, me: Person) -> None:
    held = Held(stack, "hub after start", lambda: me.ask_start({"profile": "gpu-1"}))
    lease_id = next(path.name for path in (stack.data / "runs").iterdir() if not path.name.startswith("."))
    stack.kill_everything()
    held.go()
    assert stack.leftovers() == []
    stack.up()
    me = stack.researcher
    done = me.settled(lease_id, CONVERGED_S)
    assert (done["charged_micro_credits"], done["started_at"]) == (0, None)
    ends_well(stack, me)
