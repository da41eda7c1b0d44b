"""Metrics of starts, in the Hub's own registry: they appear at /hub/metrics beside the Hub's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from prometheus_client import Counter, Histogram

from quota.errors import Reason

Phase = Literal["reserve", "start", "ready"]

PHASES = Histogram(
    "berth_start_phase_duration_seconds",
    "Phases of starts that went well: to a reserved lease, to a started server, to its first answer.",
    ("phase",),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
RESERVATIONS = Counter("berth_reservations", "Leases that this hub has reserved.")
REFUSALS = Counter("berth_refusals", "Starts that were refused or failed, by Berth's reason.", ("reason",))

HOOK_ERRORS = Counter(
    "berth_hook_errors", "Hooks and rules of this site (`extra_config`, `extensions`) that failed.", ("hook",)
)

for _hook in ("pre_spawn_hook", "post_stop_hook"):
    HOOK_ERRORS.labels(_hook)
for _phase in ("reserve", "start", "ready"):
    PHASES.labels(_phase)
for _reason in Reason:  # nothing refused yet is a known zero
    REFUSALS.labels(_reason.value)


@contextmanager
def timed(phase: Phase) -> Iterator[None]:
    """Measure a phase; one that fails is counted by its reason instead."""
    began = time.monotonic()
    yield
    PHASES.labels(phase).observe(time.monotonic() - began)


def refused(reason: Reason) -> None:
    REFUSALS.labels(reason.value).inc()
