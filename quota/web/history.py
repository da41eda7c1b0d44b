"""The history of a lease in words: events as steps of a timeline, evidence of an idle verdict as facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from quota.i18n import N_, _
from quota.rows import Event
from quota.said import STOP_WORDS
from quota.told import retold
from quota.web.words import clock_words, credits_words, duration_words, memory_words

_STEP_WORDS = {
    "lease-reserved": N_("Reserved: room and credits are held"),
    "lease-starting": N_("The start began"),
    "lease-running": N_("Ready: the server answered, charging began"),
    "stop-requested": N_("To be stopped"),
    "stop-sooner": N_("To be stopped sooner"),
    "stop-cancelled": N_("The stop was taken back"),
    "farewell-begun": N_("Its kit began to save what was open"),
    "farewell-done": N_("Its kit said that all was saved that could be"),
    "lease-stopping": N_("Its removal began"),
    "lease-ended": N_("Its end was seen: charging stopped"),
    "lease-released": N_("Seen to be gone: its room is free again"),
    "lease-settled": N_("Settled: the final charge was made, the rest of the hold went back"),
    "lease-void": N_("Its start failed, so nothing is charged"),
    "kept": N_("To be kept though unused, as was asked; what that costs is held"),
    "keep-withdrawn": N_("No longer to be kept; what was held for it went back"),
    "shutdown-set": N_("To be stopped at a time that was set"),
    "shutdown-withdrawn": N_("No longer to be stopped at a set time"),
    "when-done-set": N_("To be stopped when its work is done"),
    "when-done-withdrawn": N_("No longer to be stopped when its work is done"),
    "appeal-made": N_("Its user said that its end was wrong"),
    "appeal-decided": N_("What its user said of its end was answered"),
    "refund": N_("Refunded"),
    "credit-low": N_("Its credit runs low"),
    "over-share": N_("It used more than its share of the GPU's memory, or does so no longer"),
    "clock-jumped": N_("The machine's clock was set, or it slept: the time charged was made good"),
    "orphan-removed": N_("Removed: it ran without a lease"),
}

#: An idle verdict that says something new, by its kind.
_VERDICT_WORDS = {
    "warn": N_("Found idle: its user was told when it would be stopped"),
    "reclaim": N_("Still idle when its notice ran out"),
    "keep": N_("Kept: it is used, or its use cannot be told"),
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
    words = _(_STEP_WORDS.get(event.kind, event.kind.replace("-", " ")))
    reason = event.detail.get("stop_reason") or event.detail.get("reason")
    if event.kind == "idle-verdict":
        words = _(_VERDICT_WORDS.get(str(event.detail.get("kind")), "")) or words
    if event.kind == "stop-requested" and isinstance(reason, str):
        words = _("%(what)s: %(why)s", what=words, why=_lower(_(_REASONS.get(reason, reason))))
    amount = event.detail.get("amount")
    if event.kind == "refund" and isinstance(amount, int):
        words = _("Refunded %(amount)s credits", amount=credits_words(amount))
        note = event.detail.get("note")
        words = f"{words} ({note})" if note else words
    by_person = event.by and event.kind in (
        "stop-requested",
        "stop-sooner",
        "stop-cancelled",
        "kept",
        "keep-withdrawn",
        "shutdown-set",
        "shutdown-withdrawn",
        "when-done-set",
        "when-done-withdrawn",
        "appeal-decided",
        "refund",
        "lease-reserved",
    )
    return _("%(what)s, by %(name)s", what=words, name=event.by) if by_person else words


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def evidence_words(evidence: Mapping[str, Any], zone: tzinfo) -> tuple[tuple[str, str], ...]:
    """Names and values of what an idle verdict saw; a text in place of a value says why it is unknown."""
    found, own = [], evidence.get("forgeable") or ()
    for key, (name, words) in _facts(zone).items():
        value = evidence.get(key)
        if value is not None:
            text = isinstance(value, str) and key not in _MOMENTS
            said = retold(value) if text else words(value)
            found.append((_(name), _("%(what)s, as the server itself says", what=said) if key in own else said))
    return tuple(found)


_MOMENTS = ("idle_since", "hub_activity", "saved_at")


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

    def rate(value: Any) -> str:
        return f"{value / 1024:.0f} KiB" if isinstance(value, int | float) else str(value)

    def memory(value: Any) -> str:
        return memory_words(value) if isinstance(value, int) else str(value)

    return {
        "idle_since": (N_("Not used since"), moment),
        "limit_s": (N_("Limit"), seconds),
        "kernels": (N_("Kernels"), str),
        "busy_kernels": (N_("of them running code"), str),
        "terminals": (N_("Terminals"), str),
        "children": (N_("of them with a program"), str),
        "background": (N_("Other programs"), str),
        "cpu_percent": (N_("CPU of its programs"), percent),
        "io": (N_("Read and written a second"), rate),
        "gpu_util": (N_("GPU use"), percent),
        "gpu_memory_mib": (N_("GPU memory"), memory),
        "gpu_unused_s": (N_("GPU held without computing"), seconds),
        "saved_at": (N_("Last save (does not count)"), moment),
        "hub_activity": (N_("Last request (does not count)"), moment),
    }
