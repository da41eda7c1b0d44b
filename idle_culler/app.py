"""[A] The idle culler: one look at every running lease each cycle, and the way from a verdict to a stop.

All leases' signals are read together, judged one by one and written together. A reclaim goes one way: the signals are
read again right before it, the intent is durable in the book, and when the grace for saving is over the Hub is asked to
stop the server. If the Hub is deaf, the next cycle asks again, and the agent ends the lease meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from idle_culler.decide import Decision, Policy, Reclaim, decide
from idle_culler.ports import (
    SCOPES,
    CullerAlerts,
    CullerBook,
    CullerRows,
    CullerWishes,
    HubApi,
    HubForbidden,
    HubUnavailable,
    NoWishes,
)
from idle_culler.recording import ROLE, Looked, Recorder
from idle_culler.signals import Known, Memory, Row, Unknown, read, with_warnings_of
from quota import tracing
from quota.errors import Refused
from quota.leases import HolderKind, Lease, State, Target
from quota.leaving import NO_GRACE, Graces, hastened, stop_after
from quota.notices import STOPS, stops_now
from quota.ports import Clock, Nobody, Notifier
from quota.told import HUB_NONE, HUB_SILENT
from quota.vitals import Vitals, to_note
from quota.way_out import LeavingFarewells
from quota.wish import NO_WISH, Wish

log = logging.getLogger("berth.idle_culler")

BEAT_SECONDS = 10.0
#: The Hub waits up to 10 s for each server that it stops.
STOPS_AT_ONCE = 8

#: Reasons for which the culler stops servers.
OURS = frozenset(STOPS)

Activity = Mapping[tuple[str, str], datetime | None]


@dataclass(frozen=True)
class CullerParts:
    """What the culler is made of. `boot` is the random id of this process's life, `graces` say how long a server may
    save after it was told to stop, and `farewells` what it has saved; None: nothing is known of that."""

    book: CullerBook
    rows: CullerRows
    clock: Clock
    hub: HubApi
    policy: Callable[[Lease], Policy]
    cycle_seconds: float = 30.0
    notifier: Notifier = field(default_factory=Nobody)
    wishes: CullerWishes = field(default_factory=NoWishes)
    alerts: CullerAlerts | None = None
    graces: Graces = NO_GRACE
    farewells: LeavingFarewells | None = None
    boot: str = field(default_factory=lambda: f"{ROLE}-{secrets.token_hex(8)}")
    host: str = field(default_factory=socket.gethostname)


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle did: counts of leases."""

    judged: int
    failed: int
    reclaimed: int


class Culler:
    """Holds what one look must hand to the next. `cycle` is all of its work; `health` says how it goes."""

    def __init__(self, parts: CullerParts) -> None:
        self._parts = parts
        self._memory: dict[str, Memory] = {}
        self._recorder = Recorder(parts.rows, parts.clock, parts.notifier, parts.alerts)
        self._may: bool | None = None  # whether the token has its scopes; None: not yet asked
        self._troubles: list[str] | None = None  # None: no cycle has ended yet
        self._last_success: datetime | None = None
        self._counts = {"cycles": 0, "errors": 0, "reclaims": 0}
        self._took: float | None = None  # seconds of the last cycle that came to its end
        self._stops = asyncio.Semaphore(STOPS_AT_ONCE)

    def health(self) -> str:
        """One line for the heartbeat: `ok` or `unhealthy: …`, and the last successful cycle."""
        when = f"{self._last_success:%Y-%m-%dT%H:%M:%SZ}" if self._last_success else "none yet"
        state = f"unhealthy: {'; '.join(self._troubles)}" if self._troubles else "ok"
        if self._troubles is None:
            state = "starting"
        return f"{state}; last successful cycle: {when}"

    def vitals(self) -> Vitals:
        """The same for the heartbeat's row, with what it counts: this process has no port of its own."""
        gauges = {"cycle_period_seconds": self._parts.cycle_seconds}
        if self._took is not None:
            gauges["cycle_duration_seconds"] = round(self._took, 6)
            gauges["blind_leases"] = self._recorder.blind()
        counts = {**self._counts, **self._parts.notifier.counts()}
        return Vitals(self.health(), self._last_success, counts, gauges)

    async def cycle(self) -> Cycle:
        """Judge every running lease of the book, and reclaim. Raises only when the book cannot be read."""
        began = time.monotonic()
        self._counts["cycles"] += 1
        try:
            done = await self._cycle()
        except BaseException:
            self._counts["errors"] += 1
            raise
        self._counts["errors"] += bool(self._troubles)
        self._counts["reclaims"] += done.reclaimed
        self._took = time.monotonic() - began
        return done

    async def _cycle(self) -> Cycle:
        troubles: list[str] = []
        try:
            leases = [
                lease
                for lease in await asyncio.to_thread(self._parts.book.live)
                if lease.holder.kind is HolderKind.SERVER
            ]
        except Exception as error:
            self._troubles = [f"the book cannot be read ({type(error).__name__}: {error})"]
            raise
        self._forget({lease.id for lease in leases})
        activity = await self._ask_hub(troubles)
        healthy_hub = not troubles
        due, failed = await asyncio.to_thread(self._judge_all, leases, activity, troubles)
        if failed:
            troubles.append(f"{failed} of {len(leases)} leases could not be judged")
        again = [lease for lease in await asyncio.to_thread(self._hastened, leases) if self._to_end(lease)]
        ended = await asyncio.gather(
            *(self._reclaim(lease, activity, troubles) for lease in due),
            *(self._end(lease, troubles) for lease in again),
        )
        self._troubles = troubles
        if healthy_hub:
            self._last_success = self._parts.clock.now()
        return Cycle(len(leases), failed, sum(ended[: len(due)]))

    # What the Hub says

    async def _ask_hub(self, troubles: list[str]) -> Activity | None:
        """Users' activity by (user, server), for people to read; None where the Hub does not tell."""
        try:
            if not self._may:
                await self._check_scopes(troubles)
            servers = await self._parts.hub.servers()
        except HubUnavailable as error:
            if isinstance(error, HubForbidden):
                self._may = False
            troubles.append(f"the Hub: {error}")
            return None
        return {(server.user, server.server): server.last_activity for server in servers}

    async def _check_scopes(self, troubles: list[str]) -> None:
        held = await self._parts.hub.scopes()
        missing = [scope for scope in SCOPES if scope not in held]
        if missing:
            log.error("The culler's token lacks scopes: %s", ", ".join(missing))
            troubles.append(f"the Hub's token lacks the scope {', '.join(missing)}")
        self._may = not missing

    # Verdicts

    def _judge_all(
        self, leases: Sequence[Lease], activity: Activity | None, troubles: list[str]
    ) -> tuple[list[Lease], int]:
        """The leases to reclaim, and how many could not be judged: one bad row never hides another lease. What is to
        be reclaimed is not put on record yet, as that asks for a second look."""
        running = [lease for lease in leases if lease.state is State.RUNNING and lease.target is Target.RUN]
        new = [lease.id for lease in running if lease.id not in self._memory]
        if new:
            self._memory |= self._recorder.recall(new)
        rows, wishes = self._parts.rows.watched(), self._wishes(running)
        due, looked = list[Lease](), list[Looked]()
        for lease in running:
            try:
                decision = self._decide(lease, rows.get(lease.id, {}), wishes[lease.id], activity)
            except Exception:
                log.exception("Lease %s of %s could not be judged", lease.id, lease.holder)
                continue
            if isinstance(decision, Reclaim):
                due.append(lease)
            else:
                looked.append((lease, decision))
        written = self._recorder.write(looked)
        self._memory |= {lease.id: decision.memory for lease, decision in written}
        self._alert(written, troubles)
        return due, len(running) - len(due) - len(written)

    def _wishes(self, running: Sequence[Lease]) -> Mapping[str, Wish]:
        """What users want, by lease; one that cannot be read is missing, so that its lease is not judged."""
        ids = [lease.id for lease in running]
        try:
            found = self._parts.wishes.of(ids)
        except Refused:
            raise
        except Exception:
            log.exception("Wishes could not be read together")
            return self._wishes_one_by_one(ids)
        return {**dict.fromkeys(ids, NO_WISH), **found}

    def _wishes_one_by_one(self, ids: Sequence[str]) -> Mapping[str, Wish]:
        found: dict[str, Wish] = {}
        for lease_id in ids:
            with contextlib.suppress(Exception):  # told by the caller, who then does not judge it
                found[lease_id] = self._parts.wishes.of([lease_id]).get(lease_id, NO_WISH)
        return found

    def _decide(self, lease: Lease, rows: Mapping[str, Row], wish: Wish, activity: Activity | None) -> Decision:
        now = self._parts.clock.now()
        signals = read(lease, rows, self._memory[lease.id], now, _activity_of(lease, activity, now))
        return decide(signals, self._parts.policy(lease), now, wish)

    def _alert(self, looked: Sequence[Looked], troubles: list[str]) -> None:
        try:
            self._recorder.alert(looked)
        except Exception as error:
            log.exception("Alerts could not be raised")
            troubles.append(f"alerts could not be raised ({type(error).__name__})")

    # Reclaim

    async def _reclaim(self, lease: Lease, activity: Activity | None, troubles: list[str]) -> bool:
        """Look again, write the intent, have it stopped. True when the lease is being reclaimed."""
        try:
            stopping = await asyncio.to_thread(self._intend, lease.id, activity)
        except Exception as error:
            log.exception("Lease %s of %s could not be reclaimed", lease.id, lease.holder)
            troubles.append(f"lease {lease.id} could not be reclaimed ({type(error).__name__})")
            return False
        if stopping is None:
            return False
        told = {"event": "lease-reclaimed", "lease": lease.id, "user": lease.holder.user, "server": lease.holder.server}
        log.info("Reclaiming %s of %s: %s", stopping.id, stopping.holder, stopping.stop_detail, extra=told)
        if self._to_end(stopping):
            await self._end(stopping, troubles)
        return True

    def _intend(self, lease_id: str, activity: Activity | None) -> Lease | None:
        """The lease with its durable intent to stop; None when it is used after all, or somebody was faster."""
        lease = self._parts.book.lease(lease_id)
        if lease.state is not State.RUNNING or lease.target is not Target.RUN:
            return None
        rows, wish = self._parts.rows.signals(lease.id), self._parts.wishes.of([lease.id]).get(lease.id, NO_WISH)
        decision = self._decide(lease, rows, wish, activity)
        if not self._recorder.write([(lease, decision)]):
            return None
        before, self._memory[lease.id] = self._memory[lease.id], decision.memory
        if not isinstance(decision, Reclaim):
            return None
        self._memory[lease.id] = with_warnings_of(before, decision.memory)  # they stand until the intent is written
        now, words = self._parts.clock.now(), decision.evidence.words
        after = stop_after(decision.reason, rows.get("kit"), now, self._parts.graces)
        stopping = self._parts.book.request_stop(lease.id, decision.reason, detail=words, by=ROLE, stop_after=after)
        self._memory[lease.id] = decision.memory
        if stopping.target is not Target.STOP or stopping.stop_reason is not decision.reason:
            return None
        self._parts.notifier.deliver(stops_now(stopping, STOPS[decision.reason], words, now))
        return stopping

    def _hastened(self, leases: Sequence[Lease]) -> list[Lease]:
        """The leases; those that have saved what they could are due."""
        ids = [lease.id for lease in leases if lease.state is State.RUNNING and lease.target is Target.STOP]
        found = self._parts.farewells.of_some(ids) if ids and self._parts.farewells else {}
        return hastened(leases, found)

    def _to_end(self, lease: Lease) -> bool:
        """A reclaim that is still running and whose grace is over, perhaps of an earlier cycle: the Hub was deaf, or is
        slow."""
        return (
            lease.state is State.RUNNING
            and lease.target is Target.STOP
            and lease.stop_reason in OURS
            and lease.stop_by == ROLE
            and (lease.stop_after is None or lease.stop_after <= self._parts.clock.now())
        )

    async def _end(self, lease: Lease, troubles: list[str]) -> bool:
        """Ask the Hub to stop the server, if it still is this lease's."""
        async with self._stops:
            try:
                now_held = await asyncio.to_thread(self._parts.book.live_of, lease.holder)
                if now_held is None or now_held.id != lease.id:
                    return False
                answer = await self._parts.hub.stop(lease.holder.user, lease.holder.server)
            except Exception as error:
                if isinstance(error, HubForbidden):
                    self._may = False
                log.warning("%s could not be stopped (tried again in the next cycle): %s", lease.holder, error)
                troubles.append(f"{lease.holder} could not be stopped: {error}")
                return False
            log.info("The Hub on stopping %s: %s", lease.holder, answer.value)
            return True

    def _forget(self, there: set[str]) -> None:
        for lease_id in self._memory.keys() - there:
            del self._memory[lease_id]
        self._recorder.forget(there)

    # Heartbeat

    async def beat(self) -> None:
        """Write the heartbeat with `vitals`. A book that does not answer is the cycle's trouble to tell."""
        parts = self._parts
        try:
            await asyncio.to_thread(parts.rows.beat, parts.boot, ROLE, parts.host, to_note(self.vitals()))
        except Exception:
            log.exception("The heartbeat could not be written")


def _activity_of(lease: Lease, activity: Activity | None, now: datetime) -> Known[datetime] | Unknown:
    if activity is None:
        return Unknown(HUB_SILENT)
    moment = activity.get((lease.holder.user, lease.holder.server))
    return Unknown(HUB_NONE) if moment is None else Known(moment, now)


async def run(parts: CullerParts, stop: asyncio.Event) -> None:
    """Cycle after cycle until `stop` is set; whatever goes wrong is logged, shown in the heartbeat, tried again."""
    culler = Culler(parts)
    stopped = asyncio.create_task(stop.wait())
    beating = asyncio.create_task(_keep_beating(culler))
    try:
        while not stopped.done():
            cycle = asyncio.create_task(_one_cycle(culler))
            await asyncio.wait({cycle, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not cycle.done():
                cycle.cancel()
                await asyncio.wait({cycle})
            await asyncio.wait({stopped}, timeout=parts.cycle_seconds)
    finally:
        for task in (beating, stopped):
            task.cancel()
        await asyncio.gather(beating, stopped, return_exceptions=True)
        await parts.hub.close()
        with contextlib.suppress(Exception):  # its row only grows old otherwise
            await asyncio.to_thread(parts.rows.drop_beat, parts.boot)


async def _one_cycle(culler: Culler) -> None:
    tracing.begin()  # one id for a cycle: the Hub's lines about what it stops carry it
    try:
        await culler.cycle()
    except Exception:
        log.exception("A cycle of the idle culler failed")
    await culler.beat()


async def _keep_beating(culler: Culler) -> None:
    while True:
        await culler.beat()
        await asyncio.sleep(BEAT_SECONDS)
