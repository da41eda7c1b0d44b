"""Whose program does what on a device that several servers share: the real pynvml over the shim, up to the signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quota.leases import Lease, Slot
from quota.units import MilliGpu
from spawner.gpu_use import gpu_signal
from spawner.ports import GpuProcess
from tests.fakes.clock import START
from tests.fakes.use import lease
from tests.shim.driver import Driver

Make = Callable[..., Driver]

UUID = "GPU-0000000a"
PIDS = {"l-a": frozenset({4101}), "l-b": frozenset({4102, 77}), "l-c": frozenset({4103}), "l-d": frozenset({1})}


def on_shared(lease_id: str) -> Lease:
    return lease(share=250, id=lease_id, slots=(Slot("h", UUID, MilliGpu(250)),))


def told(machine: Driver, lease_id: str, pids: dict[str, frozenset[int]] | None = None) -> dict[str, Any]:
    """The signal of one of the four after one read, as an agent that has read before would write it."""
    readings = {reading.uuid: reading for reading in machine.devices()}
    before = {"util": 0, "active_at": "earlier"}
    return gpu_signal(on_shared(lease_id), readings, before, PIDS if pids is None else pids, START)


def test_programs_have_their_own_share_of_the_work_from_the_second_read_on(driver: Make) -> None:
    machine = driver(name="shared-processes")
    (first,) = machine.devices()
    assert first.processes == (GpuProcess(4101, 8192), GpuProcess(4102, 512), GpuProcess(4103, None))
    assert (first.utilisation, first.memory_utilisation) == (95, 31)
    (second,) = machine.devices()
    assert second.processes == (
        GpuProcess(4101, 8192, util=90, memory_util=30),
        GpuProcess(4102, 512, util=0, memory_util=0),
        GpuProcess(4103, None),
    )


@pytest.mark.parametrize(
    ("lease_id", "util", "memory", "traffic", "reason"),
    [
        ("l-a", 90, 8192, 30, ""),
        ("l-b", 0, 512, 0, ""),
        ("l-c", None, None, None, "shared"),
        ("l-d", 0, 0, 0, ""),
    ],
)
def test_p17_use_of_a_shared_device_is_told_per_lease(
    driver: Make, lease_id: str, util: int | None, memory: int | None, traffic: int | None, reason: str
) -> None:
    machine = driver(name="shared-processes")
    machine.devices()
    found = told(machine, lease_id)
    values = (found["util"], found["memory_used_mib"], found["memory_util"], found["reason"])
    assert values == (util, memory, traffic, reason)
    assert found["active_at"] == (START.isoformat() if util else "earlier")


def test_a_program_of_nobodys_that_computes_may_do_so_for_anybody(driver: Make) -> None:
    machine = driver(name="shared-processes")
    machine.devices()
    pids = {name: own for name, own in PIDS.items() if name not in ("l-a", "l-c")}
    assert told(machine, "l-b", pids)["reason"] == "shared"
    assert told(machine, "l-a", pids)["util"] is None, "its pids are not known"
    machine.stage("at rest")
    assert told(machine, "l-b", pids)["util"] == 0, "nobody computes, so nobody does for it"


def test_a_driver_without_samples_tells_memory_and_a_device_at_rest(driver: Make) -> None:
    machine = driver(name="shared-processes")
    machine.stage("no samples")
    machine.devices()
    assert [told(machine, name)["util"] for name in PIDS] == [None, None, 0, 0], "who has no program there rests"
    assert told(machine, "l-a")["memory_used_mib"] == 8192


@pytest.mark.parametrize("stage", ["functions missing", "no permission"])
def test_a_driver_that_lists_nothing_leaves_use_of_a_shared_device_untold(driver: Make, stage: str) -> None:
    machine = driver(name="shared-processes")
    machine.stage(stage)
    machine.devices()
    found = told(machine, "l-a")
    assert (found["util"], found["memory_used_mib"], found["reason"]) == (None, None, "shared")
    whole = gpu_signal(lease(slots=(Slot("h", UUID, MilliGpu(1000)),)), {UUID: machine.devices()[0]}, None, {}, START)
    assert (whole["util"], whole["memory_used_mib"]) == (95, 9216)


def test_i07_a_device_that_cannot_be_read_is_unknown_for_all(driver: Make) -> None:
    machine = driver(name="shared-processes")
    machine.devices()
    machine.stage("blind")
    found = told(machine, "l-b")
    assert (found["util"], found["memory_used_mib"], found["reason"]) == (None, None, "unknown")
