"""Best fit by property: it never over-commits, does not depend on order, and finds room whenever there is some."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from quota.errors import Reason, Refused
from quota.leases import Device, DeviceState, Holder, LeaseRequest, Slot
from quota.units import MilliGpu
from spawner.fleet import free_now, offered
from spawner.placement import best_fit
from spawner.profiles import DEFAULT_PROFILES, Profile

SHARES = [(125, 1), (250, 1), (333, 1), (500, 1), (1000, 1), (1000, 2), (1000, 3)]
PROFILES = (*DEFAULT_PROFILES, Profile("third", "A third", MilliGpu(333), 1), Profile("three", "3", MilliGpu(1000), 3))

modes = st.sampled_from(["time-slice", "time-slice", "mps", "exclusive", "mig"])
states = st.sampled_from([DeviceState.OK] * 4 + list(DeviceState))
used = st.sampled_from([0, 0, 125, 250, 333, 500, 625, 875, 1000]) | st.integers(0, 1000)


@st.composite
def fleets(draw: st.DrawFn) -> list[Device]:
    """Up to seven devices on up to three hosts, some shared, some taken, some broken."""
    devices = []
    for number in range(draw(st.integers(0, 7))):
        mode = draw(modes)
        held = draw(st.sampled_from([0, 1000])) if mode == "exclusive" else draw(used)
        host = draw(st.sampled_from("abc"))
        state = draw(states)
        devices.append(Device(host, f"GPU-{number}", number % 2, "A10", 24576, mode, False, state, used=held))
    return draw(st.permutations(devices))


def asking(share: int, count: int) -> LeaseRequest:
    return LeaseRequest(Holder("ada"), "ada", "some", "image", MilliGpu(share), count, "boot", "ada")


requests = st.sampled_from(SHARES).map(lambda pair: asking(*pair))


def may_hold(device: Device, share: int) -> bool:
    """The rule in its plainest words, written apart from the product."""
    if device.state is not DeviceState.OK or device.used + share > 1000:
        return False
    if share == 1000:
        return device.mode in ("exclusive", "time-slice", "mps")
    return device.mode in ("time-slice", "mps")


def has_room(devices: list[Device], request: LeaseRequest) -> bool:
    """By brute force: some set of devices on one host that may hold the request."""
    return any(
        len({device.host for device in some}) == 1 and all(may_hold(device, request.share) for device in some)
        for some in combinations(devices, request.count)
    )


def attempt(devices: list[Device], request: LeaseRequest) -> tuple[Slot, ...] | Reason:
    try:
        return best_fit(devices, request)
    except Refused as refused:
        return refused.reason


def hold(devices: list[Device], slots: tuple[Slot, ...]) -> list[Device]:
    taken = {slot.device: slot.share for slot in slots}
    return [replace(device, used=device.used + taken.get(device.uuid, 0)) for device in devices]


@given(fleets(), requests)
def test_p03_room_is_found_whenever_there_is_some_and_never_else(devices: list[Device], request: LeaseRequest) -> None:
    answer = attempt(devices, request)
    if isinstance(answer, Reason):
        assert not has_room(devices, request)
        return
    by_uuid = {device.uuid: device for device in devices}
    assert len(answer) == request.count == len({slot.device for slot in answer})
    assert len({slot.host for slot in answer}) == 1
    for slot in answer:
        device = by_uuid[slot.device or ""]
        assert (slot.host, slot.share) == (device.host, request.share)
        assert may_hold(device, request.share)


@given(fleets(), requests, st.randoms(use_true_random=False))
def test_the_order_of_the_fleet_changes_nothing(devices: list[Device], request: LeaseRequest, dice: object) -> None:
    shuffled = list(devices)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert attempt(devices, request) == attempt(shuffled, request)


@given(fleets(), st.lists(requests, max_size=30))
def test_p03_a_history_of_starts_never_over_commits(devices: list[Device], history: list[LeaseRequest]) -> None:
    holders: Counter[str | None] = Counter()
    for request in history:
        answer = attempt(devices, request)
        if isinstance(answer, Reason):
            continue
        devices = hold(devices, answer)
        holders.update(slot.device for slot in answer)
        assert all(device.used <= 1000 for device in devices)
    assert all(holders[device.uuid] <= 1 for device in devices if device.mode == "exclusive")


@given(fleets(), st.sampled_from(PROFILES))
def test_p14_what_is_shown_as_free_is_what_starts_get(devices: list[Device], profile: Profile) -> None:
    shown = free_now(profile, devices)
    if profile.share == 0:
        assert shown is None
        return
    started = 0
    while not isinstance(answer := attempt(devices, asking(profile.share, profile.count)), Reason):
        devices = hold(devices, answer)
        started += 1
    assert started == shown
    assert (answer is Reason.NO_DEVICES) == (not offered(profile, devices))


@given(fleets(), requests)
def test_a_part_leaves_the_least_room_behind(devices: list[Device], request: LeaseRequest) -> None:
    answer = attempt(devices, request)
    if request.share == 1000 or isinstance(answer, Reason):
        return
    left = {device.uuid: 1000 - device.used - request.share for device in devices if may_hold(device, request.share)}
    assert left[answer[0].device or ""] == min(left.values())
