"""The fleet: what an inventory reads becomes rows of devices, and what may be taken from them.

Availability and placement use the same two functions (`room`, `whole_free`): what a page promises is what a start gets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from quota.i18n import _
from quota.leases import Device, DeviceState
from quota.said import share_said
from quota.units import WHOLE_GPU, show_share
from spawner.health import part_share, remark, trouble
from spawner.ports import GpuReading, Unreachable
from spawner.profiles import Profile, show_gb

#: Sharing modes. A card in MIG is given out in parts alone, each to one lease at a time.
EXCLUSIVE: Final = "exclusive"
TIME_SLICE: Final = "time-slice"
MPS: Final = "mps"
MIG: Final = "mig"

#: Modes in which several leases may share one device.
SHARED_MODES: Final = frozenset({TIME_SLICE, MPS})
#: Modes in which less than a whole GPU may be had.
PARTED_MODES: Final = SHARED_MODES | {MIG}
#: Modes in which a device may be given whole.
WHOLE_MODES: Final = frozenset({EXCLUSIVE, TIME_SLICE, MPS})

#: States that only a person (or a rule of theirs) ends; a good reading does not.
_KEPT = frozenset({DeviceState.QUARANTINED, DeviceState.DRAINING})


def room(device: Device, share: int) -> int:
    """Milli-GPU that a lease of `share` may find on this device: 0 unless it fits now, else all that is free.

    Whole shares need a device that nobody uses; parts need a device in a shared mode, or a part that MIG made, which
    is taken as a whole.
    """
    if share == WHOLE_GPU:
        return WHOLE_GPU if whole_free(device) else 0
    if device.mode not in PARTED_MODES or device.free < share:
        return 0
    return device.free


def whole_free(device: Device) -> bool:
    """Whether the device could be given whole now."""
    return device.mode in WHOLE_MODES and device.free == WHOLE_GPU


def could_carry(devices: Iterable[Device], share: int, count: int) -> bool:
    """Whether an idle, healthy site of these devices could carry the request at all."""
    if share < WHOLE_GPU:
        return any(device.mode in SHARED_MODES or device.capacity >= share for device in devices)
    hosts = Counter(device.host for device in devices if device.mode in WHOLE_MODES)
    return any(found >= count for found in hosts.values())


def free_now(profile: Profile, devices: Sequence[Device]) -> int | None:
    """How many more servers of this profile the devices would carry now; None for a CPU profile, which needs none."""
    if not profile.share:
        return None
    if profile.share < WHOLE_GPU:
        return sum(_servers(device, profile.share) for device in devices)
    hosts = Counter(device.host for device in devices if whole_free(device))
    return sum(found // profile.count for found in hosts.values())


def _servers(device: Device, share: int) -> int:
    """How many more servers of a share would find room on this device: on a part that MIG made one, whatever it has."""
    found = room(device, share)
    return min(1, found) if device.mode == MIG else found // share


def offered(profile: Profile, devices: Sequence[Device]) -> bool:
    """Whether the site has the devices this profile asks for at all; a page greys it out where not."""
    return not profile.share or could_carry(devices, profile.share, profile.count)


def to_devices(
    host: str,
    readings: Sequence[GpuReading] | Unreachable,
    previous: Sequence[Device],
    now: datetime,
    *,
    mode: str = TIME_SLICE,
    modes: Mapping[str, str] | None = None,
    faults: Mapping[str, str] | None = None,
    drained: Collection[str] = (),
) -> tuple[Device, ...]:
    """The rows of one host after a read of its inventory at `now` (aware, UTC), in the order of position and UUID.

    `previous` are the rows so far (those of other hosts are left out). `mode` is the sharing mode of devices that
    `modes` (by UUID) does not name. A device that fails or is missing stays a row, with its state and the reason,
    because leases may hold it; it is never read as free. Draining and quarantine outlive a good reading. `used` is
    carried over. `faults` (by UUID) says why a device is under suspicion that reads well. A card that MIG divides and
    its parts are rows of mode "mig", whatever the settings say.

    A device that is to have another mode keeps its old one and takes no new lease until nobody holds it. `drained`
    are the UUIDs of those that took none already when `previous` was read: only they may change, since a lease could
    come to any other between that reading and the writing.
    """
    before = {device.uuid: device for device in previous if device.host == host}
    if isinstance(readings, Unreachable):
        return _ordered(_unheard(device, readings.why) for device in before.values())
    named = {reading.uuid: reading for reading in readings if reading.uuid}
    wanted = {uuid: _mode_of(reading, (modes or {}).get(uuid, mode)) for uuid, reading in named.items()}
    rows = [
        _turning(before.get(uuid), _row(host, reading, before.get(uuid), now, wanted[uuid], faults or {}), drained)
        for uuid, reading in named.items()
    ]
    for uuid, device in before.items():
        if uuid in named or _withdrawn(device, readings):
            continue
        failed = _failed_instead(device, named, readings)
        if failed is not None:
            rows.append(_troubled(device, _trouble(failed), failed.error))
        else:
            rows.append(_troubled(device, DeviceState.LOST, _gone_words(device)))
    return _ordered(rows)


def _mode_of(reading: GpuReading, mode: str) -> str:
    return MIG if reading.mig or reading.part is not None else mode


def _turning(before: Device | None, row: Device, drained: Collection[str]) -> Device:
    """The row, in its old mode and closed to new leases where its mode may not change yet. What MIG did is done."""
    if before is None or before.mode == row.mode or MIG in (before.mode, row.mode):
        return row
    if row.uuid in drained and not before.used:
        return row
    kept = replace(row, mode=before.mode)
    return kept if row.state is not DeviceState.OK else replace(kept, state=DeviceState.DRAINING, why=_becomes(row))


_MODE_NAMES: Final = {EXCLUSIVE: "a device for whole shares only", TIME_SLICE: "time-sliced", MPS: "MPS"}


def _becomes(row: Device) -> str:
    return f"it becomes {_MODE_NAMES.get(row.mode, row.mode)} when its last server has ended"


def _failed_instead(
    device: Device, named: Mapping[str, GpuReading], readings: Sequence[GpuReading]
) -> GpuReading | None:
    """The failed reading that stands for a device which told nothing: its card's, where it is a part of one, or that
    of a card at its position which could not tell who it is."""
    card = named.get(_card_of(device))
    if card is not None:
        return card if card.error else None
    unnamed = (reading for reading in readings if not reading.uuid and reading.position == device.position)
    return next(unnamed, None)


def _card_of(device: Device) -> str:
    """The UUID of the card that a device is a part of; its own where it is none."""
    return device.uuid.partition(":")[0]


def _gone_words(device: Device) -> str:
    if device.simulated:
        return "it is no longer simulated (gpus in berth.toml)"
    if _card_of(device) != device.uuid:
        return "MIG was set up anew, and this part is gone"
    return "the driver no longer lists this device"


def _withdrawn(device: Device, readings: Sequence[GpuReading]) -> bool:
    """A simulated device that nobody uses simply goes when the site has real ones, or fewer simulated ones; and so does
    a part that MIG made, when its card answers and has it no more."""
    if device.used or any(reading.error for reading in readings if device.simulated):
        return False
    card = _card_of(device)
    gone = card != device.uuid and any(reading.uuid == card and not reading.error for reading in readings)
    return device.simulated or gone


def _ordered(devices: Iterable[Device]) -> tuple[Device, ...]:
    return tuple(sorted(devices, key=lambda device: (device.position, device.uuid)))


def _troubled(device: Device, state: DeviceState, why: str) -> Device:
    """What is known stays; a state that a person set stands, and keeps the device out of use anyway."""
    if device.state in _KEPT:
        return device
    return replace(device, state=state, why=why)


def _unheard(device: Device, why: str) -> Device:
    """Nothing was learned of the device; what was lost before is still lost."""
    return device if device.state is DeviceState.LOST else _troubled(device, DeviceState.SUSPECT, why)


def _row(
    host: str, reading: GpuReading, before: Device | None, now: datetime, mode: str, faults: Mapping[str, str]
) -> Device:
    row = before or Device(
        host=host,
        uuid=reading.uuid,
        position=reading.position,
        name=reading.name,
        memory_mib=reading.memory_mib,
        mode=mode,
        simulated=reading.simulated,
        state=DeviceState.OK,
    )
    row = replace(
        row,
        position=reading.position,
        name=reading.name or row.name,
        memory_mib=row.memory_mib if reading.memory_mib is None else reading.memory_mib,
        mode=mode,
        simulated=reading.simulated,
        capacity=0 if reading.part is None else part_share(reading.part),
        handle="" if reading.part is None else reading.part.mig_uuid,
    )
    if reading.error:
        return _troubled(row, _trouble(reading), reading.error)
    if row.state in _KEPT:
        return replace(row, seen_at=now)
    against = trouble(reading) or faults.get(reading.uuid, "")
    if against:
        return replace(row, state=DeviceState.SUSPECT, why=against, seen_at=now)
    return replace(row, state=DeviceState.OK, why=remark(reading, row.used), seen_at=now)


def _trouble(reading: GpuReading) -> DeviceState:
    """A card that left the bus is lost; anything else may be passing."""
    return DeviceState.LOST if reading.lost else DeviceState.SUSPECT


def describe(device: Device) -> str:
    """A device for people: "NVIDIA A10, 24 GB", "simulated GPU 0, 24 GB", "Tesla T4, memory unknown"."""
    memory = show_gb(device.memory_mib) if device.memory_mib is not None else _("memory unknown")
    name = _(device.name) or "GPU"
    if device.simulated and "simulated" not in device.name.lower():
        name = _("simulated %(device)s", device=name)
    return f"{name}, {memory}"


def describe_fleet(devices: Sequence[Device]) -> str:
    """All devices in one line: "2 x simulated GPU, 24 GB", "1 x NVIDIA A10, 24 GB (1 out of service)", "no GPU"."""
    if not devices:
        return "no GPU"
    kinds = Counter(describe(device) for device in devices)
    broken = Counter(describe(device) for device in devices if device.state is not DeviceState.OK)
    parts = []
    for words, number in kinds.items():
        trouble = f" ({broken[words]} out of service)" if broken[words] else ""
        parts.append(f"{number} x {words}{trouble}")
    return "; ".join(parts)


def held_words(share: int, count: int, simulated: bool) -> str:
    """What a lease has, for people: "1/8 GPU", "2 simulated GPUs", "CPU only"."""
    if not simulated or not share:
        return share_said(share, count)
    number = show_share(share, count).partition(" ")[0]
    return _("%(number)s simulated GPUs", number=number) if count > 1 else _("%(number)s simulated GPU", number=number)


def known(value: int | None, unit: str = "") -> str:
    """A reading for people; what nobody knows is "unknown", never 0."""
    if value is None:
        return "unknown"
    return f"{value} {unit}" if unit else str(value)
