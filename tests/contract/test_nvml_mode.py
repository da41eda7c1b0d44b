"""The compute mode of a device, set by the product's own process through the real pynvml over the shim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spawner.nvml_mode import NvmlModes
from tests.shim.driver import Driver

Make = Callable[..., Driver]
CARDS = ("device GPU-1 A10 24576 0 0", "device GPU-2 A10 24576 0 0")


def modes(machine: Driver) -> dict[str, str]:
    folder = Path(machine.env["BERTH_NVML_SCENARIO"]).parent
    return {path.name: path.read_text().strip() for path in folder.glob("scenario.mode-*")}


def test_the_mode_of_one_device_is_set_and_given_back(driver: Make) -> None:
    machine = driver(*CARDS)
    NvmlModes(machine.env).exclusive("GPU-2")
    assert modes(machine) == {"scenario.mode-1": "3"}
    NvmlModes(machine.env).default("GPU-2")
    assert modes(machine) == {"scenario.mode-1": "0"}


def test_a_device_that_is_not_there_is_told(driver: Make) -> None:
    machine = driver(*CARDS)
    with pytest.raises(OSError, match="the driver lists no GPU-3"):
        NvmlModes(machine.env).exclusive("GPU-3")
    assert modes(machine) == {}


def test_a_refusal_of_the_driver_is_told_in_its_words(driver: Make) -> None:
    machine = driver("fail nvmlDeviceSetComputeMode NO_PERMISSION", *CARDS)
    with pytest.raises(OSError, match="cannot be set: Insufficient Permissions"):
        NvmlModes(machine.env).exclusive("GPU-1")


def test_a_driver_that_hangs_takes_nobody_along(driver: Make) -> None:
    machine = driver("hang nvmlDeviceSetComputeMode", *CARDS)
    with pytest.raises(OSError, match="within 3 s"):
        NvmlModes(machine.env, patience_s=3).exclusive("GPU-1")
