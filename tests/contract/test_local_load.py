"""What the processes of a local server use: the arithmetic on values, the counting on real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spawner import local_load, local_runtime, processes
from spawner.local_load import Moved, is_helper, is_kernel, moved, working
from spawner.processes import Process
from tests.contract.runtime_worlds import LocalWorld, until

SERVER, KERNEL, CHILD = (10, 1), (11, 1), (12, 1)
MIB = 1 << 20

#: A server that writes itself, and a child that writes, ends and is waited for by another child.
WRITES = """
import os, time
def write(mib):
    with open("/dev/null", "wb", buffering=0) as out:
        for _ in range(mib): out.write(bytes(1 << 20))
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
write(50)                                   # the server's own: not counted
if os.fork() == 0:
    write(3)
    open("three", "w").close()
    wait_for("more")
    if os.fork() == 0:
        write(4)
        open("seven", "w").close()
        wait_for("child-ends")
        os._exit(0)
    os.wait()
    open("waited", "w").close()
    wait_for("kernel-ends")
    os._exit(0)
open("ready", "w").close()
os.wait()
open("collected", "w").close()
time.sleep(600)
"""

#: A program that uses a pool of processes once, closes it, and lives on.
POOLED = """
import multiprocessing, os, time
if os.fork() == 0:
    context = multiprocessing.get_context("forkserver")
    child = context.Process(target=time.sleep, args=(0,))
    child.start()
    child.join()
    lock = context.Lock()
    open("pooled", "w").close()
    time.sleep(600)
open("ready", "w").close()
time.sleep(600)
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalWorld]:
    monkeypatch.setattr(local_runtime, "TABLE_AGE_S", 0.0)
    local = LocalWorld(tmp_path)
    yield local
    local.clean()


def total(world: LocalWorld) -> int:
    found = world.runtime.load("l1").io_bytes
    assert found is not None
    return found


def test_bytes_are_those_of_descendants_once_and_never_fall(world: LocalWorld) -> None:
    world.start("l1", code=WRITES)
    home = world.home("l1")
    until((home / "three").exists)
    first = total(world)
    assert 3 * MIB <= first < 4 * MIB
    (home / "more").touch()
    until((home / "seven").exists)
    second = total(world)
    assert 7 * MIB <= second < 8 * MIB
    (home / "child-ends").touch()
    until((home / "waited").exists)
    assert second <= total(world) < 8 * MIB, "its parent waited for it: that is not new"
    (home / "kernel-ends").touch()
    until((home / "collected").exists)
    assert second <= total(world) < 8 * MIB


def test_pids_are_those_of_the_tree_and_processes_those_that_do_something(world: LocalWorld) -> None:
    world.start("l1", code=WRITES)
    until((world.home("l1") / "three").exists)
    load = world.runtime.load("l1")
    server = world.pid("l1")
    assert load.pids == {server, *(child.pid for child in psutil.Process(server).children(recursive=True))}
    assert load.processes == 1


def test_the_helpers_that_a_pool_leaves_behind_are_no_processes(world: LocalWorld) -> None:
    world.start("l1", code=POOLED)
    until((world.home("l1") / "pooled").exists)
    helpers = [
        child for child in psutil.Process(world.pid("l1")).children(recursive=True) if is_helper(child.cmdline())
    ]
    assert len(helpers) == 2, "a fork server and a resource tracker"
    assert world.runtime.load("l1").processes == 1, "the program itself"


def test_a_process_that_hides_its_numbers_makes_them_unknown(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start("l1", code=WRITES)
    until((world.home("l1") / "three").exists)

    class Hidden(psutil.Process):
        def io_counters(self) -> None:
            raise psutil.AccessDenied(self.pid)

    before = total(world)
    with monkeypatch.context() as hidden:
        hidden.setattr(local_load.psutil, "Process", Hidden)
        load = world.runtime.load("l1")
        assert load.io_bytes is None and load.cpu_seconds is not None
    assert total(world) >= before


def test_a_process_that_is_gone_is_no_unknown() -> None:
    with pytest.raises(ProcessLookupError):
        local_load.bytes_of(2**22 + 1)
    assert local_load.bytes_of(os.getpid()) is not None


# ---- arithmetic ----------------------------------------------------------------------------------------------------


def test_what_a_child_moved_counts_once_whoever_waits_for_it() -> None:
    before = moved(None, {KERNEL: (100, SERVER), CHILD: (900, KERNEL)})
    assert before.total == 1000
    absorbed = moved(before, {KERNEL: (1050, SERVER)})
    assert absorbed.total == 1050
    assert moved(before, {CHILD: (900, None)}).total == 1000, "the kernel's own went to the server, which never counts"
    assert moved(before, {KERNEL: (100, SERVER)}).total == 1000, "nobody has waited for it: it never falls"


def test_the_heir_may_be_further_up() -> None:
    grandchild = (13, 1)
    before = Moved(600, {KERNEL: (0, SERVER), CHILD: (100, KERNEL), grandchild: (500, CHILD)})
    assert moved(before, {KERNEL: (640, SERVER)}).total == 640


def test_a_pid_that_is_given_again_is_another_process() -> None:
    before = moved(None, {KERNEL: (100, SERVER)})
    assert moved(before, {(KERNEL[0], 2): (30, SERVER)}).total == 130


def test_kernels_of_any_language_are_known_by_their_connection_file() -> None:
    assert is_kernel(["/usr/bin/python", "-m", "ipykernel_launcher", "-f", "/run/jupyter/kernel-1b2.json"])
    assert is_kernel(["R", "--slave", "-e", "IRkernel::main()", "--args", "/tmp/kernel-9.json"])
    assert not is_kernel(["python", "train.py", "--config", "kernel.json"])


def test_helpers_are_known_by_the_code_that_they_begin_with() -> None:
    told = "from multiprocessing.forkserver import main; main(5, 6, [], **{})"
    assert is_helper(["/usr/bin/python", "-s", "-c", "from multiprocessing.resource_tracker import main;main(4)"])
    assert is_helper(["python", "-c", told]) and is_helper(["python", "-c", told.replace("; ", "\n")])
    assert is_helper(
        ["python", "-c", "from joblib.externals.loky.backend.resource_tracker import main; main(7, False)"]
    )
    assert not is_helper(["python", "-c", "import train; from multiprocessing.resource_tracker import main; main(4)"])
    assert not is_helper(["python", "-c", "from multiprocessing.resource_tracker import mainly"])
    assert not is_helper(["python", "train.py", "-c"]) and not is_helper(["-c"]) and not is_helper([])


def test_a_shell_that_waits_is_no_process_and_one_with_a_child_is_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "command", lambda pid: ("python", "/r/kernel-1.json") if pid == 20 else ("bash",))

    def process(pid: int, parent: int, *, terminal: bool = False, alive: bool = True) -> Process:
        return Process(pid, parent, 1, alive, 0, 0, 0, terminal)

    everything = {
        20: process(20, 10),  # a kernel
        21: process(21, 20),  # what it started
        30: process(30, 10, terminal=True),  # a shell that waits
        40: process(40, 10, terminal=True),  # one with
        41: process(41, 40, terminal=True),  # a program
        50: process(50, 10),  # an IDE's server
        60: process(60, 10, alive=False),
    }
    assert working(everything, everything, 10) == 4
