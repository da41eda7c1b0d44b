"""A small world in which everything may die at every step: hubs, the agent, servers, the runtime's answers.

The real book on SQLite, the real `drift` and `Agent`, a fake runtime on a fake clock. Before and after each call that
the agent makes, and between any two steps of a hub, the seed may let others act, time pass, or somebody die.

What is checked all the time: nothing runs without a live lease, no device is given twice, no confirmed server that
nobody stopped is removed. What is checked at the end, when all has healed: nothing is left, every hold went back, every
lease is charged once and never beyond the true end of its server.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from quota.bank import Bank, Defaults
from quota.book import Book
from quota.errors import NotFound, Refused, Stale
from quota.leases import Holder, Lease, LeaseRequest, Segment, State, StopReason, Target
from quota.pricing import charge_due
from quota.rows import Rows
from quota.schema import LIVE_SQL
from quota.store import Store
from quota.units import MilliGpu
from spawner.agent import Agent, AgentPolicy
from spawner.drift import LAST_RESORT
from spawner.fleet import to_devices
from spawner.placement import best_fit
from spawner.ports import ServerSpec
from spawner.simulated import SimulatedInventory
from tests.fakes.clock import FakeClock
from tests.fakes.runtime import FakeRuntime

HOST = "host-a"
USERS = ("ada", "bob", "eve")
START_DEADLINE_S = 20
#: How long after its hub's death a start may still arrive (the runtime was asked and had not answered).
IN_FLIGHT_S = 50
NEVER = 1e9
POLICY = AgentPolicy(devices=NEVER, sample=NEVER, beat=NEVER, meter=15)

Script = Generator[str, None, None]


class Violation(BaseException):
    """The world is wrong. No `except Exception` on the way swallows it."""


class Died(BaseException):
    """The agent was killed here."""


class Runtime(FakeRuntime):
    """Knows when each server really ended."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.gone: dict[str, datetime] = {}
        self.recorded: set[str] = set()
        self.may_remove: Callable[[str, bool], None] = lambda lease_id, running: None

    def note(self) -> None:
        """Remember the ends of those that ended since."""
        for name, server in self.servers.items():
            if not server.running and name not in self.gone:
                self.gone[name] = server.ended_at or self._clock.now()
                if server.ended_at is not None:
                    self.recorded.add(name)

    def remove(self, lease_id: str) -> None:
        self.note()
        running = lease_id in self.alive()
        if lease_id in self.servers and not self.outage:
            self.may_remove(lease_id, running)
        super().remove(lease_id)
        if running:
            self.gone[lease_id] = self._clock.now()


class Chaotic:
    """Stands before a part of the world; `at` is called before and after every call of it."""

    def __init__(self, part: Any, at: Callable[[], None], after: Callable[[str], None]) -> None:
        self._part, self._at, self._after = part, at, after

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._part, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            self._at()
            answer = attribute(*args, **kwargs)
            self._after(name)
            self._at()
            return answer

        return call


class Hub:
    """One life of a hub: the spawner's steps of several servers at once, any of which may be the last."""

    def __init__(self, world: World, boot: str) -> None:
        self.world, self.boot = world, boot
        self.scripts: list[Script] = []
        self.starting: dict[str, ServerSpec] = {}  # the runtime may have been asked for these when we die
        world.rows.beat(boot, "hub", HOST)
        for lease in sorted(world.book.live(), key=lambda lease: lease.holder.user):  # ids are random
            if lease.state is State.RUNNING:
                self.scripts.append(self.stop(lease.id, world.random.randint(2, 12)))

    def step(self) -> None:
        draw = self.world.random
        if len(self.scripts) < 3 and draw.random() < 0.4:
            self.scripts.append(self.session(draw.choice(USERS), draw.choice((500, 500, 1000))))
        if self.scripts:
            script = self.scripts[-1] if draw.random() < 0.5 else draw.choice(self.scripts)
            if next(script, None) is None:
                self.scripts.remove(script)

    def session(self, user: str, share: int) -> Script:
        world, lease = self.world, None
        try:
            lease = world.book.reserve(self._request(user, share), best_fit)
            yield "reserved"
            lease = world.book.mark_starting(lease, world.clock.now() + timedelta(seconds=START_DEADLINE_S))
            self.starting[lease.id] = ServerSpec(lease.id, ("serve",), {}, "/")
            for _ in range(1 + world.random.choice((0, 0, 0, 20))):
                yield "starting"  # the home is prepared, on a slow disk now and then
            if world.random.random() < 0.2:
                world.runtime.deaf.add(lease.id)
            world.runtime.start(self.starting.pop(lease.id))
            yield "started"
            lease = world.book.mark_running(lease, self.boot, world.clock.now())
        except (Refused, Stale, RuntimeError):
            if lease is not None:
                yield from self.undo(lease.id)
            return
        yield from self.stop(lease.id, world.random.randint(2, 12))

    def undo(self, lease_id: str) -> Script:
        """As the spawner does: intent, removal, and whatever comes of that, the acknowledgement."""
        yield "failed"
        self.world.book.request_stop(lease_id, StopReason.FAILED)
        yield "told to stop"
        self._try(self.world.runtime.remove, lease_id)
        yield "removed"
        self.world.book.acknowledge(lease_id, self.boot)

    def stop(self, lease_id: str, idle_steps: int) -> Script:
        world = self.world
        for _ in range(idle_steps):
            yield "running"
        notice = timedelta(seconds=world.random.choice((0, 0, 30)))
        world.book.request_stop(lease_id, StopReason.USER, stop_after=world.clock.now() + notice)
        yield "told to stop"
        self._try(world.runtime.stop, lease_id, 5.0)
        yield "asked to end"
        if not world.runtime.outage and lease_id not in world.runtime.alive():
            self._try(world.book.acknowledge, lease_id, self.boot)

    def _request(self, user: str, share: int) -> LeaseRequest:
        return LeaseRequest(Holder(user), user, "gpu", "here", MilliGpu(share), 1, self.boot, user)

    def _try(self, call: Callable[..., object], *args: object) -> None:
        try:
            call(*args)
        except (RuntimeError, Stale, NotFound):
            pass


class Template:
    """One database file and one engine (whose compiled statements are worth keeping), made new for every seed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "book.sqlite"
        self.store = Store(f"sqlite:///{self.path}")
        make_book(self.store)
        self.store.close()
        shutil.copy(self.path, folder / "template")

    def fresh(self) -> Store:
        self.store.close()
        for name in ("book.sqlite-wal", "book.sqlite-shm"):
            self.path.with_name(name).unlink(missing_ok=True)
        shutil.copy(self.path.with_name("template"), self.path)
        return self.store


class World:
    """One seed's world. `design` makes the agent; the tests pass wrong ones too."""

    def __init__(
        self, seed: int, template: Template, design: type[Agent] = Agent, policy: AgentPolicy = POLICY
    ) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.runtime = Runtime(self.clock)
        self.runtime.may_remove = self._may_remove
        self.store = template.fresh()
        self.bank = Bank(self.store, self.clock, DEFAULTS)
        self.book = Book(self.store, self.clock, self.bank)
        self.rows = Rows(self.store, self.clock)
        self.design, self.policy = design, policy
        self.lives = 0
        self.late: list[tuple[datetime, ServerSpec]] = []
        self.back_at: datetime | None = None  # when a dead hub is started again
        self.agent = self._new_agent()
        self.hub: Hub | None = Hub(self, "hub-0")

    def _new_agent(self) -> Agent:
        book, rows, runtime = (Chaotic(part, self.chaos, self._after) for part in (self.book, self.rows, self.runtime))
        return self.design(book, rows, runtime, SimulatedInventory(0), self.clock, HOST, "agent", self.policy)  # type: ignore[arg-type]

    # ---- what may happen ---------------------------------------------------------------------------------------

    def run(self, steps: int = 40) -> None:
        """Some minutes of trouble, then health; raises `Violation`."""
        for _ in range(steps):
            self.advance(self.random.choice((1, 1, 2, 8)))
            if self.random.random() < 0.5:
                self.cycle()
            else:
                self.chaos(agent=False)
                self.hub_step()
        self.heal()

    def cycle(self) -> None:
        try:
            self.agent.cycle()
        except Died:
            self.agent = self._new_agent()

    def chaos(self, *, agent: bool = True) -> None:
        draw = self.random.random()
        if draw < 0.18:
            for _ in range(self.random.randint(1, 6)):
                self.hub_step()
        elif draw < 0.20:
            self.advance(self.random.choice((3, 25, 40)))
        elif draw < 0.22:
            self._strike()
        elif draw < 0.23:
            self.runtime.outage = "" if self.runtime.outage else "no answer"
        elif draw < 0.24 and agent:
            raise Died
        elif draw > (0.96 if self.hub and self.hub.starting else 0.99):
            self._kill_hub()

    def _strike(self) -> None:
        """A server dies, with or without a record."""
        running = self.runtime.alive()
        alive = [name for name in self.runtime.servers if name in running]
        if alive:
            victim = self.random.choice(alive)
            if self.random.random() < 0.7:
                self.runtime.end(victim, self.random.choice((0, 1, -9)))
            else:
                self.runtime.vanish(victim)
            self.runtime.note()

    def _kill_hub(self) -> None:
        if self.hub is None:
            return
        for spec in self.hub.starting.values():
            if self.random.random() < 0.8:
                arrives = self.clock.now() + timedelta(seconds=self.random.randint(0, IN_FLIGHT_S))
                self.late.append((arrives, spec))
        self.hub = None
        self.back_at = self.clock.now() + timedelta(seconds=self.random.choice((2, 15, 50)))

    def hub_step(self) -> None:
        if self.hub is not None:
            self.hub.step()
            self.runtime.note()
            self.check()

    def advance(self, seconds: float) -> None:
        """Time passes for all: hearts beat, starts on their way arrive, a dead hub comes back."""
        self.clock.advance(seconds)
        self.runtime.alive()
        self.runtime.note()
        for arrives, spec in list(self.late):
            if self.clock.now() >= arrives:
                self.late.remove((arrives, spec))
                if spec.lease_id not in self.runtime.servers and not self.runtime.outage:
                    self.runtime.start(spec)
                    self.check()
        if self.hub is None and self.back_at is not None and self.clock.now() >= self.back_at:
            self.lives += 1
            self.hub = Hub(self, f"hub-{self.lives}")
        elif self.hub is not None:
            self.rows.beat(self.hub.boot, "hub", HOST)

    # ---- what must hold ----------------------------------------------------------------------------------------

    def _after(self, name: str) -> None:
        self.runtime.note()
        if name == "release":
            self.check()

    def check(self) -> None:
        with self.store.read() as connection:
            live = connection.exec_driver_sql(f"SELECT id FROM lease WHERE {LIVE_SQL}").scalars().all()
            used = connection.exec_driver_sql("SELECT sum(share) FROM slot WHERE released_at IS NULL").scalar()
        stray = self.runtime.alive() - set(live)
        if stray:
            raise Violation(f"{stray} run without a live lease")
        if (used or 0) > 1000:
            raise Violation(f"the one device is given {used} times over")

    def _may_remove(self, lease_id: str, running: bool) -> None:
        lease = self._lease(lease_id)
        if lease is None or lease.started_at is None:
            return
        if running and lease.state is State.RUNNING and lease.target is Target.RUN:
            raise Violation(f"{lease_id} is confirmed and wanted, and was removed")
        if lease_id in self.runtime.recorded and lease.ended_at is None:
            since = self.clock.now() - (lease.stop_after or self.clock.now())
            if since < LAST_RESORT * self.policy.drift.term:
                raise Violation(f"the end of {lease_id} was on record, and the record was removed unread")
            self.runtime.recorded.discard(lease_id)  # the last resort met a server that ended by itself

    def _lease(self, lease_id: str) -> Lease | None:
        try:
            return self.book.lease(lease_id)
        except NotFound:
            return None

    def heal(self) -> None:
        """No more trouble; everything is told to stop; a few minutes later nothing may be left."""
        self.runtime.outage = ""
        self.chaos = lambda *, agent=True: None  # type: ignore[method-assign]
        self.agent = self._new_agent()
        if self.random.random() < 0.5:
            self.hub, self.back_at = None, None
        for script in self.hub.scripts if self.hub else ():
            for _ in script:
                self.advance(1)
        for lease in self.book.live():
            self.book.request_stop(lease.id, StopReason.PLATFORM)
        for _ in range(60):
            self.advance(5)
            self.agent.cycle()
            if not self.late and not self.runtime.servers and not self.book.unsettled():
                break
        self._nothing_is_left()
        for lease in self.book.leases(limit=1000):
            self._charged_right(lease)

    def _nothing_is_left(self) -> None:
        left = {
            "servers": sorted(self.runtime.servers),
            "leases": [(lease.id, lease.state, lease.target) for lease in self.book.unsettled()],
            "held": [view.account.name for view in self.bank.accounts() if view.held],
            "audit": self.bank.audit(),
            "used": [device.uuid for device in self.rows.devices() if device.used],
        }
        if any(left.values()):
            raise Violation(f"left behind: {left}")

    def _charged_right(self, lease: Lease) -> None:
        if lease.started_at is None:
            if lease.charged:
                raise Violation(f"{lease.id} never ran and was charged {lease.charged}")
            return
        end, true_end = lease.ended_at, self.runtime.gone[lease.id]
        assert end is not None
        if end > max(true_end, lease.started_at):
            raise Violation(f"{lease.id} is charged to {end}, and was gone at {true_end}")
        if lease.id in self.runtime.recorded and end != max(true_end, lease.started_at):
            raise Violation(f"{lease.id} is charged to {end}, though its end at {true_end} was on record")
        due = charge_due([Segment(1, lease.weight, lease.price, lease.started_at, end)], end)
        if lease.charged != due:
            raise Violation(f"{lease.id} is charged {lease.charged}, not {due}")


DEFAULTS = Defaults(max_servers=None, max_gpu_milli=None)


def make_book(store: Store) -> None:
    """A book with one device and the users' accounts."""
    clock = FakeClock()
    store.migrate()
    bank, rows = Bank(store, clock, DEFAULTS), Rows(store, clock)
    for user in USERS:
        bank.ensure_account(user)
    rows.put_devices(HOST, to_devices(HOST, SimulatedInventory(1).read(), (), clock.now()))
