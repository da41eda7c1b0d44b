"""An example of a site's own rules: see docs/extend/placement.md."""

from __future__ import annotations

from collections.abc import Sequence

from quota.leases import Device, LeaseRequest, Slot
from spawner.fleet import room, whole_free


def place(devices: Sequence[Device], request: LeaseRequest) -> tuple[Slot, ...]:
    """Spread: a part of a GPU goes to the emptiest device, so that few users share one."""
    if request.share == 1000:
        fitting = [device for device in devices if whole_free(device)]
    else:
        fitting = [device for device in devices if room(device, request.share)]
    fitting.sort(key=lambda device: (device.used, device.host, device.position, device.uuid))
    for first in fitting:
        chosen = [device for device in fitting if device.host == first.host][: request.count]
        if len(chosen) == request.count:
            return tuple(Slot(device.host, device.uuid, request.share) for device in chosen)
    return ()
