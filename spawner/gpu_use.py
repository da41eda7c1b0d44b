"""[P] What a lease does with its devices: the payload of source `gpu`.

{"util", "memory_used_mib", "memory_util", "temperature_c", "simulated", "active_at", "reason"}, of several devices the
hottest and busiest, and the sum of the memory. What nobody can tell is null, never 0, and `reason` says why `util` is:

* `simulated`: a simulated device does nothing of its own
* `shared`: the device has several holders, and the driver does not tell its programs apart (or one that computes is of
  no lease, as a server of MPS would be: it may compute for any of them)
* `unknown`: the device could not be read, or told what is impossible

On a shared device the driver's list of programs says whose they are: each is of the lease in whose tree its pid is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from quota.leases import Lease
from quota.units import WHOLE_GPU
from spawner.ports import GpuProcess, GpuReading

SIMULATED, SHARED, UNKNOWN = "simulated", "shared", "unknown"

#: Pids of each lease's processes; a lease whose pids nobody knows is not in it.
Pids = Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Use:
    """Of one device by one lease: percent and MiB; None is unknown, and `why` is the reason where `util` is."""

    util: int | None
    memory_mib: int | None
    memory_util: int | None
    why: str = ""


def use_of(reading: GpuReading | None, lease: Lease, pids: Pids) -> Use:
    """What the lease does with one of its devices. Pure."""
    if reading is None or reading.error:
        return Use(None, None, None, UNKNOWN)
    if lease.share >= WHOLE_GPU:
        why = UNKNOWN if reading.utilisation is None else ""
        return Use(reading.utilisation, reading.memory_used_mib, reading.memory_utilisation, why)
    own = pids.get(lease.id)
    if own is None or reading.processes is None:
        return Use(None, None, None, SHARED)
    mine = [each for each in reading.processes if each.pid in own]
    known = {pid for each in pids.values() for pid in each}
    foreign = [each for each in reading.processes if each.pid not in known]
    memory = _sum([each.memory_mib for each in mine])
    util = _util(mine, foreign, reading)
    return Use(util, memory, _percent([each.memory_util for each in mine]), SHARED if util is None else "")


def _util(mine: list[GpuProcess], foreign: list[GpuProcess], reading: GpuReading) -> int | None:
    """Where the driver samples no programs, a device at rest rests for all, and one that works tells only of holders
    without a program on it."""
    if reading.utilisation == 0 and all(each.util in (None, 0) for each in reading.processes or ()):
        return 0
    if any(each.util != 0 for each in foreign if not each.graphics):
        found = _percent([each.util for each in mine])
        return found or None  # what is seen is true; what is not seen may be done by another for it
    return _percent([each.util for each in mine])


def _percent(each: list[int | None]) -> int | None:
    total = _sum(each)
    return None if total is None else min(100, total)


def _sum(each: list[int | None]) -> int | None:
    """None where one is unknown; 0 of none at all."""
    known = [value for value in each if value is not None]
    return sum(known) if len(known) == len(each) else None


def gpu_signal(
    lease: Lease,
    readings: Mapping[str, GpuReading] | None,
    before: Mapping[str, Any] | None,
    pids: Pids,
    now: datetime,
) -> dict[str, Any]:
    """The payload for a lease with devices. Pure.

    `active_at` is when any of its devices was last busy. After a time without readings it is the present: use in
    between cannot be ruled out.
    """
    found = [(readings or {}).get(slot.device or "") for slot in lease.slots]
    uses = [] if lease.simulated else [use_of(reading, lease, pids) for reading in found]
    utils = [use.util for use in uses if use.util is not None]
    known = bool(uses) and len(utils) == len(uses)
    util = max(utils) if known else None
    active_at = before.get("active_at") if before else now.isoformat()
    if (util is not None and (util > 0 or before is None or before.get("util") is None)) or any(utils):
        active_at = now.isoformat()
    whys = [use.why for use in uses if use.why]
    traffic = [use.memory_util for use in uses if use.memory_util is not None]
    heat = [each.temperature_c for each in found if each is not None and each.temperature_c is not None]
    return {
        "util": util,
        "memory_used_mib": _sum([use.memory_mib for use in uses]) if uses else None,
        "memory_util": max(traffic) if uses and len(traffic) == len(uses) else None,
        "temperature_c": max(heat, default=None),
        "simulated": lease.simulated,
        "active_at": active_at,
        "reason": SIMULATED if lease.simulated else UNKNOWN if UNKNOWN in whys else whys[0] if whys else "",
    }
