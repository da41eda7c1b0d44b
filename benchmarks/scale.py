"""A full house: pages and REST with 2,000 live leases, 5,000 accounts and 5,000 users of the Hub.

`python -m benchmarks.scale --json [--leases 2000] [--users 5000] [--rounds 40] [--database sqlite|postgresql|both]`

It starts `berth up` (the real Hub, proxy, service, culler and agent) on a book and a Hub database that were filled
before, and asks over loopback as an administrator's browser and as a program with a token. The leases are on another
host, so that this machine's agent leaves them alone; their servers do not exist. The rounds go from address to
address; `p95_ms` is to be at most 300, else the exit code is 1. `cpu_ms` is what hub and service computed for one
answer, and `growth` its p50 to that of a small house (20 leases, 50 users) measured in the same run.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.common import add_database, arguments, machine, on_each, show
from hub_config.compose import Parts, parts
from hub_config.datafolder import DataFolder
from quota.bank import Bank
from quota.book import Book
from quota.leases import Device, DeviceState, Holder, LeaseRequest, Slot, StopReason
from quota.rows import Rows
from quota.units import MilliGpu

HOST, BOOT = "elsewhere", "elsewhere-boot"
TARGET_MS = 300
SMALL = (20, 50)

TOML = """
[gpus]
source = "simulated"
simulated = 2

[first_start]
max_servers = 50
"""

REST = ("leases", "leases?limit=500", "fleet", "accounts", "profiles", "me")
#: In braces: somebody with `SESSIONS` sessions behind them, the month that has most of those, a live lease.
PAGES = (
    "/services/berth/board",
    "/services/berth/board?q=user17",
    "/services/berth/admin",
    "/services/berth/admin?q=user42",
    "/services/berth/usage",
    "/services/berth/?account={user}&month={month}",
    "/services/berth/lease/{lease}",
    "/services/berth/api",
    "/hub/home",
    "/hub/spawn",
    "/hub/token",
    "/hub/admin",
    "/hub/no-such-page",
)
MISSING = "/hub/no-such-page"
SESSIONS, APART = 200, timedelta(hours=3)


# ---- filling -----------------------------------------------------------------------------------------------------


def fill_book(made: Parts, leases: int, users: int) -> None:
    """Accounts with this month's grant, and running leases of an eighth for the first of them."""
    made.store.migrate()
    made.store.close()
    sa.event.listen(made.store.engine, "connect", _without_waiting_for_the_disk)
    devices = [
        Device(HOST, f"SIM-{HOST}-{n:04}", n, "simulated GPU", 24576, "time-slice", True, DeviceState.OK)
        for n in range(-(-leases // 8))
    ]
    made.rows.put_devices(HOST, devices)
    for number in range(users):
        made.bank.ensure_account(name(number))
    _lend(made, devices, leases, users)


def _lend(made: Parts, devices: list[Device], leases: int, users: int) -> None:
    for number in range(leases):
        user, share = name(number % users), MilliGpu(125)
        slots = (Slot(HOST, devices[number // 8].uuid, share),)
        request = LeaseRequest(Holder(user, f"s{number // users}"), user, "gpu-1-8", "env", share, 1, BOOT, user)
        lease = made.book.reserve(request, lambda *_, slots=slots: slots)  # type: ignore[misc]
        lease = made.book.mark_starting(lease, made.clock.now() + timedelta(minutes=5))
        made.rows.beat(BOOT, "hub", HOST)
        made.book.mark_running(lease, BOOT, made.clock.now())
    # Their own agent, which is not there, would see them every few seconds.
    made.book.observe_all(made.book.live(), made.clock.now() + timedelta(hours=2))


def fill_history(made: Parts, user: str) -> dict[str, str]:
    """Sessions of one user over the last weeks, each paid and settled then; what the braces of `PAGES` stand for."""
    from tests.fakes.clock import FakeClock  # a program of the clone, not of an installation

    made.store.migrate()
    begin = made.clock.now() - APART * (SESSIONS + 1)
    clock = FakeClock(begin)
    bank = Bank(made.store, clock, made.bank.defaults)
    book, rows = Book(made.store, clock, bank), Rows(made.store, clock)
    for number in range(SESSIONS):
        profile, share = (("gpu-1-8", 125), ("gpu-1-4", 250), ("cpu", 0))[number % 3]
        part = (MilliGpu(share), 1) if share else (MilliGpu(0), 0)
        device = Device(HOST, f"SIM-{HOST}-old", 0, "simulated GPU", 24576, "time-slice", True, DeviceState.OK)
        rows.put_devices(HOST, [device])
        slots = (Slot(HOST, device.uuid if share else None, part[0]),)
        request = LeaseRequest(Holder(user, "old"), user, profile, "env", *part, BOOT, user)
        lease = book.reserve(request, lambda *_, slots=slots: slots)  # type: ignore[misc]
        lease = book.mark_starting(lease, clock.now() + timedelta(minutes=5))
        rows.beat(BOOT, "hub", HOST)
        lease = book.mark_running(lease, BOOT, clock.now())
        clock.advance(APART.total_seconds() / 2)
        book.request_stop(lease.id, StopReason.USER)
        book.settle(book.release(book.acknowledge(lease.id, BOOT), clock.now()))
        clock.advance(APART.total_seconds() / 2)
    return {"user": user, "month": f"{begin + APART * SESSIONS / 2:%Y-%m}"}


def _without_waiting_for_the_disk(connection: Any, _record: object) -> None:
    """Only while filling: this process's connections, none of the platform's."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def name(number: int) -> str:
    return f"user{number:05}"


def fill_hub(file: Path, users: int) -> None:
    """Users into the Hub's own database, which one start of it has made; as if each had been added by an admin."""
    with closing(sqlite3.connect(file)) as connection, connection:
        (role,) = connection.execute("SELECT id FROM roles WHERE name = 'user'").fetchone()
        for number in range(users):
            values = (name(number), False, f"cookie-{number}")
            added = connection.execute("INSERT INTO users (name, admin, cookie_id) VALUES (?, ?, ?)", values)
            mapped = (added.lastrowid, role)
            connection.execute("INSERT INTO user_role_map (user_id, role_id, managed_by_auth) VALUES (?, ?, 0)", mapped)
            connection.execute("INSERT INTO spawners (user_id, name) VALUES (?, '')", (added.lastrowid,))


# ---- measuring ---------------------------------------------------------------------------------------------------


def house(folder: Path, toml: str, leases: int, users: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds and size of each address in a house of this size."""
    from tests.harness import Stack, free_port  # a program of the clone, not of an installation

    stack = Stack(folder, toml)
    with stack:  # makes the folder, the secrets and the Hub's database
        pass
    made = parts(folder)
    assert isinstance(made.data, DataFolder)
    stands = fill_history(made, name(0))
    fill_book(made, leases, users)
    stands["lease"] = made.book.live(name(0))[0].id
    made.store.close()
    fill_hub(made.data.hub / "jupyterhub.sqlite", users)
    stack.port = free_port()  # somebody may have taken the old one while the books were filled
    try:
        stack.up()
        admin = stack.admin
        asks = {f"GET {path}": (admin.api, f"/services/berth/api/v1/{path}") for path in REST}
        asks |= {path: (admin.browser, path.format(**stands)) for path in PAGES}
        took: dict[str, list[float]] = {word: [] for word in asks}
        used: dict[str, list[float]] = {word: [] for word in asks}
        sizes: dict[str, int] = {}
        for number in range(rounds + 2):
            for word, (client, path) in asks.items():
                before = cpu_seconds(stack)
                began = time.perf_counter()
                answer = client.get(path)
                seconds = time.perf_counter() - began
                assert answer.status_code == (404 if path == MISSING else 200), f"{path}: {answer.status_code}"
                assert answer.url.path == path.partition("?")[0], f"{path} led to {answer.url}"
                sizes[word] = len(answer.content)
                if number > 1:
                    took[word].append(seconds)
                    used[word].append(cpu_seconds(stack) - before)
    finally:
        stack.end_hard()  # in good order it would wait for the ends of servers on a host that does not exist
    return {
        word: figures(times)
        | {"cpu_ms": round(1000 * statistics.median(used[word]), 1), "kib": round(sizes[word] / 1024, 1)}
        for word, times in took.items()
    }


def cpu_seconds(stack: Any) -> float:
    """Time on a processor of hub and service so far, all threads: what a busy machine does not stretch."""
    total = 0
    for part in ("hub", "berth"):
        for file in Path(f"/proc/{stack.pid(part)}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(file.read_text(encoding="ascii").split()[0])
    return total / 1e9


def figures(times: Iterable[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_ms": round(1000 * statistics.median(ordered), 1),
        "p95_ms": round(1000 * ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 1),
    }


def both(toml: str, leases: int, users: int, rounds: int, folder: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as root:
        full = house(Path(root) / "full", toml.replace("BOOK", "full"), leases, users, rounds)
        small = house(Path(root) / "small", toml.replace("BOOK", "small"), *SMALL, rounds)
    for word, found in full.items():
        found["growth"] = round(found["p50_ms"] / small[word]["p50_ms"], 2)
    return full


def measure(kind: str, options: Any) -> dict[str, Any]:
    if kind == "sqlite":
        return both(TOML, options.leases, options.users, options.rounds, options.folder)
    from tests.fakes import postgres

    with postgres.Cluster(durable=True) as cluster:
        full, small = cluster.migrated(), cluster.migrated()
        urls = cluster.url("BOOK")
        toml = f'{TOML}\n[book]\nurl = "{urls}"\n'
        with cluster.connect() as admin:
            for database, wanted in ((full, "full"), (small, "small")):
                admin.execute(f'ALTER DATABASE "{database}" RENAME TO "{wanted}"'.encode())
        return both(toml, options.leases, options.users, options.rounds, options.folder)


def main(words: list[str] | None = None) -> int:
    parser = arguments("scale", __doc__)
    add_database(parser)
    parser.add_argument("--leases", type=int, default=2000, help="running leases (2000)")
    parser.add_argument("--users", type=int, default=5000, help="accounts, and users of the Hub (5000)")
    parser.add_argument("--rounds", type=int, default=40, help="how often each address is asked (40)")
    options = parser.parse_args(words)
    found = on_each(options.database, lambda kind: measure(kind, options))
    slow = [
        f"{kind} {word}"
        for kind, each in found.items()
        for word, figure in each.items()
        if isinstance(figure, dict) and figure["p95_ms"] > TARGET_MS
    ]
    setting = {"benchmark": "scale", "leases": options.leases, "users": options.users, "target_p95_ms": TARGET_MS}
    show(setting | {"machine": machine()} | found | {"too_slow": slow}, options.json)
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
