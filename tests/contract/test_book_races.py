"""Many who want the same thing at the same moment: threads of one process, and several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier

import pytest

from quota.bank import Defaults
from quota.errors import Refused
from quota.leases import Lease, StopReason
from quota.store import Store
from quota.units import MicroCredits
from tests.fakes.book import Desk, open_desk, weights
from tests.fakes.clock import FakeClock

STARTS = 50


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        yield opened


def starts(desk: Desk, users: range, share: int = 500) -> list[Callable[[], str]]:
    return [partial(attempt, desk, f"user{number}", "", share) for number in users]


def attempt(desk: Desk, user: str, server: str = "", share: int = 500) -> str:
    """One start; what came of it. After it, whatever it was, no device may be given away twice."""
    try:
        desk.reserve(user, server, share)
        outcome = "held"
    except Refused as refused:
        outcome = refused.reason.value
    held = weights(desk.book.live())
    assert all(share <= 1000 for share in held.values()), held
    return outcome


def at_once(calls: list[Callable[[], str]]) -> Counter[str]:
    """Run all calls in threads that begin together."""
    barrier = Barrier(len(calls))

    def go(call: Callable[[], str]) -> str:
        barrier.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return Counter(pool.map(go, calls))


def test_p03_of_50_threads_that_want_half_a_gpu_exactly_2_get_it(desk: Desk) -> None:
    desk.devices(1)
    outcomes = at_once(starts(desk, range(STARTS)))
    assert outcomes == {"held": 2, "no-room": 48}
    assert weights(desk.book.live()) == {"SIM-h1-0": 1000}
    assert desk.bank.audit() == []


def _some(url: str, first: int, count: int) -> Counter[str]:
    with Store(url) as store:
        desk = Desk(store, FakeClock())
        return at_once(starts(desk, range(first, first + count)))


def test_p03_of_50_starts_in_5_processes_exactly_2_get_it(desk: Desk) -> None:
    desk.devices(1)
    outcomes: Counter[str] = Counter()
    url = str(desk.store.url)
    with ProcessPoolExecutor(5, mp_context=get_context("spawn")) as pool:
        for part in [pool.submit(_some, url, first, 10) for first in range(0, STARTS, 10)]:
            outcomes += part.result(120)
    assert outcomes == {"held": 2, "no-room": 48}
    assert weights(desk.book.live()) == {"SIM-h1-0": 1000}
    assert desk.bank.audit() == []


def test_credit_for_one_server_starts_one_of_two(tmp_path: Path) -> None:
    for_one = Defaults(monthly_grant=MicroCredits(125_000))  # 15 minutes of half a GPU
    with open_desk(tmp_path, defaults=for_one) as desk:
        desk.devices(2)
        outcomes = at_once([partial(attempt, desk, "alice", "one"), partial(attempt, desk, "alice", "two")])
        assert outcomes == {"held": 1, "no-credit": 1}
        assert desk.bank.account("alice").available == 0
        assert desk.bank.audit() == []


def test_one_holder_has_one_lease_however_often_it_asks(desk: Desk) -> None:
    desk.devices(2)
    outcomes = at_once([partial(attempt, desk, "alice")] * 10)
    assert outcomes == {"held": 1, "already-held": 9}


def test_room_that_is_freed_is_given_away_once(desk: Desk) -> None:
    desk.devices(1)
    lease = desk.run("first", share=1000)
    desk.book.request_stop(lease.id, StopReason.USER)
    lease = desk.book.acknowledge(lease.id, "boot-1")

    def free() -> str:
        desk.wind_up(lease)
        return "freed"

    outcomes = at_once([free, *starts(desk, range(9), share=1000)])
    assert outcomes["freed"] == 1
    assert outcomes["held"] <= 1
    assert outcomes["held"] + outcomes["no-room"] == 9
    assert desk.bank.audit() == []


def test_x07_charging_and_granting_at_once_loses_nothing(desk: Desk) -> None:
    desk.devices(2)
    one, two = desk.run("alice", "one"), desk.run("alice", "two")
    desk.clock.advance(60)

    def meter(lease: Lease) -> str:
        desk.book.meter(lease, desk.now)
        return "metered"

    def grant() -> str:
        desk.bank.grant("alice", 1_000_000, by="admin")
        return "granted"

    outcomes = at_once([partial(meter, one), partial(meter, two), *[grant] * 8])
    assert outcomes == {"metered": 2, "granted": 8}
    view = desk.bank.account("alice")
    assert view.available + view.held + view.month_charged == 100_000_000 + 8_000_000
    assert desk.bank.audit() == []
