"""XIDs: numbers under which NVIDIA's driver reports errors, and whom each is laid on.

Numbers and meanings are those of NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). An
application's error leaves the card as it was: its programs have to be started again (RESTART_APP there; NVIDIA's
k8s-device-plugin passes over most of the same numbers, internal/rm/health.go). All others are laid on the hardware,
those that are in no table as well: giving out a broken card costs more than resting a good one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

#: A card that reported a hardware error takes no new lease until so long has passed without another.
CLEAN_AFTER: Final = timedelta(minutes=30)

APPLICATION: Final[Mapping[int, str]] = MappingProxyType(
    {
        13: "a program's work raised an exception",
        31: "a program used memory that is not its own",
        43: "a program's work was ended",
        45: "work was cleared away after an earlier error",
        68: "a program's video work raised an exception",
        69: "a program's graphics work raised an exception",
        109: "a program's work did not yield in time",
    }
)

HARDWARE: Final[Mapping[int, str]] = MappingProxyType(
    {
        46: "the GPU stopped",
        48: "an ECC error that could not be corrected",
        54: "auxiliary power is not connected",
        56: "an error of the display engine",
        62: "a controller inside the GPU halted",
        63: "a part of its memory was put down to be replaced",
        64: "a part of its memory could not be replaced",
        74: "an error of an NVLink",
        79: "the GPU fell off the bus",
        92: "many ECC errors that could be corrected",
        94: "an ECC error that hit one program",
        95: "an ECC error that may have hit anything on the GPU",
        110: "a security fault",
        119: "the GPU's system processor did not answer",
        120: "an error of the GPU's system processor",
        121: "an error of the link to the processor",
        122: "the GPU's firmware store could not be used",
        123: "the GPU's firmware store could not be used",
        136: "an NVLink could not be trained",
        140: "an ECC error that was not recovered",
        143: "the GPU could not be initialised",
        149: "an error of an NVLink",
        154: "the GPU asks to be reset or replaced",
    }
)


@dataclass(frozen=True, slots=True)
class Xid:
    """One number in words. `application` tells that the card itself is well."""

    number: int
    words: str
    application: bool

    def __str__(self) -> str:
        return f"XID {self.number} ({self.words})"


def of(number: int) -> Xid:
    """The meaning of a number; one that is in no table is the hardware's."""
    if number in APPLICATION:
        return Xid(number, APPLICATION[number], application=True)
    return Xid(number, HARDWARE.get(number, "not in Berth's list: see NVIDIA's catalogue"), application=False)
