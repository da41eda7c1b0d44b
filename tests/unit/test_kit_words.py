"""What the kit says it could not save is said in the reader's language on the card."""

from __future__ import annotations

import re

import pytest

from berth_lab import farewell_kernels, farewell_report, serialize_refusals
from quota import catalogues, i18n
from quota.told import retold

#: Of a restore: the browser in the server shows these, the book never has them.
RESTORING = {"python", "missing-package", "no-snapshot", "damaged", "foreign", "shares", "kept", "failed"}
RESTORING |= {"interrupted"}

SENTENCES = {
    *farewell_kernels.WHY.values(),
    *(words for code, words in serialize_refusals.WHY.items() if code not in RESTORING),
    farewell_report.MORE % {"number": 17},
}


@pytest.fixture(autouse=True)
def english() -> None:
    catalogues.load("en")


@pytest.mark.parametrize("words", sorted(SENTENCES))
def test_each_reason_is_told_in_chinese(words: str) -> None:
    with i18n.speaking("zh-CN"):
        told = retold(words)
    assert re.search(r"[\u4e00-\u9fff]", told) and told.endswith("。")
    assert not set(re.findall(r"[A-Za-z]+", told)) - {"Berth", "Python", "GPU"}
    assert ("17" in told) == ("17" in words)
    with i18n.speaking("en"):
        assert retold(words) == words


def test_what_a_program_itself_said_stays_as_it_is() -> None:
    with i18n.speaking("zh-CN"):
        assert retold("OSError: No space left on device") == "OSError: No space left on device"
