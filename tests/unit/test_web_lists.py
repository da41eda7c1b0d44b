"""Pages of long lists."""

from __future__ import annotations

import pytest

from quota.web.lists import Pages, cut


@pytest.mark.parametrize(
    ("asked", "items", "number"),
    [
        ("", [0, 1, 2], 1),
        ("2", [3, 4, 5], 2),
        ("3", [6], 3),
        ("4", [6], 3),
        ("0", [0, 1, 2], 1),
        ("-1", [0, 1, 2], 1),
        ("x", [0, 1, 2], 1),
        ("\u0662", [0, 1, 2], 1),
        ("99999999", [6], 3),
    ],
)
def test_a_page_of_seven_by_three(asked: str, items: list[int], number: int) -> None:
    assert cut(range(7), asked, 3) == (range(items[0], items[-1] + 1), Pages(number, 3, 7))


def test_nothing_is_one_empty_page() -> None:
    assert cut([], "5", 3) == ([], Pages(1, 1, 0))
