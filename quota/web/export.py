"""Tables for spreadsheets. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

#: A cell that begins with one of these is run as a formula by spreadsheets (OWASP, "CSV injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_cell(value: object) -> object:
    """Text that a spreadsheet would run gets an apostrophe in front; numbers and other text stay."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def to_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """RFC 4180 text; None becomes an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if cell is None else safe_cell(cell) for cell in row])
    return out.getvalue()
