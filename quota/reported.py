"""What the kit in a server says it saved, in the one bounded form that the book keeps. Pure.

The kit runs as the user, so every word of it may be forged: lists are cut, texts are made one short line each, and
whoever shows them shows them escaped and as the kit's own words.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

#: Rows of each list that are kept; how many there were besides is kept as a number.
MOST_ROWS: Final = 200
LONGEST_NAME: Final = 200
LONGEST_PATH: Final = 400
LONGEST_CODE: Final = 40
#: Counts, bytes and seconds beyond this say nothing.
MOST: Final = 2**53

SAVED_KINDS: Final = frozenset({"notebook", "variables", "checkpoint", "tabs"})
LOST_KINDS: Final = frozenset({"variable", "notebook", "kernel", "checkpoint", "terminal"})
OTHER: Final = "other"

#: Control characters, line ends, marks that turn the writing round, halves of characters.
_UNSHOWABLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class Farewell:
    """When the kit began to save, was last heard of and said it was done; its report as `clamped` makes it."""

    began_at: datetime
    heard_at: datetime
    done_at: datetime | None
    report: Mapping[str, Any]


def clamped(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report with everything in bounds: `state`, `reason`, `saved`, `lost`, `resume`, `seconds`, and how many
    rows of the two lists were left out, here or by the kit. What has a wrong shape is left out, never refused: it is
    all there is."""
    saved, more_saved = _rows(report.get("saved"), _saved)
    lost, more_lost = _rows(report.get("lost"), _lost)
    return {
        "state": "done" if report.get("state") == "done" else "saving",
        "reason": line(report.get("reason"), LONGEST_CODE),
        "saved": saved,
        "lost": lost,
        "saved_left_out": min(MOST, more_saved + (_whole(report.get("saved_left_out")) or 0)),
        "lost_left_out": min(MOST, more_lost + (_whole(report.get("lost_left_out")) or 0)),
        "resume": line(report.get("resume"), LONGEST_NAME) or None,
        "seconds": _seconds(report.get("seconds")),
    }


def line(value: object, longest: int) -> str:
    """A text as one line without anything that steers a terminal or a page, cut to `longest`; "" for what is none."""
    if not isinstance(value, str):
        return ""
    shown = "".join(" " if unicodedata.category(sign) in _UNSHOWABLE else sign for sign in value[: 4 * longest])
    words = " ".join(shown.split())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def _rows(value: object, read: Callable[[Mapping[str, Any]], dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    rows = value if isinstance(value, list) else []
    kept = [read(row) for row in _objects(rows[:MOST_ROWS])]
    return kept, max(0, len(rows) - MOST_ROWS)


def _objects(rows: Iterable[object]) -> Iterable[Mapping[str, Any]]:
    return (row for row in rows if isinstance(row, Mapping))


def _saved(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": _kind(row, SAVED_KINDS),
        "path": line(row.get("path"), LONGEST_PATH),
        "what": line(row.get("what"), LONGEST_NAME),
        "count": _whole(row.get("count")),
        "bytes": _whole(row.get("bytes")),
    }


def _lost(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": _kind(row, LOST_KINDS),
        "what": line(row.get("what"), LONGEST_NAME),
        "where": line(row.get("where"), LONGEST_NAME),
        "why": line(row.get("why"), LONGEST_PATH),
        "code": line(row.get("code"), LONGEST_CODE),
    }


def _kind(row: Mapping[str, Any], known: frozenset[str]) -> str:
    kind = row.get("kind")
    return kind if isinstance(kind, str) and kind in known else OTHER


def _whole(value: object) -> int | None:
    """None for what is no number, or none that counts something."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        return None
    return value


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return round(number, 3) if math.isfinite(number) and 0 <= number <= MOST else None
