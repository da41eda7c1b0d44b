"""As much of leases and accounts as a page shows, read for itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.bank import Defaults
from quota.leases import Holder
from tests.fakes.book import Desk, gpu, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path, defaults=Defaults(max_servers=None, max_gpu_milli=None)) as desk:
        desk.rows.put_devices("h1", [gpu(number) for number in range(6)])
        for number in range(5):
            desk.run(f"user{number}", share=250)
            desk.clock.advance(1)
        yield desk


def test_holdings_tell_what_leases_tell(desk: Desk) -> None:
    desk.run("two", share=1000, count=2)
    desk.end(desk.run("gone", share=0, count=0))
    desk.clock.advance(1)
    desk.run("cpu", share=0, count=0)
    told = desk.book.holdings()
    assert [each.id for each in told] == [lease.id for lease in reversed(desk.book.live())]
    for each, lease in zip(told, reversed(desk.book.live()), strict=True):
        for name in ("holder", "profile", "share", "count", "simulated", "requested_at", "slots"):
            assert getattr(each, name) == getattr(lease, name), name


def test_some_leases_come_in_the_order_asked_for(desk: Desk) -> None:
    some = [each.id for each in desk.book.holdings()][1:4]
    assert desk.book.some([*reversed(some), "l0"]) == [desk.book.lease(lease_id) for lease_id in reversed(some)]
    assert desk.book.some([]) == []


def test_unseen_are_the_running_ones_that_nobody_saw(desk: Desk) -> None:
    start = desk.now
    desk.clock.advance(100)
    seen = desk.book.live("user3")
    desk.book.observe_all(seen, desk.now)
    desk.reserve("waiting", share=0, count=0)  # not running, so nobody can see it
    silent = desk.book.unseen(start)
    assert {lease.holder for lease in silent} == {Holder(f"user{number}") for number in (0, 1, 2, 4)}
    assert desk.book.unseen(start - timedelta(hours=1)) == []


def test_the_accounts_of_a_page_are_those_asked_for(desk: Desk) -> None:
    assert set(desk.bank.names()) == {f"user{number}" for number in range(5)}
    assert set(desk.bank.views_of(["user0", "user3", "nobody"])) == {"user0", "user3"}
    assert desk.bank.views_of([]) == {}
    assert desk.bank.views_of(["user0"])["user0"] == desk.bank.account("user0")


def test_rows_of_some_leases_are_theirs_alone(desk: Desk) -> None:
    for lease in desk.book.live():
        desk.rows.put_verdict(lease.id, desk.now, "keep", "used", lease.account, {})
        desk.rows.put_signal(lease.id, "kit", {"of": lease.account}, desk.now)
    some = [lease.id for lease in desk.book.live()][:2]
    assert desk.rows.verdicts(some).keys() == set(some) == desk.rows.all_signals(some).keys()
    assert desk.rows.samples(some) == {}
    assert len(desk.rows.verdicts()) == len(desk.rows.all_signals()) == 5
