"""The book under fire: processes that do everything at random at once, and one that checks every invariant meanwhile.

`python -m benchmarks.fire --json [--seconds 60] [--processes 8] [--database sqlite|postgresql|both]`

Each process reserves, starts, meters, stops, releases, settles, voids, grants, refunds, changes limits and prices and
reads, on leases of its own and of others, so that most writes race. Time runs `--speed` times as fast and passes the
end of a month half-way, so that grants expire and are given under fire. An observer looks all the while, each time at
one snapshot: the book's audit, and by questions of its own that no device is given away beyond 1000 and postings sum
to 0.
At the end all that is left is wound up and everything is counted again. A violation, or an error that is no answer of
the book's, makes the exit code 1.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import sqlalchemy as sa

from benchmarks.common import add_database, arguments, book_on, machine, on_each, show
from quota import schema
from quota.bank import INHERIT, Bank, Defaults
from quota.book import Book
from quota.errors import Conflict, NotFound, Refused, Stale
from quota.leases import Device, DeviceState, Holder, Lease, LeaseRequest, State, StopReason, Target
from quota.rows import Rows, Sample
from quota.store import Store
from quota.transitions import IllegalMove
from quota.units import CREDIT, MilliGpu
from spawner.placement import best_fit

HOST = "fire"
USERS = 40
GPUS = 12
ZONE = "America/New_York"
#: When March ends in this zone.
MONTH_END = datetime(2026, 4, 1, 4, tzinfo=UTC)
SHARES = ((0, 0), (125, 1), (250, 1), (500, 1), (1000, 1), (1000, 2))
#: What the book may answer to somebody who was too slow or asks too much.
ANSWERS = (Refused, Stale, Conflict, NotFound, IllegalMove)


@dataclass(frozen=True)
class FastClock:
    """`speed` times as fast as this machine's monotonic clock, which all its processes share."""

    start: datetime
    origin: float
    speed: float

    def now(self) -> datetime:
        return self.start + timedelta(seconds=(time.monotonic() - self.origin) * self.speed)


class Worker:
    """One process's hands on the book. Every method of `OPERATIONS` is one random operation."""

    def __init__(self, store: Store, clock: FastClock, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = clock
        self.bank = Bank(store, clock, Defaults(monthly_grant=CREDIT * 3, zone=ZONE, max_servers=3, max_gpu_milli=3000))
        self.rows = Rows(store, clock)
        self.book = Book(store, clock, self.bank)
        self.boot = f"boot-{seed}"
        self.known: list[str] = []

    def user(self) -> str:
        return f"user{self.random.randrange(USERS)}"

    def some(self) -> Lease:
        """A lease of mine or of anybody. Raises `NotFound` while there is none."""
        if not self.known or self.random.random() < 0.1:
            self.known = [lease.id for lease in self.book.leases(limit=60)]
        if not self.known:
            raise NotFound("no lease yet")
        return self.book.lease(self.random.choice(self.known))

    # ---- a life --------------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        share, count = self.random.choice(SHARES)
        user = self.user()
        holder = Holder(user, self.random.choice(("", "a", "b")))
        request = LeaseRequest(holder, user, "p", "env", MilliGpu(share), count, self.boot, user, hold_seconds=600)
        lease = self.book.reserve(request, lambda devices, asked: best_fit(devices, asked, home=HOST))
        self.known = [*self.known[-80:], lease.id]
        if self.random.random() < 0.8:
            lease = self.book.mark_starting(lease, self.clock.now() + timedelta(minutes=5))
            self.rows.beat(self.boot, "hub", HOST)
            self.book.mark_running(lease, self.boot, self.clock.now())

    def meter(self) -> None:
        self.book.meter(self.some(), self.clock.now())

    def observe(self) -> None:
        self.book.observe_all([self.some() for _ in range(3)], self.clock.now())

    def stop(self) -> None:
        lease = self.some()
        self.book.request_stop(lease.id, self.random.choice(list(StopReason)), stop_after=self.clock.now())

    def cancel(self) -> None:
        self.book.cancel_stop(self.some().id, "fire")

    def forward(self) -> None:
        """A step further for one that is to stop, as the agent does."""
        lease = self.some()
        if lease.state is State.RELEASED:
            self.book.settle(lease)
        elif lease.target is Target.STOP and lease.state is State.STOPPING:
            self.book.release(lease, self.clock.now() - timedelta(seconds=self.random.randrange(20)))
        elif lease.target is Target.STOP:
            self.book.acknowledge(lease.id, lease.owner or self.boot)

    def close(self) -> None:
        lease = self.some()
        if lease.live and lease.started_at is not None and self.random.random() < 0.5:
            self.book.close(lease, self.clock.now(), StopReason.FAILED, "it ended by itself")

    def void(self) -> None:
        self.book.void(self.some().id)

    # ---- money ---------------------------------------------------------------------------------------------------

    def grant(self) -> None:
        key = f"k{self.random.randrange(300)}" if self.random.random() < 0.5 else None
        self.bank.ensure_account(name := self.user())
        amount = CREDIT // 2 if key else self.random.randrange(1, CREDIT)
        expires = self.clock.now() + timedelta(minutes=self.random.randrange(1, 90)) if not key else None
        self.bank.grant(name, amount, by="fire", key=key, expires_at=expires)

    def refund(self) -> None:
        amount = None if self.random.random() < 0.5 else self.random.randrange(1, CREDIT)
        self.bank.refund(self.some().id, amount, by="fire", note="")

    def limits(self) -> None:
        name = self.user()
        self.bank.ensure_account(name)
        monthly = self.random.choice((None, INHERIT, CREDIT, 50 * CREDIT))
        self.bank.set_limits(name, {"max_servers": self.random.choice((1, 3, None)), "monthly_micro": monthly}, "fire")

    def prices(self) -> None:
        self.bank.set_price(self.random.randrange(4 * CREDIT), self.random.randrange(CREDIT), by="fire")

    # ---- reads, and what the agent writes ------------------------------------------------------------------------

    def statement(self) -> None:
        self.bank.ensure_account(name := self.user())
        self.bank.statement(name, self.clock.now() - timedelta(hours=1), self.clock.now())

    def account(self) -> None:
        self.bank.ensure_account(name := self.user())
        self.bank.account(name)

    def lists(self) -> None:
        self.random.choice((self.book.live, self.book.unsettled, self.rows.devices, self.rows.events))()

    def sample(self) -> None:
        lease = self.some()
        self.rows.put_sample(lease.id, Sample(self.clock.now(), cpu_seconds=1.0))
        self.rows.put_signal(lease.id, "kit", {"kernels": []}, self.clock.now())


OPERATIONS: dict[Callable[[Worker], None], int] = {
    Worker.reserve: 14,
    Worker.meter: 14,
    Worker.observe: 6,
    Worker.stop: 8,
    Worker.cancel: 2,
    Worker.forward: 26,
    Worker.close: 3,
    Worker.void: 1,
    Worker.grant: 4,
    Worker.refund: 3,
    Worker.limits: 1,
    Worker.prices: 1,
    Worker.statement: 3,
    Worker.account: 5,
    Worker.lists: 5,
    Worker.sample: 4,
}


def kind_of(error: BaseException) -> str:
    return error.reason.value if isinstance(error, Refused) else type(error).__name__


def work(url: str, clock: FastClock, seed: int, seconds: float, ready: Barrier, results: Any) -> None:
    """A process: random operations for so long, once all are ready. Puts what it did, what was answered, and what
    should not have been."""
    done, answered, wrong = Counter[str](), Counter[str](), Counter[str]()
    with Store(url) as store:
        worker = Worker(store, clock, seed)
        operations, weights = list(OPERATIONS), list(OPERATIONS.values())
        ready.wait(120)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            operation = worker.random.choices(operations, weights)[0]
            try:
                operation(worker)
                done[operation.__name__] += 1
            except ANSWERS as error:
                busy = isinstance(error, Refused) and error.reason.value == "book-unavailable"
                (wrong if busy else answered)[kind_of(error)] += 1
            except Exception as error:
                wrong[f"{operation.__name__}: {type(error).__name__}: {str(error)[:200]}"] += 1
    results.put((done, answered, wrong))


def violations(store: Store) -> list[str]:
    """What must not be, asked in other words than the book's own audit has."""
    slot, posting, balance, lease = schema.slot, schema.posting, schema.balance, schema.lease
    with store.read() as connection:
        per_device = sa.select(slot.c.device, sa.func.sum(slot.c.share).label("held")).where(
            slot.c.released_at.is_(None)
        )
        found = [
            f"device {row.device} holds {row.held}"
            for row in connection.execute(per_device.where(slot.c.device.is_not(None)).group_by(slot.c.device))
            if row.held > 1000
        ]
        for name, column in (("postings", posting.c.amount), ("balances", balance.c.amount)):
            total = int(connection.scalar(sa.select(sa.func.sum(column))) or 0)
            if total:
                found.append(f"{name} sum to {total}")
        live = sa.select(lease.c.holder_user, lease.c.holder_server).where(sa.text(schema.LIVE_SQL))
        holders = Counter(tuple(row) for row in connection.execute(live))
        found += [f"{holder} has {number} live leases" for holder, number in holders.items() if number > 1]
    return found


def observe(url: str, clock: FastClock, stop: Event, results: Any) -> None:
    """A process: look at snapshots until told to stop."""
    looks, found = 0, []
    with Store(url) as store:
        bank = Bank(store, clock, Defaults(zone=ZONE))
        while not stop.wait(0.2):
            found += violations(store) + [str(finding) for finding in bank.audit()]
            looks += 1
    results.put((looks, found[:20]))


def wind_up(worker: Worker) -> int:
    """End all that is left, as the agent would. How many there were."""
    left = worker.book.unsettled()
    for lease in left:
        if lease.live:
            worker.book.request_stop(lease.id, StopReason.PLATFORM)
            lease = worker.book.acknowledge(lease.id, lease.owner or "")
            lease = worker.book.release(lease, worker.clock.now())
        worker.book.settle(lease)
    return len(left)


def on_fire(url: str, seconds: float, processes: int, speed: float) -> dict[str, Any]:
    # The processes take some seconds to start, in which the book's time runs as well.
    clock = FastClock(MONTH_END - timedelta(seconds=(seconds / 2 + 5) * speed), time.monotonic(), speed)
    context = multiprocessing.get_context("spawn")
    results, looked, stop = context.Queue(), context.Queue(), context.Event()
    with Store(url) as store:
        worker = Worker(store, clock, 0)
        worker.bank.seed()
        devices = [
            Device(HOST, f"SIM-{n:02}", n, "simulated GPU", 24576, "time-slice", True, DeviceState.OK)
            for n in range(GPUS)
        ]
        worker.rows.put_devices(HOST, devices)
        observer = context.Process(target=observe, args=(url, clock, stop, looked))
        observer.start()
        ready = context.Barrier(processes + 1)
        workers = [
            context.Process(target=work, args=(url, clock, number + 1, seconds, ready, results))
            for number in range(processes)
        ]
        for process in workers:
            process.start()
        ready.wait(120)
        began = time.monotonic()
        told = [results.get(timeout=seconds + 120) for _ in workers]
        took = time.monotonic() - began
        stop.set()
        looks, seen = looked.get(timeout=120)
        for process in (*workers, observer):
            process.join(30)
        left = wind_up(worker)
        end = violations(store) + [str(finding) for finding in worker.bank.audit()]
        with store.read() as connection:
            sizes = {
                table.name: connection.scalar(sa.select(sa.func.count()).select_from(table))
                for table in (schema.lease, schema.posting, schema.event)
            }
    done, answered, wrong = (sum((each[part] for each in told), Counter[str]()) for part in range(3))
    return {
        "operations_per_second": round(sum(done.values()) / took, 1),
        "answers_per_second": round((sum(done.values()) + sum(answered.values())) / took, 1),
        "done": dict(done.most_common()),
        "answered": dict(answered.most_common()),
        "errors": dict(wrong.most_common()),
        "rows": sizes,
        "wound_up_at_the_end": left,
        "looks_of_the_observer": looks,
        "violations_meanwhile": seen,
        "violations_at_the_end": end[:20],
    }


def clean(result: dict[str, Any]) -> bool:
    """Whether a database came through without a violation or a strange error."""
    if "skipped" in result:
        return True
    return not (result["errors"] or result["violations_meanwhile"] or result["violations_at_the_end"])


def main(words: list[str] | None = None) -> int:
    parser = arguments("fire", __doc__)
    add_database(parser)
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--processes", type=int, default=8, help="how many processes at once (8)")
    parser.add_argument("--speed", type=float, default=120, help="seconds of the book's time in one second (120)")
    options = parser.parse_args(words)

    def measure(kind: str) -> dict[str, Any]:
        with book_on(kind, options.folder) as url:
            return on_fire(url, options.seconds, options.processes, options.speed)

    found = on_each(options.database, measure)
    setting = {"benchmark": "fire", "seconds": options.seconds, "processes": options.processes}
    show(setting | {"machine": machine()} | found, options.json)
    return 0 if all(clean(result) for result in found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
