"""Seams of the spawner: the runtime that runs servers, and the inventory that sees devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from spawner.box import Box


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """All a runtime needs to run one server; a plain value so that tests compare whole specs."""

    lease_id: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str  # the user's home
    box: Box | None = None  # its container, where the runtime makes one


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look saw of one lease's server. `ended_at` and `exit_code` are None while it runs, and where
    no end was recorded (then the last observation counts). `out_of_memory`: the kernel ended it for its memory."""

    lease_id: str
    running: bool
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The runtime, or the driver of devices, gave no answer. Never the same as "nothing is there"."""

    why: str


#: Everything of this deployment that the runtime has, by lease id; absent means seen to be absent.
Look = Mapping[str, Seen] | Unreachable


@dataclass(frozen=True, slots=True)
class Load:
    """CPU seconds used, and bytes read and written, so far by a server's kernels, terminals and all they started,
    without the server itself; resident memory of the whole tree in bytes. `processes` counts what lives besides the
    server and kernels and shells that wait; `pids` are the host's own numbers of all its processes, by which a driver
    that lists programs can tell whose they are. None is unknown."""

    cpu_seconds: float | None
    memory_bytes: int | None
    io_bytes: int | None = None
    processes: int | None = None
    pids: frozenset[int] | None = None


class Runtime(Protocol):
    """Runs servers. Calls block; the Hub makes them in threads. All but `start` are idempotent."""

    def start(self, spec: ServerSpec) -> None:
        """Create and start; durable before it returns. Raises `RuntimeError` with words for the log."""
        ...

    def look(self) -> Look: ...

    def stop(self, lease_id: str, grace_seconds: float) -> None:
        """Ask it to end; it is forced after the grace even if the caller dies. Returns at once."""
        ...

    def remove(self, lease_id: str) -> None:
        """End it by force with all its descendants and forget it. Blocks until nothing is left, or raises."""
        ...

    def load(self, lease_id: str) -> Load: ...

    def log_tail(self, lease_id: str, lines: int) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A program that has this device open, by the host's own pid. `util` and `memory_util`: percent of the time, since
    the read before, in which it computed and moved memory. None is unknown, never zero."""

    pid: int
    memory_mib: int | None
    graphics: bool = False
    util: int | None = None
    memory_util: int | None = None


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """The driver's report of an error (an XID) since the last read, and how often it came. `gpu_instance` is the MIG
    instance that it is laid on, where it is one's."""

    xid: int
    count: int = 1
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryHealth:
    """What a device tells of its memory; None where it cannot tell. Counts are of ECC errors since the driver was
    loaded, `lifetime_` ones of all its life; `repair_pending`, `repair_failed` are of rows or pages to be replaced."""

    corrected: int | None = None
    uncorrected: int | None = None
    lifetime_corrected: int | None = None
    lifetime_uncorrected: int | None = None
    repair_pending: bool | None = None
    repair_failed: bool | None = None


@dataclass(frozen=True, slots=True)
class MigPart:
    """Which part of a card a MIG device is. `start` is the place of its first memory slice, None where the driver does
    not tell it; `mig_uuid` is how CUDA names it at present: another after each time the parts are made."""

    parent: str
    profile: str
    start: int | None
    gpu_instance: int
    compute_instance: int
    mig_uuid: str
    size: int | None = None  # slices of memory, of the card's eight


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One device as the inventory sees it now. None is unknown, never zero. `error` says why a device
    could not be read at all, `lost` that the driver calls it gone for good.

    A card whose `mig` is True is given away in parts alone; each is a reading of its own with the parent's position,
    and a `uuid` that outlives the part: PARENT:PROFILE:START."""

    uuid: str
    position: int
    name: str
    memory_mib: int | None
    memory_used_mib: int | None
    utilisation: int | None  # percent
    simulated: bool
    error: str = ""
    lost: bool = False
    temperature_c: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    health: MemoryHealth | None = None
    events: tuple[GpuEvent, ...] = ()
    mig: bool | None = None  # None: the card has no such mode
    mig_pending: bool | None = None  # the mode after the next reset
    part: MigPart | None = None
    memory_utilisation: int | None = None  # percent of the time in which its memory was read or written


class Inventory(Protocol):
    """Sees the devices of this host."""

    @property
    def simulated(self) -> bool: ...

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        """All devices; one that hangs or fails is reported with its error and hides no other."""
        ...
