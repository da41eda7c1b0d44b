"""[P] What is known about the use of one server, each signal apart, each perhaps unknown.

`read` turns the book's signal rows into frozen `Signals`. Three sources matter (each payload is JSON):

* `kit`, from the server itself, which its user could forge: `{"kernels": [{"id", "busy", "last_execute_at",
  "busy_since"}], "terminals": n, "children": n, "background": n, "saved_at"}`; `busy` true, false or null for unknown;
  execute messages only (a kernel's status polls and comm messages never count). `children` are terminals in which a
  program runs, `background` processes that are neither kernels nor shells, `saved_at` the last save of a document: for
  people to read, since an open tab saves by itself and a program that does something shows in CPU, I/O or GPU;
* `host`, from the agent: `{"cpu_percent", "cpu_active_at", "io_bytes_per_s", "io_active_at", "processes", "window_s"}`
  of kernels, terminals and all they started. An agent that knows of no I/O leaves its keys out;
* `gpu`, from the agent: `{"util", "memory_used_mib", "memory_util", "simulated", "active_at", "reason"}` of the lease's
  own devices. A simulated device tells nothing, and neither does a shared one whose processes cannot be told apart:
  then the signal is *not applicable* rather than unknown.

What the Hub calls a user's activity (an open tab and a poller bump it) is carried for people to read and never counts.
A stamp without a zone is taken as UTC; one that lies in the future counts as now. Of a report whose own time lies far
ahead nobody can tell the age: its clock was set since, and what it says may be long past.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from idle_culler.keepbusy import Pattern
from quota import told
from quota.leases import Lease

T = TypeVar("T")

#: A source that has not reported for this long says nothing about now.
STALE = timedelta(seconds=120)
WHOLE = 1000
_END = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A value and when it was true."""

    value: T
    at: datetime


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing is known, and why: never the same as zero, and never idle."""

    why: str


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """This signal cannot exist for this server, and why: it neither keeps nor blinds."""

    why: str


@dataclass(frozen=True, slots=True)
class Kernel:
    id: str
    busy: bool | None  # None: unknown
    last_execute_at: datetime | None  # None: it has not executed anything
    busy_since: datetime | None


@dataclass(frozen=True, slots=True)
class Kit:
    kernels: tuple[Kernel, ...]
    terminals: int
    children: int | None = None  # None: this kit does not say
    saved_at: datetime | None = None
    background: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    cpu_percent: float  # of one core, over the agent's window, without the notebook server itself
    cpu_active_at: datetime | None  # None: not since the agent began to look
    processes: int | None = None  # live descendants other than the server and kernels that wait


@dataclass(frozen=True, slots=True)
class Io:
    """What a server's programs read and write, disk and network, without the notebook server itself."""

    bytes_per_s: float
    active_at: datetime | None


@dataclass(frozen=True, slots=True)
class Gpu:
    util: int  # percent
    memory_used_mib: int | None
    active_at: datetime | None
    memory_util: int | None = None  # percent of the time in which its memory was read or written; None: unknown


@dataclass(frozen=True, slots=True)
class Memory:
    """What one look hands to the next about the same lease; it lives in the verdict's evidence.

    `active_at` is the last use ever seen (a kernel that ran and went away leaves no other trace), `gpu_used_at` the
    last of it that was for a GPU: a kernel that ran, or a device that computed. `watched_since` is the start of the
    stretch in which no source was silent for longer than `STALE`. Of a warning that stands, `warned_at` (idle),
    `gpu_warned_at` and `age_warned_at` say since when. `pattern` is what `keepbusy` follows.
    """

    active_at: datetime | None = None
    watched_since: datetime | None = None
    looked_at: datetime | None = None
    warned_at: datetime | None = None
    gpu_used_at: datetime | None = None
    gpu_warned_at: datetime | None = None
    age_warned_at: datetime | None = None
    pattern: Pattern | None = None


#: The stamps of a memory by name.
STAMPS = (
    "active_at",
    "watched_since",
    "looked_at",
    "warned_at",
    "gpu_used_at",
    "gpu_warned_at",
    "age_warned_at",
)

NOTHING = Memory()


def with_warnings_of(before: Memory, after: Memory) -> Memory:
    """What a look remembers, with the warnings that stood before it."""
    return replace(
        after, warned_at=before.warned_at, gpu_warned_at=before.gpu_warned_at, age_warned_at=before.age_warned_at
    )


@dataclass(frozen=True, slots=True)
class Signals:
    """One server at one moment. `watched_since` is None where it has not been watched without a gap up to now."""

    lease_id: str
    gpus: int
    started_at: datetime | None
    kit: Known[Kit] | Unknown
    host: Known[Host] | Unknown
    gpu: Known[Gpu] | Unknown | NotApplicable
    hub_activity: Known[datetime] | Unknown
    memory: Memory = NOTHING
    watched_since: datetime | None = None
    io: Known[Io] | Unknown | NotApplicable = NotApplicable(told.IO_NOT_MEASURED)


def moment(value: object, now: datetime) -> datetime | None:
    """A stamp (a `datetime` or RFC 3339 text) in UTC, at most `now`; None for None and for what is no stamp."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    try:
        aware = value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
    except (OverflowError, ValueError):  # the first and last days of the calendar have no other zone
        return None
    return min(aware, now)


def _number(value: object) -> float | None:
    """A finite number that is not a truth value; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 else None  # not for NaN either: it compares with nothing


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 else None


class _Bad(Exception):
    """A payload that says nothing."""


def _kernel(raw: object, now: datetime) -> Kernel:
    """A kernel of which something is ill-formed is one whose state is unknown."""
    row = raw if isinstance(raw, Mapping) else {}
    busy, last = row.get("busy"), row.get("last_execute_at")
    executed = moment(last, now)
    if not isinstance(busy, bool) or (last is not None and executed is None):
        busy = True if busy is True else None
    return Kernel(str(row.get("id", "?")), busy, executed, moment(row.get("busy_since"), now))


def _kit(payload: Mapping[str, Any], now: datetime) -> Kit:
    kernels, terminals = payload.get("kernels"), payload.get("terminals", 0)
    if not isinstance(kernels, list | tuple):
        raise _Bad(told.KERNELS_UNREAD)
    count = _number(terminals)
    return Kit(
        tuple(_kernel(raw, now) for raw in kernels),
        int(count) if count is not None else 0,
        _count(payload.get("children")),
        moment(payload.get("saved_at"), now),
        _count(payload.get("background")),
    )


def _host(payload: Mapping[str, Any], now: datetime) -> Host:
    percent = _number(payload.get("cpu_percent"))
    if percent is None or percent < 0:
        raise _Bad(told.CPU_UNREAD)
    return Host(percent, moment(payload.get("cpu_active_at"), now), _count(payload.get("processes")))


def _io(payload: Mapping[str, Any], now: datetime) -> Io:
    rate = _number(payload.get("io_bytes_per_s"))
    if rate is None or rate < 0:
        raise _Bad(told.IO_UNREAD)
    return Io(rate, moment(payload.get("io_active_at"), now))


def _gpu(payload: Mapping[str, Any], now: datetime) -> Gpu:
    util, memory = _number(payload.get("util")), _number(payload.get("memory_used_mib"))
    if util is None or not 0 <= util <= 100:
        raise _Bad(told.GPU_UNREAD)
    traffic = _count(payload.get("memory_util"))
    return Gpu(int(util), None if memory is None else int(memory), moment(payload.get("active_at"), now), traffic)


#: A source's last report: when it came, and what it said.
Row = tuple[datetime, Mapping[str, Any]]


def _report(rows: Mapping[str, Row], source: str, whose: str, now: datetime) -> tuple[datetime, Mapping[str, Any]]:
    """A source's fresh report. Raises `_Bad` with the reason where there is none."""
    row = rows.get(source)
    if row is None:
        raise _Bad(told.SILENT % {"source": whose})
    at, payload = moment(row[0], _END), row[1]
    if at is None or not isinstance(payload, Mapping):
        raise _Bad(told.UNREADABLE % {"source": whose})
    age = now - at
    if abs(age) > STALE:
        words = told.LATE if age > STALE else told.AHEAD
        raise _Bad(words % {"source": whose, "seconds": int(abs(age).total_seconds())})
    return min(at, now), payload


def _read_kit(rows: Mapping[str, Row], now: datetime) -> Known[Kit] | Unknown:
    try:
        at, payload = _report(rows, "kit", told.KIT, now)
        return Known(_kit(payload, now), at)
    except _Bad as bad:
        return Unknown(str(bad))


def _read_host(rows: Mapping[str, Row], now: datetime) -> Known[Host] | Unknown:
    try:
        at, payload = _report(rows, "host", told.AGENT, now)
        return Known(_host(payload, now), at)
    except _Bad as bad:
        return Unknown(str(bad))


def _read_io(
    rows: Mapping[str, Row], host: Known[Host] | Unknown, now: datetime
) -> Known[Io] | Unknown | NotApplicable:
    """A report of the host without the keys comes from an agent that measures no I/O."""
    row = rows.get("host")
    if row is None or not isinstance(row[1], Mapping) or "io_bytes_per_s" not in row[1]:
        return NotApplicable(told.IO_NOT_MEASURED)
    if isinstance(host, Unknown):
        return Unknown(host.why)
    try:
        return Known(_io(row[1], now), host.at)
    except _Bad as bad:
        return Unknown(str(bad))


def _read_gpu(lease: Lease, rows: Mapping[str, Row], now: datetime) -> Known[Gpu] | Unknown | NotApplicable:
    if lease.count == 0:
        return NotApplicable("no GPU")
    if lease.simulated:
        return NotApplicable("simulated")
    if lease.share < WHOLE and _untold(rows):
        return NotApplicable("shared")
    try:
        at, payload = _report(rows, "gpu", told.GPU_READER, now)
        return Known(_gpu(payload, now), at)
    except _Bad as bad:
        return Unknown(str(bad))


def _untold(rows: Mapping[str, Row]) -> bool:
    """Nobody says what one of several on a shared device does with it. A reader that failed says otherwise: then
    it is unknown."""
    row = rows.get("gpu")
    payload = row[1] if row is not None and isinstance(row[1], Mapping) else {}
    return payload.get("util") is None and payload.get("reason", "shared") == "shared"


def read(
    lease: Lease,
    rows: Mapping[str, Row],
    memory: Memory,
    now: datetime,
    hub_activity: Known[datetime] | Unknown = Unknown(told.HUB_UNASKED),
) -> Signals:
    """The signals of one lease at `now` (aware, UTC), from its rows and what the last look remembered.

    Never raises for anything a row may hold: what cannot be read is unknown.
    """
    started = moment(lease.started_at, now)
    kit, host, gpu = _read_kit(rows, now), _read_host(rows, now), _read_gpu(lease, rows, now)
    io = _read_io(rows, host, now)
    blind = started is None or any(isinstance(signal, Unknown) for signal in (kit, host, io, gpu))
    return Signals(
        lease_id=lease.id,
        gpus=lease.count,
        started_at=started,
        kit=kit,
        host=host,
        gpu=gpu,
        hub_activity=hub_activity,
        memory=memory,
        watched_since=None if blind or started is None else _watched_since(started, memory, now),
        io=io,
    )


def _watched_since(started: datetime, memory: Memory, now: datetime) -> datetime:
    """Start of the unbroken watch that reaches to `now`; the last look must be recent, or there is a gap.

    All sources are fresh here. At the last sighted look they were fresh as well, so with looks at most `STALE`
    apart no source was silent for longer than two `STALE`.
    """
    if memory.watched_since is not None and memory.looked_at is not None and now - memory.looked_at <= STALE:
        return min(memory.watched_since, now)
    return started if now - started <= STALE else now


def remember(memory: Memory) -> dict[str, object]:
    """A memory as the evidence of a verdict carries it: RFC 3339 in UTC."""
    kept: dict[str, object] = {}
    for name in STAMPS:
        stamp = getattr(memory, name)
        kept[name] = None if stamp is None else stamp.isoformat()
    if memory.pattern is not None:
        kept["pattern"] = memory.pattern.to_json()
    return kept


def recall(evidence: object, now: datetime) -> Memory:
    """The memory in a verdict's evidence; an ill-formed one is no memory, so the watch begins anew."""
    kept = evidence.get("memory") if isinstance(evidence, Mapping) else None
    if not isinstance(kept, Mapping):
        return NOTHING
    stamps = {name: moment(kept.get(name), now) for name in STAMPS}
    return Memory(**stamps, pattern=_pattern(kept.get("pattern"), now))


def _pattern(kept: object, now: datetime) -> Pattern | None:
    if not isinstance(kept, Mapping):
        return None
    since, at = moment(kept.get("since"), now), moment(kept.get("at"), now)
    low, high = _count(kept.get("low")), _count(kept.get("high"))
    if since is None or at is None or low is None or high is None:
        return None
    return Pattern(since, at, low, high)
