"""What the agent sees of servers besides their being there: load, and signals for the idle rules.

Signals it writes (RFC 3339 times; what nobody can tell is null, never 0):

* `host` {"cpu_percent", "cpu_active_at", "io_bytes_per_s", "io_active_at", "io_bytes", "processes", "window_s"}: of a
  server's kernels, terminals and all they started (`spawner.local_load`)
* `gpu`: what `spawner.gpu_use` says of a lease's devices
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from quota.leases import Lease
from quota.rows import Rows, Sample
from spawner.devices import is_due
from spawner.gpu_use import gpu_signal
from spawner.ports import GpuReading, Load, Runtime

log = logging.getLogger("berth.agent")

#: More than this share of one core over a window is use.
ACTIVE_CORES = 0.05
#: More than so many bytes a second, read and written, over a window are use.
ACTIVE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of something that is counted and never falls, CPU seconds or bytes: what was read last, and when it was last
    active. `rate` is a second's, over `window_s`."""

    at: datetime
    count: float | None
    active_at: datetime | None
    rate: float | None = None
    window_s: float | None = None


def next_usage(
    before: Usage | None, count: float | None, now: datetime, window: timedelta, threshold: float = ACTIVE_CORES
) -> Usage:
    """Usage after another reading; `threshold` is the rate above which it is use. Pure.

    Where readings are missing or a counter fell, activity in between cannot be ruled out, so it counts as active. After
    a longer gap, as much as would fill one active window counts: it may all have been used in one.
    """
    if before is None or count is None:
        return Usage(now, count, before.active_at if before else now)
    span = (now - before.at).total_seconds()
    used = None if before.count is None else count - before.count
    if used is None or used < 0 or span <= 0:
        return Usage(now, count, now)
    active = used > threshold * min(span, window.total_seconds())
    return Usage(now, count, now if active else before.active_at, used / span, span)


def host_signal(cpu: Usage, io: Usage, load: Load) -> dict[str, Any]:
    """The payload of source `host`. Pure."""
    return {
        "cpu_percent": None if cpu.rate is None else 100 * cpu.rate,
        "cpu_active_at": cpu.active_at.isoformat() if cpu.active_at else None,
        "io_bytes_per_s": io.rate,
        "io_active_at": io.active_at.isoformat() if io.active_at else None,
        "io_bytes": None if io.count is None else int(io.count),
        "processes": load.processes,
        "window_s": cpu.window_s,
    }


class Sampler:
    """Every `every`: each running lease's load as its sample row, and its `host` and `gpu` signals."""

    def __init__(self, rows: Rows, runtime: Runtime, every: timedelta) -> None:
        self._rows = rows
        self._runtime = runtime
        self._every = every
        self._cpu: dict[str, Usage] = {}
        self._io: dict[str, Usage] = {}
        self._gpu: dict[str, Mapping[str, Any]] = {}
        self._pids: dict[str, frozenset[int]] = {}

    @property
    def pids(self) -> Mapping[str, frozenset[int]]:
        """Pids of each running lease, as they were read last; one whose pids nobody knows is not in it."""
        return self._pids

    def run(self, running: Iterable[Lease], readings: Mapping[str, GpuReading] | None, now: datetime) -> None:
        """Sample those of the leases that are due. One lease's trouble is logged."""
        leases = list(running)
        self._forget({lease.id for lease in leases})
        due = [lease for lease in leases if is_due(self._sampled(lease.id), self._every, now)]
        loads = {lease.id: load for lease in due if (load := self._load(lease, now)) is not None}
        for lease in due:
            if lease.id in loads:
                try:
                    self._sample(lease, loads[lease.id], readings, now)
                except Exception:
                    log.exception("Lease %s could not be sampled", lease.id)

    def _forget(self, there: set[str]) -> None:
        kept: tuple[dict[str, Any], ...] = (self._cpu, self._io, self._gpu, self._pids)
        for known in kept:
            for lease_id in known.keys() - there:
                del known[lease_id]

    def _sampled(self, lease_id: str) -> datetime | None:
        before = self._cpu.get(lease_id)
        return before.at if before else None

    def _load(self, lease: Lease, now: datetime) -> Load | None:
        """All loads are read before any device is told of: whose a program is, only all pids together tell."""
        try:
            if lease.id not in self._cpu:
                self._remember(lease.id)
            load = self._runtime.load(lease.id)
        except Exception:
            log.exception("Lease %s could not be sampled", lease.id)
            return None
        self._cpu[lease.id] = next_usage(self._cpu.get(lease.id), load.cpu_seconds, now, self._every)
        self._io[lease.id] = next_usage(self._io.get(lease.id), load.io_bytes, now, self._every, ACTIVE_BYTES)
        if load.pids is None:
            self._pids.pop(lease.id, None)
        else:
            self._pids[lease.id] = load.pids
        return load

    def _sample(self, lease: Lease, load: Load, readings: Mapping[str, GpuReading] | None, now: datetime) -> None:
        gpu = None
        if lease.count:
            gpu = self._gpu[lease.id] = gpu_signal(lease, readings, self._gpu.get(lease.id), self._pids, now)
        memory = None if load.memory_bytes is None else load.memory_bytes >> 20
        util, used = (gpu["util"], gpu["memory_used_mib"]) if gpu else (None, None)
        self._rows.put_sample(lease.id, Sample(now, load.cpu_seconds, memory, util, used))
        self._rows.put_signal(lease.id, "host", host_signal(self._cpu[lease.id], self._io[lease.id], load), now)
        if gpu is not None:
            self._rows.put_signal(lease.id, "gpu", dict(gpu), now)

    def _remember(self, lease_id: str) -> None:
        """What an agent before this one has written, so that a restart neither hides use nor makes any up.

        The runtime's count of bytes begins anew with the agent. What processes that have ended had moved is no longer
        in it: the count fell, and use in between cannot be ruled out.
        """
        signals = self._rows.signals(lease_id)
        sample = self._rows.samples().get(lease_id)
        if "host" in signals and sample is not None:
            host = signals["host"][1]
            self._cpu[lease_id] = Usage(sample.at, sample.cpu_seconds, _moment(host.get("cpu_active_at")))
            self._io[lease_id] = Usage(sample.at, host.get("io_bytes"), _moment(host.get("io_active_at")))
        if "gpu" in signals:
            self._gpu[lease_id] = {**signals["gpu"][1], "util": None}  # use in between cannot be ruled out


def _moment(value: object) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else None
