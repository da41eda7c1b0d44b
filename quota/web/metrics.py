"""Metrics of service `berth` for Prometheus: its own counters, and what the book says of leases, devices and money.

A figure that is not known is left out, never 0. Labels are words from closed lists or from the settings; user names and
lease ids never are. Units are base units, in the name. What agent and culler do arrives through the book.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from tornado.web import RequestHandler

from quota.facts import META, Facts
from quota.leases import DeviceState, State
from quota.rows import Heartbeat
from quota.units import WHOLE_GPU
from quota.vitals import done_at, from_note
from quota.watch import KINDS

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second line for each counter, which the plain format gives another type

CREDIT = 1_000_000
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
KIT = "api/v1/kit/signals"
#: Goes on for as long as its server: how long it took says nothing.
STREAM = "api/v1/kit/stream"


class Meters:
    """What one service process counts itself. `routes` are tornado's, below `prefix`."""

    def __init__(self, prefix: str, routes: Iterable[Sequence[object]]) -> None:
        self.registry = CollectorRegistry()
        self._names: dict[object, list[tuple[re.Pattern[str], str]]] = {}
        for pattern, handler, *_ in routes:
            named = (re.compile(f"{pattern}$"), _name_of(str(pattern).removeprefix(prefix)))
            self._names.setdefault(handler, []).append(named)
        self.requests = Counter(
            "berth_http_requests",
            "Requests answered by service berth, by the pattern of their address, method and status.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self.durations = Histogram(
            "berth_http_request_duration_seconds",
            "Time to answer a request, by the pattern of its address.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.signals = Counter(
            "berth_kit_signals", "Reports of in-server kits that were taken into the book.", registry=self.registry
        )
        self.transactions = Histogram(
            "berth_book_transaction_duration_seconds",
            "Transactions of this process on the book, the wait for its lock included.",
            ("access", "outcome"),
            buckets=SECONDS,
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def route(self, handler: RequestHandler) -> str:
        """The pattern of the address that a request was for."""
        path = handler.request.path
        return next((name for regex, name in self._names.get(type(handler), ()) if regex.match(path)), "unmatched")

    def count(self, handler: RequestHandler) -> str:
        """One more answer; its route."""
        route, request, status = self.route(handler), handler.request, handler.get_status()
        method = request.method if request.method in METHODS else "other"
        self.requests.labels(route, method, str(status)).inc()
        if route != STREAM:
            self.durations.labels(route).observe(request.request_time())
        if route == KIT and status < 300:
            self.signals.inc()
        return route

    def transaction(self, access: str, outcome: str, seconds: float) -> None:
        self.transactions.labels(access, outcome).observe(seconds)


def _name_of(pattern: str) -> str:
    """r"leases/([a-z]+)/stop" -> "leases/{}/stop"."""
    if pattern.endswith(".*"):
        return "unmatched"
    return re.sub(r"\([^()]*\)", "{}", pattern).replace("\\", "") or "/"


# ---- the book ----------------------------------------------------------------------------------------------------


def families(
    facts: Facts | None, profiles: Iterable[str], now: datetime, sent: Mapping[tuple[str, str], int] | None = None
) -> Iterator[Metric]:
    """What the book says. `facts` None: it did not answer, and nothing is known but that. `sent` is what became of
    tries to send notices, by channel and end; its channels are those that are open."""
    yield InfoMetricFamily("berth_build", "Which Berth this is.", value={"version": _version()})
    yield _gauge("berth_book_up", "Whether the book answered this scrape.", 0 if facts is None else 1)
    yield from _sent(sent or {})
    if facts is None:
        return
    yield from _waiting(facts, {channel for channel, _ in sent or ()}, now)
    yield from _leases(facts, profiles, now)
    yield from _devices(facts)
    yield from _money(facts)
    yield from _alerts(facts)
    yield from _heartbeats(facts.boots, now)
    yield from _worker("agent", "agent", facts.boots, now)
    yield from _worker("idle-culler", "idle_culler", facts.boots, now)
    yield from _care(facts.meta, now)


def _sent(sent: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    if not sent:
        return
    tries = CounterMetricFamily(
        "berth_notice_deliveries",
        "Tries to send a notice, by what became of them: sent, to be tried again, failed, dropped as too late.",
        labels=("channel", "outcome"),
    )
    for (channel, outcome), number in sorted(sent.items()):
        tries.add_metric((channel, outcome), number)
    yield tries


def _waiting(facts: Facts, channels: Collection[str], now: datetime) -> Iterator[Metric]:
    """Of a channel on which nothing waits the age is 0: that is known."""
    waiting = GaugeMetricFamily(
        "berth_notice_deliveries_waiting", "Notices that are due and not sent yet.", labels=("channel",)
    )
    oldest = GaugeMetricFamily(
        "berth_notice_oldest_waiting_seconds", "Since the first of them has been due.", labels=("channel",)
    )
    for channel in sorted({*channels, *facts.waiting}):
        found = facts.waiting.get(channel)
        waiting.add_metric((channel,), found.count if found else 0)
        oldest.add_metric((channel,), _age(found.oldest_due, now) if found else 0)
    yield from (family for family in (waiting, oldest) if family.samples)


def _leases(facts: Facts, profiles: Iterable[str], now: datetime) -> Iterator[Metric]:
    leases = GaugeMetricFamily("berth_leases", "Leases that are not settled yet.", labels=("state", "profile"))
    states = [state.value for state in State if state is not State.SETTLED]
    for profile in sorted({*profiles, *(profile for _, profile in facts.leases)}):
        for state in states:
            leases.add_metric((state, profile), facts.leases.get((state, profile), 0))
    yield leases
    waiting = sum(number for (state, _), number in facts.leases.items() if state in ("STOPPING", "RELEASED"))
    yield _gauge("berth_leases_to_settle", "Leases that are ending: not released, or their bill not final.", waiting)
    if facts.oldest_unsettled is not None:
        age = _age(facts.oldest_unsettled, now)
        yield _gauge("berth_lease_settle_lag_seconds", "Since the longest ended lease without a final bill ended.", age)


def _devices(facts: Facts) -> Iterator[Metric]:
    counted = GaugeMetricFamily("berth_devices", "GPUs by state.", labels=("state", "simulated"))
    capacity = GaugeMetricFamily("berth_device_capacity_gpus", "GPUs in working order.", labels=("simulated",))
    held = GaugeMetricFamily(
        "berth_device_held_gpus", "GPUs held by leases, fractions included.", labels=("simulated",)
    )
    free = GaugeMetricFamily("berth_device_free_gpus", "GPUs that leases could hold now.", labels=("simulated",))
    for kind, simulated in (("false", False), ("true", True)):
        devices = [device for device in facts.devices if device.simulated is simulated]
        for state in DeviceState:
            counted.add_metric((state.value, kind), sum(device.state is state for device in devices))
        good = [device for device in devices if device.state is DeviceState.OK]
        capacity.add_metric((kind,), len(good))
        held.add_metric((kind,), sum(device.used for device in devices) / WHOLE_GPU)
        free.add_metric((kind,), sum(device.free for device in good) / WHOLE_GPU)
    yield from (counted, capacity, held, free)


def _money(facts: Facts) -> Iterator[Metric]:
    balances = GaugeMetricFamily(
        "berth_balance_credits",
        "Credits in the ledger: to spend, held for running leases, owed by accounts, charged since the book began.",
        labels=("kind",),
    )
    for kind in ("available", "held", "debt", "revenue"):
        amount = getattr(facts, kind)
        balances.add_metric((kind,), (-amount if kind == "debt" else amount) / CREDIT)
    yield balances


def _alerts(facts: Facts) -> Iterator[Metric]:
    alerts = GaugeMetricFamily("berth_alerts_open", "Troubles that an administrator should look at.", labels=("kind",))
    kinds = [alert.kind for alert in facts.alerts]
    for kind in sorted({*kinds, "audit", *KINDS}):
        alerts.add_metric((kind,), kinds.count(kind))
    yield alerts


def _heartbeats(boots: Sequence[Heartbeat], now: datetime) -> Iterator[Metric]:
    ages = GaugeMetricFamily(
        "berth_heartbeat_age_seconds",
        "Since a process of this role and host was last heard of.",
        labels=("role", "host"),
    )
    for beat in latest(boots):
        ages.add_metric((beat.role, beat.host), _age(beat.beat_at, now))
    yield ages


def latest(boots: Sequence[Heartbeat]) -> list[Heartbeat]:
    """The newest heartbeat of each role on each host."""
    newest: dict[tuple[str, str], Heartbeat] = {}
    for beat in sorted(boots, key=lambda beat: beat.beat_at):
        newest[beat.role, beat.host] = beat
    return sorted(newest.values(), key=lambda beat: (beat.role, beat.host))


#: What the workers count and measure, in the words of their vitals.
COUNTS = {
    "cycles": "Cycles that this process has ended, failed ones too.",
    "errors": "Cycles that did not do all their work.",
    "reclaims": "Servers that were reclaimed for being idle.",
    "saves_done": "Servers that ended after their kit had said that all was saved that could be.",
    "saves_unfinished": "Servers that ended while their kit was still saving.",
    "notices_written": "Notices that were written into the outbox.",
    "notices_dropped": "Notices that were lost because too many waited for the book.",
}
GAUGES = {
    "cycle_duration_seconds": "How long the last cycle took.",
    "cycle_period_seconds": "How long the pause between cycles is.",
    "blind_devices": "Devices whose use cannot be read.",
    "blind_leases": "Leases whose use cannot be told.",
}


def _worker(role: str, name: str, boots: Sequence[Heartbeat], now: datetime) -> Iterator[Metric]:
    """A process without a port, by what its heartbeats say; what they do not say is left out."""
    told = [(beat.host, from_note(beat.note)) for beat in latest(boots) if beat.role == role]
    ages = GaugeMetricFamily(
        f"berth_{name}_last_success_age_seconds", "Since a cycle did all its work.", labels=("host",)
    )
    for host, vitals in told:
        if vitals.last_success is not None:
            ages.add_metric((host,), _age(vitals.last_success, now))
    found: list[Metric] = [ages]
    for count, words in COUNTS.items():
        counter = CounterMetricFamily(f"berth_{name}_{count}", words, labels=("host",))
        for host, vitals in told:
            if count in vitals.counts:
                counter.add_metric((host,), vitals.counts[count])
        found.append(counter)
    for gauge, words in GAUGES.items():
        family = GaugeMetricFamily(f"berth_{name}_{gauge}", words, labels=("host",))
        for host, vitals in told:
            if gauge in vitals.gauges:
                family.add_metric((host,), vitals.gauges[gauge])
        found.append(family)
    yield from (family for family in found if family.samples)


def _care(meta: Mapping[str, str], now: datetime) -> Iterator[Metric]:
    """When the book was last audited and backed up, where that has happened."""
    for name in META:
        done = done_at(meta.get(name))
        if done is None:
            continue
        at, findings = done
        yield _gauge(f"berth_{name}_age_seconds", f"Since the last {name} of the book.", _age(at, now))
        if findings is not None:
            yield _gauge(f"berth_{name}_findings", f"What the last {name} of the book found wrong.", findings)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _age(moment: datetime, now: datetime) -> float:
    """Never negative: the clocks of two processes may differ a little."""
    return max(0.0, (now - moment).total_seconds())


def _version() -> str:
    try:
        return version("berth")
    except PackageNotFoundError:
        return "unknown"
