"""Waiting for something to become true, never for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: How many times longer than a quiet machine one may take that has much to do, or stands still for a while.
PATIENCE = 4


def until(ask: Callable[[], T | None], seconds: float = 15, what: str = "", every: float = 0.05) -> T:
    """The first truthy answer of `ask`, which a quiet machine gives within `seconds`. Raises `AssertionError` with the
    last answer after `PATIENCE` times that: how fast something is, the benchmarks tell, no test."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what or ask!r}; the last answer was {answer!r}")
        time.sleep(every)


def while_true(ask: Callable[[], object], seconds: float, what: str = "", every: float = 0.2) -> None:
    """Assert that `ask` stays truthy for `seconds`: for what must *not* happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = ask()
        assert answer, f"no longer true: {what or ask!r}"
        time.sleep(every)
