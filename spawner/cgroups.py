"""What the processes of one control group use, of version 1 and 2: CPU time, memory, block I/O, pids.

For backends whose servers have a group of their own, as containers do. A local server has none (see
`spawner.local_load`, which asks each process). Numbers are of the whole group, the notebook server included: a backend
takes off what that one used itself (`without`).

Sources: the kernel's `admin-guide/cgroup-v2` (cpu.stat, io.stat, memory.current, memory.stat) and `cgroup-v1`
(cpuacct.usage in ns, blkio.throttle.io_service_bytes, memory.usage_in_bytes, memory.stat). Version 1 does not lay
buffered writes on the group that made them, so there its I/O is a lower bound. What cannot be read is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from spawner.ports import Load

ROOT = Path("/sys/fs/cgroup")
#: No counter of ours gets this far; what is larger is the kernel's way of saying "no limit", or no number.
LARGEST = 1 << 60
#: Groups below a group that are looked into for pids.
MOST_GROUPS = 4096


# ---- what the files say: pure --------------------------------------------------------------------------------------


def count(text: str | None) -> int | None:
    """A file of one number."""
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdigit() and int(word) < LARGEST else None


def table(text: str | None) -> dict[str, int]:
    """A file of lines `name number`; lines that are none are left out."""
    pairs = (line.split() for line in (text or "").splitlines())
    known = ((words[0], count(words[1])) for words in pairs if len(words) == 2)
    return {name: value for name, value in known if value is not None}


def io_stat(text: str | None) -> int | None:
    """Bytes read and written by `io.stat` (version 2); an empty file is a group without any I/O."""
    if text is None:
        return None
    total = 0
    for line in text.splitlines():
        pairs = dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)
        numbers = [count(pairs.get(name, "0")) for name in ("rbytes", "wbytes")]
        if None in numbers:
            return None
        total += sum(number for number in numbers if number is not None)
    return total


def io_service_bytes(text: str | None) -> int | None:
    """Bytes read and written by `blkio.throttle.io_service_bytes` (version 1): `DEVICE Read|Write|… N`, `Total N`."""
    if not text or not text.strip():
        return None
    total = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in ("Read", "Write"):
            number = count(words[2])
            if number is None:
                return None
            total += number
    return total


def resident(usage: str | None, stat: str | None, inactive: str) -> int | None:
    """Memory in use without the page cache that the kernel may drop at any time."""
    used = count(usage)
    return None if used is None else max(0, used - table(stat).get(inactive, 0))


@dataclass(frozen=True, slots=True)
class Membership:
    """The groups of a process by `/proc/PID/cgroup`: of version 2 one, of version 1 one for each controller."""

    unified: str | None
    controllers: Mapping[str, str]


def membership(text: str) -> Membership:
    """Pure. Paths that lie outside of what this process may see ("/../…") are left out."""
    unified, controllers = None, {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in PurePosixPath(path).parts:
            continue
        if number == "0" and not names:
            unified = path
        else:
            controllers.update({name: path for name in names.split(",") if name})
    return Membership(unified, controllers)


def without(load: Load, cpu_seconds: float | None, io_bytes: int | None) -> Load:
    """A group's load without what one of its processes used itself. Pure; unknown of either is unknown."""
    cpu = None if load.cpu_seconds is None or cpu_seconds is None else max(0.0, load.cpu_seconds - cpu_seconds)
    moved = None if load.io_bytes is None or io_bytes is None else max(0, load.io_bytes - io_bytes)
    return replace(load, cpu_seconds=cpu, io_bytes=moved)


# ---- reading -------------------------------------------------------------------------------------------------------


def load(member: Membership, root: Path = ROOT) -> Load:
    """What the group of a process uses. `root` is where the hierarchies are mounted."""
    return _load_v2(member, root) if (root / "cgroup.controllers").exists() else _load_v1(member, root)


def _load_v2(member: Membership, root: Path) -> Load:
    if member.unified is None:
        return Load(None, None)
    group = root / member.unified.lstrip("/")
    micros = table(_read(group / "cpu.stat")).get("usage_usec")
    memory = resident(_read(group / "memory.current"), _read(group / "memory.stat"), "inactive_file")
    return _loaded(None if micros is None else micros / 1e6, memory, io_stat(_read(group / "io.stat")), _pids(group))


def _load_v1(member: Membership, root: Path) -> Load:
    def group(controller: str) -> Path | None:
        path, mounted = member.controllers.get(controller), _mounted(root, controller)
        return mounted / path.lstrip("/") if path is not None and mounted is not None else None

    cpu, disk, memory = group("cpuacct"), group("blkio"), group("memory")
    nanos = count(_read(cpu / "cpuacct.usage")) if cpu else None
    moved = None
    if disk:
        name = "blkio.throttle.io_service_bytes"
        told = _read(disk / f"{name}_recursive")  # since Linux 4.20; the other leaves out groups below
        moved = io_service_bytes(told if told is not None else _read(disk / name))
    held = None
    if memory:
        stat = _read(memory / "memory.stat")
        held = resident(_read(memory / "memory.usage_in_bytes"), stat, "total_inactive_file")
    return _loaded(None if nanos is None else nanos / 1e9, held, moved, _pids(cpu) if cpu else None)


def _loaded(cpu: float | None, memory: int | None, moved: int | None, pids: frozenset[int] | None) -> Load:
    return Load(cpu, memory, moved, None if pids is None else len(pids), pids)


def _mounted(root: Path, controller: str) -> Path | None:
    """The hierarchy of a controller of version 1; several may share one (`cpu,cpuacct`)."""
    try:
        return next((path for path in sorted(root.iterdir()) if controller in path.name.split(",")), None)
    except OSError:
        return None


def _pids(group: Path) -> frozenset[int] | None:
    """Of the group and all below it."""
    found: set[int] = set()
    try:
        groups = [group, *sorted(path for path in group.rglob("*") if path.is_dir())]
    except OSError:
        return None
    for each in groups[:MOST_GROUPS]:
        text = _read(each / "cgroup.procs")
        if text is None and each == group:
            return None
        found |= {int(word) for word in (text or "").split() if word.isdigit()}
    return frozenset(found)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
