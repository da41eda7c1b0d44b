"""Random schedules of starts, ends, stops, outages, restarts and jumps of the clock, against the real agent and book.

What every schedule must keep, by the hand of the clock that never jumps: nobody pays for more than ran; who ended on
record pays for exactly that; whose end nobody recorded (or recorded by a clock that jumped twice, or whose agent died,
before the runtime was seen again) pays to where the server was last seen; no figure is negative, nothing counts time
that lies ahead, and the audit finds nothing. A seed makes the same schedule every time.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.errors import Refused, Stale
from quota.jumps import Jump, measure
from quota.leases import Lease, State, StopReason
from quota.records import read_segments
from quota.store import Store
from spawner.ports import ServerSpec
from tests.integration.agent_site import SimulatedSite, quick_folder, simulated_site

pytestmark = pytest.mark.crash

SEEDS, DEEP_SEEDS, STEPS = 12, 600, 70
HOUR = 3600
JUMPS = (2 * HOUR, -2 * HOUR, 8 * HOUR, 31, -31, 40 * 86_400)
NONE = timedelta(0)


@pytest.fixture(scope="module")
def empty() -> Iterator[Path]:
    with quick_folder() as folder:
        with Store(f"sqlite:///{folder}/book.sqlite") as store:
            store.migrate()
        yield folder / "book.sqlite"


class Schedule:
    """One seed's world. `began`, `seen` and `ended` tell by the steady hand when each server ran."""

    def __init__(self, site: SimulatedSite, seed: int) -> None:
        self.site, self.draw = site, random.Random(seed)
        self.began: dict[str, timedelta] = {}
        self.seen: dict[str, timedelta] = {}
        self.ended: dict[str, timedelta] = {}
        self.recorded: set[str] = set()
        self.untold: set[str] = set()  # ended since the runtime was last seen
        self.starting: list[Lease] = []
        self.jumped = False
        self.doubts = 0  # jumps, and restarts of the agent, since the runtime was last seen
        self.agents = 1

    # ---- what happens ----

    def run(self) -> None:
        moves = (
            (self.cycle, 9), (self.wait, 9), (self.start, 5), (self.ready, 6), (self.end, 2), (self.vanish, 1),
            (self.stop, 2), (self.outage, 1), (self.restart, 1), (self.jump, 4),
        )  # fmt: skip
        kinds, weights = zip(*moves, strict=True)
        for _ in range(STEPS):
            self.draw.choices(kinds, weights)[0]()
        self.heal()

    def cycle(self) -> None:
        self.site.agent.cycle()
        self.jumped = False
        self.note()
        if not self.site.runtime.outage:
            self.recorded -= self.untold if self.doubts > 1 else set()
            self.untold, self.doubts = set(), 0
            self.seen |= {lease_id: self.site.clock.run for lease_id in self.site.runtime.alive()}
        self.check()

    def wait(self) -> None:
        self.site.clock.advance(self.draw.choice((0.25, 1, 3, 7)))
        self.site.rows.beat(self.site.boot, "hub", "host-a")

    def start(self) -> None:
        if len(self.starting) < 2:
            try:
                lease = self.site.reserve(self.draw.choice(("ada", "bob", "eve")), share=250)
            except Refused:
                return
            self.starting.append(self.site.mark_starting(lease))

    def ready(self) -> None:
        if not self.starting or self.site.runtime.outage:
            return
        lease = self.starting.pop(0)
        self.site.runtime.start(ServerSpec(lease.id, ("serve",), {}, "/"))
        try:
            self.site.mark_running(self.site.now(lease))
            self.began[lease.id] = self.site.clock.run
        except (Refused, Stale):
            self.site.book.request_stop(lease.id, StopReason.FAILED)
            self.site.book.acknowledge(lease.id, self.site.boot)

    def one(self) -> str | None:
        alive = sorted(self.site.runtime.alive() & set(self.began), key=lambda lease_id: self.began[lease_id])
        return self.draw.choice(alive) if alive else None

    def end(self) -> None:
        chosen = self.one()
        if chosen:
            self.site.runtime.end(chosen, 0)
            self.note()

    def vanish(self) -> None:
        chosen = self.one()
        if chosen:
            self.site.runtime.vanish(chosen)
            self.ended[chosen] = self.site.clock.run

    def stop(self) -> None:
        chosen = self.one()
        if chosen:
            after = self.site.clock.now() + timedelta(seconds=self.draw.choice((0, 20)))
            self.site.book.request_stop(chosen, StopReason.IDLE, stop_after=after)

    def outage(self) -> None:
        self.site.runtime.outage = "" if self.site.runtime.outage else "no answer"

    def restart(self) -> None:
        self.agents += 1
        self.doubts += 1
        self.site.agent = self.site.new_agent(f"agent-{self.agents}")

    def jump(self) -> None:
        """At most one between two looks of the agent, and looks are not further apart than the smallest is wide."""
        if not self.jumped:
            self.site.clock.jump(self.draw.choice(JUMPS))
            self.jumped = True
            self.doubts += 1

    def note(self) -> None:
        for lease_id, server in self.site.runtime.servers.items():
            if not server.running and server.ended_at is not None and lease_id not in self.ended:
                self.ended[lease_id] = self.site.clock.run
                self.recorded.add(lease_id)
                self.untold.add(lease_id)

    # ---- what must hold ----

    def check(self) -> None:
        now = self.site.clock.now()
        with self.site.store.read() as connection:
            parts = read_segments(connection, list(self.began))
        for lease_id, segments in parts.items():
            lease = self.site.book.lease(lease_id)
            until = self.ended.get(lease_id, self.site.clock.run)
            ran = until - self.began[lease_id]
            counted = sum(((part.ended_at or now) - part.started_at for part in segments), NONE)
            open_ones = [part for part in segments if part.ended_at is None]
            assert all(part.started_at <= now for part in open_ones), "counts time that lies ahead"
            assert lease.charged >= 0 and lease.usage >= 0 and lease.held >= 0
            if lease.state is State.RUNNING and not self.site.runtime.outage and lease_id not in self.ended:
                assert counted == ran, f"{lease_id} counts {counted}, and ran {ran}"

    def heal(self) -> None:
        self.site.runtime.outage = ""
        self.cycle()
        for lease in self.starting:
            self.site.book.request_stop(lease.id, StopReason.FAILED)
            self.site.book.acknowledge(lease.id, self.site.boot)
        for lease_id in sorted(self.site.runtime.alive()):
            self.site.runtime.end(lease_id, 0)
        self.note()
        for _ in range(8):
            self.site.clock.advance(1)
            self.site.agent.cycle()
        self.site.assert_clean()
        for lease in self.site.book.leases(limit=1000):
            self.charged_right(lease)

    def charged_right(self, lease: Lease) -> None:
        if lease.id not in self.began:
            assert lease.charged == 0
            return
        end = self.ended[lease.id]
        least = end if lease.id in self.recorded else max(self.began[lease.id], self.seen.get(lease.id, NONE))
        most, fewest = (due(moment - self.began[lease.id]) for moment in (end, least))
        assert fewest <= lease.charged <= most, f"{lease.id}: {lease.charged} is not in {fewest} to {most}"


def due(ran: timedelta) -> int:
    return round(250_000 * ran / timedelta(hours=1))


def play(empty: Path, seed: int) -> None:
    with quick_folder() as folder:
        shutil.copy(empty, folder)
        site = simulated_site(folder)
        try:
            Schedule(site, seed).run()
        finally:
            site.close()


@pytest.mark.timeout(3600)
def test_n01_any_schedule_of_jumps_charges_what_ran(empty: Path, deep: bool) -> None:
    wrong = []
    for seed in range(DEEP_SEEDS if deep else SEEDS):
        try:
            play(empty, seed)
        except AssertionError as error:
            wrong.append(f"seed {seed}: {error}")
    assert wrong == []


WRONG = {
    "no jump is made good": lambda before, after: None,
    "only jumps forward are": lambda before, after: _measured(before, after, forward=True),
    "only jumps back are": lambda before, after: _measured(before, after, forward=False),
}


def _measured(before: object, after: object, *, forward: bool) -> Jump | None:
    jump = measure(before, after)  # type: ignore[arg-type]
    return jump if jump is not None and (jump.by > NONE) is forward else None


@pytest.mark.parametrize("design", WRONG)
def test_n01_a_wrong_design_is_caught(empty: Path, design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spawner.steady.measure", WRONG[design])
    monkeypatch.setattr("quota.jumping.measure", WRONG[design])

    def caught(seed: int) -> bool:
        try:
            play(empty, seed)
        except AssertionError:
            return True
        return False

    assert any(caught(seed) for seed in range(SEEDS)), "the schedules have no teeth for it"
