"""MPS on a real GPU: the product's daemon really enforces its limits, and leaves the device as it was.

Needs root, NVIDIA's `nvidia-cuda-mps-control` and a device that nobody uses and MIG does not divide; else it skips.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quota.leases import Device, DeviceState, Slot
from quota.units import MilliGpu
from spawner.mps import PROGRAM, client, plan
from spawner.mps_daemon import Daemon, Tmpfs
from spawner.nvml_mode import NvmlModes
from spawner.nvml_process import NvmlProcess
from spawner.ports import GpuReading, Unreachable

pytestmark = pytest.mark.gpu

CUDA = Path(__file__).with_name("cuda.py")
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
SHARE = MilliGpu(250)


def _readings() -> dict[str, GpuReading]:
    inventory = NvmlProcess.detect()
    if inventory is None:
        pytest.skip("needs a real NVIDIA GPU: this machine has no NVIDIA driver")
    answer = inventory.read()
    inventory.close()
    assert not isinstance(answer, Unreachable), answer.why
    return {reading.uuid: reading for reading in answer}


def _compute_mode(uuid: str) -> str:
    argv = ["nvidia-smi", "-i", uuid, "--query-gpu=compute_mode", "--format=csv,noheader"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.fixture
def device() -> Device:
    if os.geteuid() != 0 or shutil.which(PROGRAM) is None:
        pytest.skip(f"needs root and {PROGRAM}")
    idle = [one for one in _readings().values() if not one.error and not one.mig and one.part is None]
    idle = [one for one in idle if one.processes == () and one.memory_mib]
    if not idle:
        pytest.skip("needs a GPU that nobody uses and MIG does not divide")
    first = idle[0]
    return Device("here", first.uuid, first.position, first.name, first.memory_mib, "mps", False, DeviceState.OK)


@pytest.fixture
def daemon(device: Device) -> Iterator[Daemon]:
    root = Path(f"/run/berth-test-{os.getpid()}")
    made = Daemon(plan(str(root), device, largest=SHARE), NvmlModes(), Tmpfs())
    made.tend(datetime.now(UTC))
    try:
        assert made.ready, made.why
        yield made
    finally:
        made.stop()
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def program(device: Device, daemon: Daemon, mib: int, **others: str) -> Iterator[dict[str, Any]]:
    """A server's program that takes so much memory and keeps it; without containers it finds the host's pipes."""
    env = {**client(Slot("here", device.uuid, SHARE), device, daemon.plan).env}
    env |= {"CUDA_MPS_PIPE_DIRECTORY": daemon.plan.pipes, "CUDA_VISIBLE_DEVICES": device.uuid, **others}
    argv = [sys.executable, str(CUDA), str(mib)]
    with subprocess.Popen(
        argv, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        line = run.stdout.readline()
        try:
            yield json.loads(line) if line else {"init": "it ended"}
        finally:
            run.communicate("\n", timeout=60)


def test_who_takes_more_than_its_share_fails_and_its_neighbour_goes_on(device: Device, daemon: Daemon) -> None:
    with program(device, daemon, daemon.plan.memory_mib // 4) as neighbour:
        assert neighbour["allocated"] == 0
        with program(device, daemon, daemon.plan.memory_mib * 11 // 10) as greedy:
            assert greedy["allocated"] == OUT_OF_MEMORY
        with program(device, daemon, daemon.plan.memory_mib // 4) as third:
            assert third["allocated"] == 0


def test_a_program_cannot_raise_its_own_limit(device: Device, daemon: Daemon) -> None:
    raised = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={device.memory_mib}M"}
    with program(device, daemon, daemon.plan.memory_mib * 11 // 10, **raised) as greedy:
        assert greedy["allocated"] == OUT_OF_MEMORY


def test_a_program_that_goes_round_the_daemon_gets_no_device(device: Device, daemon: Daemon) -> None:
    with (
        program(device, daemon, 64),
        program(device, daemon, 64, CUDA_MPS_PIPE_DIRECTORY="/nonexistent") as other,
    ):
        assert other["init"] != 0 or other.get("allocated", 1) != 0


def test_the_device_is_left_as_it_was(device: Device) -> None:
    before = _readings()
    root = Path(f"/run/berth-test-{os.getpid()}")
    made = Daemon(plan(str(root), device), NvmlModes(), Tmpfs())
    made.tend(datetime.now(UTC))
    try:
        assert made.ready, made.why
        assert _compute_mode(device.uuid) == "Exclusive_Process"
    finally:
        made.stop()
    assert _compute_mode(device.uuid) == "Default"
    after = _readings()
    assert {uuid: (one.mig, one.part) for uuid, one in after.items()} == {
        uuid: (one.mig, one.part) for uuid, one in before.items()
    }
    assert not list(root.glob("*"))
