"""Placement: which devices a lease gets. Pure and deterministic: the same fleet in any order gives the same slots.

Best fit: the tightest room that carries the request, so that large pieces stay whole for those who need them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from quota.errors import Reason, Refused
from quota.leases import Device, DeviceState, LeaseRequest, Slot
from quota.units import WHOLE_GPU, MilliGpu
from spawner.fleet import EXCLUSIVE, could_carry, room, whole_free


def best_fit(devices: Sequence[Device], request: LeaseRequest, *, home: str | None = None) -> tuple[Slot, ...]:
    """Slots for a request; satisfies `quota.ports.Place`.

    A part of a GPU goes to the device that it fills best, whole GPUs to the host that has the fewest free ones left.
    Ties go by the fewest untouched devices on the host, then host, position and UUID. `home` is the host of CPU
    servers, None where that is not known yet.

    Raises `Refused`: NO_DEVICES where the site could never carry the request (facts `asked` milli-GPU in all,
    `count`, `devices`), NO_ROOM where it cannot now (also `free` milli-GPU in all, `largest` on one device, `whole`
    free devices on the best host, `out_of_service` devices). `ValueError` for a request that is no share of a GPU.
    """
    if request.share == 0 and request.count == 0:
        return (Slot(home, None, MilliGpu(0)),)
    _check(request)
    if not could_carry(devices, request.share, request.count):
        raise Refused(Reason.NO_DEVICES, **_asked(devices, request))
    chosen = _whole(devices, request.count) if request.share == WHOLE_GPU else _part(devices, request.share)
    if not chosen:
        raise Refused(Reason.NO_ROOM, **_asked(devices, request), **_free(devices))
    return tuple(Slot(device.host, device.uuid, request.share) for device in chosen)


def _check(request: LeaseRequest) -> None:
    if not 0 < request.share <= WHOLE_GPU or request.count < 1:
        raise ValueError(f"{request.share} milli-GPU on {request.count} devices is no share of a GPU")
    if request.count > 1 and request.share != WHOLE_GPU:
        raise ValueError("several devices are given whole")


def _asked(devices: Sequence[Device], request: LeaseRequest) -> dict[str, object]:
    return {
        "profile": request.profile,
        "asked": int(request.share * request.count),
        "count": request.count,
        "devices": len(devices),
        **({"simulated": True} if any(device.simulated for device in devices) else {}),
    }


def _free(devices: Sequence[Device]) -> dict[str, object]:
    return {
        "free": sum(device.free for device in devices),
        "largest": max((device.free for device in devices), default=0),
        "whole": max(_untouched(devices).values(), default=0),
        "out_of_service": sum(device.state is not DeviceState.OK for device in devices),
    }


def _untouched(devices: Sequence[Device]) -> Counter[str]:
    """Devices that could be given whole now, by host."""
    return Counter(device.host for device in devices if whole_free(device))


def _part(devices: Sequence[Device], share: int) -> list[Device]:
    untouched = _untouched(devices)
    fitting = [device for device in devices if room(device, share)]
    fitting.sort(key=lambda it: (room(it, share), untouched[it.host], it.host, it.position, it.uuid))
    return fitting[:1]


def _whole(devices: Sequence[Device], count: int) -> list[Device]:
    hosts: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        if whole_free(device):
            hosts[device.host].append(device)
    fitting = [host for host, free in hosts.items() if len(free) >= count]
    if not fitting:
        return []
    host = min(fitting, key=lambda name: (len(hosts[name]), name))
    # A device in exclusive mode can carry nothing but whole GPUs, so it is given away first.
    hosts[host].sort(key=lambda device: (device.mode != EXCLUSIVE, device.position, device.uuid))
    return hosts[host][:count]
