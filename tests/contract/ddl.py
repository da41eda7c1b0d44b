"""What SQLite says of its tables, in a form that can be compared."""

from __future__ import annotations

import re


def elements(sql: str) -> list[str]:
    """The columns and constraints of a CREATE statement, sorted: SQLite writes a column that was added at its end."""
    flat = re.sub(r"\s+", " ", sql)
    found, depth = [""], 0
    for sign in flat:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 1:
            found.append("")
        else:
            found[-1] += sign
    found[-1] = found[-1].rstrip().removesuffix(")")  # of the statement, wherever it stands
    return sorted(each.strip() for each in found)
