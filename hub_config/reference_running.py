"""Reference pages of what a site tells while it runs: metrics and log events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from prometheus_client import REGISTRY
from prometheus_client.core import Metric

from hub_config.log_events import EVENTS
from quota.facts import META, Facts
from quota.rows import Heartbeat
from quota.vitals import Vitals, done_note, to_note
from quota.web.metrics import COUNTS, GAUGES, Meters, families
from spawner import metrics as of_starts

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def metrics_page() -> str:
    """Every metric of the two pages, with its labels and its help text."""
    lines = [
        "# Metrics",
        "",
        "Two pages for Prometheus, opened by one token: [Watch it](../how-to/monitoring.md) says how. A figure that is",
        "not known is absent, never 0: so what only one of agent and idle culler does is told of that one alone. No",
        "label is a user's name or a lease's id.",
    ]
    for heading, metrics in (("`/services/berth/metrics`", of_service()), ("`/hub/metrics`", of_hub())):
        lines += ["", f"## {heading}", "", "| metric | kind | labels | what it says |", "|---|---|---|---|"]
        lines += [_row(metric) for metric in sorted(metrics, key=lambda metric: metric.name)]
    lines += ["", "Beside these, `/hub/metrics` has JupyterHub's own; its documentation lists them."]
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels = sorted({label for sample in metric.samples for label in sample.labels} - {"le"})
    shown = ", ".join(f"`{label}`" for label in labels) or "–"
    name = metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")
    return f"| `{name}` | {metric.type} | {shown} | {metric.documentation.replace('|', '/')} |"


def of_service() -> Iterator[Metric]:
    """All that service berth can tell, by a look at a book in which everything has happened once."""
    meters = Meters("/", ())
    meters.requests.labels("/", "GET", "200")
    meters.durations.labels("/")
    meters.transactions.labels("read", "ok")
    yield from meters.registry.collect()
    yield from families(_everything(), ("cpu",), _NOW, {("mail", "sent"): 1})


def _everything() -> Facts:
    vitals = Vitals("", _NOW, dict.fromkeys(COUNTS, 1), dict.fromkeys(GAUGES, 1.0))
    boots = [
        Heartbeat(f"b{role}", role, "host", _NOW, _NOW, to_note(vitals)) for role in ("hub", "agent", "idle-culler")
    ]
    return Facts(
        leases={},
        oldest_unsettled=_NOW,
        devices=(),
        boots=boots,
        alerts=(),
        meta={name: done_note(_NOW, 0) for name in META},
        available=0,
        held=0,
        debt=0,
        revenue=0,
    )


def of_hub() -> Iterable[Metric]:
    """What the spawner adds to the Hub's own."""
    assert of_starts  # by being imported it has put its metrics into the registry
    return [metric for metric in REGISTRY.collect() if metric.name.startswith("berth_")]


def events_page() -> str:
    """Every named event of the logs."""
    lines = [
        "# Log events",
        "",
        "The field `event` of a line in `logs/*.log` is for programs. Berth's own events are these; any other line is",
        "named by where it comes from (`module.function`). [Operating](../operate.md#logs) tells the other fields.",
        "",
        "| event | when |",
        "|---|---|",
    ]
    return "\n".join(lines + [f"| `{name}` | {words} |" for name, words in sorted(EVENTS.items())]) + "\n"
