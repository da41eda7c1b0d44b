"""NVML as it behaves on a bad day: the real pynvml over the shim."""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes.util import find_library
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quota.leases import DeviceState, Holder, LeaseRequest
from quota.units import MilliGpu
from spawner.fleet import to_devices
from spawner.placement import best_fit
from spawner.ports import GpuReading
from tests.shim.driver import Driver
from tests.shim.library import build

Make = Callable[..., Driver]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ONE = "device GPU-0001 NVIDIA_A10 24576 512 40"
TWO = "device GPU-0002 NVIDIA_A10 24576 0 0"
THREE = "device GPU-0003 NVIDIA_A10 24576 0 0"


def until(found: Callable[[], bool], words: str) -> None:
    deadline = time.monotonic() + 20
    while not found():
        assert time.monotonic() < deadline, words
        time.sleep(0.02)


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has an NVIDIA driver")
def test_a_host_without_the_driver_has_no_inventory(tmp_path: Path) -> None:
    with Driver(tmp_path, None, ONE) as machine:
        assert not machine.detect()


def test_readings_are_what_the_driver_says(driver: Make) -> None:
    machine = driver(ONE)
    assert machine.detect()
    assert machine.devices() == (GpuReading("GPU-0001", 0, "NVIDIA A10", 24576, 512, 40, simulated=False),)


def test_a_host_with_a_driver_and_no_card_has_none(driver: Make) -> None:
    machine = driver("driver")
    assert machine.detect()
    assert machine.devices() == ()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("init_error=LIB_RM_VERSION_MISMATCH", "reboot this host"),
        ("init_error=DRIVER_NOT_LOADED", "modprobe nvidia"),
        ("init_error=UNKNOWN", "Unknown Error"),
        ("count_error=NO_PERMISSION", "Insufficient Permissions"),
    ],
)
def test_a_driver_that_does_not_work_is_unreachable_and_not_absent(driver: Make, fault: str, words: str) -> None:
    machine = driver(f"driver {fault}", ONE)
    assert machine.detect()
    assert words in machine.unreachable()
    machine.scenario(ONE)
    assert [reading.uuid for reading in machine.devices()] == ["GPU-0001"]


def test_a_driver_that_was_loaded_anew_is_found_again(driver: Make) -> None:
    machine = driver("driver boot=1", ONE)
    assert machine.detect()
    assert len(machine.devices()) == 1
    machine.scenario("driver boot=2", ONE, TWO)
    assert "Unknown Error" in machine.unreachable()
    assert [reading.uuid for reading in machine.devices()] == ["GPU-0001", "GPU-0002"]


def test_p11_one_lost_device_hides_no_other(driver: Make) -> None:
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


def test_p11_a_device_lost_before_the_first_read_is_told_by_position(driver: Make) -> None:
    machine = driver(f"{ONE} error=GPU_IS_LOST", TWO)
    assert machine.detect()
    lost, well = machine.devices()
    assert (lost.uuid, lost.position, lost.lost) == ("", 0, True)
    assert (well.uuid, well.error) == ("GPU-0002", "")


def test_a_device_that_hangs_is_silent_alone_and_gets_one_thread(driver: Make) -> None:
    machine = driver(ONE, TWO, device_timeout_s=1)
    assert machine.detect()
    machine.devices()
    machine.scenario(ONE, f"{TWO} hang_ms=600000")
    well, silent = machine.devices()
    assert (well.uuid, well.error) == ("GPU-0001", "")
    assert (silent.uuid, silent.error) == ("GPU-0002", "the device did not answer within 1 s")
    assert not silent.lost
    for _ in range(5):
        well, silent = machine.devices()
        assert not well.error and silent.error and silent.uuid == "GPU-0002"
        assert machine.took < 0.8, "a device known to hang is not waited for again"
        assert machine.threads <= 2
    machine.scenario(ONE, TWO)
    until(lambda: not any(reading.error for reading in machine.devices()), "the device answers and is still silent")


def test_devices_that_hang_are_waited_for_together(driver: Make) -> None:
    machine = driver(
        *(f"device GPU-000{n} NVIDIA_A10 24576 0 0 hang_ms=600000" for n in range(8)), device_timeout_s=0.5
    )
    assert machine.detect()
    assert all(reading.error for reading in machine.devices())
    assert 0.5 <= machine.took < 3
    assert machine.threads == 8


def test_a_driver_that_hangs_is_unreachable_and_gets_one_thread(driver: Make) -> None:
    machine = driver("driver hang_ms=600000", ONE, driver_timeout_s=1)
    assert machine.detect()
    for _ in range(4):
        assert machine.unreachable() == "the NVIDIA driver did not answer within 1 s"
        assert machine.took < 0.8
        assert machine.threads == 1
    machine.scenario(ONE)
    until(lambda: isinstance(machine.read(), tuple), "the driver answers and is still unreachable")


@pytest.mark.parametrize("total", ["0", "99999999999"])
def test_an_impossible_memory_is_unknown_and_never_zero(driver: Make, total: str) -> None:
    machine = driver(f"device GPU-0001 NVIDIA_GB10 {total} 0 3")
    assert machine.detect()
    (reading,) = machine.devices()
    assert (reading.memory_mib, reading.memory_used_mib, reading.utilisation, reading.error) == (None, None, 3, "")


def test_what_a_card_cannot_tell_is_unknown(driver: Make) -> None:
    told = "device GPU-0001 - 24576 99999 700 memory_v2_error=FUNCTION_NOT_FOUND"
    machine = driver(told, f"{TWO} memory_error=NOT_SUPPORTED utilisation_error=NOT_SUPPORTED name_error=NOT_SUPPORTED")
    assert machine.detect()
    odd, bare = machine.devices()
    assert (odd.memory_mib, odd.memory_used_mib, odd.utilisation, odd.error) == (24576, None, None, "")
    assert (bare.memory_mib, bare.memory_used_mib, bare.utilisation, bare.error) == (None, None, None, "")
    assert (odd.name, bare.name) == ("NVIDIA GPU", "NVIDIA GPU")


def test_an_old_driver_lacks_functions(nvml_library: Path, driver: Make, tmp_path: Path) -> None:
    old = build(tmp_path, without=("MEMORY_V2", "UTILISATION"))
    machine = driver(ONE, library=old)
    assert machine.detect()
    assert machine.devices() == (GpuReading("GPU-0001", 0, "NVIDIA A10", 24576, 512, None, simulated=False),)


def test_another_failure_of_a_reading_is_the_devices_own(driver: Make) -> None:
    machine = driver(f"{ONE} utilisation_error=RESET_REQUIRED", f"{TWO} uuid_error=UNKNOWN", THREE)
    assert machine.detect()
    readings = machine.devices()
    assert [(reading.uuid, reading.lost) for reading in readings] == [("", False), ("", False), ("GPU-0003", False)]
    assert readings[0].error == "GPU requires restart"
    assert readings[1].error == "Unknown Error"


@pytest.mark.parametrize("uuid", ["-", "GPU,0001", "GPU;rm"])
def test_a_uuid_that_could_not_stand_in_an_environment_is_refused(driver: Make, uuid: str) -> None:
    machine = driver(f"device {uuid} NVIDIA_A10 24576 0 0", TWO)
    assert machine.detect()
    odd, well = machine.devices()
    assert (odd.uuid, odd.error) == ("", "the device tells no usable UUID")
    assert (well.uuid, well.error) == ("GPU-0002", "")


def test_indices_change_and_identities_do_not(driver: Make) -> None:
    machine = driver(ONE, TWO)
    assert machine.detect()
    before = to_devices("here", machine.devices(), (), NOW)
    machine.scenario(TWO, ONE)
    after = to_devices("here", machine.devices(), before, NOW)
    assert {device.uuid: device.position for device in before} == {"GPU-0001": 0, "GPU-0002": 1}
    assert {device.uuid: device.position for device in after} == {"GPU-0001": 1, "GPU-0002": 0}
    machine.scenario(f"{TWO} error=GPU_IS_LOST", ONE)
    lost, well = machine.devices()
    assert (lost.uuid, well.uuid) == ("GPU-0002", "GPU-0001")


def test_a_failed_device_never_takes_the_identity_of_another(driver: Make) -> None:
    machine = driver(ONE, TWO)
    assert machine.detect()
    machine.devices()
    machine.scenario(f"{TWO} error=GPU_IS_LOST", ONE)  # indices moved before either could be read again
    lost, well = machine.devices()
    assert (lost.uuid, well.uuid) == ("", "GPU-0001")
    machine.scenario(f"{TWO} error=GPU_IS_LOST", f"{ONE} error=GPU_IS_LOST")
    assert [reading.uuid for reading in machine.devices()] == ["", "GPU-0001"]


def test_two_devices_of_one_uuid_are_one(driver: Make) -> None:
    machine = driver(ONE, ONE)
    assert machine.detect()
    first, second = machine.devices()
    assert (first.uuid, first.error) == ("GPU-0001", "")
    assert (second.uuid, second.error) == ("", "another device has the same UUID GPU-0001")


def test_a_foreign_module_of_the_name_is_told_clearly(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "pynvml.py").write_text("class NVMLError(Exception): pass\ndef nvmlInit(): pass\n", encoding="utf-8")
    with Driver(tmp_path, None, path=foreign) as machine, pytest.raises(RuntimeError) as error:
        machine.detect()
    assert "is not NVIDIA's" in str(error.value)
    assert "nvmlDeviceGetUUID" in str(error.value)
    assert "pip install --force-reinstall nvidia-ml-py" in str(error.value)
