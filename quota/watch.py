"""Service `berth` looks after the processes that have no port: who is silent, and what runs without being charged.

Each look ends in alerts: raised while the trouble lasts, cleared by the look that finds it gone. What cannot be told at
the moment (a process that has just begun, a clock that has jumped) changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from quota.alerts import Alert, Alerts
from quota.errors import BerthError
from quota.facts import names_since, unbilled
from quota.leases import Lease
from quota.lookalikes import pairs, spelled
from quota.ports import Clock
from quota.rows import Heartbeat, Rows
from quota.vitals import Vitals, from_note

log = logging.getLogger("berth.watch")

ROLE = "berth"
#: An agent beats every 5 s, and a cycle with a server that will not die takes some seconds more.
AGENT_SILENT = timedelta(seconds=60)
AGENT_FAILING = timedelta(minutes=5)
#: Periods without a successful cycle after which the culler counts as silent, and the least time for that.
CULLER_PERIODS = 3
CULLER_LEAST = timedelta(seconds=10)
#: Every running lease is charged once a minute.
UNBILLED = timedelta(minutes=5)
#: Alerts about single leases, or names, at once; where there are more, the first tell enough.
MOST_LEASES = 50
#: The wall clock and the time that the machine really ran may differ by so much between two looks.
JUMP = timedelta(seconds=30)

#: So long is a newcomer pointed out whose name can be taken for somebody else's; by then an admin has looked.
NEWCOMER = timedelta(days=7)

KINDS = ("culler-silent", "agent-silent", "unbilled", "look-alike")


@dataclass(frozen=True, slots=True)
class Expected:
    """What should be there: one culler with this period, an agent on each of these hosts. `since` is when this process
    began to look, before which nothing is held against anybody."""

    period: timedelta
    hosts: Sequence[str]
    since: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one look found about one key; `words` None is: all is well."""

    key: str
    kind: str
    words: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


# ---- judging (values in, values out) -----------------------------------------------------------------------------


def judge_culler(boots: Iterable[Heartbeat], expected: Expected, now: datetime) -> Verdict | None:
    """None: it cannot be told yet."""
    culler = [beat for beat in boots if beat.role == "idle-culler"]
    good = [vitals.last_success for vitals in map(_vitals, culler) if vitals.last_success is not None]
    limit = max(CULLER_PERIODS * expected.period, CULLER_LEAST)
    silent = now - max(good, default=expected.since)
    if silent <= limit:
        return Verdict("culler-silent", "culler-silent") if good else None
    last = f"since {max(good):%Y-%m-%d %H:%M:%S} UTC" if good else "since this service began"
    said = max(culler, key=lambda beat: beat.beat_at, default=None)
    why = f" It says: {_vitals(said).words}." if said is not None and _vitals(said).words else ""
    words = (
        f"The idle culler has not completed a cycle {last}: idle servers keep their GPUs.{why} "
        "See logs/idle-culler.log; a restart of the hub starts it again."
    )
    return Verdict("culler-silent", "culler-silent", words, {"seconds": round(silent.total_seconds())})


def judge_agents(boots: Sequence[Heartbeat], expected: Expected, now: datetime) -> list[Verdict]:
    """One verdict a host; none for a host that cannot be told of yet."""
    agents: dict[str, list[Heartbeat]] = {host: [] for host in expected.hosts}
    for beat in boots:
        if beat.role == "agent":
            agents.setdefault(beat.host, []).append(beat)
    judged = (_judge_agent(host, beats, expected.since, now) for host, beats in sorted(agents.items()))
    return [verdict for verdict in judged if verdict is not None]


def _judge_agent(host: str, beats: Sequence[Heartbeat], since: datetime, now: datetime) -> Verdict | None:
    key = f"agent-silent:{host}"
    heard = max((beat.beat_at for beat in beats), default=since)
    good = max((v.last_success for v in map(_vitals, beats) if v.last_success is not None), default=None)
    effect = "servers there run on, but nothing is measured, charged or released until it is back"
    if now - heard > AGENT_SILENT:
        words = f"The agent of {host} was last heard of at {heard:%Y-%m-%d %H:%M:%S} UTC: {effect}. See logs/agent.log."
        return Verdict(key, "agent-silent", words, {"host": host, "seconds": round((now - heard).total_seconds())})
    started = max((beat.started_at for beat in beats), default=since)
    if now - max(good or started, since) > AGENT_FAILING:
        newest = max(beats, key=lambda beat: beat.beat_at)
        said = _vitals(newest).words
        words = f"The agent of {host} lives but completes no cycle ({said}): {effect}. See logs/agent.log."
        return Verdict(key, "agent-silent", words, {"host": host})
    return Verdict(key, "agent-silent") if beats and good is not None else None


def judge_bills(late: Iterable[Lease], silent_hosts: Iterable[str]) -> list[Verdict]:
    """Leases that run and are not charged, though their agent lives (X15)."""
    silent = set(silent_hosts)
    found = []
    for lease in late:
        if any(slot.host in silent for slot in lease.slots):
            continue  # the alert about the agent says it, once for all
        words = (
            f"The server of {lease.holder} runs and has not been charged for more than {UNBILLED.seconds // 60} min "
            f"(lease {lease.id}). Nothing is lost: what is due is charged once the trouble is over. See logs/agent.log."
        )
        found.append(Verdict(f"unbilled:{lease.id}", "unbilled", words, {"lease": lease.id, "account": lease.account}))
    return found[:MOST_LEASES]


def judge_names(known: Iterable[tuple[str, datetime]], now: datetime) -> list[Verdict]:
    """Newcomers whose names can be taken for those of older users: somebody may mean to be mistaken for them."""
    found = []
    for name, older in pairs(known, now - NEWCOMER)[:MOST_LEASES]:
        words = (
            f"The new user {spelled(name)} has a name that can be taken for {spelled(older)}. They are two users with "
            "two accounts. Ask who it is before you grant anything; if somebody pretends, delete the user on the Hub's "
            f"Admin page, or rename it there and with `berth rename`. This notice ends in {NEWCOMER.days} days."
        )
        found.append(Verdict(f"look-alike:{name}", "look-alike", words, {"user": name, "older": older}))
    return found


def _vitals(beat: Heartbeat) -> Vitals:
    return from_note(beat.note)


# ---- looking -----------------------------------------------------------------------------------------------------


class Watch:
    """`look` is one look; `boot` is the random id of this process, whose heartbeat is refreshed by it. Blocks."""

    def __init__(
        self,
        rows: Rows,
        alerts: Alerts,
        clock: Clock,
        boot: str,
        host: str,
        period: timedelta,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._alerts, self._clock = rows, alerts, clock
        self._boot, self._host, self._period, self._steady = boot, host, period, steady
        self._since = clock.now()
        self._last: tuple[datetime, float] | None = None

    def look(self) -> None:
        """Raises what the book raises; the next look does it all again."""
        now, ran = self._clock.now(), self._steady()
        jumped = self._jumped(now, ran)
        self._last = (now, ran)
        self._rows.beat(self._boot, ROLE, self._host)
        if jumped:
            log.warning("The clock jumped: silence is counted from now on", extra={"event": "clock-jumped"})
            self._since = now
            return
        self._tell(self._judge(now))

    def _jumped(self, now: datetime, ran: float) -> bool:
        """The machine slept, or its clock was set: ages across that say nothing about anybody."""
        if self._last is None:
            return False
        wall = now - self._last[0]
        return abs(wall - timedelta(seconds=ran - self._last[1])) > JUMP

    def _judge(self, now: datetime) -> list[Verdict]:
        boots = self._rows.boots()
        expected = Expected(self._period, (self._host,), self._since)
        agents = judge_agents(boots, expected, now)
        culler = judge_culler(boots, expected, now)
        told_of = {verdict.key.partition(":")[2] for verdict in agents if verdict.words is None}
        hosts = {beat.host for beat in boots if beat.role == "agent"} | {self._host}
        bills = judge_bills(unbilled(self._rows.store, now - UNBILLED), hosts - told_of)
        names = judge_names(names_since(self._rows.store, now - NEWCOMER), now)
        over = [alert for alert in self._alerts.open() if self._is_over(alert, hosts, told_of, [*bills, *names])]
        fine = [Verdict(alert.key, alert.kind) for alert in over]
        return [*([culler] if culler else []), *agents, *bills, *names, *fine]

    @staticmethod
    def _is_over(alert: Alert, hosts: set[str], told_of: set[str], found: Sequence[Verdict]) -> bool:
        """An alert of ours that no verdict speaks of any more: its host is gone, its lease is charged or over, its
        newcomer renamed or known by now."""
        if alert.kind == "agent-silent":
            return alert.key.partition(":")[2] not in hosts
        still = {verdict.key for verdict in found}
        if alert.kind == "look-alike":
            return alert.key not in still
        return alert.kind == "unbilled" and alert.key not in still and hosts <= told_of

    def _tell(self, verdicts: Iterable[Verdict]) -> None:
        open_now = {alert.key for alert in self._alerts.open()}
        for verdict in verdicts:
            if verdict.words is not None:
                if self._alerts.put(verdict.key, verdict.kind, verdict.words, verdict.detail):
                    log.error("%s", verdict.words, extra={"event": "alert-raised", "alert": verdict.key})
            elif verdict.key in open_now and self._alerts.clear(verdict.key):
                log.info("%s is over", verdict.key, extra={"event": "alert-cleared", "alert": verdict.key})

    def close(self) -> None:
        """In good order: the heartbeat is taken off."""
        try:
            self._rows.drop_beat(self._boot)
        except BerthError as error:
            log.warning("The heartbeat could not be taken off: %s", error)
