"""What a process without a port says of itself in the note of its heartbeat: words for people, numbers for metrics.

Pure. A note of an older release is words alone; then no number is known, which is not 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Vitals:
    """`counts` only grow while the process lives (cycles, errors …); `gauges` come and go (seconds, numbers of things);
    `last_success` is the end of the last cycle that did all its work. What is not known is not in it."""

    words: str = ""
    last_success: datetime | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


def to_note(vitals: Vitals) -> str:
    """As it stands in the heartbeat's row."""
    when = vitals.last_success.astimezone(UTC).isoformat() if vitals.last_success else None
    content = {"words": vitals.words, "last_success": when, "counts": vitals.counts, "gauges": vitals.gauges}
    return json.dumps(content, ensure_ascii=False, default=dict)


def from_note(note: str) -> Vitals:
    """What a note says; one that is no JSON, or not of this form, is words."""
    try:
        content = json.loads(note)
    except ValueError:
        return Vitals(note)
    if not isinstance(content, Mapping) or not isinstance(content.get("words"), str):
        return Vitals(note)
    return Vitals(
        content["words"],
        _moment(content.get("last_success")),
        {name: int(number) for name, number in _numbers(content.get("counts"))},
        {name: float(number) for name, number in _numbers(content.get("gauges"))},
    )


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def _numbers(value: object) -> list[tuple[str, int | float]]:
    if not isinstance(value, Mapping):
        return []
    return [(str(k), v) for k, v in value.items() if isinstance(v, int | float) and not isinstance(v, bool)]


def done_note(at: datetime, findings: int | None = None) -> str:
    """That something was done with the book then, as a small fact of the book; `done_at` reads it."""
    return json.dumps({"at": at.astimezone(UTC).isoformat(), "findings": findings})


def done_at(text: str | None) -> tuple[datetime, int | None] | None:
    """What `{"at": …, "findings": …}` says; None where there is no such thing."""
    try:
        content = json.loads(text or "")
        at = datetime.fromisoformat(content["at"])
        findings = content.get("findings")
        return (at, int(findings) if findings is not None else None) if at.tzinfo else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
