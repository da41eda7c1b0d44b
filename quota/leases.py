"""The lease and what it is made of: frozen values, no behaviour beyond reading themselves.

Time is an aware `datetime` in UTC everywhere; shares and money are the integers of `quota.units`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from quota.units import MicroCredits, MilliGpu


class State(StrEnum):
    RESERVED = "RESERVED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    RELEASED = "RELEASED"
    SETTLED = "SETTLED"


class Target(StrEnum):
    RUN = "RUN"
    STOP = "STOP"


#: States in which a lease holds its slot.
LIVE = frozenset({State.RESERVED, State.STARTING, State.RUNNING, State.STOPPING})


class StopReason(StrEnum):
    USER = "user"
    ADMIN = "admin"
    PLATFORM = "platform"
    SHUTDOWN = "shutdown"
    IDLE = "idle"
    MAX_AGE = "max-age"
    QUOTA = "quota"
    PREEMPTED = "preempted"
    WINDOW_END = "window-end"
    RESIZE = "resize"
    PARK = "park"
    NO_SHOW = "no-show"
    OVER_SHARE = "over-share"
    LEAK = "leak"
    GPU_LOST = "gpu-lost"
    DRAIN = "drain"
    FAILED = "failed"


class ServiceClass(StrEnum):
    """What may be taken back from a server, and when; the rules for stopping may differ by it."""

    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    PREEMPTIBLE = "preemptible"
    OFF_PEAK = "off-peak"


class HolderKind(StrEnum):
    SERVER = "server"
    TICKET = "ticket"
    BOOKING = "booking"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lease. `server` is the Hub's server name; "" is the default server."""

    user: str
    server: str = ""
    kind: HolderKind = HolderKind.SERVER

    def __str__(self) -> str:
        return f"{self.user}/{self.server}" if self.server else self.user


@dataclass(frozen=True, slots=True)
class Slot:
    """Room on one device. `host` and `device` are None where an engine places and has not said yet;
    `device` is None for a CPU profile, whose `share` is 0."""

    host: str | None
    device: str | None
    share: MilliGpu


@dataclass(frozen=True, slots=True)
class Price:
    """A price plan, pinned in every lease made under it: micro-credits per GPU-hour, and per hour of a CPU server.

    Where a rule of the site made it, `per_hour` is the price of the whole server, whatever it holds, and `rule` its
    name in the site's words; then the other two say what the site's list had at that moment."""

    plan_id: int
    gpu_hour: MicroCredits
    cpu_hour: MicroCredits
    per_hour: MicroCredits | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Quote:
    """What a rule of the site asks for one server: micro-credits an hour, and the price's name."""

    per_hour: MicroCredits
    rule: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one lease with one weight and one price: [started_at, ended_at), open while ended_at is None.

    `weight` is milli-GPU over all devices; 0 means a CPU server, billed by `price.cpu_hour`.
    """

    number: int
    weight: MilliGpu
    price: Price
    started_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The single truth about who holds what. `version` grows with every write and guards the next one."""

    id: str
    version: int
    state: State
    target: Target
    holder: Holder
    account_id: int
    account: str
    profile: str
    image: str
    share: MilliGpu  # on each device; 0 for a CPU profile
    count: int  # devices; 0 for a CPU profile
    slots: tuple[Slot, ...]
    simulated: bool
    price: Price
    owner: str | None  # boot id of the hub process that is starting it
    requested_at: datetime
    requested_by: str
    deadline: datetime | None = None  # of the start
    started_at: datetime | None = None  # ready: charging starts
    last_seen: datetime | None = None
    ended_at: datetime | None = None  # gone, by the runtime's record or the last observation
    stop_reason: StopReason | None = None
    stop_detail: str = ""  # the rule and its value, in words
    stop_by: str = ""
    stop_after: datetime | None = None
    usage: int = 0  # milli-GPU-seconds posted so far
    charged: int = 0  # micro-credits posted so far, refunds taken off
    held: int = 0  # micro-credits still held
    service_class: ServiceClass = ServiceClass.ON_DEMAND
    groups: tuple[str, ...] | None = None  # of the Hub, that its user was in at the start; None: not on record

    @property
    def weight(self) -> MilliGpu:
        return MilliGpu(self.share * self.count)

    @property
    def live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a start asks the book for. `hold_seconds` is how long the balance must carry it at least; `quote` is the
    price by the site's own rule, None: the site's list. `groups` are those of the Hub that its user is in."""

    holder: Holder
    account: str
    profile: str
    image: str
    share: MilliGpu
    count: int
    owner: str
    requested_by: str
    hold_seconds: int = 900
    quote: Quote | None = None
    service_class: ServiceClass = ServiceClass.ON_DEMAND
    groups: tuple[str, ...] | None = None


class DeviceState(StrEnum):
    OK = "ok"
    SUSPECT = "suspect"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the book's row has it, with what live leases hold of it (`used`, a fold over them)."""

    host: str
    uuid: str
    position: int  # order for people only; never an identity
    name: str
    memory_mib: int | None
    mode: str  # sharing mode: exclusive, mig, mps, time-slice
    simulated: bool
    state: DeviceState
    why: str = ""
    seen_at: datetime | None = None
    used: int = 0
    #: Of a part that MIG made: milli-GPU by its slices of memory, and how CUDA names it at present (another name after
    #: each time the parts are made, so never a key). 0 and "" of anything else, and of a part that is not given out.
    capacity: int = 0
    handle: str = ""

    def memory_for(self, share: int) -> int | None:
        """MiB that a lease of `share` means here: its part of the memory, all of it of a part that MIG made. None where
        the memory is unknown."""
        if self.memory_mib is None or self.mode == "mig":
            return self.memory_mib
        return self.memory_mib * share // 1000

    @property
    def free(self) -> int:
        """Milli-GPU that a new lease may take: none unless the device is ok. A part that MIG made has one holder at a
        time and is free as a whole or not at all; the card that it is a part of is never given out."""
        if self.state is not DeviceState.OK:
            return 0
        if self.mode == "mig":
            return self.capacity if self.handle and not self.used else 0
        return max(0, 1000 - self.used)
