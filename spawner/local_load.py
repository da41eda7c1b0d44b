"""What the processes of one local server use: CPU time, memory, bytes read and written, and how many there are.

The notebook server itself and its runner never count: they work for open tabs, pollers and the kit. A kernel that waits
and the shell of a terminal in which nothing runs are no `processes`; what little they read and write is far below what
the rules call use. Control groups (`spawner.cgroups`) would tell the same more exactly, but a local server has none of
its own: making one takes rights that a plain user's hub does not have.

Reads and writes are those of the programs (files of any kind, pipes, terminals) or of the disk, whichever is more: a
file mapped into memory shows in the second alone, a download into a memory file system in the first alone. Where the
kernel hides one process's numbers (it belongs to another user, or to a program that may not be looked into), those of
the server are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import psutil

from spawner import processes
from spawner.ports import Load
from spawner.processes import Process

#: The code of such a helper, in the standard library and in joblib's own copy; what follows is what it is told.
_HELPER = re.compile(
    r"from (multiprocessing|(joblib\.externals\.)?loky\.backend)\.(resource_tracker|forkserver) import main\b.*",
    re.DOTALL,
)

#: A process by pid and start time.
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that each process has moved so far, with the parent it had; `total` never falls."""

    total: int = 0
    each: Mapping[Key, tuple[int, Key | None]] = field(default_factory=dict)


def moved(before: Moved | None, now: Mapping[Key, tuple[int, Key | None]]) -> Moved:
    """The total after another reading. Pure.

    The kernel adds what a process moved to its parent's number when the parent waits for it. That is not new, so it is
    taken off again where the parent is counted too. At the first reading everything is new.
    """
    if before is None:
        return Moved(sum(count for count, _ in now.values()), dict(now))
    grown = 0
    for key, (count, _) in now.items():
        grown += count - before.each.get(key, (0, None))[0]
    for key in before.each.keys() - now.keys():
        if _heir(key, before.each, now) is not None:
            grown -= before.each[key][0]
    return Moved(before.total + max(0, grown), dict(now))


def _heir(key: Key, before: Mapping[Key, tuple[int, Key | None]], now: Mapping[Key, object]) -> Key | None:
    """The nearest ancestor that is still counted, of a process that ended."""
    parent = before[key][1]
    while parent is not None and parent not in now:
        parent = before.get(parent, (0, None))[1]
    return parent


def bytes_of(pid: int) -> int | None:
    """What one process has read and written so far; None where that cannot be read. Raises `ProcessLookupError`."""
    try:
        found = psutil.Process(pid).io_counters()
    except psutil.NoSuchProcess:
        raise ProcessLookupError(pid) from None
    except (psutil.Error, OSError, RuntimeError, AttributeError, ValueError):
        return None  # hidden, or a kernel without this count
    return int(max(found.read_chars, found.read_bytes) + max(found.write_chars, found.write_bytes))


def working(table: Mapping[int, Process], members: Iterable[int], server: int | None) -> int:
    """How many of the members live and are more than a kernel, a terminal's shell that waits, or a helper."""
    living = [table[pid] for pid in members if table[pid].alive and pid != server]
    parents = {each.parent for each in living}
    return sum(not _waits(each, server, each.pid in parents) for each in living)


def _waits(each: Process, server: int | None, has_children: bool) -> bool:
    """A kernel, busy or not (the kit tells which), or a shell with nothing in it, both children of the server; or a
    helper of Python's that lives as long as the program that once needed it, wherever it is."""
    words = processes.command(each.pid)
    if is_helper(words):
        return True
    if server is None or each.parent != server:
        return False
    return (each.on_terminal and not has_children) or is_kernel(words)


def is_helper(words: Iterable[str]) -> bool:
    """Whether a command line is that of a process which `multiprocessing` or joblib starts beside a program to clean
    up or fork for it. It does no work, and a kernel that used a pool once keeps it for good."""
    given = list(words)
    code = given[given.index("-c") + 1] if "-c" in given[:-1] else ""
    return bool(_HELPER.fullmatch(code))


def is_kernel(words: Iterable[str]) -> bool:
    """Whether a command line is that of a Jupyter kernel: it names its connection file."""
    names = [word.rpartition("/")[2] for word in words]
    return any(name.startswith("kernel-") and name.endswith(".json") for name in names)


class LoadMeter:
    """Load of one server after another; remembers what a dead process took with it. Not for several threads at once."""

    def __init__(self) -> None:
        self._ticks: dict[str, tuple[int, int]] = {}  # lease -> (ticks told last, ticks lost with dead parents)
        self._moved: dict[str, Moved] = {}

    def forget(self, lease_id: str) -> None:
        self._ticks.pop(lease_id, None)
        self._moved.pop(lease_id, None)

    def load(
        self, lease_id: str, table: Mapping[int, Process], members: set[int], server: Process | None, runner: int | None
    ) -> Load:
        """`members` are the pids of the server and all it started, `runner` is that of its runner. CPU time and bytes
        never fall."""
        parents = [pid for pid in (server.pid if server else None, runner) if pid is not None and pid in table]
        reaped = sum(table[pid].ticks_reaped for pid in parents)
        others = {pid for pid in members if server is None or pid != server.pid}
        ticks = reaped + sum(table[pid].ticks + table[pid].ticks_reaped for pid in others)
        told, lost = self._ticks.get(lease_id, (0, 0))
        lost = max(lost, told - ticks)  # a parent that died took with it what it had counted
        self._ticks[lease_id] = (ticks + lost, lost)
        memory = sum(table[pid].rss_bytes for pid in members)
        return Load(
            (ticks + lost) / processes.TICKS_PER_SECOND,
            memory,
            self._bytes(lease_id, table, others),
            working(table, members, server.pid if server else None),
            frozenset(members),
        )

    def _bytes(self, lease_id: str, table: Mapping[int, Process], pids: set[int]) -> int | None:
        before, now = self._moved.get(lease_id), {}
        for pid in pids:
            each = table[pid]
            key, parent = (pid, each.start_time), table.get(each.parent)
            kept = before.each.get(key) if before else None
            if not each.alive:
                if kept is not None:
                    now[key] = kept  # nobody has waited for it yet
                continue
            try:
                count = bytes_of(pid)
            except ProcessLookupError:
                continue
            if count is None:
                return None
            now[key] = (count, (parent.pid, parent.start_time) if parent else None)
        after = self._moved[lease_id] = moved(before, now)
        return after.total
