"""A history played to the culler's own `read` and `decide`, and what came of it against the ground truth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from idle_culler.decide import Policy, Reclaim, decide
from idle_culler.signals import NOTHING, Memory, read
from idle_culler.signals import Row as Signal
from tests.golden.generate import History, moment

#: Seconds between two looks; as often as `idle.check_every` may be without a gap in the watch.
EVERY = 60.0
#: Minutes after the limit in which a stop is still on time: a look, a late report, the notice begun a look late.
GRACE = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one history. Minutes; `stopped` is the one of the stop, None where there was none.

    `busy` says that somebody worked at that moment. `idle` counts idle minutes while the server ran, `beyond` those of
    them that lie after the limit of their stretch.
    """

    kind: str
    stopped: int | None
    rule: str
    busy: bool
    idle: int
    beyond: int
    blind: int = 0  # looks that found something unknown


def judged(history: History, policy: Policy, every: float = EVERY) -> Outcome:
    """The way of the culler: look, remember, look again; a reclaim ends it."""
    of, memory, rows = history.lease(), NOTHING, dict[str, Signal]()
    at, place, blind, rule = every, 0, 0, ""
    while at < history.seconds:
        while place < len(history.rows) and history.rows[place].at <= at:
            row = history.rows[place]
            rows[row.source] = (moment(row.at), row.payload)
            place += 1
        if not any(begin <= at < end for begin, end in history.naps):
            signals = read(of, rows, memory, moment(at))
            decision = decide(signals, policy, moment(at))
            memory, rule = decision.memory, decision.evidence.rule.value
            blind += rule == "blind"
            if isinstance(decision, Reclaim):
                return outcome(history, int(at // 60), policy, rule, blind)
        at += every
    return outcome(history, None, policy, "", blind)


def outcome(history: History, stopped: int | None, policy: Policy, rule: str = "", blind: int = 0) -> Outcome:
    """Held against the labels alone. A stop in the very minute in which work began is a stop of work."""
    limit = (policy.limit(history.gpus) or float("inf")) / 60
    minutes = history.labels if stopped is None else history.labels[:stopped]
    idle = beyond = run = 0
    for label in minutes:
        run = 0 if label == "working" else run + (label == "idle")
        idle += label == "idle"
        beyond += label == "idle" and run > limit
    busy = stopped is not None and history.labels[stopped] == "working"
    return Outcome(history.kind, stopped, rule, busy, idle, beyond, blind)


def summed(outcomes: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """By kind and in all: histories, stops, busy sessions stopped, idle minutes, those held beyond the policy."""
    found: dict[str, dict[str, int]] = {}
    for each in outcomes:
        for name in (each.kind, "all"):
            row = found.setdefault(name, dict.fromkeys(("histories", "stopped", "busy", "idle", "beyond"), 0))
            row["histories"] += 1
            row["stopped"] += each.stopped is not None
            row["busy"] += each.busy
            row["idle"] += each.idle
            row["beyond"] += each.beyond
    return found


__all__ = ["EVERY", "GRACE", "Memory", "Outcome", "judged", "outcome", "summed"]
