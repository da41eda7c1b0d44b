"""One of several processes that do everything at once with one book, in no order, for a while."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from quota.errors import BerthError, Reason, Refused
from quota.leases import DeviceState, Lease, LeaseRequest, State, StopReason
from quota.rows import Sample
from quota.store import Store
from tests.fakes.book import BOOT, HOST, Desk, asking, gpu, place
from tests.fakes.clock import FakeClock

USERS = ("alice", "bob", "carol", "dave", "erin")
#: Pay for any of them.
GROUPS = ("group:lab-a", "group:lab-b")
SERVERS = ("", "a", "b")
DEVICES = 4
#: A share in milli-GPU and how many of it.
SIZES = ((0, 0), (125, 1), (250, 1), (500, 1), (1000, 1), (1000, 2))


class Worker:
    """Picks an operation at a time; every lease of the book is anybody's."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk = desk
        self.random = random.Random(seed)
        self.name = f"w{seed}"

    def a_lease(self) -> Lease | None:
        leases = self.desk.book.unsettled() if self.random.random() < 0.9 else self.desk.book.leases(limit=10)
        return self.random.choice(leases) if leases else None

    def shuffled(self, leases: list[Lease]) -> list[Lease]:
        """In no order, so that a lock taken in the order given would meet others."""
        return self.random.sample(leases, k=len(leases))

    def request(self) -> LeaseRequest:
        share, count = self.random.choice(SIZES)
        user = self.random.choice(USERS)
        payer = self.random.choice((user, *GROUPS))
        return asking(user, self.random.choice(SERVERS), share, count, account=payer)

    def reserve(self) -> None:
        self.desk.book.reserve(self.request(), place)

    def go_on(self) -> None:
        """The next step of some lease, whoever began it."""
        desk, lease = self.desk, self.a_lease()
        if lease is None:
            return
        if lease.state is State.RESERVED:
            desk.book.mark_starting(lease, desk.now + timedelta(minutes=5))
        elif lease.state is State.STARTING:
            desk.beat()
            desk.book.mark_running(lease, BOOT, desk.now)
        elif lease.state is State.RUNNING:
            desk.book.request_stop(lease.id, self.random.choice(list(StopReason)), by=self.name)
            desk.book.acknowledge(lease.id, BOOT)
        elif lease.state is State.STOPPING:
            desk.book.release(lease, desk.now)
        else:
            desk.book.settle(lease)

    def on_a_lease(self) -> None:
        desk, lease = self.desk, self.a_lease()
        if lease is None:
            return
        book, rows = desk.book, desk.rows
        steps: list[Callable[[], object]] = [
            lambda: book.meter(lease, desk.now),
            lambda: book.meter(lease, desk.now),
            lambda: book.close(lease, desk.now, StopReason.FAILED),
            lambda: book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + timedelta(minutes=5)),
            lambda: book.cancel_stop(lease.id, self.name),
            lambda: book.void(lease.id),
            lambda: desk.bank.refund(lease.id, None, self.name, ""),
            lambda: book.observe_all(self.shuffled(book.live()), desk.now),
            lambda: rows.put_sample(lease.id, Sample(desk.now, 1.5, 20)),
            lambda: rows.put_signal(lease.id, "kit", {"busy": True}, desk.now),
            lambda: rows.put_verdict(lease.id, desk.now, "keep", "rule", "words", {}),
        ]
        self.random.choice(steps)()

    def on_the_site(self) -> None:
        desk, pick = self.desk, self.random
        user = pick.choice((*USERS, *GROUPS))
        steps: list[Callable[[], object]] = [
            lambda: desk.bank.grant(user, pick.randint(1, 300_000), self.name),
            lambda: desk.bank.ensure_account(f"{pick.choice(USERS)}{pick.randint(0, 20)}"),
            lambda: desk.bank.set_limits(user, {"max_servers": pick.randint(2, 9)}, self.name),
            lambda: desk.bank.set_price(pick.randint(0, 3) * 500_000, pick.randint(0, 2) * 1000, self.name),
            lambda: desk.bank.set_monthly_grant(user, pick.randint(0, 10**6), self.name),
            lambda: desk.rows.put_devices(HOST, [gpu(n) for n in pick.sample(range(DEVICES), k=DEVICES)]),
            lambda: desk.rows.set_device_state("SIM-h1-0", pick.choice(list(DeviceState)), "x", self.name),
            lambda: desk.rows.beat(f"{self.name}-{pick.randint(0, 3)}", "hub", HOST),
            lambda: desk.alerts.put(f"a{pick.randint(0, 3)}", "test", "trouble"),
            lambda: desk.alerts.clear(f"a{pick.randint(0, 3)}"),
            lambda: desk.bank.account(user),
            lambda: desk.bank.accounts(),
        ]
        pick.choice(steps)()


def work(url: str, seed: int, seconds: float) -> Counter[str]:
    """Do it for so long; how often what came of an operation. An error that is none of the book's own ends it, and
    so does a book that says it is not available."""
    counted: Counter[str] = Counter()
    with Store(url) as store:
        clock = FakeClock()
        worker = Worker(Desk(store, clock), seed)
        steps = (worker.reserve, worker.go_on, worker.go_on, worker.on_a_lease, worker.on_the_site)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            clock.advance(worker.random.choice((0, 1, 1, 5, 60)))
            try:
                worker.random.choice(steps)()
                counted["done"] += 1
            except Refused as refused:
                if refused.reason is Reason.BOOK_UNAVAILABLE:
                    raise AssertionError(str(refused)) from refused
                counted[refused.reason.value] += 1
            except BerthError as error:
                counted[type(error).__name__] += 1
    return counted
