"""Lanes: which pool of threads a blocking call is made in, so that slow calls of one kind hold up no others.

The stock Docker spawner makes every call of the whole Hub in one thread: one user's stop, or pull, is everybody's wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: Threads of each lane. What is in none goes the common way.
LANES: Final = {"look": 4, "start": 8, "end": 8, "pull": 4, "log": 2}


def lane(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Marks a function or method: `in_thread` calls it in that lane. Raises `ValueError` for one that is not there."""
    if name not in LANES:
        raise ValueError(f"there is no lane {name!r}")

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        function.__dict__["lane"] = name
        return function

    return mark


def lane_of(function: object) -> str:
    """The lane of a function or bound method; "" for none."""
    return str(getattr(function, "lane", ""))
