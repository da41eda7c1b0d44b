"""[A] The idle culler: one look at every running lease each cycle, and the way from a verdict to a stop.

A reclaim goes one way: the signals are read again right before it, the intent is durable in the book, then the Hub is
asked to stop the server. If the Hub is deaf, the next cycle asks again, and the agent ends the lease meanwhile.
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
from datetime import datetime, timedelta

from idle_culler.decide import Decision, Keep, Policy, Reclaim, Rule, Warn, decide
from idle_culler.ports import SCOPES, CullerBook, CullerRows, HubApi, HubForbidden, HubUnavailable
from idle_culler.signals import STALE, Known, Memory, Unknown, read, recall
from quota import tracing
from quota.errors import NotFound
from quota.leases import HolderKind, Lease, State, StopReason, Target
from quota.notices import idle_stop, idle_warning
from quota.ports import Clock, Nobody, Notifier
from quota.told import HUB_NONE, HUB_SILENT
from quota.vitals import Vitals, to_note

log = logging.getLogger("berth.idle_culler")

ROLE = "idle-culler"
BEAT_SECONDS = 10.0
#: A verdict that says the same is written again this often, so that readers see that somebody looks.
SAME_AGAIN = timedelta(seconds=60)
#: The Hub waits up to 10 s for each server that it stops.
STOPS_AT_ONCE = 8

Activity = Mapping[tuple[str, str], datetime | None]


@dataclass(frozen=True)
class CullerParts:
    """What the culler is made of. `boot` is the random id of this process's life."""

    book: CullerBook
    rows: CullerRows
    clock: Clock
    hub: HubApi
    policy: Callable[[Lease], Policy]
    cycle_seconds: float = 30.0
    notifier: Notifier = field(default_factory=Nobody)
    boot: str = field(default_factory=lambda: f"{ROLE}-{secrets.token_hex(8)}")
    host: str = field(default_factory=socket.gethostname)


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle did: counts of leases."""

    judged: int
    failed: int
    reclaimed: int


@dataclass(frozen=True, slots=True)
class Written:
    """The last verdict on record about a lease."""

    kind: str
    rule: str
    deadline: datetime | None
    at: datetime | None
    told_blind: bool  # whether the history says that it is blind


class Culler:
    """Holds what one look must hand to the next. `cycle` is all of its work; `health` says how it goes."""

    def __init__(self, parts: CullerParts) -> None:
        self._parts = parts
        self._memory: dict[str, Memory] = {}
        self._written: dict[str, Written] = {}
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
            gauges["blind_leases"] = sum(written.rule == Rule.BLIND for written in self._written.values())
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
        due, failed = await self._judge_all(leases, activity)
        if failed:
            troubles.append(f"{failed} of {len(leases)} leases could not be judged")
        again = [lease for lease in leases if self._to_end(lease)]
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

    async def _judge_all(self, leases: Sequence[Lease], activity: Activity | None) -> tuple[list[Lease], int]:
        """The leases to reclaim, and how many could not be judged: one bad row never hides another lease."""
        due: list[Lease] = []
        failed = 0
        for lease in leases:
            if lease.state is not State.RUNNING or lease.target is not Target.RUN:
                continue
            try:
                decision = await asyncio.to_thread(self._look, lease, activity)
                if isinstance(decision, Reclaim):
                    due.append(lease)
            except NotFound:
                continue  # it ended meanwhile
            except Exception:
                failed += 1
                log.exception("Lease %s of %s could not be judged", lease.id, lease.holder)
        return due, failed

    def _look(self, lease: Lease, activity: Activity | None) -> Decision:
        """Judge one lease and put it on record, unless it is to be reclaimed: that asks for a second look."""
        decision = self._decide(lease, activity)
        if not isinstance(decision, Reclaim):
            self._record(lease, decision)
        return decision

    def _decide(self, lease: Lease, activity: Activity | None) -> Decision:
        now = self._parts.clock.now()
        if lease.id not in self._memory:
            self._recall(lease, now)
        rows = self._parts.rows.signals(lease.id)
        signals = read(lease, rows, self._memory[lease.id], now, _activity_of(lease, activity, now))
        return decide(signals, self._parts.policy(lease), now)

    def _recall(self, lease: Lease, now: datetime) -> None:
        """What a culler before this one knew about the lease."""
        last = self._parts.rows.verdict(lease.id)
        self._memory[lease.id] = recall(last.evidence if last else None, now)
        if last is not None:
            self._written[lease.id] = Written(last.kind, last.rule, None, None, last.rule == Rule.BLIND)

    def _record(self, lease: Lease, decision: Decision) -> None:
        """The verdict into the book when it says something new or was written some time ago; changes are events.

        Only what was written is remembered, so a warning that nobody could have read is none.
        """
        now, kind, rule = self._parts.clock.now(), _kind(decision), decision.evidence.rule
        deadline = None if isinstance(decision, Keep) else decision.deadline
        before = self._written.get(lease.id)
        if before is None or not _same_again(before, kind, rule, deadline, now):
            words, facts = decision.evidence.words, decision.evidence.facts
            self._parts.rows.put_verdict(lease.id, now, kind, rule, words, facts, deadline)
            told_blind = rule is Rule.BLIND and (_told_blind(before) or _up_for(lease, now) > STALE)
            self._written[lease.id] = after = Written(kind, rule, deadline, now, told_blind)
            if _worth_telling(before, after):
                told = {"kind": kind, "rule": rule.value, "words": words, "before": before.kind if before else None}
                self._parts.rows.add_event("idle-verdict", lease.id, lease.account_id, ROLE, told)
            if isinstance(decision, Warn) and (before is None or before.kind != kind):
                self._parts.notifier.deliver(idle_warning(lease, words, decision.deadline, now))
        self._memory[lease.id] = decision.memory

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
        await self._end(stopping, troubles)
        return True

    def _intend(self, lease_id: str, activity: Activity | None) -> Lease | None:
        """The lease with its durable intent to stop; None when it is used after all, or somebody was faster."""
        lease = self._parts.book.lease(lease_id)
        if lease.state is not State.RUNNING or lease.target is not Target.RUN:
            return None
        decision = self._decide(lease, activity)
        self._record(lease, decision)
        if not isinstance(decision, Reclaim):
            return None
        stopping = self._parts.book.request_stop(
            lease.id, StopReason.IDLE, detail=decision.evidence.words, by=ROLE, stop_after=self._parts.clock.now()
        )
        if stopping.target is not Target.STOP or stopping.stop_reason is not StopReason.IDLE:
            return None
        self._parts.notifier.deliver(idle_stop(stopping, decision.evidence.words, self._parts.clock.now()))
        return stopping

    def _to_end(self, lease: Lease) -> bool:
        """A reclaim of an earlier cycle that is still running: the Hub was deaf, or is slow."""
        return (
            lease.state is State.RUNNING
            and lease.target is Target.STOP
            and lease.stop_reason is StopReason.IDLE
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
            self._written.pop(lease_id, None)

    # Heartbeat

    async def beat(self) -> None:
        """Write the heartbeat with `vitals`. A book that does not answer is the cycle's trouble to tell."""
        parts = self._parts
        try:
            await asyncio.to_thread(parts.rows.beat, parts.boot, ROLE, parts.host, to_note(self.vitals()))
        except Exception:
            log.exception("The heartbeat could not be written")


def _kind(decision: Decision) -> str:
    return "keep" if isinstance(decision, Keep) else "warn" if isinstance(decision, Warn) else "reclaim"


def _same_again(before: Written, kind: str, rule: Rule, deadline: datetime | None, now: datetime) -> bool:
    """The same was written a moment ago."""
    same = (before.kind, before.rule, before.deadline) == (kind, rule.value, deadline)
    return same and before.at is not None and timedelta(0) <= now - before.at < SAME_AGAIN  # a clock may be set back


def _told_blind(before: Written | None) -> bool:
    return before is not None and before.told_blind


def _up_for(lease: Lease, now: datetime) -> timedelta:
    return now - (lease.started_at or lease.requested_at)


def _worth_telling(before: Written | None, after: Written) -> bool:
    """What becomes history: another verdict, and blindness that lasts beyond a server's first moments. The coming
    and going of use is not history."""
    changed = after.kind != (before.kind if before else "keep")
    return changed or after.told_blind != _told_blind(before)


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
