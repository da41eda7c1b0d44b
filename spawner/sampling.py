"""What the agent sees of servers besides their being there: load, and signals for the idle rules.

Signals it writes (RFC 3339 times; what nobody can tell is null, never 0):

* `host` {"cpu_percent", "cpu_active_at", "window_s"}: of a server's kernels, terminals and all they started
* `gpu` {"util", "memory_used_mib", "temperature_c", "simulated", "active_at", "reason"}: of a lease's devices; of
  several the hottest. What a *shared* or *simulated* device does cannot be told per lease: then util is null and the
  reason is that word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from quota.leases import Lease
from quota.rows import Rows, Sample
from quota.units import WHOLE_GPU
from spawner.devices import is_due
from spawner.ports import GpuReading, Load, Runtime

log = logging.getLogger("berth.agent")

#: More than this share of one core over a window is use.
ACTIVE_CORES = 0.05


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU use of one server: what was read last, and when it was last active."""

    at: datetime
    cpu_seconds: float | None
    active_at: datetime | None
    percent: float | None = None
    window_s: float | None = None


def next_usage(before: Usage | None, load: Load, now: datetime, window: timedelta) -> Usage:
    """Usage after another reading. Pure.

    Where readings are missing or a counter fell, activity in between cannot be ruled out, so it counts as active. After
    a longer gap, as much CPU time as would fill one active window counts: it may all have been used in one.
    """
    if before is None or load.cpu_seconds is None:
        return Usage(now, load.cpu_seconds, before.active_at if before else now)
    span = (now - before.at).total_seconds()
    used = None if before.cpu_seconds is None else load.cpu_seconds - before.cpu_seconds
    if used is None or used < 0 or span <= 0:
        return Usage(now, load.cpu_seconds, now)
    active = used > ACTIVE_CORES * min(span, window.total_seconds())
    return Usage(now, load.cpu_seconds, now if active else before.active_at, 100 * used / span, span)


def gpu_signal(
    lease: Lease, readings: Mapping[str, GpuReading] | None, before: Mapping[str, Any] | None, now: datetime
) -> dict[str, Any]:
    """The payload of source `gpu` for a lease with devices. Pure.

    `active_at` is when any of its devices was last busy. After a time without readings it is the present: use in
    between cannot be ruled out.
    """
    util = memory = heat = None
    active_at = before.get("active_at") if before else now.isoformat()
    reason = "simulated" if lease.simulated else "shared" if lease.share < WHOLE_GPU else ""
    if not reason:
        found = [(readings or {}).get(slot.device or "") for slot in lease.slots]
        utils = [reading.utilisation for reading in found if reading is not None]
        used = [reading.memory_used_mib for reading in found if reading is not None]
        if len(utils) == len(found) and None not in utils:
            util = max(known for known in utils if known is not None)
            if util > 0 or before is None or before.get("util") is None:
                active_at = now.isoformat()
        else:
            reason = "unknown"
        heat = max((each.temperature_c for each in found if each and each.temperature_c is not None), default=None)
        if len(used) == len(found) and None not in used:
            memory = sum(known for known in used if known is not None)
    return {
        "util": util,
        "memory_used_mib": memory,
        "temperature_c": heat,
        "simulated": lease.simulated,
        "active_at": active_at,
        "reason": reason,
    }


class Sampler:
    """Every `every`: each running lease's load as its sample row, and its `host` and `gpu` signals."""

    def __init__(self, rows: Rows, runtime: Runtime, every: timedelta) -> None:
        self._rows = rows
        self._runtime = runtime
        self._every = every
        self._usage: dict[str, Usage] = {}
        self._gpu: dict[str, Mapping[str, Any]] = {}

    def run(self, running: Iterable[Lease], readings: Mapping[str, GpuReading] | None, now: datetime) -> None:
        """Sample those of the leases that are due. One lease's trouble is logged."""
        leases = list(running)
        ids = {lease.id for lease in leases}
        self._usage = {lease_id: usage for lease_id, usage in self._usage.items() if lease_id in ids}
        self._gpu = {lease_id: gpu for lease_id, gpu in self._gpu.items() if lease_id in ids}
        for lease in leases:
            before = self._usage.get(lease.id)
            if is_due(before.at if before else None, self._every, now):
                try:
                    self._sample(lease, readings, now)
                except Exception:
                    log.exception("Lease %s could not be sampled", lease.id)

    def _sample(self, lease: Lease, readings: Mapping[str, GpuReading] | None, now: datetime) -> None:
        if lease.id not in self._usage:
            self._remember(lease.id)
        load = self._runtime.load(lease.id)
        usage = self._usage[lease.id] = next_usage(self._usage.get(lease.id), load, now, self._every)
        gpu = None
        if lease.count:
            gpu = self._gpu[lease.id] = gpu_signal(lease, readings, self._gpu.get(lease.id), now)
        memory = None if load.memory_bytes is None else load.memory_bytes >> 20
        util, used = (gpu["util"], gpu["memory_used_mib"]) if gpu else (None, None)
        self._rows.put_sample(lease.id, Sample(now, load.cpu_seconds, memory, util, used))
        host = {
            "cpu_percent": usage.percent,
            "cpu_active_at": usage.active_at.isoformat() if usage.active_at else None,
            "window_s": usage.window_s,
        }
        self._rows.put_signal(lease.id, "host", host, now)
        if gpu is not None:
            self._rows.put_signal(lease.id, "gpu", dict(gpu), now)

    def _remember(self, lease_id: str) -> None:
        """What an agent before this one has written, so that a restart neither hides use nor makes any up."""
        signals = self._rows.signals(lease_id)
        sample = self._rows.samples().get(lease_id)
        if "host" in signals and sample is not None:
            active_at = signals["host"][1].get("cpu_active_at")
            since = datetime.fromisoformat(active_at) if isinstance(active_at, str) else None
            self._usage[lease_id] = Usage(sample.at, sample.cpu_seconds, since)
        if "gpu" in signals:
            self._gpu[lease_id] = {**signals["gpu"][1], "util": None}  # use in between cannot be ruled out
