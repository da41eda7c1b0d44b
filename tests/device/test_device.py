"""What only a GPU can prove: `pytest tests/device`, a few minutes on any machine with an NVIDIA driver.

Elsewhere every test skips and says so.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from quota.leases import Device, Holder, LeaseRequest, Slot
from quota.units import MilliGpu
from spawner.fleet import to_devices
from spawner.health import trouble
from spawner.nvml import NvmlInventory
from spawner.nvml_process import NvmlProcess
from spawner.placement import best_fit
from spawner.ports import GpuReading, Unreachable
from spawner.sharing import TORCH_TAKES_FRACTION, caps, device_env
from tests.device.cuda import NO_DEVICE

pytestmark = pytest.mark.gpu

CUDA = Path(__file__).with_name("cuda.py")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def inventory() -> Iterator[NvmlProcess]:
    """As the agent has it: read in a process of its own."""
    found = NvmlProcess.detect()
    if found is None:
        pytest.skip("needs a real NVIDIA GPU: this machine has no NVIDIA driver")
    yield found
    found.close()


@pytest.fixture(scope="module")
def everything(inventory: NvmlProcess) -> tuple[GpuReading, ...]:
    """Cards, and the parts of those that MIG divides."""
    answer = inventory.read()
    assert not isinstance(answer, Unreachable), answer.why
    if not answer:
        pytest.skip("needs a real NVIDIA GPU: the driver lists none")
    return answer


@pytest.fixture(scope="module")
def readings(everything: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
    """Cards that can be given out whole."""
    whole = tuple(reading for reading in everything if reading.part is None and not reading.mig)
    if not whole:
        pytest.skip("needs a GPU that MIG does not divide")
    return whole


@pytest.fixture
def devices(readings: tuple[GpuReading, ...]) -> tuple[Device, ...]:
    return to_devices("here", readings, (), NOW)


def slots(devices: tuple[Device, ...], share: int, count: int = 1) -> tuple[Slot, ...]:
    return best_fit(devices, LeaseRequest(Holder("a"), "a", "p", "i", MilliGpu(share), count, "boot", "a"))


@contextmanager
def program(env: dict[str, str], *arguments: str) -> Iterator[dict[str, Any]]:
    """What a program in a server with this environment sees; it lives until the block ends."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_"))}
    command = [sys.executable, str(CUDA), *arguments]
    with subprocess.Popen(command, env=kept | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
            process.stdin.write("\n")
        finally:
            process.stdin.close()
            process.wait(30)


def test_every_device_is_read_whole(readings: tuple[GpuReading, ...]) -> None:
    for reading in readings:
        assert (reading.error, reading.lost, reading.simulated) == ("", False, False)
        assert reading.uuid.startswith("GPU-")
        assert reading.name
        assert reading.memory_mib is None or reading.memory_mib > 1024
        assert reading.utilisation is None or 0 <= reading.utilisation <= 100


def test_a_read_is_quick_once_the_driver_runs(inventory: NvmlProcess, everything: tuple[GpuReading, ...]) -> None:
    started = time.monotonic()
    again = inventory.read()
    assert time.monotonic() - started < 2
    assert not isinstance(again, Unreachable)
    assert [one.uuid for one in again] == [one.uuid for one in everything]


def test_the_reading_process_reads_what_this_one_does(everything: tuple[GpuReading, ...]) -> None:
    here = NvmlInventory.detect()
    assert here is not None
    answer = here.read()
    assert not isinstance(answer, Unreachable)
    steady = [(one.uuid, one.position, one.name, one.memory_mib, one.mig, one.part) for one in answer]
    assert steady == [(one.uuid, one.position, one.name, one.memory_mib, one.mig, one.part) for one in everything]


def test_a_reading_process_that_is_killed_is_replaced(everything: tuple[GpuReading, ...]) -> None:
    inventory = NvmlProcess.detect()
    assert inventory is not None
    try:
        assert not isinstance(inventory.read(), Unreachable)
        os.kill(inventory.pids[0], signal.SIGKILL)
        assert isinstance(inventory.read(), Unreachable)
        deadline = time.monotonic() + 30
        while isinstance(answer := inventory.read(), Unreachable):
            assert time.monotonic() < deadline, answer.why
            time.sleep(0.2)
        assert [one.uuid for one in answer] == [one.uuid for one in everything]
    finally:
        inventory.close()


def test_p10_health_is_told_or_unknown(readings: tuple[GpuReading, ...]) -> None:
    """A card with a finding here is one that Berth would not give out: look at the words."""
    for reading in readings:
        assert reading.health is not None
        counts = (reading.health.corrected, reading.health.uncorrected, reading.health.lifetime_uncorrected)
        assert all(count is None or 0 <= count < 1 << 48 for count in counts)
        assert trouble(reading) == ""
        assert reading.temperature_c is None or 5 <= reading.temperature_c <= 110
        assert all(event.xid > 0 for event in reading.events)


def test_parts_are_told_with_their_card_and_place(everything: tuple[GpuReading, ...]) -> None:
    parts = [reading for reading in everything if reading.part is not None]
    if not parts:
        pytest.skip("needs a GPU with MIG parts (nvidia-smi mig -cgi)")
    cards = {reading.uuid for reading in everything if reading.mig}
    for reading in parts:
        assert reading.part is not None
        assert reading.part.parent in cards
        assert reading.part.mig_uuid.startswith("MIG-")
        assert reading.part.profile in reading.name
        assert reading.memory_mib is None or reading.memory_mib > 1024
    rows = {device.uuid: device for device in to_devices("here", everything, (), NOW)}
    assert {rows[reading.uuid].free for reading in parts} == {0}
    assert {rows[uuid].free for uuid in cards} == {0}


def test_q07_a_program_is_seen_with_its_pid(inventory: NvmlProcess, devices: tuple[Device, ...]) -> None:
    """Host pids: in a container without the host's pid namespace the driver may list none."""
    (slot,) = slots(devices, 125)
    with program(device_env((slot,)), "256") as seen:
        assert seen["allocated"] == 0
        answer = inventory.read()
        assert not isinstance(answer, Unreachable)
        (reading,) = (one for one in answer if one.uuid == slot.device)
        if not reading.processes:
            pytest.skip("this driver lists no processes here")
        assert seen["pid"] in {process.pid for process in reading.processes}
        (row,) = (row for row in to_devices("here", answer, (), NOW) if row.uuid == slot.device)
        assert str(seen["pid"]) in row.why


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs nvidia-smi to compare with")
def test_readings_agree_with_nvidia_smi(readings: tuple[GpuReading, ...]) -> None:
    command = ["nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = [[field.strip() for field in line.split(",")] for line in told.strip().splitlines()]
    assert [(one.uuid, one.name) for one in readings] == [(uuid, name) for uuid, name, _ in lines]
    for reading, (_, _, total) in zip(readings, lines, strict=True):
        assert reading.memory_mib is None or abs(reading.memory_mib - int(total)) <= 1


def test_p06_a_cpu_server_sees_no_gpu(devices: tuple[Device, ...]) -> None:
    with program(device_env(slots(devices, 0, 0))) as seen:
        assert (seen["init"], seen["uuids"]) == (NO_DEVICE, [])


@pytest.mark.parametrize("share", [125, 1000])
def test_a_server_sees_exactly_its_device(devices: tuple[Device, ...], share: int) -> None:
    chosen = slots(devices, share)
    with program(device_env(chosen)) as seen:
        assert seen["uuids"] == [slot.device for slot in chosen]


def test_two_gpus_are_seen_in_the_order_of_the_lease(devices: tuple[Device, ...]) -> None:
    if len(devices) < 2:
        pytest.skip("needs two GPUs")
    chosen = slots(devices, 1000, 2)
    with program(device_env(chosen)) as seen:
        assert seen["uuids"] == [slot.device for slot in chosen]


def test_memory_that_a_program_takes_is_read(inventory: NvmlProcess, devices: tuple[Device, ...]) -> None:
    (slot,) = slots(devices, 125)
    before = used(inventory, slot)
    with program(device_env((slot,)), "512") as seen:
        assert seen["allocated"] == 0
        assert used(inventory, slot) - before >= 500
    deadline = time.monotonic() + 30
    while used(inventory, slot) - before >= 500:
        assert time.monotonic() < deadline, "the memory is still in use after the program ended"
        time.sleep(0.2)


def used(inventory: NvmlProcess, slot: Slot) -> int:
    answer = inventory.read()
    assert not isinstance(answer, Unreachable)
    (reading,) = (one for one in answer if one.uuid == slot.device)
    if reading.memory_used_mib is None:
        pytest.skip("this GPU does not tell how much memory is used")
    return reading.memory_used_mib


def torch_version() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def test_pytorch_keeps_to_its_part(devices: tuple[Device, ...]) -> None:
    """Half a share fits, one and a half do not."""
    told = torch_version()
    (slot,) = slots(devices, 125)
    (device,) = (one for one in devices if one.uuid == slot.device)
    env = device_env((slot,)) | caps(125, device.memory_mib, torch_version=told)
    if "PYTORCH_ALLOC_CONF" not in env:
        least = ".".join(map(str, TORCH_TAKES_FRACTION))
        pytest.skip(f"needs PyTorch {least} or later here; found {told or 'none'}")
    script = (
        "import torch; total = torch.cuda.get_device_properties(0).total_memory\n"
        "torch.empty(int(total * 0.0625), dtype=torch.int8, device='cuda'); print('half', flush=True)\n"
        "torch.empty(int(total * 0.1875), dtype=torch.int8, device='cuda')"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "PYTORCH_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=kept | env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.startswith("half"), done.stderr
    assert "OutOfMemoryError" in done.stderr
