"""The history of a lease in words: events as steps of a timeline, evidence of an idle verdict as facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from quota.rows import Event
from quota.web.words import STOP_WORDS, clock_words, credits_words, duration_words, memory_words

_STEP_WORDS = {
    "lease-reserved": "Reserved: room and credits are held",
    "lease-starting": "The start began",
    "lease-running": "Ready: the server answered, charging began",
    "stop-requested": "To be stopped",
    "stop-sooner": "To be stopped sooner",
    "stop-cancelled": "The stop was taken back",
    "lease-stopping": "Its removal began",
    "lease-ended": "Its end was seen: charging stopped",
    "lease-released": "Seen to be gone: its room is free again",
    "lease-settled": "Settled: the final charge was made, the rest of the hold went back",
    "lease-void": "Its start failed, so nothing is charged",
    "refund": "Refunded",
    "credit-low": "Its credit runs low",
    "clock-jumped": "The machine's clock was set, or it slept: the time charged was made good",
    "orphan-removed": "Removed: it ran without a lease",
}

#: An idle verdict that says something new, by its kind.
_VERDICT_WORDS = {
    "warn": "Found idle: its user was told when it would be stopped",
    "reclaim": "Still idle when its notice ran out",
    "keep": "Kept: it is used, or its use cannot be told",
}

_REASONS = {reason.value: words for reason, words in STOP_WORDS.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, when and in words."""

    at: datetime
    words: str


def steps(events: Iterable[Event]) -> tuple[Step, ...]:
    """The timeline of a lease, oldest first. Events of an unknown kind appear by their own name."""
    return tuple(Step(event.at, _step_words(event)) for event in sorted(events, key=lambda event: event.id))


def _step_words(event: Event) -> str:
    words = _STEP_WORDS.get(event.kind, event.kind.replace("-", " "))
    reason = event.detail.get("stop_reason") or event.detail.get("reason")
    if event.kind == "idle-verdict":
        words = _VERDICT_WORDS.get(str(event.detail.get("kind")), words)
    if event.kind == "stop-requested" and isinstance(reason, str):
        words = f"{words}: {_lower(_REASONS.get(reason, reason))}"
    amount = event.detail.get("amount")
    if event.kind == "refund" and isinstance(amount, int):
        words = f"{words} {credits_words(amount)} credits"
        note = event.detail.get("note")
        words = f"{words} ({note})" if note else words
    by_person = event.by and event.kind in (
        "stop-requested",
        "stop-sooner",
        "stop-cancelled",
        "refund",
        "lease-reserved",
    )
    return f"{words}, by {event.by}" if by_person else words


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def evidence_words(evidence: Mapping[str, Any], zone: tzinfo) -> tuple[tuple[str, str], ...]:
    """Names and values of what an idle verdict saw; a text in place of a value says why it is unknown."""
    found = []
    for key, (name, words) in _facts(zone).items():
        value = evidence.get(key)
        if value is not None:
            found.append((name, value if isinstance(value, str) and key not in _MOMENTS else words(value)))
    return tuple(found)


_MOMENTS = ("idle_since", "hub_activity")


def _facts(zone: tzinfo) -> dict[str, tuple[str, Callable[[Any], str]]]:
    def moment(value: Any) -> str:
        try:
            return clock_words(datetime.fromisoformat(value), zone)
        except (TypeError, ValueError):
            return str(value)

    def seconds(value: Any) -> str:
        return duration_words(timedelta(seconds=value)) if isinstance(value, int | float) else str(value)

    def percent(value: Any) -> str:
        return f"{value:.0f} %" if isinstance(value, int | float) else str(value)

    def memory(value: Any) -> str:
        return memory_words(value) if isinstance(value, int) else str(value)

    return {
        "idle_since": ("Not used since", moment),
        "limit_s": ("Limit", seconds),
        "kernels": ("Kernels", str),
        "busy_kernels": ("of them running code", str),
        "terminals": ("Terminals", str),
        "cpu_percent": ("CPU of its programs", percent),
        "gpu_util": ("GPU use", percent),
        "gpu_memory_mib": ("GPU memory", memory),
        "hub_activity": ("Last request (does not count)", moment),
    }
