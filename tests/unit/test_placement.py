"""Best fit by example: what it chooses, and how it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quota.errors import Reason, Refused
from quota.leases import Device, DeviceState, Holder, LeaseRequest, Slot
from quota.ports import Place
from quota.units import MilliGpu
from spawner.placement import best_fit


def card(uuid: str, used: int = 0, host: str = "here", *, position: int = 0, **others: object) -> Device:
    device = Device(host, uuid, position, "A10", 24576, "time-slice", False, DeviceState.OK, used=used)
    return replace(device, **others)  # type: ignore[arg-type]


def asking(share: int, count: int = 1) -> LeaseRequest:
    return LeaseRequest(Holder("ada"), "ada", "some", "image", MilliGpu(share), count, "boot", "ada")


def chosen(devices: list[Device], share: int, count: int = 1) -> list[str | None]:
    return [slot.device for slot in best_fit(devices, asking(share, count))]


def refusal(devices: list[Device], share: int, count: int = 1) -> Refused:
    with pytest.raises(Refused) as refused:
        best_fit(devices, asking(share, count))
    return refused.value


def test_it_is_a_place_of_the_book() -> None:
    place: Place = best_fit
    assert place([card("GPU-1")], asking(125)) == (Slot("here", "GPU-1", MilliGpu(125)),)


def test_a_part_goes_where_it_fits_tightest() -> None:
    fleet = [card("GPU-1"), card("GPU-2", 250), card("GPU-3", 500), card("GPU-4", 875)]
    assert chosen(fleet, 500) == ["GPU-3"]
    assert chosen(fleet, 125) == ["GPU-4"]
    assert chosen(fleet, 750) == ["GPU-2"]
    assert chosen(fleet, 1000) == ["GPU-1"]


def test_a_new_device_is_opened_where_fewest_are_left_whole() -> None:
    fleet = [card("GPU-1", host="a"), card("GPU-2", host="a"), card("GPU-3", host="b"), card("GPU-4", 1000, "b")]
    assert chosen(fleet, 125) == ["GPU-3"]
    assert chosen(fleet, 1000) == ["GPU-3"]
    assert chosen(fleet, 1000, 2) == ["GPU-1", "GPU-2"]


def test_ties_go_by_host_then_position_then_uuid() -> None:
    fleet = [card("GPU-9", host="b"), card("GPU-3", position=1), card("GPU-2", position=1), card("GPU-8", position=0)]
    assert chosen(fleet[1:], 1000) == ["GPU-8"]
    assert chosen(fleet[1:3], 125) == ["GPU-2"]
    assert chosen(fleet[1:3], 1000) == ["GPU-2"]
    assert chosen([card("GPU-1", host="b"), card("GPU-2", host="a")], 250) == ["GPU-2"]


def test_several_gpus_are_whole_and_on_one_host() -> None:
    fleet = [card("GPU-1", host="a"), card("GPU-2", host="b"), card("GPU-3", 125, "b"), card("GPU-4", host="b")]
    slots = best_fit(fleet, asking(1000, 2))
    assert slots == (Slot("b", "GPU-2", MilliGpu(1000)), Slot("b", "GPU-4", MilliGpu(1000)))
    assert refusal([*fleet[:3], card("GPU-4", 1, "b")], 1000, 2).reason is Reason.NO_ROOM


@pytest.mark.parametrize("state", [state for state in DeviceState if state is not DeviceState.OK])
def test_a_device_that_is_not_well_is_never_used(state: DeviceState) -> None:
    fleet = [card("GPU-1", state=state), card("GPU-2", 900)]
    assert refusal(fleet, 125).facts["out_of_service"] == 1
    assert refusal(fleet, 1000).reason is Reason.NO_ROOM
    assert chosen(fleet, 100) == ["GPU-2"]


def test_an_exclusive_device_is_given_whole_to_one_lease() -> None:
    alone = [card("GPU-1", mode="exclusive")]
    assert chosen(alone, 1000) == ["GPU-1"]
    assert refusal(alone, 500).reason is Reason.NO_DEVICES
    assert refusal([replace(alone[0], used=1000)], 1000).reason is Reason.NO_ROOM
    assert refusal([replace(alone[0], used=125)], 1000).reason is Reason.NO_ROOM


def test_an_exclusive_device_goes_first_as_it_carries_nothing_else() -> None:
    fleet = [card("GPU-1"), card("GPU-2", mode="exclusive", position=1), card("GPU-3", position=2)]
    assert chosen(fleet, 1000) == ["GPU-2"]
    assert chosen(fleet, 1000, 2) == ["GPU-2", "GPU-1"]


@pytest.mark.parametrize("mode", ["mig", "made-up", ""])
def test_a_mode_that_is_not_placed_here_has_no_room(mode: str) -> None:
    assert refusal([card("GPU-1", mode=mode)], 125).reason is Reason.NO_DEVICES
    assert refusal([card("GPU-1", mode=mode)], 1000).reason is Reason.NO_DEVICES


def test_p14_a_site_without_devices_says_so_at_once() -> None:
    refused = refusal([], 125)
    assert refused.reason is Reason.NO_DEVICES
    assert refused.facts == {"profile": "some", "asked": 125, "count": 1, "devices": 0}


def test_p14_more_gpus_than_any_host_has_can_never_come() -> None:
    fleet = [card("GPU-1", host="a"), card("GPU-2", host="b")]
    assert refusal(fleet, 1000, 2).reason is Reason.NO_DEVICES
    assert refusal(fleet[:1], 1000, 2).facts == {"profile": "some", "asked": 2000, "count": 2, "devices": 1}


def test_p14_a_full_or_broken_site_is_another_matter() -> None:
    fleet = [card("GPU-1", 875), card("GPU-2", 750), card("GPU-3", state=DeviceState.LOST)]
    refused = refusal(fleet, 500)
    assert refused.reason is Reason.NO_ROOM
    assert refused.facts == {
        "profile": "some",
        "asked": 500,
        "count": 1,
        "devices": 3,
        "free": 375,
        "largest": 250,
        "whole": 0,
        "out_of_service": 1,
    }


def test_a_refusal_about_simulated_devices_says_so() -> None:
    assert refusal([card("SIM-1", 1000, simulated=True)], 500).facts["simulated"] is True
    assert refusal([card("SIM-1", simulated=True)], 1000, 2).facts["simulated"] is True


def test_a_cpu_server_needs_no_device() -> None:
    assert best_fit([], asking(0, 0)) == (Slot(None, None, MilliGpu(0)),)
    assert best_fit([card("GPU-1")], asking(0, 0), home="here") == (Slot("here", None, MilliGpu(0)),)


@pytest.mark.parametrize(("share", "count"), [(-1, 1), (1001, 1), (500, 2), (500, 0), (0, 1), (1000, -1)])
def test_what_is_no_share_is_a_mistake_of_ours(share: int, count: int) -> None:
    with pytest.raises(ValueError, match=r"share of a GPU|given whole"):
        best_fit([card("GPU-1"), card("GPU-2")], asking(share, count))


def test_p03_fifty_halves_on_one_device_are_two() -> None:
    device, refused = card("GPU-1"), 0
    for _ in range(50):
        try:
            (slot,) = best_fit([device], asking(500))
        except Refused as no:
            assert no.reason is Reason.NO_ROOM
            refused += 1
        else:
            device = replace(device, used=device.used + slot.share)
        assert device.used <= 1000
    assert (device.used, refused) == (1000, 48)
