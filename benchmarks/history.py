"""What the book's daily work costs as its history grows: the same work beside 10,000, 100,000 and 1,000,000 postings.

`python -m benchmarks.history --json [--sizes 10000,100000,1000000] [--rounds 30] [--database sqlite|postgresql|both]`

A book of each size is filled in bulk (ten postings, five events, a segment, a slot, a sample and a verdict for each old
lease; five years, 200 users), so that its own audit finds nothing. Then rounds go from book to book, so that what else
the machine does meets all alike; `ratio` is the cost beside the largest history to that beside the smallest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from benchmarks.common import add_database, arguments, book_on, machine, on_each, show
from quota import schema
from quota.bank import Bank, Defaults
from quota.book import Book
from quota.leases import Device, DeviceState, Holder, Lease, LeaseRequest, StopReason
from quota.metering import month_name
from quota.rows import Rows
from quota.store import Store
from quota.units import CREDIT, MilliGpu
from spawner.placement import best_fit

HOST, BOOT = "old", "old-boot"
USERS = 200
DEVICES = 64
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
YEARS = timedelta(days=5 * 365)
POSTINGS_PER_LEASE = 10
SECONDS = 3600  # of each old lease, at 125 milli-GPU
COST = CREDIT // 8
CHUNK = 2000  # leases in one bulk insert
RECENT = 10  # leases of this month of the user who is asked about, whatever the size


#: Seconds by the clock and of this process's processor.
Cost = tuple[float, float]


class SteppedClock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


class Desk:
    """The book's parts on one database."""

    def __init__(self, store: Store) -> None:
        self.clock, self.store = SteppedClock(), store
        self.bank = Bank(store, self.clock, Defaults(max_servers=None, max_gpu_milli=None))
        self.rows = Rows(store, self.clock)
        self.book = Book(store, self.clock, self.bank)

    def life(self, number: int) -> Lease:
        """Reserve, start, meter and settle one lease of an eighth."""
        user = f"user{number % USERS}"
        holder = Holder(user, f"n{number}")
        lease = self.book.reserve(LeaseRequest(holder, user, "p", "env", MilliGpu(125), 1, BOOT, user), best_fit)
        lease = self.book.mark_starting(lease, self.clock.at + timedelta(minutes=5))
        self.rows.beat(BOOT, "hub", HOST)
        lease = self.book.mark_running(lease, BOOT, self.clock.at)
        self.clock.at += timedelta(seconds=60)
        self.book.meter(lease, self.clock.at)
        self.book.request_stop(lease.id, StopReason.USER)
        lease = self.book.acknowledge(lease.id, BOOT)
        return self.book.settle(self.book.release(lease, self.clock.at))


# ---- an old book -------------------------------------------------------------------------------------------------


def fill(desk: Desk, postings: int) -> None:
    """A history of so many postings."""
    desk.bank.seed()
    desk.rows.put_devices(
        HOST,
        [Device(HOST, f"D{n}", n, "simulated GPU", 24576, "time-slice", True, DeviceState.OK) for n in range(DEVICES)],
    )
    with desk.store.write() as connection:
        names = [{"id": n + 1, "name": f"user{n}", "kind": "user", "created_at": NOW - YEARS} for n in range(USERS)]
        connection.execute(sa.insert(schema.account), names)
    leases = max(1, postings // POSTINGS_PER_LEASE)
    buckets = Buckets()
    with desk.store.write() as connection:
        for first in range(0, leases, CHUNK):
            Old(range(first, min(leases, first + CHUNK)), leases, buckets).insert(connection)
        buckets.insert(connection)
        if connection.dialect.name == "postgresql":
            _move_sequences(connection)
    for number in range(RECENT):
        desk.life(number * USERS)  # all of user0


class Buckets:
    """The monthly grants of all users, each as large as what was paid from it, and their sums."""

    def __init__(self) -> None:
        self.ids: dict[tuple[int, str], int] = {}
        self.paid: dict[int, int] = {}
        self.month: dict[tuple[int, str], int] = {}

    def pay(self, account: int, month: str) -> int:
        bucket = self.ids.setdefault((account, month), len(self.ids) + 1)
        self.paid[bucket] = self.paid.get(bucket, 0) + COST
        self.month[(account, month)] = self.month.get((account, month), 0) + COST
        return bucket

    def insert(self, connection: sa.Connection) -> None:
        grants, legs, balances, total = [], [], [], sum(self.paid.values())
        for (account, month), bucket in self.ids.items():
            amount, begin = self.paid[bucket], datetime.fromisoformat(f"{month}-01T00:00:00+00:00")
            ends = begin + timedelta(days=31)
            row = {"id": bucket, "account_id": account, "key": f"old:{account}:{month}", "amount": amount}
            grants.append(row | {"granted_at": begin, "expires_at": ends, "expired_at": ends, "by": "", "note": ""})
            common = {"key": f"grant:{bucket}", "kind": "grant", "account_id": account, "lease_id": None, "at": begin}
            legs.append(common | {"leg": 0, "sub": "platform:issued", "amount": -amount})
            legs.append(common | {"leg": 1, "sub": f"grant:{bucket}", "amount": amount})
            balances.append({"sub": f"grant:{bucket}", "amount": 0})
        connection.execute(sa.insert(schema.grant_bucket), grants)
        connection.execute(sa.insert(schema.posting), legs)
        connection.execute(sa.insert(schema.balance), balances)
        for sub, change in (("platform:issued", -total), ("platform:revenue", total)):
            table = schema.balance
            connection.execute(sa.update(table).where(table.c.sub == sub).values(amount=table.c.amount + change))
        months = [{"account_id": a, "month": m, "charged": charged} for (a, m), charged in self.month.items()]
        connection.execute(sa.insert(schema.month_charge), months)


class Old:
    """Some settled leases, spread evenly over the years."""

    def __init__(self, numbers: range, of: int, buckets: Buckets) -> None:
        self.rows: dict[sa.Table, list[dict[str, Any]]] = {
            table: []
            for table in (
                schema.lease,
                schema.slot,
                schema.segment,
                schema.posting,
                schema.balance,
                schema.event,
                schema.sample,
                schema.verdict,
            )
        }
        for number in numbers:
            begin = NOW - timedelta(days=20) - YEARS * (of - number) / (of + 1)
            self._add(number, begin, buckets)

    def _add(self, number: int, begin: datetime, buckets: Buckets) -> None:
        account, lease_id = number % USERS + 1, f"l{number:016x}"
        end, rows = begin + timedelta(seconds=SECONDS), self.rows
        rows[schema.lease].append(_lease(lease_id, account, number, begin, end))
        slot = {"lease_id": lease_id, "number": 0, "host": HOST, "device": f"D{number % DEVICES}"}
        rows[schema.slot].append(slot | {"share": 125, "released_at": end})
        segment = {"lease_id": lease_id, "number": 1, "weight": 125, "plan_id": 1}
        rows[schema.segment].append(segment | {"started_at": begin, "ended_at": end})
        bucket = buckets.pay(account, month_name(end, "UTC"))
        common = {"account_id": account, "lease_id": lease_id}
        for key, kind, at, source, target, amount in _transfers(lease_id, bucket, begin, end):
            for leg, (sub, change) in enumerate(((source, -amount), (target, amount))):
                row = {"key": key, "leg": leg, "kind": kind, "sub": sub, "amount": change, "at": at}
                rows[schema.posting].append(row | common)
        rows[schema.balance].append({"sub": f"held:{lease_id}", "amount": 0})
        for kind in ("lease-reserved", "lease-running", "stop-requested", "lease-released", "lease-settled"):
            rows[schema.event].append({"at": end, "kind": kind, "by": "", "detail": {"state": "SETTLED"}} | common)
        rows[schema.sample].append({"lease_id": lease_id, "at": end, "cpu_seconds": 1.0})
        verdict = {"lease_id": lease_id, "at": end, "kind": "keep", "rule": "used", "words": "in use"}
        rows[schema.verdict].append(verdict | {"evidence": {}, "deadline": None})

    def insert(self, connection: sa.Connection) -> None:
        for table, rows in self.rows.items():
            connection.execute(sa.insert(table), rows)


def _lease(lease_id: str, account: int, number: int, begin: datetime, end: datetime) -> dict[str, Any]:
    return {
        "id": lease_id,
        "version": 8,
        "state": "SETTLED",
        "target": "STOP",
        "holder_kind": "server",
        "holder_user": f"user{account - 1}",
        "holder_server": f"s{number}",
        "account_id": account,
        "profile": "p",
        "image": "env",
        "share": 125,
        "count": 1,
        "simulated": True,
        "plan_id": 1,
        "hold_seconds": 900,
        "owner": BOOT,
        "requested_at": begin,
        "requested_by": "",
        "started_at": begin,
        "last_seen": end,
        "ended_at": end,
        "metered_until": end,
        "stop_reason": "user",
        "stop_after": end,
        "usage": 125 * SECONDS,
        "charged": COST,
        "charges": 3,
    }


def _transfers(
    lease_id: str, bucket: int, begin: datetime, end: datetime
) -> Iterator[tuple[str, str, datetime, str, str, int]]:
    """Five transactions of two legs: a hold of twice the cost, three charges, and the rest back."""
    grant, held, part = f"grant:{bucket}", f"held:{lease_id}", COST // 3
    yield f"hold:{lease_id}", "hold", begin, grant, held, 2 * COST
    for number, amount in enumerate((part, part, COST - 2 * part), 1):
        yield f"charge:{lease_id}:{number}", "charge", end, held, "platform:revenue", amount
    yield f"settle:{lease_id}", "settle", end, held, grant, COST


def _move_sequences(connection: sa.Connection) -> None:
    """Rows were inserted with their ids; what comes next must come after them."""
    for table in ("account", "grant_bucket"):
        words = f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))"
        connection.exec_driver_sql(words)


# ---- the work ----------------------------------------------------------------------------------------------------


def work(desk: Desk) -> dict[str, Callable[[int], object]]:
    """What is measured, by name; each takes the number of the round."""
    month = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
    old = desk.book.leases(limit=RECENT * 30)
    return {
        "reserve_meter_settle": lambda n: desk.life(1 + n * 7),
        "refund": lambda n: desk.bank.refund(old[RECENT + n].id, 1000, by="", note=""),
        "grant": lambda n: desk.bank.grant("user3", CREDIT, by=""),
        "leases_page": lambda n: desk.book.leases(limit=100),
        "leases_page_of_a_user": lambda n: desk.book.leases(user="user0", limit=RECENT),
        "live_leases": lambda n: desk.book.live(),
        "unsettled_leases": lambda n: desk.book.unsettled(),
        "account_view": lambda n: desk.bank.account("user0"),
        "statement_of_a_month": lambda n: desk.bank.statement("user0", *month),
        "verdicts_samples_signals": lambda n: (desk.rows.verdicts(), desk.rows.samples(), desk.rows.all_signals()),
        "devices": lambda n: desk.rows.devices(),
        "events_of_a_lease": lambda n: desk.rows.events(lease_id=old[n].id),
    }


def measure(kind: str, sizes: list[int], rounds: int, folder: str | None) -> dict[str, Any]:
    with ExitStack() as stack:
        desks = []
        for size in sizes:
            store = stack.enter_context(Store(stack.enter_context(book_on(kind, folder))))
            desks.append(Desk(store))
            fill(desks[-1], size)
            if kind == "postgresql":  # as the server's own maintenance would within a minute
                with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    connection.exec_driver_sql("VACUUM ANALYZE")
        works = [work(desk) for desk in desks]
        took: list[dict[str, list[Cost]]] = [{name: [] for name in each} for each in works]
        for number in range(rounds + 1):
            for name in works[0]:
                for each, times in zip(works, took, strict=True):
                    began, before = time.perf_counter(), time.process_time()
                    each[name](number)
                    if number:  # the first of each is thrown away
                        times[name].append((time.perf_counter() - began, time.process_time() - before))
        findings = [str(finding) for desk in desks for finding in desk.bank.audit()]
    return result(sizes, took, findings)


def result(sizes: list[int], took: list[dict[str, list[Cost]]], findings: list[str]) -> dict[str, Any]:
    """Medians in ms, and the median over the rounds of the last size's cost to the first's: by the clock, and by this
    process's own processor time, which SQLite works in and which a busy machine leaves alone."""
    found: dict[str, Any] = {}
    for name in took[0]:
        medians = [1000 * statistics.median(each for each, _ in times[name]) for times in took]
        found[name] = {f"ms_at_{size}": round(each, 2) for size, each in zip(sizes, medians, strict=True)}
        for which, word in enumerate(("ratio", "cpu_ratio")):
            pairs = zip(took[0][name], took[-1][name], strict=True)
            found[name][word] = round(statistics.median(last[which] / first[which] for first, last in pairs), 2)
    return found | {"audit_findings": findings[:20]}


def main(words: list[str] | None = None) -> int:
    parser = arguments("history", __doc__)
    add_database(parser)
    parser.add_argument("--sizes", default="10000,100000,1000000", help="postings of each book, ascending")
    parser.add_argument("--rounds", type=int, default=30, help="how often each is measured (30)")
    options = parser.parse_args(words)
    sizes = [int(size) for size in options.sizes.split(",")]
    found = on_each(options.database, lambda kind: measure(kind, sizes, options.rounds, options.folder))
    show({"benchmark": "history", "rounds": options.rounds, "machine": machine()} | found, options.json)
    return 1 if any(each.get("audit_findings") for each in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
