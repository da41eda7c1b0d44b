"""Pages of a list that is long only in a large house. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pages:
    """Where one is: page `number` of `count`, from 1, of `total` items."""

    number: int
    count: int
    total: int


def cut(items: Sequence[T], asked: str, size: int) -> tuple[Sequence[T], Pages]:
    """The items of the page that an address asks for, and where that is. What is no number is the first page, and
    beyond the end is the last."""
    count = max(1, -(-len(items) // size))
    number = min(count, max(1, int(asked))) if asked.isascii() and asked.isdigit() else 1
    return items[(number - 1) * size : number * size], Pages(number, count, len(items))
