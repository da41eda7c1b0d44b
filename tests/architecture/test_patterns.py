"""A rule that is a pattern holds for the whole text."""

from __future__ import annotations

import ast

from tests.architecture.source import ROOT

PACKAGES = ("quota", "spawner", "idle_culler", "hub_config", "images")

#: Who may look at a part of a text alone, and why that lets nothing in.
MAY = {
    "spawner/sharing.py": "the first two numbers of a version; what follows is not compared",
    "quota/web/metrics.py": "tornado's own routes, which end in $",
    "quota/web/fields.py": "a character that is refused wherever it stands",
    "quota/api/base.py": "a per cent sign that is refused wherever it stands",
    "hub_config/ldap_directory.py": "a directory's search, which is no pattern",
    "images/lab/berth_lab/snapshot_state.py": "a secret's word, which withholds a name wherever it stands",
    "hub_config/placeholders.py": "a placeholder that is refused wherever it stands",
}
PARTIAL = {"match", "search"}


def half_matches() -> set[str]:
    """Files with a call of `match` or `search` on `re` or on a pattern."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            calls = (node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call))
            if any(isinstance(call.func, ast.Attribute) and call.func.attr in PARTIAL for call in calls):
                found.add(path.relative_to(ROOT).as_posix())
    return found


def test_x21_no_rule_is_matched_without_its_end() -> None:
    assert half_matches() == set(MAY)
