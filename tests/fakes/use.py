"""Leases and signal rows for tests of the idle rules: times are seconds before the present."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from idle_culler.decide import Decision, Policy, decide
from idle_culler.signals import NOTHING, Memory, Row, read
from quota.leases import Holder, Lease, Price, Slot, State, Target
from quota.units import MicroCredits, MilliGpu
from quota.wish import NO_WISH, Wish
from tests.fakes.clock import START

NOW = START
DAY = 86400
#: With a notice of five minutes.
DEFAULT = Policy(notice=300)


def ago(seconds: float, now: datetime = NOW) -> datetime:
    return now - timedelta(seconds=seconds)


def text(seconds: float | None, now: datetime = NOW) -> str | None:
    return None if seconds is None else ago(seconds, now).isoformat()


def lease(
    gpus: int = 1, *, share: int = 1000, simulated: bool = False, started: float | None = DAY, **more: Any
) -> Lease:
    """A running lease: a whole real GPU for a day, unless told otherwise."""
    made = Lease(
        id="l-1",
        version=3,
        state=State.RUNNING,
        target=Target.RUN,
        holder=Holder("alice"),
        account_id=1,
        account="alice",
        profile="gpu-1",
        image="local",
        share=MilliGpu(share if gpus else 0),
        count=gpus,
        slots=(Slot("h", "GPU-1", MilliGpu(share)),) if gpus else (Slot("h", None, MilliGpu(0)),),
        simulated=simulated,
        price=Price(1, MicroCredits(1), MicroCredits(0)),
        owner=None,
        requested_at=ago(2 * DAY),
        requested_by="alice",
        started_at=None if started is None else ago(started),
    )
    return replace(made, **more)


def kernel(busy: bool | None = False, last: float | None = None, since: float | None = None) -> dict[str, Any]:
    return {"id": "k", "busy": busy, "last_execute_at": text(last), "busy_since": text(since)}


def kit(*kernels: dict[str, Any], terminals: int = 0, age: float = 5, **more: Any) -> dict[str, Row]:
    return {"kit": (ago(age), {"kernels": list(kernels), "terminals": terminals, **more})}


def host(percent: float | None = 0.2, active: float | None = None, age: float = 5, **more: Any) -> dict[str, Row]:
    """Without `io_bytes_per_s` it is the report of an agent that measures none. No program lives."""
    payload = {"cpu_percent": percent, "cpu_active_at": text(active), "processes": 0, "window_s": 10.0, **more}
    return {"host": (ago(age), payload)}


def gpu(
    util: int | None = 0, active: float | None = None, age: float = 5, memory: int = 20_000, **more: Any
) -> dict[str, Row]:
    payload = {"util": util, "memory_used_mib": memory, "simulated": False, "active_at": text(active), **more}
    return {"gpu": (ago(age), payload)}


def quiet(**kernels: Any) -> dict[str, Row]:
    """Everything known, nothing used."""
    return {**kit(kernel(**kernels)), **host(), **gpu()}


def watched(since: float = DAY, looked: float = 30, active: float | None = None, warned: float | None = None) -> Memory:
    """A memory of a watch without a gap."""
    return Memory(
        active_at=None if active is None else ago(active),
        watched_since=ago(since),
        looked_at=ago(looked),
        warned_at=None if warned is None else ago(warned),
    )


def judge(
    rows: dict[str, Row],
    memory: Memory = NOTHING,
    of: Lease | None = None,
    policy: Policy = DEFAULT,
    now: datetime = NOW,
    wish: Wish = NO_WISH,
) -> Decision:
    """From rows to a verdict, the way the culler goes."""
    made = lease() if of is None else of
    return decide(read(made, rows, memory, now), policy, now, wish)
