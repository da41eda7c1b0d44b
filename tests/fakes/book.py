"""A real book on a real database for tests: a clock in the test's hand, devices, and a whole life in one call."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from quota.alerts import Alerts
from quota.answers import Answers
from quota.bank import Bank, Defaults
from quota.book import Book
from quota.leases import Device, DeviceState, Holder, Lease, LeaseRequest, Slot, StopReason
from quota.rows import Rows
from quota.store import Store
from quota.units import MilliGpu
from spawner.placement import best_fit
from tests.fakes import postgres
from tests.fakes.clock import FakeClock

HOST = "h1"
BOOT = "boot-1"


def gpu(position: int, *, host: str = HOST, simulated: bool = True) -> Device:
    uuid = f"{'SIM' if simulated else 'GPU'}-{host}-{position}"
    return Device(host, uuid, position, "simulated GPU", 24576, "time-slice", simulated, DeviceState.OK)


@cache
def _template() -> Path:
    """An empty migrated book, made once a run: copying it is much faster than migrating again."""
    path = Path(tempfile.mkdtemp(prefix="berth-book-")) / "book.sqlite"
    with Store(f"sqlite:///{path}") as store:
        store.migrate()
    return path


class Desk:
    """The book's parts on one file, and the ways a test drives them."""

    def __init__(self, store: Store, clock: FakeClock, defaults: Defaults | None = None) -> None:
        self.store, self.clock = store, clock
        self.bank = Bank(store, clock, defaults)
        self.rows = Rows(store, clock)
        self.alerts = Alerts(store, clock)
        self.answers = Answers(store, clock)
        self.book = Book(store, clock, self.bank)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def devices(self, count: int, host: str = HOST) -> list[Device]:
        devices = [gpu(number, host=host) for number in range(count)]
        self.rows.put_devices(host, devices)
        return devices

    def beat(self, boot: str = BOOT) -> None:
        self.rows.beat(boot, "hub", HOST)

    def reserve(self, user: str = "alice", server: str = "", share: int = 500, count: int = 1, **more: object) -> Lease:
        return self.book.reserve(asking(user, server, share, count, **more), place)

    def run(self, user: str = "alice", server: str = "", share: int = 500, count: int = 1, **more: object) -> Lease:
        """A lease that is RUNNING from now on."""
        lease = self.reserve(user, server, share, count, **more)
        return self.start(lease)

    def start(self, lease: Lease) -> Lease:
        self.beat()
        lease = self.book.mark_starting(lease, self.now + timedelta(minutes=5))
        return self.book.mark_running(lease, BOOT, self.now)

    def end(self, lease: Lease, reason: StopReason = StopReason.USER) -> Lease:
        """From RUNNING to SETTLED, gone now."""
        self.book.request_stop(lease.id, reason)
        return self.wind_up(self.book.acknowledge(lease.id, lease.owner or BOOT))

    def wind_up(self, lease: Lease, ended_at: datetime | None = None) -> Lease:
        """From target STOP to SETTLED; gone at `ended_at`, by default now."""
        return self.book.settle(self.book.release(lease, ended_at or self.now))

    def session(self, seconds: float, user: str = "alice", **more: object) -> Lease:
        """A whole session of so many seconds of server time, settled."""
        lease = self.run(user, **more)  # type: ignore[arg-type]
        self.clock.advance(seconds)
        return self.end(lease)


def asking(user: str = "alice", server: str = "", share: int = 500, count: int = 1, **more: object) -> LeaseRequest:
    values: dict[str, object] = {
        "account": user,
        "profile": "test",
        "image": "env",
        "owner": BOOT,
        "requested_by": user,
    }
    values |= more
    return LeaseRequest(Holder(user, server), share=MilliGpu(share), count=count, **values)  # type: ignore[arg-type]


def place(devices: Sequence[Device], request: LeaseRequest) -> tuple[Slot, ...]:
    """Where a test's leases go: the product's own placement; a CPU lease needs no device at all."""
    if request.count == 0:
        return (Slot(HOST, None, MilliGpu(0)),)
    return best_fit(devices, request)


#: Where `open_desk` makes its books; without a cluster, in SQLite files. A fixture sets it for suites that run on both.
_cluster: postgres.Cluster | None = None


@contextmanager
def books_on(cluster: postgres.Cluster | None) -> Iterator[None]:
    """Have `open_desk` make its books there until the block ends."""
    global _cluster
    before, _cluster = _cluster, cluster
    try:
        yield
    finally:
        _cluster = before


@contextmanager
def open_desk(folder: Path, clock: FakeClock | None = None, defaults: Defaults | None = None) -> Iterator[Desk]:
    """A desk on a fresh book: in `folder`, or on PostgreSQL where the suite asks for it (`books_on`)."""
    with new_store(folder) as store:
        yield Desk(store, clock or FakeClock(), defaults)


@contextmanager
def new_store(folder: Path) -> Iterator[Store]:
    """A store on an empty migrated book."""
    if _cluster is not None:
        with postgres.database(_cluster) as name, Store(_cluster.url(name)) as store:
            yield store
        return
    path = folder / "book.sqlite"
    shutil.copy(_template(), path)
    with Store(f"sqlite:///{path}") as store:
        do_not_wait_for_the_disk(store)
        yield store


def do_not_wait_for_the_disk(store: Store) -> None:
    if store.file is not None:
        sa.event.listen(store.engine, "connect", _without_waiting_for_the_disk)


def _without_waiting_for_the_disk(connection: sqlite3.Connection, _record: object) -> None:
    """No power cut is played here; `test_book_store` asks for the product's own durability."""
    connection.execute("PRAGMA synchronous = OFF")


def weights(leases: Sequence[Lease]) -> dict[str, int]:
    """Milli-GPU held of each device by these leases."""
    held: dict[str, int] = {}
    for lease in leases:
        for slot in lease.slots:
            if slot.device is not None:
                held[slot.device] = held.get(slot.device, 0) + slot.share
    return held
