"""Which sharing mode each device is to have, by the site's rules. Pure.

A mode is changed only while nobody holds the device: `spawner.fleet.to_devices` lets it drain first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from spawner.ports import GpuReading


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """The mode of the devices that it names: by `uuid`, by `position`, by a pattern of the `name` ("NVIDIA A100*"), or
    by several of these, all of which must fit. What is "" or None does not matter."""

    mode: str
    uuid: str = ""
    name: str = ""
    position: int | None = None

    def fits(self, reading: GpuReading) -> bool:
        """Whether it speaks of this device."""
        return (
            (not self.uuid or self.uuid.lower() == reading.uuid.lower())
            and (not self.name or fnmatchcase(reading.name.lower(), self.name.lower()))
            and self.position in (None, reading.position)
        )


def modes_of(rules: Sequence[DeviceRule], readings: Iterable[GpuReading]) -> dict[str, str]:
    """Modes by UUID, of those devices that a rule names; the first rule that fits counts."""
    found: dict[str, str] = {}
    for reading in readings:
        rule = next((each for each in rules if reading.uuid and each.fits(reading)), None)
        if rule is not None:
            found[reading.uuid] = rule.mode
    return found
