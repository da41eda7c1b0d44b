"""The reading process: it may hang, die or be stopped, and costs nobody more than its time-out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spawner import nvml_process
from spawner.ports import Unreachable
from tests.contract.test_inventory_nvml import ONE, TWO
from tests.harness.waiting import until
from tests.shim.driver import Driver

Make = Callable[..., Driver]


def alive(pid: int) -> bool:
    """Whether this process is there; one that ended and was not waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_one_that_dies_is_told_and_replaced(driver: Make) -> None:
    machine = driver(name="crash")
    assert machine.detect()
    assert machine.unreachable() == "the process that reads the NVIDIA driver ended by SIGABRT"
    machine.stage("well")
    assert "SIGABRT" in machine.unreachable(), "another comes after a pause: a crash at every read costs little"
    machine.inventory._not_before = 0.0
    assert [reading.uuid for reading in machine.devices()] == ["GPU-0000000a"]


def test_one_that_is_killed_between_reads_is_replaced(driver: Make) -> None:
    machine = driver(ONE)
    assert machine.detect()
    machine.devices()
    (pid,) = machine.inventory.pids
    os.kill(pid, signal.SIGKILL)
    assert "SIGKILL" in machine.unreachable()
    machine.inventory._not_before = 0.0
    assert len(machine.devices()) == 1


def test_one_that_does_not_answer_is_ended(driver: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the library holds a lock that every thread of the process needs."""
    monkeypatch.setattr(nvml_process, "SLACK_S", 0.1)
    machine = driver(ONE, device_timeout_s=0.2, driver_timeout_s=2)
    assert machine.detect()
    machine.devices()
    (pid,) = machine.inventory.pids
    os.kill(pid, signal.SIGSTOP)
    assert "did not answer within" in machine.unreachable()
    assert machine.took < 6
    assert not alive(pid)


def test_a_driver_that_hangs_leaves_one_process_at_most(driver: Make) -> None:
    machine = driver(name="hang-driver", driver_timeout_s=0.5)
    assert machine.detect(), "finding the library asks nothing of the driver"
    pids = set()
    for _ in range(3):
        assert machine.unreachable() == "the NVIDIA driver did not answer within 0.5 s"
        pids |= set(machine.inventory.pids)
        machine.inventory._not_before = 0.0
    assert not any(alive(pid) for pid in pids)
    machine.stage("count")
    assert "did not answer" in machine.unreachable()
    machine.stage("well")
    machine.inventory._not_before = 0.0
    assert [reading.error for reading in machine.devices()] == [""]


def test_pauses_between_processes_grow_and_end(driver: Make) -> None:
    machine = driver("fail nvmlInitWithFlags UNKNOWN", "crash nvmlDeviceGetCount_v2")
    assert machine.detect()
    machine.unreachable()
    machine.scenario("crash nvmlDeviceGetCount_v2")
    pauses = []
    for _ in range(8):
        machine.unreachable()
        pauses.append(round(machine.inventory._not_before - time.monotonic()))
        machine.inventory._not_before = 0.0
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[1] and pauses[-1] == nvml_process.LONGEST_PAUSE_S
    machine.scenario(ONE)
    assert len(machine.devices()) == 1


def test_a_device_that_hangs_is_tried_by_a_second_process_and_the_better_one_stays(
    driver: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that never returns must not make a device silent for ever that answers to a new process."""
    monkeypatch.setattr(nvml_process, "FIRST_TRY_S", 0.0)
    machine = driver(ONE, TWO, "hang nvmlDeviceGetUUID", device_timeout_s=0.2)
    assert machine.detect()
    machine.inventory._try_pause = 0.0
    assert [bool(reading.error) for reading in machine.devices()] == [False, True]
    (first,) = machine.inventory.pids
    seen = set()

    def tried() -> bool:
        machine.devices()
        seen.update(machine.inventory.pids)
        return len(seen) > 1 and machine.inventory._trial is None

    until(tried, what="no second process came and went")
    assert machine.inventory.pids == (first,), "the second was no better, so all others are read without a gap"


def test_a_second_process_that_is_better_takes_over(driver: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = driver(ONE, TWO, "hang nvmlDeviceGetUUID", device_timeout_s=0.2)
    assert machine.detect()
    inventory = machine.inventory
    assert [bool(reading.error) for reading in machine.devices()] == [False, True]
    (first,) = inventory.pids
    well = machine.env["BERTH_NVML_SCENARIO"] + ".well"
    Path(well).write_text(f"{ONE}\n{TWO}\n", encoding="utf-8")
    monkeypatch.setitem(inventory._env, "BERTH_NVML_SCENARIO", well)  # type: ignore[arg-type]
    inventory._try_at = 0.0  # the first process hangs on, a new one would not

    until(lambda: not any(reading.error for reading in machine.devices()), what="the device is silent for ever")
    assert not alive(first)
    assert len(inventory.pids) == 1


def test_processes_that_cannot_be_ended_are_counted(driver: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs inside the kernel does not die of SIGKILL. There are never more than a few."""
    machine = driver("crash nvmlDeviceGetCount_v2")
    assert machine.detect()
    monkeypatch.setattr(nvml_process._Child, "ended", lambda child: False)
    words = []
    for _ in range(6):
        words.append(machine.unreachable())
        machine.inventory._not_before = 0.0
    assert len(machine.inventory.pids) == nvml_process.MOST_UNDYING
    assert "reboot this host" in words[-1]
    monkeypatch.undo()
    machine.scenario(ONE)
    assert len(machine.devices()) == 1, "those that ended after all are forgotten"


def test_one_that_cannot_be_started_is_told(driver: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = driver(ONE)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    answer = machine.inventory.read()
    assert isinstance(answer, Unreachable)
    assert "cannot be started" in answer.why


SCRIPT = """
import sys, threading
from spawner.nvml_process import NvmlProcess
inventory = NvmlProcess.detect(driver_timeout_s=600, device_timeout_s=600)
threading.Thread(target=inventory.read, daemon=True).start()
print(*inventory.pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "lines",
    [(ONE,), (ONE, "hang nvmlDeviceGetUUID"), ("hang nvmlInitWithFlags", ONE)],
    ids=["idle", "device", "driver"],
)
def test_it_ends_with_whoever_asked_even_while_a_call_hangs(driver: Make, lines: tuple[str, ...]) -> None:
    machine = driver(*lines)
    env = machine.env | {"PYTHONPATH": str(Path(nvml_process.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        pid = int(asker.stdout.readline())
        if len(lines) > 1:
            until(lambda: len(os.listdir(f"/proc/{pid}/task")) > 2, what="no call hangs yet")
        assert alive(pid)
        asker.kill()
    until(lambda: not alive(pid), what="the reading process outlived who asked")
