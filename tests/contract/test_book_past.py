"""The balance of days gone by is what it was then, to the micro-credit, and what was held of devices is found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.leases import StopReason
from quota.past import changes, stretches
from quota.web.daily import balances
from tests.fakes.book import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as found:
        found.devices(2)
        found.bank.ensure_account("alice")
        yield found


def there(desk: Desk, name: str = "alice") -> int:
    account = desk.bank.account(name)
    return account.available + account.held


def something(desk: Desk, chance: random.Random) -> None:
    """A session that is billed, refunded or runs on; a grant, one that expires, or a debt."""
    move = chance.choice(["session", "grant", "brief", "refund", "debt", "wait"])
    if move == "session":
        desk.session(chance.randint(1, 20_000), profile="test", server=f"s{chance.randint(0, 3)}")
    elif move == "grant":
        desk.bank.grant("alice", chance.randint(1, 9_000_000), by="boss", note="")
    elif move == "brief":
        ends = desk.now + timedelta(seconds=chance.randint(10, 5_000))
        desk.bank.grant("alice", chance.randint(1, 9_000_000), by="boss", note="", expires_at=ends)
    elif move == "refund":
        lease = desk.session(3600, profile="test", server="refunded")
        desk.clock.advance(chance.randint(0, 50_000))
        if lease.charged:
            desk.bank.refund(lease.id, None, by="boss", note="")
    elif move == "debt":
        lease = desk.run(server="dear", share=1000, profile="test")
        desk.clock.advance(500_000)  # more than all there is: what nobody could stop is owed
        desk.end(lease, StopReason.QUOTA)
        desk.bank.grant("alice", 600_000_000, by="boss", note="")
    desk.clock.advance(chance.randint(1, 9_000))


@pytest.mark.parametrize("seed", range(3))
def test_counted_back_it_is_what_it_was(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    start = desk.now
    desk.clock.advance(1)
    seen = []
    for _ in range(14):
        something(desk, chance)
        seen.append((desk.now, there(desk)))
        desk.clock.advance(1)
    found = [(change.at, change.amount) for change in changes(desk.store, desk.bank.account("alice").account.id, start)]
    counted = balances(there(desk), found, [moment + timedelta(microseconds=1) for moment, _ in seen])
    assert list(counted) == [amount for _, amount in seen]


def test_another_accounts_money_is_no_change_of_ones_own(desk: Desk) -> None:
    start = desk.now
    desk.clock.advance(60)
    desk.session(3600, "bob", profile="test")
    assert changes(desk.store, desk.bank.account("alice").account.id, start) == []


def test_what_was_held_of_a_device_and_until_when(desk: Desk) -> None:
    old = desk.session(100, profile="test", share=250)
    desk.clock.advance(1000)
    since = desk.now
    desk.session(60, profile="test", share=500)
    desk.run(server="two", profile="test", share=1000)
    desk.run(server="three", profile="cpu", share=0, count=0)
    found = {
        (each.share, None if each.end is None else (each.end - each.begin).seconds)
        for each in stretches(desk.store, since)
    }
    assert found == {(500, 60), (1000, None)}
    assert old.ended_at is not None and old.ended_at < since
