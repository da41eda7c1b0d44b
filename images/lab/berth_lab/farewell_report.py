"""A report within bounds: the rows that matter most come first, and how many were left out is said. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

#: The service takes 512 KiB, and keeps so many rows of a list.
MOST_BYTES = 400 * 1024
MOST_ROWS = 200
#: Characters that are kept of a text.
LONGEST = 400
#: What a person misses most comes first; a kernel that saved nothing is more than any one variable.
ORDER = ("notebook", "checkpoint", "kernel", "terminal", "variables", "tabs", "variable")
MORE = "And %(number)s more that are not listed."


def bounded(report: Mapping[str, Any]) -> str:
    """The report as JSON, within what the service takes."""
    rows = MOST_ROWS
    while True:
        text = json.dumps(shortened(report, rows))
        if len(text) <= MOST_BYTES or rows <= 1:
            return text
        rows //= 2


def shortened(report: Mapping[str, Any], most: int = MOST_ROWS) -> dict[str, Any]:
    """The report with so many rows of each list at most; `saved_left_out` and `lost_left_out` count the others."""
    short = dict(report)
    for name in ("saved", "lost"):
        rows = report.get(name) or ()
        short[name] = first(rows, most)
        short[f"{name}_left_out"] = len(rows) - len(short[name])
    return short


def first(rows: Sequence[Mapping[str, Any]], most: int = MOST_ROWS) -> list[dict[str, Any]]:
    """The rows that matter most, with texts cut."""
    return [_short(row) for row in sorted(rows, key=_rank)[:most]]


def listed(rows: Sequence[Mapping[str, Any]], most: int = MOST_ROWS) -> list[dict[str, Any]]:
    """Lost rows for a list that has no room for a number beside it: the last one says how many there are besides."""
    if len(rows) <= most:
        return first(rows, most)
    words = MORE % {"number": len(rows) - most + 1}
    return [*first(rows, most - 1), {"kind": "other", "what": "…", "where": "", "why": words, "code": "more"}]


def _rank(row: Mapping[str, Any]) -> int:
    kind = row.get("kind")
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value[:LONGEST] if isinstance(value, str) else value for key, value in row.items()}
