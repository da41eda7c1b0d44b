"""What is free now, model by model, as a glance at the home page tells it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from quota.i18n import _, _n
from quota.leases import Device, DeviceState
from quota.units import WHOLE_GPU
from quota.web.words import memory_words, part_words

#: More devices than this are one bar.
CELLS = 8
WIDTH, GAP = 1000, 12


@dataclass(frozen=True, slots=True)
class Cell:
    """A stretch of the bar in thousandths of it: a device, or all of a model. `used` is the part that is held."""

    start: int
    width: int
    used: int
    off: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """The devices of one model. `free` is the sum of what is free; `note` what that means for a start."""

    words: str
    free: str
    note: str
    cells: tuple[Cell, ...]

    @property
    def bar_words(self) -> str:
        return f"{self.words}: {self.free}. {self.note}"


def rooms(devices: Sequence[Device]) -> tuple[Room, ...]:
    """In the order of the devices."""
    models: dict[tuple[str, int | None, bool], list[Device]] = {}
    for device in devices:
        models.setdefault((device.name, device.memory_mib, device.simulated), []).append(device)
    return tuple(_room(found) for found in models.values())


def _room(devices: Sequence[Device]) -> Room:
    first, count = devices[0], len(devices)
    free, most = sum(device.free for device in devices), max(device.free for device in devices)
    name = _(first.name)  # a simulated one has a name of ours
    words = f"{count} × {name}" if count > 1 else name
    if first.simulated and "simulated" not in first.name.lower():
        words = _("%(device)s (simulated)", device=words)
    return Room(
        words=f"{words}, {memory_words(first.memory_mib)}",
        free=_n("%(free)s of %(n)s GPU free", "%(free)s of %(n)s GPUs free", count, free=number_words(free)),
        note=_note(devices, most),
        cells=_cells(devices),
    )


def _note(devices: Sequence[Device], most: int) -> str:
    whole = sum(device.free == WHOLE_GPU for device in devices)
    if not any(device.state is DeviceState.OK for device in devices):
        return _("Not in service now")
    if most == 0:
        return _("All of it is held")
    if whole:
        return _n("%(n)s GPU is wholly free", "%(n)s GPUs are wholly free", whole)
    return _("The largest free part is %(part)s", part=part_words(most))


def number_words(milli: int) -> str:
    """A number of GPUs: "0", "7/8", "1 1/2", "0.33"."""
    whole, part = divmod(milli, WHOLE_GPU)
    fraction = Fraction(part, WHOLE_GPU)
    if fraction.denominator > 16:
        return f"{milli / WHOLE_GPU:.2f}"
    return " ".join([str(whole)] * (whole > 0 or part == 0) + [str(fraction)] * (part > 0))


def _cells(devices: Sequence[Device]) -> tuple[Cell, ...]:
    if len(devices) > CELLS:
        held = sum(WHOLE_GPU - device.free for device in devices)
        return (Cell(0, WIDTH, WIDTH * held // (WHOLE_GPU * len(devices))),)
    width = (WIDTH - GAP * (len(devices) - 1)) // len(devices)
    return tuple(
        Cell(
            index * (width + GAP),
            width,
            width * min(device.used, WHOLE_GPU) // WHOLE_GPU,
            device.free + device.used == 0,
        )
        for index, device in enumerate(devices)
    )
