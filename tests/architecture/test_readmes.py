"""The README in Simplified Chinese says what the English one says: what both must have in common is compared."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
SWITCH = "README.md", "README.zh-CN.md"

#: What does not depend on a language, by what it is called when it differs.
COMMON = {
    "headings": r"^#+(?= )",
    "code blocks": r"(?ms)^```.*?^```",
    "code": r"`([^`\n]+)`",
    "links": r"\]\(([^)]+)\)",
    "figures": r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.])",
    "bold figures": r"\*\*\d[\d.]*",
    "table rows": r"^\|",
    "numbered steps": r"^\d\.",
}


def found(pattern: str, text: str) -> Counter[str]:
    return Counter(hit for hit in re.findall(pattern, text, re.M) if hit not in SWITCH)


@pytest.mark.parametrize("what", COMMON)
def test_both_readmes_have_the_same(what: str) -> None:
    english, chinese = found(COMMON[what], ENGLISH), found(COMMON[what], CHINESE)
    assert english - chinese == Counter(), f"{what} that README.zh-CN.md has not"
    assert chinese - english == Counter(), f"{what} that README.md has not"


def test_each_leads_to_the_other() -> None:
    assert "](README.zh-CN.md)" in ENGLISH and "](README.md)" in CHINESE
