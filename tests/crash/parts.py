"""The parts of the simulated world that can fail: a database, a runtime, and an event loop on the world's clock.

Each calls `reach` at its points: before a read, before a transaction, after a commit, before and after a call of the
runtime. Whatever may happen in the world, happens there: somebody else acts, time passes, an answer is lost, the caller
dies. `Died` is a BaseException, so that no handler of errors on the way survives its process.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from quota.bank import Bank, Defaults
from quota.rows import Rows
from quota.store import Store
from spawner.fleet import to_devices
from spawner.ports import Look, ServerSpec
from spawner.simulated import SimulatedInventory
from tests.fakes.clock import FakeClock
from tests.fakes.runtime import FakeRuntime

HOST = "host-a"
USERS = ("ada", "bob", "eve")
DEFAULTS = Defaults(max_servers=None, max_gpu_milli=None)

#: Points. A process may die at any of them; the durable ones are enumerated.
READ, BEGIN, COMMITTED = "read", "begin", "committed"
LOOK, BEFORE, AFTER = "look", "before", "after"
HUB_BEGIN, HUB_COMMITTED = "hub begin", "hub committed"
DURABLE = frozenset({BEGIN, COMMITTED, BEFORE, AFTER, HUB_BEGIN, HUB_COMMITTED})

Reach = Callable[[str], None]


class Died(BaseException):
    """The process that was at work was killed here."""


class Violation(BaseException):
    """The world is wrong. No `except Exception` on the way swallows it."""


def nothing(_point: str) -> None:
    return


class CrashingStore(Store):
    """The book's database. What `reach` raises before a transaction keeps it from happening; after it, it has."""

    reach: Reach = staticmethod(nothing)

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        self.reach(BEGIN)
        with super().write() as connection:
            yield connection
        self.reach(COMMITTED)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        self.reach(READ)
        with super().read() as connection:
            yield connection


class Runtime(FakeRuntime):
    """Knows when each server really ended. `may_remove` is told before a server or its record goes,
    `may_end` before one that runs is ended."""

    def __init__(self, clock: FakeClock, reach: Reach) -> None:
        super().__init__(clock)
        self.reach = reach
        self.gone: dict[str, datetime] = {}
        self.recorded: set[str] = set()
        self.ready_at: dict[str, datetime] = {}
        self.unkillable = False  # something of every server survives a removal
        self.may_remove: Callable[[str, bool], None] = lambda lease_id, running: None
        self.may_end: Callable[[str], None] = lambda lease_id: None

    def note(self) -> None:
        """Remember the ends of those that ended since."""
        for name, server in self.servers.items():
            if not server.running and name not in self.gone:
                self.gone[name] = server.ended_at or self._clock.now()
                if server.ended_at is not None:
                    self.recorded.add(name)

    def start(self, spec: ServerSpec) -> None:
        self.reach(BEFORE)
        super().start(spec)
        self.reach(AFTER)

    def arrive(self, spec: ServerSpec) -> None:
        """A start that whoever asked for it did not live to see."""
        super().start(spec)

    def look(self) -> Look:
        self.reach(LOOK)
        found = super().look()
        self.note()
        self.reach(LOOK)
        return found

    def stop(self, lease_id: str, grace_seconds: float) -> None:
        self.reach(BEFORE)
        if lease_id in self.alive() and not self.outage:
            self.may_end(lease_id)
        super().stop(lease_id, grace_seconds)
        self.note()
        self.reach(AFTER)

    def remove(self, lease_id: str) -> None:
        self.reach(BEFORE)
        self.note()
        running = lease_id in self.alive()
        if self.unkillable:
            raise RuntimeError(f"lease {lease_id}: something survives SIGKILL")
        if lease_id in self.servers and not self.outage:
            self.may_remove(lease_id, running)
            if running:
                self.may_end(lease_id)
        super().remove(lease_id)
        if running:
            self.gone[lease_id] = self._clock.now()
        self.reach(AFTER)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: `turn` runs once what is due by the world's clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock_of_the_world = clock
        self.shared: dict[str, Any] = {}  # what else is one for a process
        self.set_exception_handler(lambda *_: None)  # tasks of the dead complain of nothing

    def time(self) -> float:
        return self._clock_of_the_world.run.total_seconds()

    def turn(self) -> None:
        self.call_soon(self.stop)
        self.run_forever()


class Template:
    """One database file and one engine (whose compiled statements are worth keeping), made new for every world."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "book.sqlite"
        self.store = CrashingStore(f"sqlite:///{self.path}")
        _make_book(self.store)
        self.store.close()
        shutil.copy(self.path, folder / "template")

    def fresh(self) -> CrashingStore:
        self.store.reach = nothing
        self.store.close()
        for name in ("book.sqlite-wal", "book.sqlite-shm"):
            self.path.with_name(name).unlink(missing_ok=True)
        shutil.copy(self.path.with_name("template"), self.path)
        return self.store


def _make_book(store: Store) -> None:
    """A book with one device and the users' accounts."""
    clock = FakeClock()
    store.migrate()
    bank, rows = Bank(store, clock, DEFAULTS), Rows(store, clock)
    for user in USERS:
        bank.ensure_account(user)
    rows.put_devices(HOST, to_devices(HOST, SimulatedInventory(1).read(), (), clock.now()))
