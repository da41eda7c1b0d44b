"""NVML as it behaves on a bad day: the real pynvml over the shim, one fault at a time."""

from __future__ import annotations

from collections.abc import Callable
from ctypes.util import find_library
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quota.leases import DeviceState, Holder, LeaseRequest
from quota.units import MilliGpu
from spawner.fleet import to_devices
from spawner.placement import best_fit
from spawner.ports import GpuReading, MemoryHealth
from tests.shim.driver import Driver
from tests.shim.library import build

Make = Callable[..., Driver]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ONE = "device GPU-0001 NVIDIA_A10 24576 512 40"
TWO = "device GPU-0002 NVIDIA_A10 24576 0 0"
THREE = "device GPU-0003 NVIDIA_A10 24576 0 0"
READ = GpuReading(
    "GPU-0001",
    0,
    "NVIDIA A10",
    24576,
    512,
    40,
    False,
    temperature_c=40,
    processes=(),
    health=MemoryHealth(),
    memory_utilisation=0,
)


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has an NVIDIA driver")
def test_a_host_without_the_driver_has_no_inventory_and_no_process(tmp_path: Path) -> None:
    with Driver(tmp_path, None, ONE) as machine:
        assert not machine.detect()


def test_readings_are_what_the_driver_says(driver: Make) -> None:
    machine = driver(ONE)
    assert machine.detect()
    assert machine.devices() == (READ,)


def test_a_host_with_a_driver_and_no_card_has_none(driver: Make) -> None:
    machine = driver("boot 1")
    assert machine.detect()
    assert machine.devices() == ()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("fail nvmlInitWithFlags UNKNOWN", "Unknown Error"),
        ("fail nvmlDeviceGetCount_v2 NO_PERMISSION", "Insufficient Permissions"),
        ("missing nvmlDeviceGetCount_v2", "Function Not Found"),
    ],
)
def test_a_driver_that_does_not_work_is_unreachable_and_not_absent(driver: Make, fault: str, words: str) -> None:
    machine = driver(fault, ONE)
    assert machine.detect()
    assert words in machine.unreachable()
    machine.scenario(ONE)
    assert [reading.uuid for reading in machine.devices()] == ["GPU-0001"]


def test_a_driver_that_was_loaded_anew_is_found_again(driver: Make) -> None:
    machine = driver("boot 1", ONE)
    assert machine.detect()
    assert len(machine.devices()) == 1
    machine.scenario("boot 2", ONE, TWO)
    assert "Unknown Error" in machine.unreachable()
    assert [reading.uuid for reading in machine.devices()] == ["GPU-0001", "GPU-0002"]


def test_a_call_that_hangs_does_not_hold_back_a_driver_that_was_loaded_anew(driver: Make) -> None:
    """The process with the call that never returns is given up for another."""
    machine = driver("boot 1", ONE, TWO, "hang nvmlDeviceGetName", device_timeout_s=0.3)
    assert machine.detect()
    assert [reading.error != "" for reading in machine.devices()] == [False, True]
    (old,) = machine.inventory.pids
    machine.scenario("boot 2", ONE, TWO)
    assert "Unknown Error" in machine.unreachable()
    assert machine.inventory.pids == ()
    machine.inventory._not_before = 0.0  # the pause before another is over
    assert [reading.error for reading in machine.devices()] == ["", ""]
    assert machine.inventory.pids != (old,)


def test_p11_a_lost_device_hides_no_other_and_is_not_placed(driver: Make) -> None:
    machine = driver(ONE, TWO, THREE)
    assert machine.detect()
    before = to_devices("here", machine.devices(), (), NOW)
    machine.scenario(ONE, TWO, f"{THREE} error=GPU_IS_LOST")
    readings = machine.devices()
    assert [(reading.uuid, reading.lost) for reading in readings] == [
        ("GPU-0001", False),
        ("GPU-0002", False),
        ("GPU-0003", True),
    ]
    assert "GPU is lost" in readings[2].error
    after = to_devices("here", readings, before, NOW)
    assert [device.state for device in after] == [DeviceState.OK, DeviceState.OK, DeviceState.LOST]
    request = LeaseRequest(Holder("ada"), "ada", "gpu-2", "this-environment", MilliGpu(1000), 2, "boot", "ada")
    assert [slot.device for slot in best_fit(after, request)] == ["GPU-0001", "GPU-0002"]


def test_all_that_hang_cost_one_time_out_together(driver: Make) -> None:
    lines = [line for n in range(8) for line in (f"device GPU-000{n} NVIDIA_A10 24576 0 0", "hang nvmlDeviceGetUUID")]
    machine = driver(*lines, device_timeout_s=0.5)
    assert machine.detect()
    assert all(reading.error for reading in machine.devices())
    assert 0.5 <= machine.took < 3
    for _ in range(3):
        assert all(reading.error for reading in machine.devices())
        assert machine.threads == 8


def test_what_a_card_cannot_tell_is_unknown(driver: Make) -> None:
    machine = driver(
        "device GPU-0001 - 24576 99999 700",
        "fail nvmlDeviceGetMemoryInfo_v2 FUNCTION_NOT_FOUND",
        TWO,
        *(f"fail {name} NOT_SUPPORTED" for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")),
        *(f"fail {name} NOT_SUPPORTED" for name in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetName")),
        "fail nvmlDeviceGetTemperature UNKNOWN",
        "fail nvmlDeviceGetComputeRunningProcesses_v3 UNKNOWN",
        "fail nvmlDeviceGetGraphicsRunningProcesses_v3 UNKNOWN",
    )
    assert machine.detect()
    odd, bare = machine.devices()
    assert (odd.memory_mib, odd.memory_used_mib, odd.utilisation, odd.error) == (24576, None, None, "")
    assert (bare.memory_mib, bare.memory_used_mib, bare.utilisation, bare.error) == (None, None, None, "")
    assert (bare.temperature_c, bare.processes) == (None, None)
    assert (odd.name, bare.name) == ("NVIDIA GPU", "NVIDIA GPU")


def test_a_library_that_lacks_functions_altogether(nvml_library: Path, driver: Make, tmp_path: Path) -> None:
    """Not only a code that says so: the symbols are not there."""
    old = build(tmp_path, without=("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates", "nvmlEventSetCreate"))
    machine = driver(ONE, library=old)
    assert machine.detect()
    (reading,) = machine.devices()
    assert (reading.memory_mib, reading.memory_used_mib, reading.utilisation) == (24576, 512, None)
    assert reading.error == ""


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMigMode", "nvmlDeviceGetName"],
)
def test_another_failure_of_a_reading_is_the_devices_own(driver: Make, function: str) -> None:
    """What decides about a device is not passed over: a card that may be divided is not given out whole."""
    machine = driver(ONE, f"fail {function} UNKNOWN", THREE)
    assert machine.detect()
    readings = machine.devices()
    assert [(reading.error, reading.lost) for reading in readings] == [("Unknown Error", False), ("", False)]


@pytest.mark.parametrize("function", ["nvmlDeviceGetTemperature", "nvmlDeviceRegisterEvents"])
def test_a_card_that_must_be_reset_says_so_whatever_was_asked(driver: Make, function: str) -> None:
    machine = driver(ONE, f"fail {function} RESET_REQUIRED", TWO)
    assert machine.detect()
    assert [reading.error for reading in machine.devices()] == ["GPU requires restart", ""]


def test_a_failed_device_never_takes_the_identity_of_another(driver: Make) -> None:
    machine = driver(ONE, TWO)
    assert machine.detect()
    machine.devices()
    machine.scenario(f"{TWO} error=GPU_IS_LOST", ONE)  # indices moved before either could be read again
    lost, well = machine.devices()
    assert (lost.uuid, well.uuid) == ("", "GPU-0001")
    machine.scenario(f"{TWO} error=GPU_IS_LOST", f"{ONE} error=GPU_IS_LOST")
    assert [reading.uuid for reading in machine.devices()] == ["", "GPU-0001"]


def test_a_foreign_module_of_the_name_is_told_clearly(nvml_library: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "pynvml.py").write_text("class NVMLError(Exception): pass\ndef nvmlInit(): pass\n", encoding="utf-8")
    with Driver(tmp_path, nvml_library, ONE, path=foreign) as machine:
        assert machine.detect(), "not a host without GPUs"
        for _ in range(2):
            words = machine.unreachable()
            assert "is not NVIDIA's" in words
            assert "nvmlDeviceGetUUID" in words
            assert "pip install --force-reinstall nvidia-ml-py" in words
