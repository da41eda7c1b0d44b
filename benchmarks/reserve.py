"""How many reservations a second the book makes: entitlement, hold, placement and commit, with many live leases.

`python -m benchmarks.reserve --json` prints one JSON object. The book is SQLite on disk (WAL, synchronous=FULL) in a
folder of its own; `--folder` chooses the disk. First one process reserves, each time with `--leases` leases live;
then `--processes` reserve at once, and everything they did is counted again: a lease, a slot, a posting or a bump of
a version that is missing is a lost update.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.bank import Bank, Defaults
from quota.book import Book
from quota.clock import SystemClock
from quota.leases import Device, DeviceState, Holder, Lease, LeaseRequest, StopReason
from quota.rows import Rows
from quota.store import Store
from quota.units import WHOLE_GPU, MilliGpu
from spawner.placement import best_fit

SHARE = MilliGpu(125)
HOST = "bench"
BOOT = "bench-boot"
USERS = 50


class Desk:
    """The book's parts on one file."""

    def __init__(self, store: Store) -> None:
        clock = SystemClock()
        self.store = store
        self.bank = Bank(store, clock, Defaults(max_servers=None, max_gpu_milli=None))
        self.rows = Rows(store, clock)
        self.book = Book(store, clock, self.bank)

    def reserve(self, number: int, prefix: str) -> Lease:
        user = f"user{number % USERS}"
        holder = Holder(user, f"{prefix}{number}")
        return self.book.reserve(LeaseRequest(holder, user, "gpu-1-8", "env", SHARE, 1, BOOT, user), best_fit)

    def end(self, lease: Lease) -> None:
        """The rest of a life that never ran: four more transactions."""
        self.book.request_stop(lease.id, StopReason.USER)
        lease = self.book.acknowledge(lease.id, BOOT)
        self.book.settle(self.book.release(lease))


def fill(desk: Desk, leases: int, spare: int) -> int:
    """Devices for all there will be, accounts, and the leases that are live all the while. The number of devices."""
    devices = -(-(leases + spare) * SHARE // WHOLE_GPU)
    desk.rows.put_devices(
        HOST,
        [
            Device(HOST, f"SIM-{n:04}", n, "simulated GPU", 24576, "time-slice", True, DeviceState.OK)
            for n in range(devices)
        ],
    )
    for number in range(leases):
        desk.reserve(number, "live")
    return devices


def measure(desk: Desk, count: int) -> dict[str, float]:
    """One process: each reservation timed, and then ended so that the number of live leases stays.

    `cpu_ms` is the processor's part of one; the rest is the disk, and whoever else is on the machine.
    """
    reserving, ending, cpu = [], [], 0.0
    for number in range(count):
        begin, before = time.perf_counter(), time.process_time()
        lease = desk.reserve(number, "one")
        middle = time.perf_counter()
        cpu += time.process_time() - before
        desk.end(lease)
        reserving.append(middle - begin)
        ending.append(time.perf_counter() - middle)
    return {
        "reservations_per_second": round(count / sum(reserving), 1),
        "median_ms": round(1000 * statistics.median(reserving), 2),
        "p99_ms": round(1000 * statistics.quantiles(reserving, n=100)[98], 2),
        "cpu_ms": round(1000 * cpu / count, 2),
        "whole_lives_per_second": round(count / (sum(reserving) + sum(ending)), 1),
    }


def work(url: str, process: int, count: int) -> tuple[float, float]:
    """In a process of its own: reserve `count` times; from when to when, by the machine's monotonic clock."""
    with Store(url) as store:
        desk = Desk(store)
        begin = time.monotonic()
        for number in range(count):
            desk.reserve(number, f"p{process}-")
        return begin, time.monotonic()


def measure_many(url: str, processes: int, count: int) -> float:
    """Reservations a second of several processes together."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        spans = [pool.submit(work, url, process, count) for process in range(processes)]
        times = [span.result() for span in spans]
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    return round(processes * count / seconds, 1)


def counted(desk: Desk) -> dict[str, int]:
    """What the book holds, counted in ways that do not know of each other."""
    live_slots = schema.slot.c.released_at.is_(None)
    questions = {
        "leases": sa.select(sa.func.count()).select_from(schema.lease).where(sa.text(schema.LIVE_SQL)),
        "milli_gpu": sa.select(sa.func.sum(schema.slot.c.share)).where(live_slots),
        "held": sa.select(sa.func.sum(schema.lease.c.held)),
        "bumps": sa.select(schema.host.c.version),
    }
    with desk.store.read() as connection:
        return {name: int(connection.scalar(question) or 0) for name, question in questions.items()}


def lost(before: dict[str, int], after: dict[str, int], made: int, hold: int) -> int:
    """Updates that are missing (or too many) after `made` reservations of `hold` micro-credits each."""
    steps = {"leases": 1, "milli_gpu": int(SHARE), "held": hold, "bumps": 1}
    return sum(abs(before[name] + made * step - after[name]) // step for name, step in steps.items())


@contextmanager
def opened(folder: str | None) -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as temporary:
        with Store(f"sqlite:///{Path(temporary) / 'book.sqlite'}") as store:
            store.migrate()
            yield store


def run(options: argparse.Namespace) -> dict[str, Any]:
    with opened(options.folder) as store:
        desk = Desk(store)
        each = -(-options.count // options.processes)
        made = options.processes * each
        devices = fill(desk, options.leases, made + 8)
        one = measure(desk, options.count)
        before = counted(desk)
        many = measure_many(str(store.url), options.processes, each)
        after = counted(desk)
        findings = desk.bank.audit()
        hold = desk.book.live()[0].held
    return {
        "name": "reserve",
        **one,
        "live_leases": options.leases,
        "devices": devices,
        "reservations": options.count,
        "processes": options.processes,
        "concurrent_reservations_per_second": many,
        "lost_updates": lost(before, after, made, hold),
        "audit_findings": len(findings),
        "database": f"SQLite {sqlite3.sqlite_version} on disk, WAL, synchronous=FULL",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reserve", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--leases", type=int, default=1000, help="live leases all the while (1000)")
    parser.add_argument("--count", type=int, default=300, help="reservations in each part (300)")
    parser.add_argument("--processes", type=int, default=4, help="processes that reserve at once (4)")
    parser.add_argument("--folder", help="where the book lies while it is measured (the system's temporary folder)")
    result = run(parser.parse_args())
    if parser.parse_args().json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:36} {value}")
    return 0 if result["lost_updates"] == 0 and result["audit_findings"] == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
