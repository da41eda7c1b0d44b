"""Processes of this machine as the kernel tells of them (proc(5)): who lives, who descends from whom, who is marked.

A zombie is dead: it runs nothing and holds nothing. A pid is only trusted together with its start time.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LARGEST_PID = 2**31
_DEAD = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment. CPU times in clock ticks; `ticks_reaped` is that of children it waited for."""

    pid: int
    parent: int
    start_time: int  # ticks since boot: with the pid the identity
    alive: bool
    ticks: int
    ticks_reaped: int
    rss_bytes: int
    on_terminal: bool = False  # it has a controlling terminal


@dataclass(frozen=True, slots=True)
class Identity:
    """A process on record, of any boot of this machine."""

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def of_record(cls, record: Mapping[str, object] | None) -> Identity | None:
        """From a runner's record; None where there is none or it is not one."""
        if record is None:
            return None
        pid, start_time, boot = record.get("pid"), record.get("start_time"), record.get("boot_id")
        if type(pid) is type(start_time) is int and 0 < pid < LARGEST_PID and isinstance(boot, str):
            return cls(pid, start_time, boot)
        return None


def boot_id() -> str:
    """Differs after every boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def name_and_user(pid: int) -> tuple[str, str]:
    """The name of a program and its user's, for people; "" for what cannot be read."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return "", ""
    try:
        return name, pwd.getpwuid(owner).pw_name
    except KeyError:
        return name, f"user {owner}"


def process(pid: int) -> Process | None:
    """The process as it is now, zombies included; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) < 22:  # it ended while it was read
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        start_time=int(fields[19]),
        alive=fields[0].decode() not in _DEAD,
        ticks=int(fields[11]) + int(fields[12]),
        ticks_reaped=int(fields[13]) + int(fields[14]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        on_terminal=int(fields[4]) != 0,
    )


def processes() -> dict[int, Process]:
    """All processes by pid. Raises `OSError` where /proc cannot be read."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {each.pid: each for each in found if each is not None}


def living(identity: Identity | None, boot: str) -> Process | None:
    """The process on record if it still lives, in this boot of the machine."""
    if identity is None or identity.boot_id != boot:
        return None
    found = process(identity.pid)
    return found if found is not None and found.alive and found.start_time == identity.start_time else None


def descendants(table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Pids of all that descend from the roots, without the roots, zombies included."""
    children: dict[int, list[int]] = {}
    for each in table.values():
        children.setdefault(each.parent, []).append(each.pid)
    first = set(roots)
    found: set[int] = set()
    pending = [child for root in first for child in children.get(root, ())]
    while pending:
        pid = pending.pop()
        if pid not in found and pid not in first:
            found.add(pid)
            pending += children.get(pid, ())
    return found


def environ(pid: int) -> dict[bytes, bytes]:
    """The environment a process was started with; empty where it may not be read or the process is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)


def command(pid: int) -> tuple[str, ...]:
    """The words of its command line; empty where they may not be read or the process is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return tuple(word.decode("utf-8", "replace") for word in file.read().split(b"\0") if word)
    except OSError:
        return ()


def end(target: Process, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal exactly this process, never another that took over its pid. What is gone or not ours is left alone."""
    with suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(target.pid)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSYS:
                raise
            return _end_by_pid(target, number)  # a Python or kernel without pidfd: a moment of doubt remains
        try:
            if _same(target):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _same(target: Process) -> bool:
    now = process(target.pid)
    return now is not None and now.start_time == target.start_time


def _end_by_pid(target: Process, number: signal.Signals) -> None:
    if _same(target):
        os.kill(target.pid, number)
