"""What `berth status` looks at: processes, files, logs and the book, each in its own look that may fail by itself."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
import tomllib
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

import psutil

from hub_config.book_trouble import trouble
from hub_config.compose import Parts
from hub_config.datafolder import DataFolder
from hub_config.processes import read_pid, starts_of
from quota.alerts import Alert
from quota.errors import BerthError, Refused
from quota.facts import Facts, Size, read_facts, read_size
from quota.leases import Device, Lease

PROCESSES = ("hub", "agent", "proxy", "berth", "idle-culler")
#: A book that is locked or far away must not keep the rest from being shown.
BOOK_SECONDS = 3.0
#: A site that takes longer to say that it is there is one that does not answer.
ANSWER_SECONDS = 2.0
#: CPU use is what was used during this time.
CPU_SECONDS = 0.2
#: Of a log, so much of its end is searched for errors, and errors of this age are told.
TAIL_BYTES = 256 * 1024
RECENT_SECONDS = 3600

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BookLook:
    """The book at one moment; `facts` None: `why` says in one line what keeps it from being read."""

    kind: str
    where: str
    why: str = ""
    facts: Facts | None = None
    size: Size | None = None
    leases: Sequence[Lease] = ()

    @property
    def devices(self) -> Sequence[Device]:
        return self.facts.devices if self.facts else ()

    @property
    def alerts(self) -> Sequence[Alert]:
        return self.facts.alerts if self.facts else ()


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """One process; what cannot be told is None. `cpu_percent` of one core, `uptime_s` seconds."""

    pid: int | None = None
    uptime_s: float | None = None
    rss_bytes: int | None = None
    cpu_percent: float | None = None
    restarts: int | None = None


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest error in a log, and how many there were in the last hour."""

    log: str
    at: str
    event: str
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class Look:
    """All of it. `answers`: whether the site does, through its proxy; None while it is down."""

    now: datetime
    up: Mapping[str, Any] | None
    processes: Mapping[str, ProcessLook]
    book: BookLook
    answers: bool | None = None
    routes: int | None = None
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    errors: Sequence[LastError] = field(default_factory=tuple)
    backup: str | None = None  # the note of the last one


def look(made: Parts) -> Look:
    """Everything at once: the book is read while CPU use is measured. Raises nothing that one look can tell."""
    data, up = made.data, up_info(made.data)
    pids = {"up": int(up["pid"]) if up else None, **{name: read_pid(data.pids, name) for name in PROCESSES}}
    before = {name: _cpu_seconds(pid) for name, pid in pids.items()}
    began = time.monotonic()
    book = read_book(made)
    errors = last_errors(data.logs, made.clock.now())
    time.sleep(max(0.0, CPU_SECONDS - (time.monotonic() - began)))
    span = time.monotonic() - began
    now = made.clock.now()
    free, total = _disk(data.root)
    answers = site_answers(up["url"]) if up else None
    return Look(
        now=now,
        up=up,
        processes={
            name: _process(pid, before[name], span, starts_of(data.pids, name), now) for name, pid in pids.items()
        },
        book=book,
        answers=answers,
        routes=_routes(data.hub / "rules.toml"),
        disk_free_bytes=free,
        disk_total_bytes=total,
        errors=errors,
        backup=_text(data.last_backup),
    )


# ---- the book ----------------------------------------------------------------------------------------------------


def read_book(made: Parts) -> BookLook:
    """The book, or why it cannot be read: it is locked, down, older, not there, somebody else's."""
    store = made.store
    kind = store.url.get_backend_name()

    def read() -> BookLook:
        if store.file is not None and not store.file.exists():
            return BookLook(kind, store.where, f"There is no book at {store.where} yet; `berth up` makes one")
        store.check()
        facts = read_facts(store, made.clock.now())
        return BookLook(kind, store.where, "", facts, read_size(store), made.book.live())

    def unread(why: str) -> BookLook:
        return BookLook(kind, store.where, why)

    try:
        return within(BOOK_SECONDS, read)
    except TimeoutError:
        return unread(f"The book ({store.where}) did not answer within {BOOK_SECONDS:.0f} s; is somebody locking it?")
    except Refused as refused:
        return unread(trouble(refused))
    except (BerthError, OSError) as error:
        return unread(f"The book ({store.where}) cannot be read: {' '.join(str(error).split())}")


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a blocking call. Raises what it raises, `TimeoutError` when it takes longer; it then goes on in a
    thread that nobody waits for."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="status-book", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError
    return found[0]


# ---- processes ---------------------------------------------------------------------------------------------------


def up_info(data: DataFolder) -> dict[str, Any] | None:
    """What the living `berth up` wrote, or None: the lock tells the living from the dead."""
    try:
        with data.lock_file.open("r") as lock:  # for reading: the folder may be somebody else's
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
    except FileNotFoundError:
        return None
    except OSError:
        pass
    try:
        info: dict[str, Any] = json.loads(data.up_file.read_text(encoding="utf-8"))
        return info if isinstance(info["pid"], int) and isinstance(info["url"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _cpu_seconds(pid: int | None) -> float | None:
    try:
        times = psutil.Process(pid).cpu_times() if pid else None
        return times.user + times.system if times else None
    except psutil.Error:
        return None


def _process(pid: int | None, before: float | None, span: float, starts: int | None, now: datetime) -> ProcessLook:
    restarts = None if starts is None else max(0, starts - 1)
    after = _cpu_seconds(pid)
    if pid is None or after is None:
        return ProcessLook(restarts=restarts)
    try:
        process = psutil.Process(pid)
        uptime, memory = now.timestamp() - process.create_time(), process.memory_info().rss
    except psutil.Error:
        return ProcessLook(pid, restarts=restarts)
    percent = None if before is None or span <= 0 else round(100 * max(0.0, after - before) / span, 1)
    return ProcessLook(pid, round(max(0.0, uptime), 1), memory, percent, restarts)


def site_answers(url: str) -> bool:
    """Whether the hub answers through the proxy, as browsers reach it. A process that hangs has a pid as well."""
    try:
        with urllib.request.urlopen(f"{url}/hub/health", timeout=ANSWER_SECONDS) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, HTTPException, ValueError):
        return False


def _routes(rules: Path) -> int | None:
    """How many routes the proxy has, from the file that it reads; None where that cannot be told."""
    try:
        routers = tomllib.loads(rules.read_text(encoding="utf-8"))["http"]["routers"]
        return len(routers) - ("route_api" in routers)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _disk(root: Path) -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage(root)
    except OSError:
        return None, None
    return usage.free, usage.total


# ---- logs --------------------------------------------------------------------------------------------------------


def last_errors(folder: Path, now: datetime) -> tuple[LastError, ...]:
    """The newest error of each log of the last hour, by its JSON lines; logs as text tell none."""
    try:
        paths = sorted(path for path in folder.glob("*.log") if not path.name.endswith(".out.log"))
    except OSError:
        return ()
    return tuple(found for path in paths if (found := _last_error(path, now)) is not None)


def _last_error(path: Path, now: datetime) -> LastError | None:
    recent: deque[Mapping[str, Any]] = deque()
    for line in _tail(path):
        if '"level": "error"' not in line and '"level": "critical"' not in line:
            continue
        try:
            said = json.loads(line)
            age = (now - datetime.fromisoformat(said["ts"])).total_seconds()
        except (ValueError, KeyError, TypeError):
            continue
        if age <= RECENT_SECONDS:
            recent.append(said)
    if not recent:
        return None
    newest = recent[-1]
    message = " ".join(str(newest.get("message", "")).split())[:200]
    return LastError(path.name, str(newest["ts"]), str(newest.get("event", "")), message, len(recent))


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
