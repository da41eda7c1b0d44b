"""What is on a device that no lease of it put there: programs of strangers, and memory that nobody holds. Pure.

A program that is seen for `LOOKS` readings in a row and belongs to no lease, or memory that stays used for as long with
neither lease nor program, keeps its device from new leases until it is gone. One reading alone says nothing: the
programs of a server that has just ended go a moment after it. What draws pictures (a desktop) is no stranger, and
neither is a daemon of NVIDIA's own (MPS), which computes for others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spawner.ports import GpuReading

#: Readings in a row after which it is no passing thing. More than two samples of a lease's pids lie between them: a
#: kernel that has just begun is known by then.
LOOKS: Final = 4
#: MiB in use that a driver may need for itself on a device at rest; and the same as a part of the device's memory.
AT_REST_MIB: Final = 1024
AT_REST_PART: Final = 0.02
#: Names of programs that serve others on the device.
DAEMONS: Final = ("nvidia-cuda-mps", "nvidia-persiste")

#: The name of a program and its user, "" where it cannot be told.
Whose = Callable[[int], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Owners:
    """Who may have programs where: the leases that hold each device (by UUID), and each one's pids. A lease whose pids
    nobody knows is not in `pids`."""

    holders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pids: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Of one device: how many readings in a row each program without a lease was there, and memory without anybody."""

    programs: Mapping[int, int] = field(default_factory=dict)
    ghost: int = 0

    @property
    def strangers(self) -> list[int]:
        """Pids that have been there for too long."""
        return sorted(pid for pid, looks in self.programs.items() if looks >= LOOKS)

    @property
    def haunted(self) -> bool:
        return self.ghost >= LOOKS


def outsiders(reading: GpuReading, owners: Owners) -> frozenset[int] | None:
    """Programs on the device that are of none of its leases; None where nobody can tell, as one of those does not tell
    its pids."""
    holders = owners.holders.get(reading.uuid, frozenset())
    if reading.error or reading.processes is None or not holders <= owners.pids.keys():
        return None
    own = frozenset(pid for lease in holders for pid in owners.pids[lease])
    return frozenset(each.pid for each in reading.processes if not each.graphics and each.pid not in own)


def has_ghost(reading: GpuReading, owners: Owners) -> bool:
    """Whether memory is in use on a device without lease and program. What cannot be is unknown, and no ghost."""
    used, whole = reading.memory_used_mib, reading.memory_mib
    if reading.error or owners.holders.get(reading.uuid) or reading.processes != () or used is None or not whole:
        return False
    if reading.mig or reading.part is not None:
        return False  # a card's memory is that of its parts
    return max(AT_REST_MIB, AT_REST_PART * whole) < used <= whole


def look(
    before: Suspicion | None, reading: GpuReading, owners: Owners, whose: Whose, was_out: bool = False
) -> Suspicion:
    """The suspicion after another reading. `was_out`: the device was out of the pool when an agent began to look, so
    what is on it need not prove again that it stays."""
    if reading.error:
        return before or Suspicion()
    first = LOOKS if before is None and was_out else 1
    seen = before or Suspicion()
    there = outsiders(reading, owners)
    if there is None:
        left = {each.pid for each in reading.processes or ()}
        programs = {pid: looks for pid, looks in seen.programs.items() if pid in left}
    else:
        found = [pid for pid in there if not whose(pid)[0].startswith(DAEMONS)]
        programs = {pid: seen.programs[pid] + 1 if pid in seen.programs else first for pid in found}
    ghost = (seen.ghost + 1 if seen.ghost else first) if has_ghost(reading, owners) else 0
    return Suspicion(programs, ghost)


def stranger_words(suspicion: Suspicion, whose: Whose) -> str:
    """Why the device takes no new lease; "" where no stranger is on it."""
    pids = suspicion.strangers
    if not pids:
        return ""
    shown = "; ".join(_program(pid, *whose(pid)) for pid in pids[:3]) + ("; …" if len(pids) > 3 else "")
    what = "a program that is" if len(pids) == 1 else f"{len(pids)} programs that are"
    return f"used by {what} of no server on it ({shown}): it takes no new lease until that has ended"


def ghost_words(suspicion: Suspicion, reading: GpuReading) -> str:
    """Why the device takes no new lease; "" where its memory is accounted for."""
    if not suspicion.haunted:
        return ""
    return (
        f"{reading.memory_used_mib} MiB of its memory are in use by no program that the driver knows of: it takes no "
        "new lease until they are free; if they stay, look for left processes (fuser -v /dev/nvidia*), then reset the "
        "card (nvidia-smi -r)"
    )


def _program(pid: int, name: str, user: str) -> str:
    known = " of ".join(word for word in (name, user) if word)
    return f"pid {pid}, {known}" if known else f"pid {pid}"
