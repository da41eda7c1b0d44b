"""What goes wrong, and when: drawn from a seed at every point (`Chaos`), or at chosen durable steps (`At`)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from quota.errors import Reason, Refused, Stale
from quota.leases import State, StopReason
from tests.crash.hub import Session
from tests.crash.kits import KINDS as KITS
from tests.crash.kits import Service
from tests.crash.parts import AFTER, BEFORE, BEGIN, COMMITTED, DURABLE, LOOK, READ, USERS, Template, Violation
from tests.crash.world import RIGHT, TURNS, AgentLife, Design, Life, World


def no_answer(point: str) -> None:
    """What is being asked does not answer: before it happened, or after."""
    if point in (BEGIN, COMMITTED, READ):
        raise Refused(Reason.BOOK_UNAVAILABLE, why="simulated")
    if point in (BEFORE, AFTER):
        raise RuntimeError("simulated: no answer")


def others_act(world: World, life: Life, turns: int = TURNS) -> None:
    if isinstance(life, AgentLife):
        world.turn(turns)
    else:
        world.cycle()


def strike(world: World, *, recorded: bool, which: float = 0.0) -> None:
    """A server dies by itself, with or without a record of it."""
    alive = [name for name in world.runtime.servers if name in world.runtime.alive()]
    if alive:
        victim = alive[int(which * len(alive))]
        if recorded:
            world.runtime.end(victim, -9)
        else:
            world.runtime.vanish(victim)
        world.runtime.note()


class Chaos:
    """The same seed draws the same world."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.depth = 0

    def __call__(self, world: World, life: Life, point: str) -> None:
        if self.depth < 2:
            self.depth += 1
            try:
                self.happen(world, life, point)
            finally:
                self.depth -= 1

    def happen(self, world: World, life: Life, point: str) -> None:
        draw = self.draw.random()
        if draw < (0.30 if point == LOOK else 0.12):  # between a reading of the book and what follows from it
            self.race(world, life)
        elif draw < 0.127:
            world.advance(self.draw.choice((3, 25, 40)))
        elif draw < 0.130:
            strike(world, recorded=self.draw.random() < 0.7, which=self.draw.random())
        elif draw < 0.131:
            world.runtime.outage = "" if world.runtime.outage else "no answer"
        elif draw < 0.134:
            world.runtime.unkillable = not world.runtime.unkillable
        elif draw < 0.135:
            world.down = not world.down
        elif draw < 0.137:
            world.kill_agent()
        elif draw < (0.170 if world.hub is not None and world.hub.in_flight else 0.139):
            self.kill_hub(world)
        elif 0.170 <= draw < 0.175:
            no_answer(point)
        elif 0.175 <= draw < 0.177 and world.hub is not None:
            world.hub.paused_until = world.hub.loop.time() + self.draw.choice((10, 35, 50))

    def race(self, world: World, life: Life) -> None:
        if self.draw.random() < 0.2:
            world.start(self.session())
        others_act(world, life, self.draw.choice((1, 4, 16, 60)))
        if self.draw.random() < 0.3:
            world.advance(1)  # what waits a moment goes on
            others_act(world, life, 60)

    def kill_hub(self, world: World) -> None:
        arrive = self.draw.uniform(0, 25) if self.draw.random() < 0.8 else None
        world.kill_hub(self.draw.choice((2, 15, 50)), supervised=self.draw.random() < 0.7, arrive_s=arrive)

    def session(self) -> Session:
        draw = self.draw
        return Session(
            user=draw.choice(USERS),
            profile=draw.choice(("gpu-1-2", "gpu-1-2", "gpu-1")),
            stays=draw.choice((2, 10, 40)),
            boot=None if draw.random() < 0.07 else draw.choice((0.0, 1.0, 3.0)),
            cancel=draw.choice((0.5, 4.0)) if draw.random() < 0.1 else None,
            slow=draw.choice(((0, 10), (15, 25), (40, 0))) if draw.random() < 0.2 else (0, 0),
            visible=draw.random() < 0.93,
            deaf=draw.random() < 0.15,
            kit=draw.choice(("none", *KITS)),
        )

    def stop_by_book(self, world: World) -> None:
        """An admin, or the idle rules, with or without notice; a notice may be taken back."""
        for lease in world.book.live():
            if self.draw.random() < 0.3:
                notice = timedelta(seconds=self.draw.choice((0, 30)))
                world.book.request_stop(lease.id, StopReason.ADMIN, stop_after=world.clock.now() + notice)
                if notice and lease.state is State.RUNNING and self.draw.random() < 0.3:
                    with suppress(Stale):  # an earlier stop had come first
                        world.book.cancel_stop(lease.id, "admin")


def violation(seed: int, template: Template, design: Design = RIGHT, steps: int = 20) -> str | None:
    """What is wrong in this seed's world, if anything: some minutes of trouble, then health."""
    chaos = Chaos(seed)
    world = World(template, chaos, design)
    draw = chaos.draw
    try:
        for _ in range(steps):
            if draw.random() < 0.4:
                world.start(chaos.session())
            world.advance(draw.choice((1, 1, 2, 8)))
            if draw.random() < 0.85:
                world.turn(draw.randint(1, 40))
            if draw.random() < 0.6:
                world.cycle()
            if draw.random() < 0.3:
                world.runtime.outage, world.down = "", False
            if draw.random() < 0.1:
                world.runtime.unkillable = False
            if draw.random() < 0.05:
                chaos.stop_by_book(world)
        world.heal(with_hub=draw.random() < 0.6)
    except Violation as wrong:
        return f"seed {seed}: {wrong}"
    finally:
        world.close()
    return None


# ---- step by step ----------------------------------------------------------------------------------------------

STORY_SECONDS = 20


class At:
    """Counts durable steps, and does at some of them what `what` says by their number, from 1 on."""

    def __init__(self, what: Mapping[int, str] | None = None) -> None:
        self.what = dict(what or {})
        self.steps: list[tuple[str, str]] = []
        self.over_at: datetime | None = None

    def __call__(self, world: World, life: Life, point: str) -> None:
        if point not in DURABLE:
            return
        self.steps.append((life.name, point))
        kind = self.what.pop(len(self.steps), "")
        if kind:
            self.do(kind, world, life, point)

    def do(self, kind: str, world: World, life: Life, point: str) -> None:
        if kind == "dies" and isinstance(life, Service):
            life.dead = True
        elif kind in ("hub dies", "all die") or (kind == "dies" and not isinstance(life, AgentLife)):
            world.kill_hub(2, arrive_s=3.0)
        if kind in ("agent dies", "all die") or (kind == "dies" and isinstance(life, AgentLife)):
            world.kill_agent()
        if kind == "others act":
            world.advance(1)
            others_act(world, life)
        if kind in ("server dies", "server vanishes"):
            strike(world, recorded=kind == "server dies")
        if kind in OUTAGES:
            world.runtime.outage = "no answer" if kind == "runtime away" else ""
            world.down = kind != "runtime away"
            self.over_at = world.clock.now() + timedelta(seconds=12)
        if kind in ("no answer", "answer lost with the database"):
            no_answer(point)

    def tick(self, world: World) -> None:
        if self.over_at is not None and world.clock.now() >= self.over_at:
            world.runtime.outage, world.down = "", False


KINDS = ("dies", "all die", "hub dies", "agent dies", "no answer", "others act", "server dies", "server vanishes")
OUTAGES = ("runtime away", "database away", "answer lost with the database")


def story(template: Template, at: At, design: Design = RIGHT) -> str | None:
    """One session from start to bill, and one whose server the Hub never reaches; what is wrong, if anything."""
    told = dict(at.what)
    world = World(template, at, design)
    try:
        world.start(Session("ada", "gpu-1-2", stays=8, kit="saves"))
        for second in range(STORY_SECONDS):
            world.second()
            at.tick(world)
            if second == 3:
                world.start(Session("bob", "gpu-1-2", boot=None, cancel=4.0))
        world.heal()
    except Violation as wrong:
        return f"{told}: {wrong}"
    finally:
        world.close()
    return None
