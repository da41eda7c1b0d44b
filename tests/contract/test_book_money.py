"""Money on a real book: charged to the second, held ahead, given back, and never wrong by a micro-credit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.bank import Defaults
from quota.leases import State, StopReason
from quota.units import CREDIT, MicroCredits
from tests.fakes.book import BOOT, Desk, open_desk

GRANT = 100 * CREDIT


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(2)
        yield opened
        assert opened.bank.audit() == []


def spent(desk: Desk, name: str = "alice") -> int:
    return desk.bank.account(name).month_charged


# ---- to the second


def test_x05_a_hundred_sessions_of_50_s_are_5000_s(desk: Desk) -> None:
    leases = [desk.session(50, share=1000) for _ in range(100)]
    assert sum(lease.usage for lease in leases) == 5000 * 1000
    lines = desk.bank.statement("alice", leases[0].requested_at, desk.now)
    assert sum(line.seconds for line in lines) == 5000 * 10**6
    assert sum(lease.charged for lease in leases) == spent(desk) == 100 * 13_889  # 50 s of 1 credit an hour
    assert desk.bank.account("alice").available == GRANT - spent(desk)


def test_x12_a_thousand_short_sessions_are_exact(tmp_path: Path, database: str, deep: bool) -> None:
    """Started and stopped between two ticks of any meter; 3.6 s of half a GPU cost exactly 500 micro-credits."""
    count = 1000 if database == "sqlite" or deep else 100  # a round trip a statement; the sums are the same
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        for _ in range(count):
            lease = desk.session(3.6)
            assert (lease.charged, lease.usage) == (500, 1800)
        assert spent(desk) == 500 * count
        assert desk.bank.account("alice").available == GRANT - 500 * count
        assert desk.bank.audit() == []


def test_metering_often_costs_as_much_as_metering_once(desk: Desk) -> None:
    often, once = desk.run("often", share=125), desk.run("once", share=125)
    for step in range(97):
        desk.clock.advance(1 + step / 7)
        often = desk.book.meter(often, desk.now).lease
    assert desk.end(often).charged == desk.end(once).charged > 0


def test_meter_charges_and_fills_the_hold_up_again(desk: Desk) -> None:
    lease = desk.run(share=1000)
    desk.clock.advance(36)
    metered = desk.book.meter(lease, desk.now)
    assert (metered.lease.charged, metered.lease.usage, metered.lease.held) == (10_000, 36_000, 250_000)
    assert metered.paid_until == desk.now + timedelta(minutes=15)
    assert not metered.exhausted
    again = desk.book.meter(metered.lease, desk.now)
    assert (again.lease.charged, again.lease.held) == (10_000, 250_000)
    assert desk.bank.account("alice").available == GRANT - 260_000


def test_nothing_is_charged_beyond_now(desk: Desk) -> None:
    lease = desk.run(share=1000)
    desk.clock.advance(36)
    assert desk.book.meter(lease, desk.now + timedelta(hours=9)).lease.charged == 10_000


def test_a_meter_that_goes_back_charges_nothing(desk: Desk) -> None:
    lease = desk.run(share=1000)
    desk.clock.advance(36)
    lease = desk.book.meter(lease, desk.now).lease
    assert desk.book.meter(lease, desk.now - timedelta(seconds=30)).lease.charged == 10_000


def test_a_start_is_not_metered(desk: Desk) -> None:
    lease = desk.reserve()
    metered = desk.book.meter(lease, desk.now)
    assert (metered.lease, metered.paid_until, metered.exhausted) == (lease, None, False)


def test_a_cpu_server_is_metered_and_free(desk: Desk) -> None:
    lease = desk.run(share=0, count=0)
    desk.clock.advance(3600)
    metered = desk.book.meter(lease, desk.now)
    assert (metered.paid_until, metered.exhausted) == (None, False)
    settled = desk.end(metered.lease)
    assert (settled.charged, settled.usage) == (0, 0)


def test_a_cpu_server_has_its_own_rate(desk: Desk) -> None:
    desk.bank.set_price(1_000_000, 40_000, by="admin")
    lease = desk.run(share=0, count=0)
    assert lease.held == 10_000
    desk.clock.advance(1800)
    assert desk.end(lease).charged == 20_000


def test_s02_an_end_before_the_last_meter_is_charged_to_the_end(desk: Desk) -> None:
    lease = desk.run(share=1000)
    ended = desk.now + timedelta(seconds=18)
    desk.clock.advance(36)
    lease = desk.book.meter(lease, desk.now).lease
    assert lease.charged == 10_000
    closed = desk.book.close(lease, ended, StopReason.FAILED)
    assert (closed.charged, closed.usage) == (5_000, 18_000)
    lease = desk.wind_up(closed)
    assert (lease.charged, lease.usage) == (5_000, 18_000)
    assert spent(desk) == 5_000


# ---- what fails is free


def test_x08_a_failed_start_is_free(desk: Desk) -> None:
    lease = desk.book.mark_starting(desk.reserve(), desk.now)
    desk.clock.advance(300)
    desk.book.request_stop(lease.id, StopReason.FAILED, detail="the image did not start")
    settled = desk.wind_up(desk.book.acknowledge(lease.id, BOOT))
    assert (settled.charged, settled.usage, settled.state) == (0, 0, State.SETTLED)
    assert (spent(desk), desk.bank.account("alice").available) == (0, GRANT)
    assert desk.bank.statement("alice", lease.requested_at, desk.now) == []


def test_x29_a_server_that_crashed_after_it_ran_is_charged_to_its_end(desk: Desk) -> None:
    lease = desk.run(share=1000)
    ended = desk.now + timedelta(seconds=36)
    desk.clock.advance(600)
    settled = desk.wind_up(desk.book.close(lease, ended, StopReason.FAILED, "exit code 137"))
    assert (settled.charged, settled.stop_reason) == (10_000, StopReason.FAILED)


@pytest.mark.parametrize("when", ["before", "metered", "stopping", "released", "settled"])
def test_x08_a_start_that_failed_after_ready_is_free(desk: Desk, when: str) -> None:
    """The server answered, then the proxy did not take its route: whenever that is told, nothing is charged."""
    lease = desk.run(share=1000)
    began = desk.now
    if when == "before":
        desk.book.void(lease.id)
    desk.clock.advance(3600)
    if when == "metered":
        desk.book.meter(lease, desk.now)
        desk.book.void(lease.id)
    lease = desk.book.request_stop(lease.id, StopReason.FAILED)
    lease = desk.book.acknowledge(lease.id, BOOT)
    if when == "stopping":
        desk.book.void(lease.id)
    lease = desk.book.release(desk.book.lease(lease.id), desk.now)
    assert lease.held == 0 or when in ("released", "settled"), "what is free goes back with the slot"
    if when == "released":
        desk.book.void(lease.id)
    lease = desk.book.settle(desk.book.lease(lease.id))
    if when == "settled":
        assert lease.charged == 1_000_000
        desk.book.void(lease.id)
    lease = desk.book.lease(lease.id)
    assert (lease.charged, lease.usage, lease.held) == (0, 0, 0)
    assert (spent(desk), desk.bank.account("alice").available) == (0, GRANT)
    (line,) = desk.bank.statement("alice", began, desk.now)
    assert (line.charged, line.seconds, line.milli_gpu_seconds) == (0, 0, 0)


# ---- when the credit runs out


def test_a_hold_that_cannot_be_filled_up_tells_when_it_ends(tmp_path: Path) -> None:
    with open_desk(tmp_path, defaults=Defaults(monthly_grant=MicroCredits(300_000))) as desk:
        desk.devices(1)
        lease = desk.run(share=1000)
        desk.clock.advance(180)  # 50 000: the hold is filled up with the last that is there
        metered = desk.book.meter(lease, desk.now)
        assert (metered.exhausted, metered.lease.held) == (False, 250_000)
        desk.clock.advance(180)
        metered = desk.book.meter(metered.lease, desk.now)
        assert (metered.exhausted, metered.lease.held) == (True, 200_000)
        assert metered.paid_until == desk.now + timedelta(minutes=12)
        desk.bank.grant("alice", 50_000, by="admin")
        metered = desk.book.meter(metered.lease, desk.now)
        assert (metered.exhausted, metered.lease.held) == (False, 250_000)
        assert desk.bank.audit() == []


def test_x07_what_goes_beyond_is_debt_and_the_next_grant_pays_it(tmp_path: Path) -> None:
    """The agent was away for two hours. Nothing is cut at 0: the balance is what the ledger says."""
    with open_desk(tmp_path, defaults=Defaults(monthly_grant=MicroCredits(300_000))) as desk:
        desk.devices(1)
        lease = desk.run(share=1000)
        desk.clock.advance(7200)
        settled = desk.end(lease)
        assert settled.charged == 2_000_000
        view = desk.bank.account("alice")
        assert (view.available, view.debt) == (-1_700_000, -1_700_000)
        desk.bank.grant("alice", 700_000, by="admin")
        assert desk.bank.account("alice").available == -1_000_000
        desk.bank.grant("alice", 1_500_000, by="admin")
        view = desk.bank.account("alice")
        assert (view.available, view.debt) == (500_000, 0)
        assert desk.bank.audit() == []


def test_debt_goes_down_first_when_a_hold_comes_back(tmp_path: Path) -> None:
    with open_desk(tmp_path, defaults=Defaults(monthly_grant=MicroCredits(500_000))) as desk:
        desk.devices(2)
        one, two = desk.run("alice", "one", share=1000), desk.run("alice", "two", share=1000)
        desk.clock.advance(7200)
        desk.end(one)  # 2 000 000 of which the hold of `two` cannot be taken
        desk.book.void(two.id)
        desk.end(desk.book.lease(two.id))
        assert desk.bank.account("alice").available == 500_000 - 2_000_000
        assert desk.bank.audit() == []


def test_the_months_limit_exhausts_a_running_server(desk: Desk) -> None:
    lease = desk.run(share=1000)
    desk.bank.set_limits("alice", {"monthly_micro": 260_000}, by="admin")
    desk.clock.advance(36)
    metered = desk.book.meter(lease, desk.now)
    assert (metered.exhausted, metered.lease.held) == (False, 250_000)
    desk.clock.advance(36)
    metered = desk.book.meter(metered.lease, desk.now)
    assert (metered.exhausted, metered.lease.held) == (True, 240_000)
