"""Rows of the idle table on a real hub, real JupyterLab servers, and NVIDIA devices as far as the NVML shim is one.

Ten people do different things at once; one wait, and the tests look at what became of each.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from hub_config.compose import Parts, parts
from hub_config.datafolder import DataFolder
from hub_config.status import status
from quota.leases import Holder, Lease, LeaseRequest, Slot, StopReason
from quota.units import MilliGpu
from tests.harness import Kernel, Person, Stack, lasted, type_in_terminal, until
from tests.shim.driver import Driver
from tests.shim.library import build, compiler

pytestmark = [pytest.mark.hub, pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the NVML shim")]

GPU, CPU, NOTICE = 18, 28, 4
TOML = f"""
[idle]
with_gpu = "{GPU} s"
without_gpu = "{CPU} s"
gpu_idle = "{GPU} s"
notice = "{NOTICE} s"
check_every = "1 s"

[save]
grace = "1 s"
by_hand = "off"
"""
#: The kit of one person is refused by service `berth`; a flag file takes a scope from the culler at the next start.
EXTRA = """
import copy
from pathlib import Path
from hub_config import roles

def scopes(spawner):
    own = [] if spawner.user.name == "refused" else list(roles.SERVER_SCOPES)
    return ["users:activity!user", "access:servers!server", *own]

c.Spawner.server_token_scopes = scopes
if Path(__file__).with_name("strip").exists():
    found = copy.deepcopy(roles.ROLES)
    for role in found:
        if role["name"] == "idle-culler":
            role["scopes"].remove("read:servers")
    c.JupyterHub.load_roles = found
"""
PROFILES = {
    "two": "gpu-2",
    "blind": "gpu-1",
    "burner": "gpu-1",
    "silent": "gpu-1",
    "fetcher": "cpu",
    "editor": "cpu",
    "left": "cpu",
    "refused": "cpu",
    "sharer": "gpu-1-4",
    "tab": "gpu-1-4",
}
STOPPED = ("burner", "tab", "left")
KEPT = tuple(name for name in PROFILES if name not in STOPPED)
NAMES = [f"GPU-{letter}" for letter in "abcdef"]

#: A slow download: some bytes, much waiting, next to no CPU. An IDE's server: it answers, and builds now and then.
FETCH = "nohup sh -c 'while :; do head -c 1000000 /dev/zero >> fetched; sleep 0.5; done' > /dev/null 2>&1 &"
SERVE = "python3 -m http.server --bind 127.0.0.1 0"
BUILD = "import time; [(sum(range(8000000)), time.sleep(0.3)) for _ in range(10**6)]"
#: What computes on a GPU alone and outlives its cell; the shim tells of it by its pid.
ON_GPU = "import subprocess, time; subprocess.Popen(['sleep', '987']); time.sleep(12)"


def silent_devices() -> list[str]:
    """While people arrive no device tells its use, so that nobody is idle before the play begins."""
    each = (f"device {name} NVIDIA_A10 24576 0 0\n  fail nvmlDeviceGetUtilizationRates NO_DATA" for name in NAMES)
    return list(each)


@dataclass
class Scene:
    """Leases and sources by person at the end, verdicts as they were warned, and what the culler said of itself."""

    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    warned: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, set[str]] = field(default_factory=dict)
    kits: dict[str, Any] = field(default_factory=dict)
    polls: int = 0
    culler: str = ""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    folder = tmp_path_factory.mktemp("nvml")
    return Driver(folder, build(folder), *silent_devices())


@pytest.fixture(scope="module")
def stack(machine: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    env = {name: machine.env[name] for name in ("LD_LIBRARY_PATH", "BERTH_NVML_SCENARIO")}
    with Stack(tmp_path_factory.mktemp("rows") / "data", TOML, EXTRA, env) as stack:
        yield stack


@pytest.fixture(scope="module")
def book(stack: Stack) -> Iterator[Parts]:
    made = parts(stack.data)
    yield made
    made.store.close()


# ---- what they do ------------------------------------------------------------------------------------------------


def start_all(stack: Stack, seen: Scene, going: ExitStack) -> dict[str, Person]:
    """Everybody's server, and at once what they do in it."""
    people = {name: stack.add(name) for name in PROFILES}
    works = chores(people, seen, going)

    def begin(name: str) -> None:
        people[name].start(PROFILES[name], seconds=90)
        if name in works:
            works[name]()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(begin, name) for name in PROFILES]:
            done.result()
    return people


def send_off(person: Person, code: str) -> None:
    """Code in a kernel, and nobody there any more."""
    kernel = Kernel(person)
    kernel.send(code)
    until(kernel.busy, 30, f"{person.name}'s kernel is busy")
    kernel.leave()


def chores(people: dict[str, Person], seen: Scene, going: ExitStack) -> dict[str, Callable[[], object]]:
    """Everybody's work; those who are not named here do nothing at all."""
    return {
        "silent": lambda: send_off(people["silent"], "import time; time.sleep(600)"),
        "fetcher": lambda: type_in_terminal(people["fetcher"], FETCH),
        "sharer": lambda: send_off(people["sharer"], ON_GPU),
        "tab": lambda: going.enter_context(polling(people["tab"], seen)),
        "burner": lambda: type_in_terminal(people["burner"], f'nohup python3 -c "{BUILD}" > /dev/null 2>&1 &'),
        "editor": lambda: type_in_terminal(people["editor"], f'nohup {SERVE} & nohup python3 -c "{BUILD}" &'),
        "left": lambda: type_in_terminal(people["left"], f"nohup {SERVE} &"),
    }


def pid_of(stack: Stack, user: str, word: str) -> int:
    """The program of somebody's that has this word in its command line."""

    def find() -> int | None:
        servers = [p for p in stack.server_processes() if p.environ()["JUPYTERHUB_USER"] == user]
        children = [child for server in servers for child in server.children(recursive=True)]
        return next((child.pid for child in children if word in child.cmdline()), None)

    return until(find, 20, f"{user} runs {word}")


def play(machine: Driver, book: Parts, working: int) -> None:
    """From now on the devices do what their holders' programs do, and one does not answer."""
    held: dict[str, list[str]] = {}
    for lease in book.book.live():
        held.setdefault(lease.holder.user, []).extend(slot.device or "" for slot in lease.slots)
    idle, busy = sorted(held["two"])
    (blind,), (shared,) = held["blind"], held["sharer"]
    assert held["tab"] == [shared], "both are on one device"
    lines = []
    for name in NAMES:
        util = 95 if name in (busy, shared) else 0
        lines.append(f"device {name} NVIDIA_A10 24576 2048 {util}")
        if name == blind:
            lines.append("  fail nvmlDeviceGetUtilizationRates UNKNOWN")
        elif name == shared:
            lines += ["  samples", f"  process {working} compute 2048 util=95"]
    assert idle != busy
    machine.scenario(*lines)


@contextmanager
def orphan(book: Parts) -> Iterator[Lease]:
    """A running lease of somebody whom the Hub does not know, with a report that nobody can read."""
    boot, host = "boot-of-no-hub", "elsewhere"
    book.bank.ensure_account("ghost")
    request = LeaseRequest(Holder("ghost"), "ghost", "cpu", "local", MilliGpu(0), 0, boot, "ghost")
    lease = book.book.reserve(request, lambda *_: (Slot(host, None, MilliGpu(0)),))
    lease = book.book.mark_starting(lease, book.clock.now() + timedelta(minutes=5))
    book.rows.beat(boot, "hub", host)
    lease = book.book.mark_running(lease, boot, book.clock.now())
    book.rows.put_signal(lease.id, "kit", {}, book.clock.now())
    with book.store.write() as connection:
        words = sa.text("UPDATE signal SET payload = '{not json' WHERE lease_id = :lease")
        connection.execute(words, {"lease": lease.id})
    try:
        yield lease
    finally:
        now = book.clock.now()
        closed = book.book.close(book.book.lease(lease.id), now, StopReason.FAILED, "")
        book.book.settle(book.book.release(closed, now))
        book.rows.drop_beat(boot)


@contextmanager
def polling(person: Person, seen: Scene) -> Iterator[None]:
    """A front end that somebody forgot: its websocket, its status requests, its debugger, several times a second."""
    done = threading.Event()
    paths = [f"/user/{person.name}/api/{what}" for what in ("status", "kernels", "sessions", "terminals")]

    def ask(tab: Kernel) -> None:
        headers = {"Authorization": f"token {person.token}"}
        with httpx.Client(base_url=person.url, headers=headers, timeout=10) as client:
            while not done.wait(0.4):
                try:
                    seen.polls += sum(client.get(path).status_code == 200 for path in paths)
                    for kind in ("kernel_info_request", "comm_info_request"):
                        tab.attach().send(json.dumps(message(kind)))
                except Exception:  # the server is gone: that is what is waited for
                    continue

    with Kernel(person) as tab:
        tab.run("1")
        thread = threading.Thread(target=ask, args=(tab,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def message(kind: str) -> dict[str, Any]:
    header = {"msg_id": f"{kind}-1", "msg_type": kind, "version": "5.3", "username": "", "session": "t"}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": {}, "channel": "shell"}


@pytest.fixture(scope="module")
def scene(stack: Stack, machine: Driver, book: Parts) -> Iterator[Scene]:
    """Start everybody, wait until those who do nothing are gone, look at all."""
    seen = Scene()
    with orphan(book) as ghost, ExitStack() as going:
        people = start_all(stack, seen, going)
        play(machine, book, pid_of(stack, "sharer", "987"))
        until(lambda: all_gone(seen, people), 100, f"{STOPPED} are reclaimed", every=0.5)
        seen.ended |= {name: people[name].lease() for name in KEPT}
        signals = {name: book.rows.signals(seen.ended[name]["id"]) for name in KEPT}
        seen.sources = {name: set(found) for name, found in signals.items()}
        seen.kits = {name: found["kit"][1] for name, found in signals.items() if "kit" in found}
        seen.ended["ghost"] = {"state": book.book.lease(ghost.id).state.value}
        seen.culler = next(beat.note for beat in book.rows.boots("idle-culler"))
    yield seen


def all_gone(seen: Scene, people: dict[str, Person]) -> bool:
    for name in STOPPED:
        if name in seen.ended:
            continue
        lease = people[name].lease()
        if lease["idle"] and lease["idle"]["kind"] == "warn":
            seen.warned.setdefault(name, lease["idle"])
        if lease["state"] == "SETTLED":
            seen.ended[name] = lease
    return set(STOPPED) <= seen.ended.keys()


def kept_by(scene: Scene, name: str) -> str:
    """The rule by which somebody still runs."""
    lease = scene.ended[name]
    assert (lease["state"], lease["target"]) == ("RUNNING", "RUN"), lease
    return str(lease["idle"]["rule"])


# ---- kept --------------------------------------------------------------------------------------------------------


def test_i01_a_silent_long_cell_without_a_client_is_kept(scene: Scene) -> None:
    assert kept_by(scene, "silent") == "busy-kernel"


def test_i02_a_download_in_a_terminal_without_kernels_or_cpu_is_kept(scene: Scene) -> None:
    assert kept_by(scene, "fetcher") == "io-active"


def test_i02_the_kit_tells_of_programs_in_terminals_and_of_those_that_cells_left(scene: Scene) -> None:
    assert (scene.kits["fetcher"]["terminals"], scene.kits["fetcher"]["children"]) == (1, 1)
    assert scene.kits["sharer"]["terminals"] == 0 and scene.kits["sharer"]["background"] >= 1
    assert (scene.kits["blind"]["children"], scene.kits["blind"]["background"]) == (0, 0)


def test_i02_a_program_that_works_on_a_shared_gpu_alone_is_kept(scene: Scene) -> None:
    assert kept_by(scene, "sharer") == "gpu-active"


def test_one_of_two_devices_that_computes_is_enough(scene: Scene) -> None:
    assert kept_by(scene, "two") == "gpu-active"


def test_i07_a_device_that_does_not_answer_is_not_idle(scene: Scene) -> None:
    assert kept_by(scene, "blind") == "blind"


def test_i19_a_kit_that_is_refused_is_not_idle(scene: Scene) -> None:
    assert kept_by(scene, "refused") == "blind"
    assert "kit" in scene.sources["fetcher"] and "kit" not in scene.sources["refused"], "it was really refused"
    assert "host" in scene.sources["refused"]


def test_x24_an_ide_without_kernels_is_kept_while_it_works(scene: Scene) -> None:
    assert kept_by(scene, "editor") == "cpu-active"


# ---- stopped -----------------------------------------------------------------------------------------------------


def test_i03_i05_a_forgotten_tab_and_status_polls_do_not_keep_a_share_whose_device_others_use(scene: Scene) -> None:
    assert scene.ended["tab"]["stop_reason"] == "idle"
    assert lasted(scene.ended["tab"]) >= GPU
    assert scene.polls > 40, "the poller was really there"
    assert scene.warned["tab"]["deadline"]


def test_i16_a_gpu_that_is_held_unused_is_given_back_though_the_cpu_is_busy(scene: Scene) -> None:
    assert scene.warned["burner"]["rule"] == "gpu-idle"
    assert scene.ended["burner"]["stop_reason"] == "idle"


def test_x24_i13_an_idle_ide_without_a_gpu_is_stopped_by_its_own_longer_rule(scene: Scene) -> None:
    assert scene.ended["left"]["stop_reason"] == "idle"
    assert scene.warned["left"]["rule"] == "idle"
    assert lasted(scene.ended["left"]) >= CPU
    assert "idle.without_gpu" in scene.ended["left"]["stop_words"] + scene.warned["left"]["words"]


def test_i08_an_orphan_row_hides_nobody(scene: Scene) -> None:
    """Everything above was judged beside a lease of a user whom the Hub does not know, with a broken report."""
    assert scene.ended["ghost"]["state"] == "RUNNING"
    assert "last successful cycle: 20" in scene.culler, scene.culler


# ---- the Hub says no ---------------------------------------------------------------------------------------------


def test_i12_i19_a_culler_without_a_scope_says_which_and_stops_nobody(scene: Scene, stack: Stack, book: Parts) -> None:
    (stack.data / "strip").touch()
    stack.wait_for_new("hub", stack.kill("hub"))

    def named() -> str | None:
        notes = [beat.note for beat in book.rows.boots("idle-culler")]
        return next((note for note in notes if "read:servers" in note), None)

    assert "unhealthy" in until(named, 40, "the culler names the scope")
    found = status(DataFolder(stack.data))
    assert not found["healthy"]
    assert any("read:servers" in finding for finding in found["findings"])
    running = {lease.holder.user for lease in book.book.live() if lease.target.value == "RUN"}
    assert running >= {name for name in KEPT if name not in ("editor", "fetcher")}
