"""`berth up` on a machine with an NVIDIA driver, as far as the shim is one: what a person is told, and what is held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hub_config.datafolder import DataFolder
from hub_config.status import status
from tests.harness import Stack, until
from tests.shim.driver import Driver
from tests.shim.library import build, compiler

pytestmark = [pytest.mark.hub, pytest.mark.skipif(compiler() is None, reason="needs a C compiler for the NVML shim")]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Driver]:
    (tmp_path / "lib").mkdir()
    yield Driver(tmp_path, build(tmp_path / "lib"), name="driver-mismatch")


@pytest.fixture
def stack(machine: Driver, tmp_path: Path) -> Iterator[Stack]:
    env = {name: machine.env[name] for name in ("LD_LIBRARY_PATH", "BERTH_NVML_SCENARIO")}
    with Stack(tmp_path / "data", env=env) as stack:
        yield stack


def told(stack: Stack) -> dict[str, Any]:
    """What `berth status --json` tells, without a new process at every look."""
    return status(DataFolder(stack.data))


def readers(stack: Stack) -> list[psutil.Process]:
    """The processes that read the driver."""
    return [process for process in stack._leftover_processes() if "spawner.nvml_child" in process.cmdline()]


def test_a_driver_that_does_not_work_is_told_everywhere_and_found_when_it_does(machine: Driver, stack: Stack) -> None:
    words = "the driver was upgraded while the old one runs"
    until(lambda: "Stop with Ctrl-C" in stack.screen.read_text(), 20, "the screen is there")
    screen = " ".join(stack.screen.read_text().split())
    assert words in screen
    assert "simulated" not in screen, "a host with a broken driver is no trial machine"
    found = stack.status()
    assert found["alerts"][0]["key"].startswith("fleet-driver:")
    assert any(words in finding for finding in found["findings"])
    assert not found["healthy"]
    refused = stack.admin.ask_start({"profile": "gpu-1"})
    assert refused.status_code == 409

    machine.stage("rebooted")
    until(lambda: len(told(stack)["devices"]) == 2, 30, "the devices are found")
    assert [alert["key"] for alert in told(stack)["alerts"]] == []
    stack.admin.start("gpu-1")
    held = [device["uuid"] for device in told(stack)["devices"] if device["used_milli"]]
    assert held == ["GPU-0000000a"]
    (server,) = stack.server_processes()
    assert server.environ()["CUDA_VISIBLE_DEVICES"] == "GPU-0000000a"

    machine.stage("upgraded while it runs")
    until(lambda: "fleet-driver" in str(told(stack)["alerts"]), 30, "the broken driver is told")
    (lease,) = told(stack)["leases"]
    assert (lease["state"], lease["target"]) == ("RUNNING", "RUN")
    assert server.is_running()
    assert len(readers(stack)) <= 1
