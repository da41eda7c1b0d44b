"""Keeps book and runtime true to each other on one host: looks every second, meters, samples, releases, settles.

One cycle: read the book, then look at the runtime, then `drift`, then act by compare-and-swap. The order is what makes
it safe (DESIGN of the lease protocol): a look is always newer than what it is compared with, and what seems to be an
orphan is looked up once more before it is removed. Whoever lost a swap is dropped; the next cycle sees the new world.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from quota.alerts import Alerts
from quota.book import Book
from quota.errors import NotFound, Stale
from quota.farewells import Farewells
from quota.jumping import Jumps
from quota.leases import Lease, State
from quota.leaving import Graces
from quota.ports import Nobody, Notifier, SteadyClock
from quota.rows import Rows
from quota.vitals import Vitals, to_note
from quota.way_out import WayOut
from spawner import drift as plan
from spawner.devices import DeviceWatch, is_due
from spawner.drift import Action, DriftPolicy, drift
from spawner.fleet import TIME_SLICE
from spawner.metering_loop import MeteringLoop
from spawner.modes import DeviceRule
from spawner.ports import GpuReading, Inventory, Look, Runtime, Unreachable
from spawner.sampling import Sampler
from spawner.steady import SteadyHand
from spawner.strangers import Owners
from spawner.watchdog import OverShare
from spawner.watchdog_loop import Watchdog

log = logging.getLogger("berth.agent")

ROLE = "agent"
#: After a cycle that changed something the next comes so soon: release and settle follow a seen end at once.
SOON_S = 0.05
MOST_BACK_OFF_S = 30.0


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """Seconds, unless said otherwise. `mode` is the sharing mode of the devices that none of `rules` names."""

    cycle: float = 1.0
    meter: float = 30.0
    sample: float = 10.0
    devices: float = 5.0
    beat: float = 5.0
    observe: float = 0.0  # how old what is written as seen last may grow; 0: written in each cycle
    boot_fresh: float = 30.0
    start_grace: float = 30.0
    orphan_grace: float = 30.0
    term: float = 10.0
    quota_grace: float = 60.0
    mode: str = TIME_SLICE
    rules: tuple[DeviceRule, ...] = ()
    over_share: OverShare = field(default_factory=OverShare)

    @property
    def drift(self) -> DriftPolicy:
        return DriftPolicy(_seconds(self.boot_fresh), _seconds(self.start_grace), _seconds(self.term))


class Agent:
    """The agent of one host. `boot` is a random id of this process; `inventory` is None on a host without devices."""

    def __init__(
        self,
        book: Book,
        rows: Rows,
        runtime: Runtime,
        inventory: Inventory | None,
        clock: SteadyClock,
        host: str,
        boot: str,
        policy: AgentPolicy | None = None,
        alerts: Alerts | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._policy = policy = policy or AgentPolicy()
        self._book = book
        self._rows = rows
        self._runtime = runtime
        self._hand = SteadyHand(clock, Jumps(book.store, clock), host, alerts)
        self._farewells = Farewells(book.store, clock)
        self._way_out = WayOut(book, rows, self._farewells, clock, _graces(policy))
        self._host = host
        self._boot = boot
        self._devices = DeviceWatch(rows, inventory, host, policy.mode, _seconds(policy.devices), alerts, policy.rules)
        self._sampler = Sampler(rows, runtime, _seconds(policy.sample))
        ending = _seconds(policy.term + 2 * policy.cycle)
        self._notifier = notifier or Nobody()
        grace = _seconds(policy.quota_grace)
        sampled = _seconds(policy.sample)
        self._watchdog = Watchdog(rows, self._way_out, self._notifier, policy.over_share, sampled, ROLE)
        self._meter = MeteringLoop(book, rows, _seconds(policy.meter), grace, ending, self._notifier)
        self._patience = _Patience()
        self._unknown: dict[str, datetime] = {}  # what runs and is not in the book, since when
        self._unreachable = ""
        self._beaten: datetime | None = None
        self._last_good: datetime | None = None
        self._cycles = self._errors = 0
        self._saves = {"saves_done": 0, "saves_unfinished": 0}
        self._took: float | None = None  # seconds of the last cycle
        self._blind: int | None = None  # devices whose use cannot be read

    # ---- one cycle ---------------------------------------------------------------------------------------------

    def cycle(self) -> bool:
        """One pass. Returns whether it changed a lease or a server, so that another is worth while at once.

        Raises what the book raises when it cannot be read; trouble with one lease is logged and stays with it.
        """
        now, jumped = self._hand.look()
        if jumped:
            self._patience, self._unknown = _Patience(), {}  # their moments are of another time
        self._beat(now)
        leases = self._read()
        boots = {beat.boot: beat.beat_at for beat in self._rows.boots("hub")}
        look = self._look()
        if not isinstance(look, Unreachable):
            self._unknown = {lease_id: since for lease_id, since in self._unknown.items() if lease_id in look}
        actions = self.plan(leases, boots, look, now)
        self._observe([action.lease for action in actions if isinstance(action, plan.Observe)], now)
        changed = [self._try(action, now) for action in sorted(actions, key=_slow_last)]
        self._watch(leases, look, now)
        if not isinstance(look, Unreachable):
            self._last_good = now
        return any(changed)

    def plan(self, leases: Sequence[Lease], boots: dict[str, datetime], look: Look, now: datetime) -> list[Action]:
        """What to do about a world; the crash tests put wrong designs here."""
        return drift(leases, boots, look, now, self._policy.drift)

    def _read(self) -> list[Lease]:
        """Leases of this host that are not settled; those that have saved what they could are due. Those of no host yet
        are every agent's."""
        return self._way_out.hastened(
            [lease for lease in self._book.unsettled() if all(slot.host in (None, self._host) for slot in lease.slots)]
        )

    def _look(self) -> Look:
        look = self._hand.by_new_clock(self._runtime.look())
        why = look.why if isinstance(look, Unreachable) else ""
        if why != self._unreachable:
            log.log(logging.WARNING if why else logging.INFO, "Runtime: %s", why or "it answers again")
            self._unreachable = why
        return look

    def _beat(self, now: datetime) -> None:
        if is_due(self._beaten, _seconds(self._policy.beat), now):
            good = self._last_good.isoformat() if self._last_good else "none yet"
            trouble = f"; {self._unreachable}" if self._unreachable else ""
            self._rows.beat(
                self._boot, ROLE, self._host, note=to_note(self._vitals(f"last good cycle: {good}{trouble}"))
            )
            self._beaten = now

    def _vitals(self, words: str) -> Vitals:
        """For metrics and `berth status`: this process has no port of its own."""
        gauges = {"cycle_period_seconds": self._policy.cycle}
        if self._took is not None:
            gauges["cycle_duration_seconds"] = round(self._took, 6)
        if self._blind is not None:
            gauges["blind_devices"] = self._blind
        counts = {"cycles": self._cycles, "errors": self._errors, **self._saves, **self._notifier.counts()}
        return Vitals(words, self._last_good, counts, gauges)

    def _watch(self, leases: Sequence[Lease], look: Look, now: datetime) -> None:
        """Devices, charges and samples. Only what was seen running is charged."""
        try:
            self._devices.run(now, self._owners(leases, look))
        except Exception:
            log.exception("The devices could not be written")
        self._blind = _blind(self._devices.readings(now))
        if isinstance(look, Unreachable):
            return
        seen = {lease_id for lease_id, each in look.items() if each.running}
        running = [lease for lease in leases if lease.state is State.RUNNING and lease.id in seen]
        self._meter.run(running, now)
        self._sampler.run(running, self._devices.readings(now), now)
        self._watchdog.run(running, self._devices.readings(now), self._sampler.pids, now)

    def _owners(self, leases: Sequence[Lease], look: Look) -> Owners | None:
        """Who may have programs on which device; None where the runtime does not answer. A lease that starts or ends
        has no pids yet or any more, so that its devices are not judged."""
        if isinstance(look, Unreachable):
            return None
        holders: dict[str, frozenset[str]] = {}
        for lease in leases:
            for slot in lease.slots:
                if lease.live and slot.device:
                    holders[slot.device] = holders.get(slot.device, frozenset()) | {lease.id}
        return Owners(holders, self._sampler.pids)

    # ---- acting ------------------------------------------------------------------------------------------------

    def _observe(self, leases: Sequence[Lease], now: datetime) -> None:
        due = [lease for lease in leases if is_due(lease.last_seen, _seconds(self._policy.observe), now)]
        if due:
            self._book.observe_all(due, now)

    def _try(self, action: Action, now: datetime) -> bool:
        """Carry one action out; True where it changed something. What keeps failing is tried ever more rarely."""
        if isinstance(action, plan.Observe):
            return False
        lease_id = action.lease_id if isinstance(action, plan.RemoveOrphan) else action.lease.id
        key = (type(action).__name__, lease_id)
        if not self._patience.may(key, now):
            return False
        try:
            changed = self._act(action, now)
        except Stale as stale:
            log.debug("Lease %s: %s", lease_id, stale)
            return False
        except Exception:
            log.exception("Lease %s: %s failed", lease_id, key[0])
            self._patience.failed(key, now)
            return False
        self._patience.worked(key)
        return changed

    def _act(self, action: Action, now: datetime) -> bool:
        match action:
            case plan.Close(lease, ended_at, reason, detail):
                told = {"event": "lease-ended", "lease": lease.id, "user": lease.holder.user, "reason": reason.value}
                log.info(
                    "Lease %s of %s ended at %s: %s", lease.id, lease.holder, ended_at.isoformat(), detail, extra=told
                )
                self._book.close(lease, ended_at, reason, detail)
            case plan.RequestStop(lease, reason, detail):
                # By compare-and-swap: its owner may have come back to life and confirmed it.
                self._book.request_stop(lease.id, reason, detail=detail, by=ROLE, expect=lease)
                log.info("Lease %s of %s is given up: %s", lease.id, lease.holder, detail)
            case plan.AskStop(lease, grace_seconds):
                self._runtime.stop(lease.id, grace_seconds)
                return False
            case plan.Remove(lease):
                if not self._ended_meanwhile(lease):
                    self._runtime.remove(lease.id)
            case plan.Release(lease, ended_at):
                self._book.release(lease, ended_at)
                self._count_save(lease)
            case plan.Settle(lease):
                self._book.settle(lease)
            case plan.RemoveOrphan(lease_id):
                return self._remove_orphan(lease_id, now)
        return True

    def _count_save(self, lease: Lease) -> None:
        """What became of the farewell of a server that is gone: for metrics and the log."""
        farewell = self._farewells.of(lease.id)
        if farewell is None:
            return
        done = farewell.done_at is not None
        self._saves["saves_done" if done else "saves_unfinished"] += 1
        told = {"event": "lease-saved" if done else "lease-save-unfinished", "lease": lease.id}
        seconds = ((farewell.done_at or farewell.heard_at) - farewell.began_at).total_seconds()
        words = "saved what it could" if done else "ended before its kit said that all was saved"
        level = logging.INFO if done else logging.WARNING
        log.log(level, "The server of lease %s %s (%.1f s)", lease.id, words, seconds, extra=told)

    def _ended_meanwhile(self, lease: Lease) -> bool:
        """Whether a server whose end is not in the book has ended since the look: its record must not be removed
        before the next cycle has closed the lease by it."""
        if lease.started_at is None or lease.ended_at is not None:
            return False
        look = self._runtime.look()
        seen = None if isinstance(look, Unreachable) else look.get(lease.id)
        return seen is not None and not seen.running

    def _remove_orphan(self, lease_id: str, now: datetime) -> bool:
        """Read the lease again first: it may have been reserved after the list was read. What the book does not know
        at all is given a grace, and then removed as well."""
        try:
            if self._book.lease(lease_id).live:
                return False
        except NotFound:
            if now - self._unknown.setdefault(lease_id, now) < _seconds(self._policy.orphan_grace):
                return False
        log.warning("Removing a server without a live lease: %s", lease_id)
        self._runtime.remove(lease_id)
        self._unknown.pop(lease_id, None)
        self._rows.add_event("orphan-removed", lease_id=lease_id, by=ROLE, detail={"host": self._host})
        return True

    # ---- for ever ----------------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Cycle until `stop` is set. No exception ends it; while the book cannot be read it waits ever longer."""
        failures = 0
        while not stop.is_set():
            began = time.monotonic()
            try:
                wait = SOON_S if self.cycle() else self._policy.cycle
                failures = 0
            except Exception:
                failures += 1
                self._errors += 1
                wait = min(MOST_BACK_OFF_S, self._policy.cycle * 2 ** min(failures, 10))
                log.exception("A cycle failed; the next one comes in %g s", wait, extra={"event": "cycle-failed"})
            self._cycles, self._took = self._cycles + 1, time.monotonic() - began
            stop.wait(wait)
        try:
            self._rows.drop_beat(self._boot)
        except Exception:
            log.exception("The heartbeat could not be taken off")


class _Patience:
    """Spaces out what keeps failing: 1, 2, 4 … seconds, at most half a minute."""

    def __init__(self) -> None:
        self._waits: dict[tuple[str, str], tuple[datetime, float]] = {}

    def may(self, key: tuple[str, str], now: datetime) -> bool:
        return key not in self._waits or now >= self._waits[key][0]

    def failed(self, key: tuple[str, str], now: datetime) -> None:
        wait = min(MOST_BACK_OFF_S, 2 * self._waits[key][1]) if key in self._waits else 1.0
        self._waits[key] = (now + _seconds(wait), wait)

    def worked(self, key: tuple[str, str]) -> None:
        self._waits.pop(key, None)


def _slow_last(action: Action) -> bool:
    """A removal may take seconds where something will not die; everybody else's bill and slot go first."""
    return isinstance(action, plan.Remove | plan.RemoveOrphan)


def _blind(readings: Mapping[str, GpuReading] | None) -> int | None:
    """How many devices do not tell their use; None where none can be read at all (an alert says so)."""
    return (
        None if readings is None else sum(each.utilisation is None and not each.simulated for each in readings.values())
    )


def _graces(policy: AgentPolicy) -> Graces:
    """What the agent stops by itself has as long to save as what has no credit left."""
    return Graces(automatic=_seconds(policy.quota_grace))


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)
