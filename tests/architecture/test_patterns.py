"""A rule that is a pattern holds for the whole text."""

from __future__ import annotations

import ast

from tests.architecture.source import ROOT

PACKAGES = ("quota", "spawner", "idle_culler", "hub_config", "images")

#: Who may look at the beginning of a text alone, and why that decides nothing.
MAY = {
    "spawner/sharing.py": "the first two numbers of a version; what follows is not compared",
    "quota/web/metrics.py": "tornado's own routes, which end in $",
}


def half_matches() -> set[str]:
    """Files with a call of `match` on `re` or on a pattern."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            calls = (node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call))
            if any(isinstance(call.func, ast.Attribute) and call.func.attr == "match" for call in calls):
                found.add(path.relative_to(ROOT).as_posix())
    return found


def test_x21_no_rule_is_matched_without_its_end() -> None:
    assert half_matches() == set(MAY)
