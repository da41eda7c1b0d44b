"""The connection is lost in the middle of every call that writes, at every statement, before and after the commit.

The caller is told that the book is not available, or the right result; asked again, the call has had the effect of
one; the book is in order, and the next call works.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from quota.alerts import Alerts
from quota.answers import Answers
from quota.bank import Bank
from quota.book import Book
from quota.errors import Reason, Refused
from quota.rows import Rows
from quota.store import Store
from tests.contract.calls import CALLS, DEFAULTS, MADE_OF_OTHERS, Call, portrait
from tests.contract.lost import Breaker, Point, broken
from tests.fakes.book import Desk, new_store
from tests.fakes.clock import FakeClock

CLASSES = (Book, Bank, Rows, Alerts, Answers)


#: How a method of these classes begins to write.
WRITES = ("store.write(", "self._claimed(", "self._by_id(", "self._about(")


def test_the_table_names_every_call_that_writes() -> None:
    public = {
        f"{each.__name__}.{name}": inspect.unwrap(getattr(each, name))
        for each in CLASSES
        for name in dir(each)
        if not name.startswith("_") and inspect.isfunction(getattr(each, name))
    }
    wrapped = {f"{each.__name__}.{name}" for each in CLASSES for name in dir(each) if is_retried(each, name)}
    writes = {name for name, call in public.items() if any(words in inspect.getsource(call) for words in WRITES)}
    tried = {name.partition(",")[0] for name in CALLS}
    assert tried <= set(public)
    assert writes | {name for name in wrapped if name in public} == tried - MADE_OF_OTHERS
    assert not writes - wrapped, "these are not tried again after a deadlock (quota.store.retried)"
    assert len(writes) > 30


def is_retried(owner: type, name: str) -> bool:
    return not name.startswith("_") and hasattr(getattr(owner, name), "__wrapped__")


class Site:
    """One book, many subjects, and a way to break it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.names = (f"subject{number:05d}" for number in count())

    def desk(self) -> Desk:
        desk = Desk(self.store, FakeClock(), DEFAULTS)
        desk.bank.seed()
        return desk

    def attempt(self, call: Call, point: Point | None) -> tuple[Breaker, Any, list[Any]]:
        """Prepare a subject, do the call with the book broken at that point, and once more if that was refused; the
        breaker, what the first call came to, and the portrait."""
        desk, name = self.desk(), next(self.names)
        run = call.prepare(desk, name)
        with broken(self.store, point) as breaker:
            try:
                result: object = run()
            except Refused as refused:
                assert refused.reason is Reason.BOOK_UNAVAILABLE, refused
                result = refused
        if isinstance(result, Refused):
            try:
                run()
            except call.again as told:
                assert not isinstance(told, Refused) or told.reason is Reason.ALREADY_HELD, told
        seen = portrait(desk, name)
        return breaker, result, seen


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_store(tmp_path) as store:
        yield Site(store)


def a_third(points: list[Point]) -> list[Point]:
    """Every commit, and every third statement; `--deep` takes them all."""
    return [point for point in points if point.where != "statement" or point.number % 3 == 1]


@pytest.mark.parametrize("name", CALLS)
def test_n02_a_connection_lost_at_any_point_of(name: str, site: Site, deep: bool) -> None:
    call = CALLS[name]
    breaker, _, once = site.attempt(call, None)
    points = breaker.points()
    assert points, "the call does nothing?"
    lost = 0
    for point in points if deep else a_third(points):
        breaker, result, seen = site.attempt(call, point)
        assert breaker.broken, point
        if not (call.appends and point.where == "answer"):
            assert seen == once, (point, result)
        lost += isinstance(result, Refused)
    assert lost, "no loss was ever noticed"
    assert site.desk().bank.audit() == []
