"""Who is idle and who is not, on a real hub with real kernels and short time-outs.

Five people do different things at the same time on one simulated GPU; the tests look at what became of each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.harness import Kernel, Person, Stack, lasted, until

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
PAGES = ("/hub/home", "/services/berth/", "/services/berth/board", "/services/berth/usage")
WORK = "import time\nwhile True: sum(range(10**6)); time.sleep(0.05)"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("idle") / "data", TOML) as stack:
        yield stack


@contextmanager
def again_and_again(person: Person, paths: tuple[str, ...]) -> Iterator[list[int]]:
    """Somebody's pages or front ends that ask several times a second; the answers' codes."""
    done, codes = threading.Event(), [0]

    def ask() -> None:
        with httpx.Client(base_url=person.url, cookies=person.browser.cookies, timeout=10) as client:
            headers = {} if paths is PAGES else {"Authorization": f"token {person.token}"}
            while not done.wait(0.3):
                for path in paths:
                    try:
                        codes.append(client.get(path, headers=headers).status_code)
                    except httpx.HTTPError:
                        continue

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield codes
    finally:
        done.set()
        thread.join()


@dataclass
class Scene:
    """What was seen of each lease: by person's name, at the end and while it was warned."""

    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    warned: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, list[int]] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)


def begin(person: Person, profile: str, code: str = "") -> Kernel | None:
    """Start a server, and in a kernel some code that nobody waits for and no browser shows."""
    person.start(profile)
    if not code:
        return None
    kernel = Kernel(person)
    kernel.send(code)
    until(kernel.busy, 15, f"{person.name}'s kernel is busy")
    kernel.leave()
    return kernel


@pytest.fixture(scope="module")
def scene(stack: Stack) -> Scene:
    """Start everybody, wait until both idle servers are gone, look at all."""
    people = {name: stack.add(name) for name in ("busy", "worker", "cpu-only", "forgetful", "reader")}
    begin(people["busy"], "gpu-1-8", f"import time; time.sleep({IDLE + NOTICE + 120})")
    begin(people["cpu-only"], "cpu")
    begin(people["worker"], "gpu-1-8")
    with Kernel(people["worker"]) as kernel:
        kernel.run(f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {WORK!r}])")
    for name in ("forgetful", "reader"):
        begin(people[name], "gpu-1-8")
    seen = Scene()
    with ExitStack() as going:
        tab = going.enter_context(Kernel(people["forgetful"]))  # the websocket of an open notebook
        tab.run("1")
        asks = tuple(f"/user/forgetful/api/{what}" for what in ("status", "kernels", "sessions", "terminals"))
        seen.codes["forgetful"] = going.enter_context(again_and_again(people["forgetful"], asks))
        seen.codes["reader"] = going.enter_context(again_and_again(people["reader"], PAGES))
        until(lambda: reclaimed(seen, people), IDLE + NOTICE + 40, "both idle servers are reclaimed", every=0.25)
    seen.ended |= {name: people[name].lease() for name in ("busy", "worker", "cpu-only")}
    seen.pages["forgetful"] = people["forgetful"].browser.get("/services/berth/").text
    for name in ("forgetful", "reader"):
        until(people[name].gone, 30, "the hub has let go of it too")
    return seen


def reclaimed(seen: Scene, people: dict[str, Person]) -> bool:
    for name in ("forgetful", "reader"):
        lease = people[name].lease()
        if lease["idle"] and lease["idle"]["kind"] == "warn":
            seen.warned.setdefault(name, lease["idle"])
        if lease["state"] == "SETTLED":
            seen.ended[name] = lease
    return {"forgetful", "reader"} <= seen.ended.keys()


def test_i01_a_silent_busy_kernel_without_any_browser_is_kept(scene: Scene) -> None:
    assert scene.ended["busy"]["state"] == "RUNNING"


def test_i02_a_process_that_works_on_after_its_cell_is_use(scene: Scene) -> None:
    assert scene.ended["worker"]["state"] == "RUNNING"


def test_i13_without_a_gpu_the_longer_time_out_holds(scene: Scene) -> None:
    assert scene.ended["cpu-only"]["state"] == "RUNNING"


def test_i03_an_open_tab_and_a_poller_do_not_keep_an_idle_server(scene: Scene) -> None:
    lease = scene.ended["forgetful"]
    assert lease["stop_reason"] == "idle"
    assert lasted(lease) >= IDLE, "not before its time: the notice lies within it"
    assert scene.codes["forgetful"].count(200) > 20, "the poller was really there"


def test_i20_reading_pages_is_not_using(scene: Scene) -> None:
    assert scene.ended["reader"]["stop_reason"] == "idle"
    assert lasted(scene.ended["reader"]) < IDLE + NOTICE + 20
    assert scene.codes["reader"].count(200) > 20, "the reader was really there"


def test_i14_a_warning_with_its_deadline_comes_first_and_the_page_says_why_it_ended(scene: Scene) -> None:
    for name in ("forgetful", "reader"):
        assert scene.warned[name]["words"]
        assert scene.warned[name]["deadline"]
    assert "idle" in scene.pages["forgetful"].lower()
    assert "idle" in scene.ended["forgetful"]["stop_words"].lower()


def test_the_processes_of_a_reclaimed_server_are_gone_and_the_others_live(stack: Stack, scene: Scene) -> None:
    users = sorted(process.environ()["JUPYTERHUB_USER"] for process in stack.server_processes())
    assert users == ["busy", "cpu-only", "worker"]
    for name in users:
        stack.admin.stop(user=name)
    until(lambda: not stack.runner_processes(), 15, "what a kernel left behind ends with its server")
