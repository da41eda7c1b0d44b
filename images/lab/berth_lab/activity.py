"""What goes on in this server besides kernels: terminals with something running, processes left behind, a person's
saves. Opening, looking, saving the same again never counts.

Processes are read from /proc, a bounded number of them; what cannot be read is unknown, not none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

#: Processes looked at in one round; a server with more says that it does not know.
MOST_PROCESSES = 2000
#: Files whose content's fingerprint is remembered.
MOST_FILES = 500


class TooMany(Exception):
    """More processes than one round looks at."""


def children_of(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Live children of a process; none for one that is gone. Raises `OSError` where the kernel does not list them."""
    found: list[int] = []
    try:
        tasks = list((proc / str(pid) / "task").iterdir())
    except FileNotFoundError:
        return []
    for task in tasks[:MOST_PROCESSES]:
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            if task.exists():  # the process lives, the list does not: a kernel without CONFIG_PROC_CHILDREN
                raise
    return [child for child in found if not _is_dead(child, proc)]


def _is_dead(pid: int, proc: Path) -> bool:
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in {"Z", "X"}


def busy_terminals(shells: Iterable[int | None], proc: Path = Path("/proc")) -> int | None:
    """How many of the terminals' shells have a live child process; None where that cannot be known."""
    try:
        return sum(1 for pid in shells if pid is not None and children_of(pid, proc))
    except (OSError, ValueError):
        return None


def left_behind(server: int, known: Iterable[int | None], proc: Path = Path("/proc")) -> int | None:
    """Live descendants of the server that are neither its kernels nor its terminals' shells (nor what runs in those);
    what a cell has started counts. None where that cannot be known."""
    shells_and_kernels = {pid for pid in known if pid is not None}
    seen: set[int] = set()
    waiting = [server]
    try:
        while waiting:
            for child in children_of(waiting.pop(), proc):
                if child in seen:
                    continue
                seen.add(child)
                waiting.append(child)
                if len(seen) > MOST_PROCESSES:
                    return None
    except (OSError, ValueError):
        return None
    return len(seen - shells_and_kernels)


def fingerprint(model: dict[str, Any]) -> bytes:
    """What a person has written in a file that is being saved: of a notebook its cells' sources and kinds, of another
    file all of it. Outputs and counters are a kernel's."""
    content = model.get("content")
    if model.get("type") == "notebook" and isinstance(content, dict):
        cells = content.get("cells") or ()
        content = [(c.get("cell_type"), c.get("source"), sorted(c.get("attachments") or ())) for c in cells]
    return hashlib.blake2b(json.dumps(content, default=str).encode(), digest_size=16).digest()


class Saves:
    """When a person last saved something new. JupyterLab saves by itself, too, also for outputs alone; what tells a
    person's work is a change of what a person writes."""

    def __init__(self) -> None:
        self.last: datetime | None = None
        self._files: dict[str, bytes] = {}

    def saved(self, path: str, model: dict[str, Any], now: datetime) -> None:
        """A file is saved through the server. The first save of a file only tells what it has, unless it is no
        notebook: nothing saves those by itself before a person has touched them."""
        print_ = fingerprint(model)
        before = self._files.pop(path, None)
        self._files[path] = print_
        if len(self._files) > MOST_FILES:
            del self._files[next(iter(self._files))]
        first_of_a_notebook = before is None and model.get("type") == "notebook"
        if before != print_ and not first_of_a_notebook:
            self.last = now


def shells_of(manager: Any) -> list[int | None]:
    """The process ids of the terminals' shells."""
    terminals = getattr(manager, "terminals", None) or {}
    return [getattr(getattr(terminal, "ptyproc", None), "pid", None) for terminal in list(terminals.values())]


def kernel_pid(kernels: Any, kernel_id: str) -> int | None:
    """The process of a local kernel; None for another's."""
    try:
        pid = getattr(kernels.get_kernel(kernel_id).provisioner, "pid", None)
    except (KeyError, AttributeError):
        return None
    return pid if isinstance(pid, int) and pid > 0 else None


def working_folder(pid: int | None) -> str | None:
    """Where a process works; None where that cannot be known."""
    try:
        return None if pid is None else os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None
