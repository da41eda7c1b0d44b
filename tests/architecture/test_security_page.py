"""docs/security.md makes no claim without a test: each row names files that are there."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT

PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")


def test_every_claim_names_a_test_that_is_there() -> None:
    claims = PAGE.partition("## What holds")[2].partition("## What does not hold")[0]
    rows = [line for line in claims.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) > 10
    there = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named and set(named) <= there, row


def test_every_attack_is_on_the_page() -> None:
    attacks = {path.stem for path in (ROOT / "tests").rglob("test_attack_*.py")}
    assert len(attacks) > 8
    assert not {name for name in attacks if f"`{name}`" not in PAGE}
