"""A small world in which everything may die at every step.

Real: the book on SQLite, `drift`, the agent, the spawner (`GpuSpawner`, `Start`). Simulated: the clock, the runtime,
the order in which processes act, JupyterHub's own bookkeeping. `trouble` is called at every point that a process
reaches (tests/crash/parts.py) and may let others act, let time pass, lose an answer, or kill somebody.

What is checked all the time: nothing runs without a live lease, no device is given twice, no confirmed server that
nobody stopped is removed, the postings sum to 0. What is checked at the end, when all has healed: nothing is left,
every hold went back, every lease is charged once and never beyond the true end of its server.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NoReturn

from quota.bank import Bank
from quota.book import Book
from quota.errors import NotFound, Reason, Refused
from quota.farewells import Farewells
from quota.leases import Lease, Segment, State, StopReason, Target
from quota.leaving import wait_until
from quota.pricing import charge_due
from quota.rows import Rows
from quota.schema import LIVE_SQL
from spawner.agent import Agent, AgentPolicy
from spawner.drift import LAST_RESORT
from spawner.ports import ServerSpec
from spawner.simulated import SimulatedInventory
from tests.crash.hub import Hub, HubRow, Present, Session
from tests.crash.kits import Service
from tests.crash.parts import BEGIN, COMMITTED, DEFAULTS, HOST, READ, USERS, Died, Runtime, Template, Violation
from tests.fakes.clock import FakeClock

NEVER = 1e9
POLICY = AgentPolicy(devices=NEVER, sample=NEVER, beat=NEVER, meter=15)
#: How long after its hub's death a start may still arrive (the runtime was asked and had not answered). A grace for
#: starts on their way (30 s) is longer, and begins when the hub is known to be dead.
IN_FLIGHT_S = 25
#: Turns of a hub between two seconds: enough for all that is due at once.
TURNS = 12
#: What trouble leaves must be gone so soon after the last of it, in seconds and cycles of the agent.
HEALED_S = 180


@dataclass(frozen=True)
class Design:
    """What a world is made with; the tests pass wrong ones too. `buries`: whoever starts dead hubs again puts their
    death on record; else their heartbeat is thrown away."""

    agent: type[Agent] = Agent
    runtime: type[Runtime] = Runtime
    policy: AgentPolicy = POLICY
    buries: bool = True


RIGHT = Design()


class AgentLife:
    """One process of the agent."""

    name = "agent"

    def __init__(self, agent: Agent) -> None:
        self.agent, self.dead, self.busy = agent, False, False


Life = Hub | AgentLife | Service
Trouble = Callable[["World", Life, str], None]


def peace(_world: World, _life: Life, _point: str) -> None:
    return


class World:
    def __init__(self, template: Template, trouble: Trouble = peace, design: Design = RIGHT) -> None:
        Present.world = self
        self.trouble, self.design = trouble, design
        self.clock = FakeClock()
        self.runtime = design.runtime(self.clock, self.reach)
        self.runtime.may_remove = self._may_remove
        self.runtime.may_end = self._may_end
        self.service = Service(self)
        self.store = template.fresh()
        self.store.reach = self.reach
        self.bank = Bank(self.store, self.clock, DEFAULTS)
        self.book = Book(self.store, self.clock, self.bank)
        self.rows = Rows(self.store, self.clock)
        self.peek = sqlite3.connect(template.path, isolation_level=None)
        self.actor: Life | None = None
        self.down = False  # the database
        self.wrong: Violation | None = None
        self.hub_rows = {user: HubRow() for user in USERS}
        self.sessions: dict[str, Session] = {}
        self.unwanted: set[str] = set()  # stopped by the Hub; the book may not have been told yet
        self.late: list[tuple[datetime, ServerSpec]] = []
        self.back_at: datetime | None = None  # when a dead hub is started again
        self.supervised: list[str] = []  # boots whose death will be put on record
        self.graves: list[Hub] = []
        self.lives = itertools.count(1)
        self.agents = itertools.count(1)
        self.life = self._new_agent()
        self.hub: Hub | None = Hub(self, "hub-0")

    def close(self) -> None:
        self.peek.close()
        self._bury_all()
        if self.hub is not None:
            self.hub.dead = True
            self.hub.bury()

    def _new_agent(self) -> AgentLife:
        parts = (self.book, self.rows, self.runtime, SimulatedInventory(1), self.clock)
        return AgentLife(self.design.agent(*parts, HOST, f"agent-{next(self.agents)}", self.design.policy))

    # ---- who acts ------------------------------------------------------------------------------------------------

    @contextmanager
    def acting(self, life: Life) -> Iterator[None]:
        before, self.actor = self.actor, life
        try:
            yield
        finally:
            self.actor = before

    def reach(self, point: str) -> None:
        """A process has come to a point; nothing for the world's own looks."""
        life = self.actor
        if life is None:
            return
        if life.dead:
            raise Died
        if self.down and point in (READ, BEGIN):
            raise Refused(Reason.BOOK_UNAVAILABLE, why="simulated")
        self.actor = None
        try:
            self.trouble(self, life, point)
            if point == COMMITTED:
                self.check()
        finally:
            self.actor = life
        if life.dead:
            raise Died

    def cycle(self) -> None:
        """One cycle of the agent, and what its `run` makes of an error; a dead one is started again."""
        life = self.life
        if life.busy:
            return
        life.busy = True
        try:
            with self.acting(life):
                life.agent.cycle()
        except (Died, Exception):  # as `Agent.run`: an error is logged, and the next cycle comes
            pass
        life.busy = False
        if life.dead:
            self.life = self._new_agent()
        self.check()

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            if self.hub is not None:
                self.hub.turn()
                self.runtime.note()
                self.check()

    def second(self, seconds: float = 1) -> None:
        """An ordinary while: time passes, everybody acts."""
        self.advance(seconds)
        self.turn(TURNS)
        self.cycle()

    def start(self, session: Session) -> None:
        if self.hub is not None and self.hub.wants(session.user):
            self.sessions[session.user] = session
            self.hub.begin(self.hub.play(session))

    # ---- what may happen -----------------------------------------------------------------------------------------

    def kill_hub(self, back_s: float, *, supervised: bool = True, arrive_s: float | None = None) -> None:
        """kill -9. `arrive_s`: when what the runtime was being asked for arrives all the same."""
        hub = self.hub
        if hub is None:
            return
        hub.dead = True
        if arrive_s is not None:
            arrives = self.clock.now() + timedelta(seconds=min(arrive_s, IN_FLIGHT_S))
            self.late += [(arrives, spec) for spec in hub.in_flight.values()]
        if supervised:
            self.supervised.append(hub.boot)
        self.graves.append(hub)
        self.hub, self.back_at = None, self.clock.now() + timedelta(seconds=back_s)

    def kill_agent(self) -> None:
        self.life.dead = True
        if not self.life.busy:
            self.life = self._new_agent()

    def advance(self, seconds: float) -> None:
        """Time passes for all: hearts beat, starts on their way arrive, a dead hub comes back."""
        self.clock.advance(seconds)
        self.runtime.alive()
        self.runtime.note()
        for arrives, spec in list(self.late):
            if self.clock.now() >= arrives:
                self.late.remove((arrives, spec))
                if spec.lease_id not in self.runtime.servers and not self.runtime.outage:
                    self.runtime.arrive(spec)
                    self.check()
        if self.down:
            return
        for boot in self.supervised:
            (self.rows.bury if self.design.buries else self.rows.drop_beat)(boot)
        self.supervised.clear()
        if self.hub is None and self.back_at is not None and self.clock.now() >= self.back_at:
            self._bury_all()
            self.hub = Hub(self, f"hub-{next(self.lives)}")
        elif self.hub is not None and self.hub.loop.time() >= self.hub.paused_until:
            self.rows.beat(self.hub.boot, "hub", HOST)
        if self.hub is not None:
            self.service.act()  # it lives and dies with its hub

    def _bury_all(self) -> None:
        for grave in [grave for grave in self.graves if not grave.turning]:
            grave.bury()
            self.graves.remove(grave)

    def prepare(self, lease_id: str, session: Session) -> None:
        """How the server of a session will behave once it runs."""
        boot = timedelta(days=1) if session.boot is None else timedelta(seconds=session.boot + session.slow[1])
        self.runtime.ready_at[lease_id] = self.clock.now() + boot
        if session.deaf:
            self.runtime.deaf.add(lease_id)
        if session.kit != "none":
            self.service.kinds[lease_id] = session.kit

    def answers(self, lease_id: str) -> bool:
        ready = self.runtime.ready_at.get(lease_id)
        return ready is not None and self.clock.now() >= ready and lease_id in self.runtime.alive()

    # ---- what must hold ------------------------------------------------------------------------------------------

    def fail(self, words: str) -> NoReturn:
        """It also holds where a task of the hub swallows it."""
        self.wrong = self.wrong or Violation(words)
        raise self.wrong

    def check(self) -> None:
        if self.wrong is not None:
            raise self.wrong
        live = {row[0] for row in self.peek.execute(f"SELECT id FROM lease WHERE {LIVE_SQL}")}
        stray = self.runtime.alive() - live
        if stray:
            self.fail(f"{stray} run without a live lease")
        (used,) = self.peek.execute("SELECT sum(share) FROM slot WHERE released_at IS NULL").fetchone()
        if (used or 0) > 1000:
            self.fail(f"the one device is given {used} times over")
        (total,) = self.peek.execute("SELECT sum(amount) FROM posting").fetchone()
        if total:
            self.fail(f"the postings sum to {total}")

    def _may_end(self, lease_id: str) -> None:
        """Nobody ends a server whose kit is saving before its time is over."""
        before, self.actor = self.actor, None
        try:
            lease = self._lease(lease_id)
            if lease is None or lease.target is Target.RUN or self.down:
                return  # whom the book could not be told of: it is ended all the same
            farewell = Farewells(self.store, self.clock).of(lease_id)
            if farewell is not None and wait_until(lease, farewell, self.clock.now()) is not None:
                self.fail(f"{lease_id} was ended while its kit was saving, before {lease.stop_after}")
        finally:
            self.actor = before

    def _may_remove(self, lease_id: str, running: bool) -> None:
        before, self.actor = self.actor, None
        try:
            lease = self._lease(lease_id)
        finally:
            self.actor = before
        if lease is None:
            return
        if self.actor is self.life and lease.live and lease.target is Target.RUN:
            self.fail(f"{lease_id} is wanted, and the agent removed its server")
        if lease.started_at is None:
            return
        if running and lease.state is State.RUNNING and lease.target is Target.RUN and lease_id not in self.unwanted:
            self.fail(f"{lease_id} is confirmed and wanted, and was removed")
        if lease_id in self.runtime.recorded and lease.ended_at is None:
            since = self.clock.now() - (lease.stop_after or self.clock.now())
            if self.actor is self.life and since < LAST_RESORT * self.design.policy.drift.term:
                self.fail(f"the end of {lease_id} was on record, and the record was removed unread")
            self.runtime.recorded.discard(lease_id)  # the last resort met a server that ended by itself

    def _lease(self, lease_id: str) -> Lease | None:
        try:
            return self.book.lease(lease_id)
        except NotFound:
            return None

    # ---- the end -------------------------------------------------------------------------------------------------

    def heal(self, *, with_hub: bool = True) -> float:
        """No more trouble; everything is told to stop; soon nothing may be left. How long it took, in seconds."""
        self.trouble, self.down = peace, False
        self.runtime.outage = ""
        self.runtime.unkillable = False
        self.kill_agent()
        if not with_hub:
            self.kill_hub(0)
            self.back_at = None
        elif self.hub is not None:
            self.hub.paused_until = 0.0
        began = self.clock.now()
        self.sessions = {user: replace(session, stays=0.0) for user, session in self.sessions.items()}
        for lease in self.book.live():
            self.book.request_stop(lease.id, StopReason.PLATFORM)
        while self.clock.now() < began + timedelta(seconds=HEALED_S):
            self.second(2)
            if not self.late and not self.runtime.servers and not self.book.unsettled() and self._hub_is_quiet():
                break
        took = (self.clock.now() - began).total_seconds()
        self._nothing_is_left()
        for lease in self.book.leases(limit=1000):
            self._charged_right(lease)
        return took

    def _hub_is_quiet(self) -> bool:
        return self.back_at is None if self.hub is None else not self.hub.tasks

    def _nothing_is_left(self) -> None:
        left = {
            "servers": sorted(self.runtime.servers),
            "leases": [(lease.id, lease.state, lease.target) for lease in self.book.unsettled()],
            "held": [view.account.name for view in self.bank.accounts() if view.held],
            "audit": self.bank.audit(),
            "used": [device.uuid for device in self.rows.devices() if device.used],
            "the hub's": [user for user, row in self.hub_rows.items() if row.running and self.hub is not None],
            "tasks": self.hub.tasks if self.hub is not None else [],
        }
        if any(left.values()):
            self.fail(f"left behind: {left}")

    def _charged_right(self, lease: Lease) -> None:
        (void,) = self.peek.execute("SELECT void FROM lease WHERE id = ?", (lease.id,)).fetchone()
        if lease.started_at is None or void:
            if lease.charged:
                self.fail(f"{lease.id} never ran, or in vain, and was charged {lease.charged}")
            return
        if lease.stop_reason is StopReason.FAILED and lease.stop_by == "agent":
            self.fail(f"{lease.id} was confirmed, and given up as a start: {lease.stop_detail}")
        end, true_end = lease.ended_at, self.runtime.gone[lease.id]
        assert end is not None
        if end > max(true_end, lease.started_at):
            self.fail(f"{lease.id} is charged to {end}, and was gone at {true_end}")
        if lease.id in self.runtime.recorded and end != max(true_end, lease.started_at):
            self.fail(f"{lease.id} is charged to {end}, though its end at {true_end} was on record")
        due = charge_due([Segment(1, lease.weight, lease.price, lease.started_at, end)], end)
        if lease.charged != due:
            self.fail(f"{lease.id} is charged {lease.charged}, not {due}")
