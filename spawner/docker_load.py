"""What the processes of a container use, read from the host's own /proc: as for a local server, whose meter this is.

The agent runs in the host's PID namespace. The container's first process is an init; its child is the notebook server,
which does not count, as it works for open tabs too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spawner import processes
from spawner.local_load import LoadMeter
from spawner.ports import Load
from spawner.processes import Process

#: Seconds for which a view of all processes serves the loads of several servers.
TABLE_AGE_S: Final = 0.5


class ContainerLoad:
    """Loads of containers; not for several threads at once."""

    def __init__(self) -> None:
        self._meter = LoadMeter()
        self._table: tuple[float, Mapping[int, Process]] = (float("-inf"), {})

    def forget(self, lease_id: str) -> None:
        """It has no container any more."""
        self._meter.forget(lease_id)

    def of(self, lease_id: str, container: str, pid: int) -> Load:
        """The load of the container whose first process has this number on the host; unknown where that is no longer
        so, or lies in another namespace."""
        if not _belongs(pid, container):
            return Load(None, None)
        table = self._recent()
        if pid not in table:
            return Load(None, None)
        members = processes.descendants(table, {pid})
        server = min((table[each] for each in members if table[each].parent == pid), key=_age, default=None)
        return self._meter.load(lease_id, table, set(members) - {pid}, server, pid)

    def _recent(self) -> Mapping[int, Process]:
        taken, table = self._table
        if time.monotonic() - taken > TABLE_AGE_S:
            table = processes.processes()
            self._table = (time.monotonic(), table)
        return table


def _age(process: Process) -> tuple[int, int]:
    return process.start_time, process.pid


def _belongs(pid: int, container: str) -> bool:
    """Whether the kernel has this process in the container's control group; a number may be another's by now."""
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
