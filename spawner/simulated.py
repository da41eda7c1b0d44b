"""Simulated devices, for a machine without a GPU. They carry leases and bills like real ones, compute nothing, and say
"simulated" wherever they are shown."""

from __future__ import annotations

import uuid

from quota.i18n import N_
from spawner.ports import GpuReading

#: Memory of a simulated device, MiB.
MEMORY_MIB = 24576
#: What a UUID of a simulated device begins with; no driver makes such a name.
PREFIX = "SIM-"
MAX_DEVICES = 1024
#: Of these UUIDs alone.
_NAMESPACE = uuid.UUID("6f0f7d5c-5d0b-4b8e-9a55-0e5a1d5b6a7e")


class SimulatedInventory:
    """`count` simulated devices whose UUIDs depend on `seed` alone (the data folder's own), so they outlive restarts.

    Raises `ValueError` for a count outside 0 to 1024.
    """

    def __init__(self, count: int = 2, seed: str = "", *, memory_mib: int = MEMORY_MIB) -> None:
        if not 0 <= count <= MAX_DEVICES:
            raise ValueError(f"{count} is not a number of simulated GPUs (0 to {MAX_DEVICES})")
        if memory_mib <= 0:
            raise ValueError(f"{memory_mib} MiB is not an amount of memory")
        self._readings = tuple(_reading(seed, position, memory_mib) for position in range(count))

    @property
    def simulated(self) -> bool:
        return True

    def read(self) -> tuple[GpuReading, ...]:
        """All devices. What they use is unknown: nothing measures a device that is not there."""
        return self._readings


def _reading(seed: str, position: int, memory_mib: int) -> GpuReading:
    return GpuReading(
        uuid=f"{PREFIX}{uuid.uuid5(_NAMESPACE, f'{seed}/{position}')}",
        position=position,
        name=N_("simulated GPU"),
        memory_mib=memory_mib,
        memory_used_mib=None,
        utilisation=None,
        simulated=True,
    )
