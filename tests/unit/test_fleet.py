"""The fleet: how readings become rows, and what is told of devices."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Device, DeviceState
from spawner.fleet import describe, describe_fleet, free_now, held_words, known, offered, to_devices
from spawner.ports import GpuReading, Unreachable
from spawner.profiles import DEFAULT_PROFILES

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
CPU, EIGHTH, QUARTER, HALF, ONE, TWO = DEFAULT_PROFILES


def reading(uuid: str, position: int = 0, **others: object) -> GpuReading:
    plain = GpuReading(uuid, position, "NVIDIA A10", 24576, 512, 40, simulated=False)
    return replace(plain, **others)  # type: ignore[arg-type]


def failed(uuid: str, position: int, error: str, *, lost: bool = False) -> GpuReading:
    return GpuReading(uuid, position, "", None, None, None, simulated=False, error=error, lost=lost)


def card(uuid: str, used: int = 0, **others: object) -> Device:
    device = Device("here", uuid, 0, "NVIDIA A10", 24576, "time-slice", False, DeviceState.OK, used=used)
    return replace(device, **others)  # type: ignore[arg-type]


def rows(readings: tuple[GpuReading, ...] | Unreachable, before: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    return to_devices("here", readings, before, LATER)


def test_a_good_reading_is_a_device_to_take() -> None:
    assert rows((reading("GPU-2", 1), reading("GPU-1", 0))) == (
        card("GPU-1", position=0, seen_at=LATER),
        card("GPU-2", position=1, seen_at=LATER),
    )


def test_modes_come_from_the_settings() -> None:
    readings = (reading("GPU-1"), reading("GPU-2", 1))
    devices = to_devices("here", readings, (), NOW, mode="exclusive", modes={"GPU-2": "mps"})
    assert [device.mode for device in devices] == ["exclusive", "mps"]


def changed(before: Device, drained: tuple[str, ...] = (), **others: object) -> Device:
    return to_devices("here", (reading("GPU-1", **others),), (before,), LATER, mode="exclusive", drained=drained)[0]


def test_a_device_that_servers_hold_keeps_its_mode_and_takes_no_new_one() -> None:
    device = changed(card("GPU-1", 500), ("GPU-1",))
    assert (device.mode, device.state, device.used, device.free) == ("time-slice", DeviceState.DRAINING, 500, 0)
    assert device.why == "it becomes a device for whole shares only when its last server has ended"


def test_a_device_changes_its_mode_only_after_nothing_could_be_placed_on_it() -> None:
    first = changed(card("GPU-1"))
    assert (first.mode, first.state, first.free) == ("time-slice", DeviceState.DRAINING, 0)
    second = changed(card("GPU-1"), ("GPU-1",))
    assert (second.mode, second.state, second.free) == ("exclusive", DeviceState.OK, 1000)


def test_a_device_in_trouble_tells_its_trouble_while_it_waits_for_its_mode() -> None:
    device = changed(card("GPU-1", 500), ("GPU-1",), error="GPU is lost", lost=True)
    assert (device.mode, device.state, device.why) == ("time-slice", DeviceState.LOST, "GPU is lost")


def test_a_change_that_was_taken_back_leaves_nothing_behind() -> None:
    device = to_devices("here", (reading("GPU-1"),), (card("GPU-1", 500),), LATER, drained=("GPU-1",))[0]
    assert (device.mode, device.state, device.why) == ("time-slice", DeviceState.OK, "")


def test_what_leases_hold_is_carried_over() -> None:
    (device,) = rows((reading("GPU-1"),), (card("GPU-1", used=750),))
    assert (device.used, device.free) == (750, 250)


def test_devices_of_other_hosts_are_left_out() -> None:
    assert rows((), (card("GPU-1", host="there"),)) == ()


def test_p11_a_device_that_fails_is_a_state_and_no_exception() -> None:
    before = (card("GPU-1", 500, seen_at=NOW), card("GPU-2", position=1), card("GPU-3", position=2))
    readings = (
        reading("GPU-1"),
        failed("GPU-2", 1, "GPU is lost", lost=True),
        failed("GPU-3", 2, "the device did not answer within 5 s"),
    )
    one, two, three = rows(readings, before)
    assert (one.state, one.free, one.seen_at) == (DeviceState.OK, 500, LATER)
    assert (two.state, two.why, two.free, two.name) == (DeviceState.LOST, "GPU is lost", 0, "NVIDIA A10")
    assert (three.state, three.free, three.memory_mib) == (DeviceState.SUSPECT, 0, 24576)
    assert three.seen_at is None, "only a good reading counts as seen"


def test_a_device_that_answers_again_is_well_again() -> None:
    (device,) = rows((reading("GPU-1"),), (card("GPU-1", state=DeviceState.SUSPECT, why="silent"),))
    assert (device.state, device.why) == (DeviceState.OK, "")


@pytest.mark.parametrize("state", [DeviceState.DRAINING, DeviceState.QUARANTINED])
def test_a_state_that_a_person_set_outlives_readings(state: DeviceState) -> None:
    before = (card("GPU-1", state=state, why="fan is loud"),)
    for answer in ((reading("GPU-1"),), (failed("GPU-1", 0, "no", lost=True),), (), Unreachable("no answer")):
        (device,) = rows(answer, before)
        assert (device.state, device.why, device.free) == (state, "fan is loud", 0)


def test_a_device_that_is_gone_stays_a_row() -> None:
    """A lease may hold it, and somebody must be told."""
    (device,) = rows((), (card("GPU-1", used=1000),))
    assert (device.state, device.why, device.used) == (
        DeviceState.LOST,
        "the driver no longer lists this device",
        1000,
    )


def test_a_simulated_device_that_is_gone_is_not_laid_on_a_driver() -> None:
    (device,) = rows((), (card("SIM-1", used=1000, simulated=True),))
    assert device.state is DeviceState.LOST
    assert "simulated" in device.why and "driver" not in device.why


def test_a_failure_without_identity_is_told_of_the_device_at_that_position() -> None:
    before = (card("GPU-1", position=0), card("GPU-2", position=1))
    one, two = rows((failed("", 0, "it hangs"), reading("GPU-2", 1)), before)
    assert (one.uuid, one.state, one.why) == ("GPU-1", DeviceState.SUSPECT, "it hangs")
    assert (two.uuid, two.state) == ("GPU-2", DeviceState.OK)


def test_a_failure_without_identity_is_laid_on_no_other_device() -> None:
    before = (card("GPU-1", position=0), card("GPU-2", position=1))
    one, two = rows((failed("", 0, "it hangs"),), before)
    assert (one.why, two.state) == ("it hangs", DeviceState.LOST)
    assert two.why == "the driver no longer lists this device"


def test_a_failure_without_identity_makes_no_device_of_its_own() -> None:
    assert rows((failed("", 0, "it hangs"),)) == ()


def test_no_answer_is_not_an_empty_host() -> None:
    before = (card("GPU-1", 500, seen_at=NOW), card("GPU-2", position=1, state=DeviceState.LOST, why="gone"))
    one, two = rows(Unreachable("the NVIDIA driver did not answer"), before)
    assert (one.state, one.why, one.used, one.seen_at) == (
        DeviceState.SUSPECT,
        "the NVIDIA driver did not answer",
        500,
        NOW,
    )
    assert (two.state, two.why) == (DeviceState.LOST, "gone")


def test_simulated_devices_go_when_real_ones_come() -> None:
    free, held = card("SIM-1", simulated=True), card("SIM-2", 500, simulated=True, position=1)
    devices = rows((reading("GPU-1"),), (free, held))
    assert [(device.uuid, device.state) for device in devices] == [
        ("GPU-1", DeviceState.OK),
        ("SIM-2", DeviceState.LOST),
    ]


def test_free_now_counts_starts() -> None:
    fleet = [card("GPU-1"), card("GPU-2", 625), card("GPU-3", 1000), card("GPU-4", mode="exclusive")]
    assert [free_now(profile, fleet) for profile in (EIGHTH, QUARTER, HALF, ONE, TWO)] == [11, 5, 2, 2, 1]
    assert free_now(CPU, fleet) is None, "no device limits it: not a number at all"
    assert free_now(EIGHTH, []) == 0


def test_p14_a_site_without_gpus_offers_cpu_alone() -> None:
    assert [profile.name for profile in DEFAULT_PROFILES if offered(profile, [])] == ["cpu"]
    assert not offered(TWO, [card("GPU-1")])
    assert offered(TWO, [card("GPU-1", 1000), card("GPU-2", state=DeviceState.SUSPECT)]), "busy is not absent"


def test_simulated_is_said_wherever_a_device_is_shown() -> None:
    assert describe(card("SIM-1", simulated=True, name="GPU 0")) == "simulated GPU 0, 24 GB"
    assert describe(card("SIM-1", simulated=True, name="simulated GPU")) == "simulated GPU, 24 GB"
    assert describe(card("GPU-1")) == "NVIDIA A10, 24 GB"
    assert describe(card("GPU-1", memory_mib=None, name="")) == "GPU, memory unknown"
    assert held_words(125, 1, simulated=True) == "1/8 simulated GPU"
    assert held_words(1000, 2, simulated=True) == "2 simulated GPUs"
    assert held_words(125, 1, simulated=False) == "1/8 GPU"
    assert held_words(0, 0, simulated=True) == "CPU only"


def test_a_fleet_in_one_line() -> None:
    assert describe_fleet([]) == "no GPU"
    assert describe_fleet([card("GPU-1")]) == "1 x NVIDIA A10, 24 GB"
    mixed = [card("GPU-1"), card("GPU-2", state=DeviceState.LOST), card("GPU-3", name="Tesla T4", memory_mib=15360)]
    assert describe_fleet(mixed) == "2 x NVIDIA A10, 24 GB (1 out of service); 1 x Tesla T4, 15 GB"


def test_unknown_is_a_word_and_zero_a_number() -> None:
    assert (known(None, "%"), known(0, "%"), known(7)) == ("unknown", "0 %", "7")


uuids = st.sampled_from(["", "GPU-1", "GPU-2", "GPU-3"])
errors = st.sampled_from(["", "", "it hangs"])
anyhow = st.builds(
    lambda uuid, position, error, lost: reading(uuid, position, error=error, lost=bool(error) and lost),
    uuids,
    st.integers(0, 3),
    errors,
    st.booleans(),
)


@given(st.lists(anyhow, max_size=5), st.lists(st.sampled_from(["GPU-1", "GPU-2", "GPU-3"]), unique=True))
def test_p11_no_reading_makes_a_held_device_vanish_or_a_silent_one_free(
    readings: list[GpuReading], held: list[str]
) -> None:
    before = tuple(card(uuid, 500, position=place) for place, uuid in enumerate(held))
    devices = {device.uuid: device for device in rows(tuple(readings), before)}
    assert set(held) <= set(devices)
    assert set(devices) <= {*held, *(one.uuid for one in readings)} - {""}
    well = {one.uuid for one in readings if not one.error}
    for uuid, device in devices.items():
        assert device.used == (500 if uuid in held else 0)
        assert (device.state is DeviceState.OK) <= (uuid in well)
