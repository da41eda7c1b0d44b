"""Who is idle and who is not, on a real hub with real kernels and short time-outs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.harness import Kernel, Person, Stack, until, while_true

pytestmark = pytest.mark.hub

IDLE, NOTICE = 15, 4
TOML = f"""
[gpus]
source = "simulated"
simulated = 1

[idle]
with_gpu = "{IDLE} s"
without_gpu = "2 h"
notice = "{NOTICE} s"
check_every = "1 s"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("idle") / "data", TOML) as stack:
        yield stack


@pytest.fixture(autouse=True)
def tidy(stack: Stack) -> Iterator[None]:
    yield
    stack.tidy()


class Poller(threading.Thread):
    """A forgotten tab: asks the server for its status several times a second, as front ends do."""

    def __init__(self, person: Person) -> None:
        super().__init__(daemon=True)
        self.person, self.done, self.asked = person, threading.Event(), 0

    def run(self) -> None:
        headers = {"Authorization": f"token {self.person.token}"}
        with httpx.Client(base_url=self.person.url, headers=headers, timeout=5) as client:
            while not self.done.wait(0.3):
                for path in ("api/status", "api/kernels", "api/sessions", "api/terminals"):
                    try:
                        client.get(f"/user/{self.person.name}/{path}")
                    except httpx.HTTPError:
                        continue
                    self.asked += 1


def stopped(person: Person, lease_id: str) -> bool:
    return bool(person.lease(lease_id)["state"] == "SETTLED")


def test_i01_i03_a_silent_busy_kernel_is_kept_and_an_idle_server_with_a_tab_and_a_poller_is_not(stack: Stack) -> None:
    busy, idle = stack.researcher, stack.add("forgetful")
    busy.start("gpu-1-4")
    idle.start("gpu-1-4")
    kept, reclaimed = busy.lease()["id"], idle.lease()["id"]
    work = Kernel(busy)
    work.send(f"import time; time.sleep({IDLE + NOTICE + 20})")
    until(work.busy, 10)
    work.leave()  # no browser anywhere
    tab = Kernel(idle)
    poller = Poller(idle)
    poller.start()
    try:
        with tab:  # the websocket of an open notebook
            tab.run("1")
            began = time.monotonic()
            until(lambda: stopped(idle, reclaimed), IDLE + NOTICE + 25, "the idle server is reclaimed", every=0.5)
    finally:
        poller.done.set()
        poller.join()
    assert time.monotonic() - began >= IDLE, "not before the time-out"
    assert poller.asked > 20
    lease = idle.lease(reclaimed)
    assert lease["stop_reason"] == "idle"
    assert busy.lease(kept)["state"] == "RUNNING", "the busy kernel is in use without any browser"
    page = idle.browser.get("/services/berth/").text
    assert "idle" in page.lower(), "the user's page says why"
    until(idle.gone, 20, "the hub knows")
    busy.stop()


def test_i20_reading_pages_is_not_using(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1-4")
    lease_id = me.lease()["id"]
    stop = time.monotonic() + IDLE + NOTICE + 25
    pages = ("/hub/home", "/services/berth/", "/services/berth/board", "/services/berth/usage")
    while time.monotonic() < stop and not stopped(me, lease_id):
        for page in pages:
            me.browser.get(page)
    assert me.lease(lease_id)["stop_reason"] == "idle"


def test_i02_a_process_from_a_kernel_that_uses_the_cpu_is_use(stack: Stack) -> None:
    me = stack.researcher
    me.start("gpu-1-4")
    lease_id = me.lease()["id"]
    with Kernel(me) as kernel:
        kernel.run("import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'while True: pass'])")
    while_true(lambda: me.lease(lease_id)["state"] == "RUNNING", IDLE + NOTICE + 6, "a working process is use", every=1)
    me.stop()
    until(lambda: not stack.runner_processes(), 15, "the process is ended with its server")


def test_i13_without_a_gpu_the_longer_time_out_holds(stack: Stack) -> None:
    me = stack.researcher
    me.start("cpu")
    lease_id = me.lease()["id"]
    while_true(lambda: me.lease(lease_id)["state"] == "RUNNING", IDLE + NOTICE + 3, "2 h have not passed", every=1)
    me.stop()
