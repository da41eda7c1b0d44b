"""Who uses more memory of a shared device than their share, and what is done about it. Pure.

Memory is what the driver tells of a lease's own programs. A sum that is unknown or cannot be is no step at all: it
neither accuses nor clears. A lease that is over its share (and the tolerance) for `SAMPLES` samples in a row is told;
one that is still over when its time is up is stopped. As many samples within it clear the account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from quota.leases import Lease
from quota.units import WHOLE_GPU
from spawner.ports import GpuReading

#: Samples in a row that make it so: a program may allocate for a moment, and give back.
SAMPLES: Final = 3


class Rule(StrEnum):
    """What is done about who stays over: nothing, a notice, or a notice and then a stop."""

    OFF = "off"
    NOTICE = "notice"
    STOP = "stop"


class Step(StrEnum):
    NONE = ""
    NOTICE = "notice"
    STOP = "stop"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class OverShare:
    """The policy: `tolerance` in percent of a share, `patience` from the notice to the stop."""

    rule: Rule = Rule.STOP
    tolerance: int = 10
    patience: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Excess:
    """Of one lease on the device where it is furthest over, in MiB. `limit` is its share without the tolerance."""

    device: str
    used: int
    limit: int
    over: bool


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of one lease: samples in a row over and within, and when it was told."""

    over: int = 0
    within: int = 0
    told_at: datetime | None = None
    stopped: bool = False


def excess(
    lease: Lease, readings: Mapping[str, GpuReading], pids: frozenset[int] | None, tolerance: int
) -> Excess | None:
    """How a lease of parts of devices stands; None where nobody can tell, or the device is its own."""
    if not lease.share or lease.share >= WHOLE_GPU or pids is None:
        return None
    found = [_on_device(lease, readings.get(slot.device or ""), pids, tolerance) for slot in lease.slots]
    known = [each for each in found if each is not None]
    over = [each for each in known if each.over]
    if not over and len(known) < len(found):
        return None
    return max(over or known, key=lambda each: each.used - each.limit, default=None)


def _on_device(lease: Lease, reading: GpuReading | None, pids: frozenset[int], tolerance: int) -> Excess | None:
    if reading is None or reading.error or reading.part is not None:
        return None  # the hardware holds a part by MIG to its memory
    if reading.processes is None or not reading.memory_mib:
        return None
    mine = [each.memory_mib for each in reading.processes if each.pid in pids]
    told = [memory for memory in mine if memory is not None]
    used, limit = sum(told), reading.memory_mib * lease.share // WHOLE_GPU
    if any(memory < 0 for memory in told) or used > reading.memory_mib:
        return None  # that cannot be
    over = used * 100 > limit * (100 + tolerance)
    if len(told) < len(mine) and not over:
        return None  # there is more of it than is told
    return Excess(reading.uuid, used, limit, over)


def step(account: Account, seen: Excess | None, now: datetime, policy: OverShare) -> tuple[Account, Step]:
    """The account after another sample, and what is to be done now."""
    if policy.rule is Rule.OFF or seen is None:
        return account, Step.NONE
    if not seen.over:
        calm = replace(account, over=0, within=account.within + 1)
        if account.told_at is None or calm.within < SAMPLES:
            return calm, Step.NONE
        return Account(), Step.WITHIN
    hot = replace(account, over=account.over + 1, within=0)
    if hot.over < SAMPLES:
        return hot, Step.NONE
    if hot.told_at is None:
        return replace(hot, told_at=now), Step.NOTICE
    if policy.rule is Rule.STOP and not hot.stopped and now - hot.told_at >= policy.patience:
        return replace(hot, stopped=True), Step.STOP
    return hot, Step.NONE
