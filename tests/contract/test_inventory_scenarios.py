"""The inventory through every scenario of the library: the real pynvml over the shim, and the rows that come of it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quota.errors import Reason, Refused
from quota.leases import Device, DeviceState, Holder, LeaseRequest
from quota.units import WHOLE_GPU, MilliGpu
from spawner.fleet import could_carry, free_now, room, to_devices, whole_free
from spawner.placement import best_fit
from spawner.ports import GpuEvent, GpuProcess, GpuReading, MemoryHealth, Unreachable
from spawner.profiles import DEFAULT_PROFILES
from tests.harness.waiting import until
from tests.shim.driver import SCENARIOS, Driver, scenario_path, stages
from tests.shim.library import SONAME

Make = Callable[..., Driver]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAMES = sorted(path.stem for path in SCENARIOS.glob("*.scenario"))
TIMEOUTS = {"device_timeout_s": 0.25, "driver_timeout_s": 0.25}


def rows(machine: Driver, before: Sequence[Device] = ()) -> dict[str, Device]:
    machine.inventory._not_before = 0.0  # no pause between processes here
    return {device.uuid: device for device in to_devices("here", machine.read(), tuple(before), NOW)}


def takeable(devices: dict[str, Device]) -> set[str]:
    """Devices that anything could be placed on."""
    return {uuid for uuid, device in devices.items() if room(device, 125) or whole_free(device)}


# ---- the library of scenarios ----------------------------------------------------------------------------------


def test_there_are_scenarios() -> None:
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_can_be_read_and_says_what_it_plays(name: str, nvml_library: Path, tmp_path: Path) -> None:
    shim = ctypes.CDLL(str(nvml_library / SONAME))
    text = scenario_path(name).read_text(encoding="utf-8")
    assert text.startswith("# Plays: ")
    assert "\n# Source: " in text
    copy = tmp_path / "scenario"
    copy.write_text(text, encoding="utf-8")
    for stage in stages(name) or [""]:
        (tmp_path / "scenario.stage").write_text(stage, encoding="utf-8")
        assert shim.berth_scenario_error(str(copy).encode()) == 0, stage


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_is_used_by_a_test_of_its_own(name: str) -> None:
    tests = Path(__file__).parents[1].rglob("test_*.py")
    used = re.compile(rf'(name=|^ +\()"{name}"', re.MULTILINE)
    assert any(used.search(path.read_text(encoding="utf-8")) for path in tests)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, "devise GPU-1 A10 1 1 1"),
        (1, "device GPU-1 A10 1 1"),
        (2, "device GPU-1 A10 1 1 1\nhang nvmlDeviceGetNmae"),
        (2, "device GPU-1 A10 1 1 1\nfail nvmlDeviceGetName GPU_IS_LOTS"),
        (2, "device GPU-1 A10 1 1 1\necc uncorected=1"),
        (2, "device GPU-1 A10 1 1 1\nxid 48 at=soon"),
        (2, "device GPU-1 A10 1 1 1\nprocess 12 computed 4"),
        (1, "ecc uncorrected=1"),
        (2, "[one]\nboot -1\n[two]\nboot 1"),
        (4, "[one]\nboot 1\n[two]\nbot 1"),
        (-1, "\n[one]\nboot 1"),
    ],
)
def test_what_is_misspelt_is_found(line: int, text: str, nvml_library: Path, tmp_path: Path) -> None:
    shim = ctypes.CDLL(str(nvml_library / SONAME))
    scenario = tmp_path / "scenario"
    scenario.write_text(text, encoding="utf-8")
    if line < 0:
        scenario.with_name("scenario.stage").write_text("three", encoding="utf-8")
    assert shim.berth_scenario_error(str(scenario).encode()) == line


def played(machine: Driver, name: str) -> Iterator[tuple[str, tuple[GpuReading, ...] | Unreachable]]:
    """Each stage twice, under one process; then the last on a machine that has started anew."""
    for stage in stages(name):
        machine.stage(stage)
        for _ in range(2):
            machine.inventory._not_before = 0.0
            yield stage, machine.read()
    last = (stages(name) or [""])[-1]
    if last:
        machine.reboot(last)
    yield last, machine.read()


@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_played_nothing_impossible_is_told_and_nothing_ill_is_taken(name: str, driver: Make) -> None:
    machine = driver(name=name, **TIMEOUTS)
    assert machine.detect()
    before: tuple[Device, ...] = ()
    for stage, answer in played(machine, name):
        assert machine.took < 8, stage
        for reading in () if isinstance(answer, Unreachable) else answer:
            assert reading.memory_mib is None or 1 <= reading.memory_mib <= 1 << 24
            assert reading.memory_used_mib is None or 0 <= reading.memory_used_mib <= (reading.memory_mib or 0)
            assert reading.utilisation is None or 0 <= reading.utilisation <= 100
            assert reading.temperature_c is None or 0 < reading.temperature_c <= 150
            assert reading.uuid or reading.error
        before = to_devices("here", answer, before, NOW)
        well = set() if isinstance(answer, Unreachable) else {one.uuid for one in answer if not one.error}
        assert len({device.uuid for device in before}) == len(before)
        for device in before:
            assert device.state is not DeviceState.OK or device.uuid in well, (stage, device)
            assert device.state is DeviceState.OK or device.why, (stage, device)
            assert device.free == 0 or device.mode != "mig" or (":" in device.uuid and device.handle), (stage, device)


# ---- each of them ----------------------------------------------------------------------------------------------


def test_devices_keep_their_identity_when_their_order_changes(driver: Make) -> None:
    machine = driver(name="order-changes")
    first = rows(machine)
    assert {uuid: device.position for uuid, device in first.items()} == {
        "GPU-0000000a": 0,
        "GPU-0000000b": 1,
        "GPU-0000000c": 2,
    }
    held = [replace(device, used=1000) if device.position == 1 else device for device in first.values()]
    machine.reboot("second boot")
    second = rows(machine, held)
    assert second["GPU-0000000b"].position == 2
    assert [uuid for uuid, device in second.items() if device.used] == ["GPU-0000000b"]
    assert second["GPU-0000000c"].name == "Tesla T4"
    machine.reboot("third boot, one dead")
    third = rows(machine, tuple(second.values()))
    assert third["GPU-0000000c"].state is DeviceState.LOST
    assert takeable(third) == {"GPU-0000000a"}, "the held one and the dead one are not given out"


def test_p11_a_card_that_is_lost_hides_no_other_and_can_come_back(driver: Make) -> None:
    machine = driver(name="lost-card")
    before = rows(machine)
    assert takeable(before) == {"GPU-0000000a", "GPU-0000000b", "GPU-0000000c"}
    machine.stage("lost")
    readings = machine.devices()
    assert [reading.lost for reading in readings] == [False, True, False]
    assert readings[1].events == (GpuEvent(79),), "the last that it said is told although it answers no more"
    lost = rows(machine, tuple(before.values()))
    assert (lost["GPU-0000000b"].state, takeable(lost)) == (DeviceState.LOST, {"GPU-0000000a", "GPU-0000000c"})
    assert "fell off the bus" in lost["GPU-0000000b"].why
    machine.stage("not listed")
    machine.read()  # the driver was loaded anew: the first read finds that out
    gone = rows(machine, tuple(lost.values()))
    assert gone["GPU-0000000b"].why == "the driver no longer lists this device"
    assert takeable(gone) == {"GPU-0000000a", "GPU-0000000c"}
    machine.reboot("back")
    assert takeable(rows(machine, tuple(gone.values()))) == {"GPU-0000000a", "GPU-0000000b", "GPU-0000000c"}


def test_p11_a_card_that_is_lost_at_the_first_read_is_told_by_position(driver: Make) -> None:
    machine = driver(name="lost-at-boot")
    lost, well = machine.devices()
    assert (lost.uuid, lost.position, lost.lost) == ("", 0, True)
    assert (well.uuid, well.error) == ("GPU-0000000b", "")


@pytest.mark.parametrize("stage", ["handle", "utilisation", "processes"])
def test_a_device_that_hangs_is_silent_alone_and_gets_one_thread(driver: Make, stage: str) -> None:
    machine = driver(name="hang-device", device_timeout_s=0.5)
    before = rows(machine)
    machine.stage(stage)
    for _ in range(3):
        after = rows(machine, tuple(before.values()))
        assert machine.took < 1.5
        assert machine.threads == 1
        assert after["GPU-0000000b"].why == "the device did not answer within 0.5 s"
        assert takeable(after) == {"GPU-0000000a", "GPU-0000000c"}
    assert machine.took < 0.4, "it is not waited for again"


def test_a_device_that_is_slow_is_read(driver: Make) -> None:
    machine = driver(name="hang-device", device_timeout_s=5)
    machine.stage("slow")
    assert [reading.error for reading in machine.devices()] == ["", "", ""]
    assert machine.took >= 0.2


def test_impossible_values_are_unknown_and_never_zero(driver: Make) -> None:
    machine = driver(name="impossible-values")
    readings = machine.devices()
    told = [(one.memory_mib, one.memory_used_mib, one.utilisation, one.temperature_c) for one in readings]
    assert told == [
        (24576, 0, None, None),
        (24576, 0, None, None),
        (24576, None, 10, None),
        (None, None, 10, 40),
        (None, None, None, 40),
        (None, None, 10, 40),
        (None, None, 100, 40),
        (24576, None, 0, 40),
        (24576, 0, 0, None),
    ]
    assert readings[7].health == MemoryHealth(None, None, 0, None, None, None)
    assert readings[8].name == "NVIDIA GPU"
    assert [device.memory_mib for device in rows(machine).values()][3:7] == [None] * 4
    known = [replace(device, memory_mib=24576) for device in rows(machine).values()]
    assert {device.memory_mib for device in rows(machine, known).values()} == {24576}, "what was known stays known"


def test_cards_without_an_identity_of_their_own_are_not_used(driver: Make) -> None:
    machine = driver(name="odd-identities")
    readings = machine.devices()
    assert [reading.uuid for reading in readings] == ["", "GPU-00000002", "", "", "GPU-00000005"]
    assert [reading.error for reading in readings] == [
        "the device tells no usable UUID",
        "2 devices tell the same UUID GPU-00000002",
        "2 devices tell the same UUID GPU-00000002",
        "the device tells no usable UUID",
        "",
    ]
    assert takeable(rows(machine)) == {"GPU-00000005"}


def test_q07_programs_of_others_are_seen_with_their_pids(driver: Make) -> None:
    machine = driver(name="foreign-processes")
    busy, free = machine.devices()
    assert busy.processes == (
        GpuProcess(4242, 8192),
        GpuProcess(4243, None),
        GpuProcess(900, 64, graphics=True),
    )
    assert free.processes == ()
    devices = rows(machine)
    assert devices["GPU-0000000a"].why == "in use by 3 programs (pid 900, 4242, 4243), without a lease"
    assert devices["GPU-0000000b"].why == ""
    held = [replace(device, used=500) for device in devices.values()]
    assert {device.why for device in rows(machine, held).values()} == {""}


@pytest.mark.parametrize(
    ("name", "broken", "words", "well"),
    [
        (
            "driver-mismatch",
            "upgraded",
            "version mismatch (the driver was upgraded while the old one runs: reboot",
            "rebooted",
        ),
        ("driver-not-loaded", "not loaded", "modprobe nvidia", "loaded"),
        ("no-permission", "none", "may not open /dev/nvidia*", "some"),
    ],
)
def test_a_driver_that_does_not_work_is_no_host_without_gpus(
    driver: Make, name: str, broken: str, words: str, well: str
) -> None:
    machine = driver(name=name)
    assert machine.detect()
    machine.stage(broken)
    assert words in machine.unreachable()
    machine.stage(well)
    assert all(not reading.error for reading in machine.devices()), "it is found without a new process"


def test_a_driver_upgraded_under_a_running_agent(driver: Make) -> None:
    machine = driver(name="driver-mismatch")
    machine.stage("rebooted")
    before = rows(machine)
    machine.stage("upgraded while it runs")
    machine.read()
    after = rows(machine, tuple(before.values()))
    assert {device.state for device in after.values()} == {DeviceState.SUSPECT}
    assert all("reboot this host" in device.why for device in after.values())


def test_what_needs_a_privilege_is_unknown_without_it(driver: Make) -> None:
    machine = driver(name="no-permission")
    machine.stage("some")
    (reading,) = machine.devices()
    assert (reading.error, reading.processes, reading.events) == ("", (), ())


def test_p10_a_card_with_an_uncorrectable_error_is_not_given_out_until_it_was_reset(driver: Make) -> None:
    machine = driver(name="ecc")
    devices = rows(machine)
    assert devices["GPU-00000001"].state is DeviceState.SUSPECT
    assert devices["GPU-00000001"].why.startswith("1 error of its memory could not be corrected; reset the card")
    assert takeable(devices) == {"GPU-00000000", "GPU-00000002", "GPU-00000003", "GPU-00000004"}
    corrected = {reading.uuid: reading.health for reading in machine.devices()}
    assert corrected["GPU-00000003"] == MemoryHealth(123456, 0, 999999, 0)
    assert corrected["GPU-00000004"] == MemoryHealth(), "without ECC nothing is known, which is not 0"
    request = LeaseRequest(Holder("ada"), "ada", "p", "i", MilliGpu(1000), 5, "boot", "ada")
    with pytest.raises(Refused) as refused:
        best_fit(tuple(devices.values()), request)
    assert refused.value.reason is Reason.NO_ROOM
    machine.reboot("rebooted")
    assert len(takeable(rows(machine, tuple(devices.values())))) == 5


def test_p10_memory_that_waits_to_be_replaced_or_could_not_be(driver: Make) -> None:
    machine = driver(name="memory-repair")
    devices = rows(machine)
    assert [device.why.partition(";")[0] for device in devices.values()] == [
        "bad memory waits to be replaced",
        "bad memory could not be replaced: the card has to be exchanged",
        "bad memory waits to be replaced",
        "",
    ]
    assert takeable(devices) == {"GPU-00000003"}


def test_p10_errors_that_the_driver_reports_are_told_once(driver: Make) -> None:
    machine = driver(name="xid")
    assert [reading.events for reading in machine.devices()] == [(), (), (), ()]
    machine.stage("errors")
    told: dict[str, dict[int, int]] = {}

    def read() -> bool:
        for reading in machine.devices():
            for event in reading.events:
                counts = told.setdefault(reading.uuid, {})
                counts[event.xid] = counts.get(event.xid, 0) + event.count
        return 74 in told.get("GPU-00000003", {})

    until(read, what="the later error is not told")
    read()
    assert told == {
        "GPU-00000000": {13: 1, 31: 3, 43: 1, 45: 1, 68: 1},
        "GPU-00000001": {48: 1, 63: 1},
        "GPU-00000002": {4711: 1},
        "GPU-00000003": {31: 1, 74: 1},
    }


PARTS = ["GPU-0000000a:1g.5gb:0", "GPU-0000000a:1g.5gb:2", "GPU-0000000a:3g.20gb:4"]


def test_p15_a_divided_card_is_its_parts_and_never_both(driver: Make) -> None:
    machine = driver(name="mig")
    first = rows(machine)
    assert list(first) == ["GPU-0000000a", *PARTS, "GPU-0000000b"]
    assert {uuid: device.mode for uuid, device in first.items()} == {
        **dict.fromkeys(["GPU-0000000a", *PARTS], "mig"),
        "GPU-0000000b": "time-slice",
    }
    assert takeable(first) == {"GPU-0000000b", *PARTS}
    assert [device.free for device in first.values()] == [0, 125, 125, 500, 1000], "by slices of memory; never the card"
    assert first["GPU-0000000a"].why == "divided by MIG: it is never given out whole"
    assert first[PARTS[2]].why == "made by MIG: 4/8 of the memory, 3/7 of the compute"
    assert first[PARTS[2]].handle == "MIG-11111111-0000-5000-8000-000000000001"
    assert (first[PARTS[2]].name, first[PARTS[2]].memory_mib) == ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19968)
    whole = DEFAULT_PROFILES[4]
    assert (whole.share, free_now(whole, list(first.values()))) == (WHOLE_GPU, 1)
    parts = [device for uuid, device in first.items() if uuid != "GPU-0000000b"]
    assert could_carry(parts, 500, 1) and not could_carry(parts, 501, 1) and not could_carry(parts, 1000, 1)


def test_a_request_gets_the_smallest_part_that_fits_and_nobody_gets_it_beside(driver: Make) -> None:
    devices = [device for uuid, device in rows(driver(name="mig")).items() if uuid != "GPU-0000000b"]
    taken = []
    for share in (125, 125, 250):
        request = LeaseRequest(Holder("ada"), "ada", "p", "i", MilliGpu(share), 1, "boot", "ada")
        (slot,) = best_fit(devices, request)
        taken.append(slot.device)
        devices = [replace(each, used=share) if each.uuid == slot.device else each for each in devices]
    assert taken == PARTS
    assert sum(device.free for device in devices) == 0, "a quarter on a part of a half leaves nothing to others"
    eighth = DEFAULT_PROFILES[1]
    assert eighth.fractional and free_now(eighth, devices) == 0
    with pytest.raises(Refused):
        best_fit(devices, LeaseRequest(Holder("eve"), "eve", "p", "i", MilliGpu(125), 1, "boot", "eve"))


def test_parts_keep_their_keys_when_they_are_made_anew(driver: Make) -> None:
    machine = driver(name="mig")
    before = rows(machine)
    uuids = {reading.uuid: reading.part.mig_uuid for reading in machine.devices() if reading.part}
    machine.reboot("rebooted")
    after = rows(machine, tuple(before.values()))
    assert set(after) == set(before)
    again = {reading.uuid: reading.part for reading in machine.devices() if reading.part}
    assert set(again) == set(PARTS)
    assert all(part.mig_uuid and part.mig_uuid != uuids[key] for key, part in again.items())
    assert [(part.parent, part.profile, part.start) for part in again.values()] == [
        ("GPU-0000000a", "1g.5gb", 0),
        ("GPU-0000000a", "1g.5gb", 2),
        ("GPU-0000000a", "3g.20gb", 4),
    ]


def test_a_part_that_is_gone_goes_and_one_that_is_held_stays(driver: Make) -> None:
    machine = driver(name="mig")
    before = rows(machine)
    machine.stage("one part less")
    machine.read()
    after = rows(machine, tuple(before.values()))
    assert set(before) - set(after) == {PARTS[1]}
    assert after["GPU-0000000b"].why == "MIG is to be switched on at its next reset"
    held = [replace(device, used=250) for device in before.values()]
    kept = rows(machine, held)
    assert (kept[PARTS[1]].state, kept[PARTS[1]].why) == (
        DeviceState.LOST,
        "MIG was set up anew, and this part is gone",
    )


def test_parts_of_a_card_that_fails_fail_with_it(driver: Make) -> None:
    machine = driver(name="mig")
    machine.reboot("one part less")
    before = rows(machine)
    machine.stage("card fails")
    after = rows(machine, tuple(before.values()))
    assert set(after) == set(before)
    assert {after[uuid].state for uuid in ("GPU-0000000a", PARTS[0], PARTS[2])} == {DeviceState.LOST}
    assert "fell off the bus" in after[PARTS[0]].why


def test_a_card_that_is_no_longer_divided_is_given_out_again(driver: Make) -> None:
    machine = driver(name="mig")
    before = rows(machine)
    machine.reboot("undivided")
    after = rows(machine, tuple(before.values()))
    assert list(after) == ["GPU-0000000a", "GPU-0000000b"]
    assert takeable(after) == {"GPU-0000000a", "GPU-0000000b"}
    machine.reboot("divided into nothing")
    assert takeable(rows(machine, tuple(after.values()))) == {"GPU-0000000b"}


def test_parts_whose_place_is_not_told_are_told_apart_all_the_same(driver: Make) -> None:
    machine = driver(name="mig-unprivileged")
    card, *parts = machine.devices()
    assert card.mig is True
    assert [reading.uuid for reading in parts] == [
        "GPU-0000000a:1c.3g.40gb:gi1",
        "GPU-0000000a:1c.3g.40gb:gi1.1",
        "GPU-0000000a:2g.20gb:gi5",
    ]
    assert takeable(rows(machine)) == set()


def test_an_old_driver_is_read_as_far_as_it_goes(driver: Make) -> None:
    machine = driver(name="old-driver")
    assert machine.devices() == (
        GpuReading("GPU-0000000a", 0, "Tesla K80", 11441, 100, 3, False, health=MemoryHealth(), memory_utilisation=0),
    )
    assert takeable(rows(machine)) == {"GPU-0000000a"}
