"""A runtime without processes, on a fake clock. Held to the contract suite of the real one (tests/contract)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from quota.ports import Clock
from spawner.ports import Load, Look, Seen, ServerSpec, Unreachable

SIGTERM, SIGKILL = -15, -9


@dataclass
class FakeServer:
    """One server. `deaf` ignores SIGTERM; `forced_at` is when a stop's grace ends."""

    spec: ServerSpec
    started_at: datetime
    deaf: bool = False
    running: bool = True
    ended_at: datetime | None = None
    exit_code: int | None = None
    forced_at: datetime | None = None
    cpu_seconds: float = 0.0
    memory_bytes: int = 100 << 20
    io_bytes: int | None = 0
    processes: int | None = 0
    pids: frozenset[int] | None = None
    log: tuple[str, ...] = ()


class FakeRuntime:
    """`spawner.ports.Runtime`. While `outage` has words, a look is `Unreachable` and the other calls raise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.servers: dict[str, FakeServer] = {}
        self.outage = ""
        #: Lease ids whose removal fails: something survives.
        self.stuck: set[str] = set()
        #: Lease ids that ignore SIGTERM, to be set before the start.
        self.deaf: set[str] = set()
        #: Every call that changed something, in order: (name, lease id).
        self.calls: list[tuple[str, str]] = []

    # ---- what the world does -----------------------------------------------------------------------------------

    def end(self, lease_id: str, exit_code: int | None = 0) -> None:
        """The server ends by itself, or is killed (negative: by that signal); the end is on record."""
        server = self.servers[lease_id]
        if server.running:
            server.running, server.ended_at, server.exit_code = False, self._clock.now(), exit_code

    def vanish(self, lease_id: str) -> None:
        """It ends and nobody recorded when: runner and server were killed at once, or the machine lost power."""
        server = self.servers[lease_id]
        server.running, server.ended_at, server.exit_code = False, None, None

    def alive(self) -> set[str]:
        """Lease ids whose servers really run, outage or not."""
        self._force()
        return {name for name, server in self.servers.items() if server.running}

    def _force(self) -> None:
        now = self._clock.now()
        for server in self.servers.values():
            if server.running and server.forced_at is not None and now >= server.forced_at:
                server.running, server.ended_at, server.exit_code = False, server.forced_at, SIGKILL

    def _reach(self) -> None:
        if self.outage:
            raise RuntimeError(self.outage)
        self._force()

    # ---- the seam ----------------------------------------------------------------------------------------------

    def start(self, spec: ServerSpec) -> None:
        self._reach()
        if spec.lease_id in self.servers:
            raise RuntimeError(f"lease {spec.lease_id} was started before")
        self.calls.append(("start", spec.lease_id))
        self.servers[spec.lease_id] = FakeServer(spec, self._clock.now(), deaf=spec.lease_id in self.deaf)

    def look(self) -> Look:
        if self.outage:
            return Unreachable(self.outage)
        self._force()
        return {
            name: Seen(name, server.running, server.started_at, server.ended_at, server.exit_code)
            for name, server in self.servers.items()
        }

    def stop(self, lease_id: str, grace_seconds: float) -> None:
        self._reach()
        server = self.servers.get(lease_id)
        if server is None or not server.running:
            return
        self.calls.append(("stop", lease_id))
        if not server.deaf:
            self.end(lease_id, SIGTERM)
            return
        forced_at = self._clock.now() + timedelta(seconds=grace_seconds)
        server.forced_at = min(forced_at, server.forced_at or forced_at)
        self._force()

    def remove(self, lease_id: str) -> None:
        self._reach()
        if lease_id in self.stuck:
            raise RuntimeError(f"lease {lease_id}: something survives SIGKILL")
        if self.servers.pop(lease_id, None) is not None:
            self.calls.append(("remove", lease_id))

    def load(self, lease_id: str) -> Load:
        self._reach()
        server = self.servers.get(lease_id)
        if server is None or not server.running:
            return Load(None, None)
        return Load(server.cpu_seconds, server.memory_bytes, server.io_bytes, server.processes, server.pids)

    def log_tail(self, lease_id: str, lines: int) -> tuple[str, ...]:
        server = self.servers.get(lease_id)
        return server.log[-lines:] if server is not None and lines > 0 else ()
