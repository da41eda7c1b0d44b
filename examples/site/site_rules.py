"""An example of a site's own rules: see docs/extend. Each function here is an extension point's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from quota.leases import Device, LeaseRequest, Slot
from spawner.fleet import room, whole_free
from spawner.profiles import Profile
from spawner.rules import Asker, OwnPrice

ZONE = ZoneInfo("Europe/Berlin")
NIGHT = (*range(22, 24), *range(6))
STUDENTS = "students"
#: Members of this group of the Hub know how to use a whole GPU.
COURSE = "gpu-course"


def profiles(profiles: Sequence[Profile], asker: Asker) -> Sequence[Profile]:
    """Newcomers are offered up to a quarter of a GPU, and told what opens the rest."""
    if asker.admin or COURSE in asker.groups:
        return profiles
    small = [each for each in profiles if each.weight <= 250]
    return [replace(each, description=f"{each.description} Larger ones after the GPU course.") for each in small]


def price(profile: Profile, asker: Asker, when: datetime) -> OwnPrice | None:
    """Students pay a tenth of a credit for a GPU-hour, others half a credit by night; else it is the site's list."""
    gpus = Fraction(profile.weight, 1000)
    if not gpus:
        return None
    if STUDENTS in asker.groups:
        return OwnPrice(gpus / 10, "student price")
    if when.astimezone(ZONE).hour in NIGHT:
        return OwnPrice(gpus / 2, "night tariff")
    return None


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
