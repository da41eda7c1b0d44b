"""A site without a hub: the real book on SQLite, a runtime, an agent; the spawner's steps are taken by hand."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from quota.alerts import Alerts
from quota.bank import Bank, Defaults
from quota.book import Book
from quota.leases import Holder, Lease, LeaseRequest
from quota.ports import Clock
from quota.rows import Rows
from quota.store import Store
from quota.units import MicroCredits, MilliGpu
from spawner.agent import Agent, AgentPolicy
from spawner.placement import best_fit
from spawner.ports import Inventory, Runtime, ServerSpec
from spawner.simulated import SimulatedInventory
from tests.fakes.clock import FakeClock
from tests.fakes.notifier import Told
from tests.fakes.runtime import FakeRuntime

HOST = "host-a"
GPU_HOUR = MicroCredits(1_000_000)


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where the machine has one: thousands of commits, each synced, are slow on a busy disk."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(
        prefix="berth-test-", dir=memory if os.access(memory, os.W_OK) else None
    ) as folder:
        yield Path(folder)


class Site:
    """`boot` is the hub's; it beats when told to."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        runtime: Runtime,
        *,
        inventory: Inventory | None = None,
        grant: int = 100_000_000,
        policy: AgentPolicy | None = None,
    ) -> None:
        self.clock = clock
        self.runtime = runtime
        self.store = Store(f"sqlite:///{folder}/book.sqlite")
        self.store.migrate()
        self.bank = Bank(
            self.store, clock, Defaults(monthly_grant=MicroCredits(grant), max_servers=None, max_gpu_milli=None)
        )
        self.book = Book(self.store, clock, self.bank)
        self.rows = Rows(self.store, clock)
        self.alerts = Alerts(self.store, clock)
        self.inventory = inventory or SimulatedInventory(2, seed="site")
        self.policy = policy or AgentPolicy()
        self.told = Told()
        self.boot = "hub-1"
        self.rows.beat(self.boot, "hub", HOST)
        self.agent = self.new_agent()

    def new_agent(self, boot: str = "agent-1", policy: AgentPolicy | None = None) -> Agent:
        parts = (self.book, self.rows, self.runtime, self.inventory, self.clock)
        return Agent(*parts, HOST, boot, policy or self.policy, self.alerts, self.told)

    def reserve(self, user: str = "ada", share: int = 500, server: str = "", count: int = 1) -> Lease:
        if not self.rows.devices():
            self.agent.cycle()
        request = LeaseRequest(
            holder=Holder(user, server),
            account=user,
            profile="gpu",
            image="here",
            share=MilliGpu(share),
            count=count if share else 0,
            owner=self.boot,
            requested_by=user,
        )
        return self.book.reserve(request, best_fit)

    def mark_starting(self, lease: Lease) -> Lease:
        return self.book.mark_starting(lease, self.clock.now() + timedelta(seconds=60))

    def mark_running(self, lease: Lease) -> Lease:
        return self.book.mark_running(lease, self.boot, self.clock.now())

    def run(self, user: str = "ada", share: int = 500, *, spec: ServerSpec | None = None, **more: object) -> Lease:
        """A confirmed lease, its server running in a fake runtime."""
        lease = self.mark_starting(self.reserve(user, share, **more))  # type: ignore[arg-type]
        self.runtime.start(spec or ServerSpec(lease.id, ("serve",), {}, "/"))
        return self.mark_running(lease)

    def now(self, lease: Lease) -> Lease:
        return self.book.lease(lease.id)

    def cycles(self, number: int = 6) -> None:
        for _ in range(number):
            self.agent.cycle()

    def assert_clean(self) -> None:
        """Nothing runs, nothing is held, every sum is right."""
        assert self.runtime.look() == {}
        assert self.book.unsettled() == []
        assert self.bank.audit() == []
        assert [view.held for view in self.bank.accounts() if view.held] == []
        assert [device.used for device in self.rows.devices() if device.used] == []

    def close(self) -> None:
        self.store.close()


class SimulatedSite(Site):
    """On a fake clock, with a fake runtime."""

    clock: FakeClock
    runtime: FakeRuntime

    def live_for(self, seconds: int, *, step: int = 1, hub: bool = True) -> None:
        """Time passes in steps of seconds; the agent cycles, the hub's heart beats."""
        for _ in range(seconds // step):
            self.clock.advance(step)
            if hub:
                self.rows.beat(self.boot, "hub", HOST)
            self.agent.cycle()


def simulated_site(folder: Path, **more: object) -> SimulatedSite:
    clock = FakeClock()
    return SimulatedSite(folder, clock, FakeRuntime(clock), **more)  # type: ignore[arg-type]
