"""Double entry: legs sum to 0, the earliest expiry burns first, the latest draw goes back first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota import ledger
from quota.ledger import Bucket, Draw, Kind, Posting, Transaction

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SOON, LATER = NOW + timedelta(days=1), NOW + timedelta(days=30)


def bucket(number: int, balance: int, expires_at: datetime | None = None) -> Bucket:
    return Bucket(number, f"manual:{number}", max(balance, 1), balance, NOW, expires_at)


def test_the_earliest_expiry_burns_first_and_the_open_ended_last() -> None:
    buckets = [bucket(1, 5), bucket(2, 5, LATER), bucket(3, 5, SOON), bucket(4, 5)]
    assert [each.id for each in ledger.burn_order(buckets, NOW)] == [3, 2, 1, 4]
    assert ledger.draw(buckets, 12, NOW) == [Draw("grant:3", 5), Draw("grant:2", 5), Draw("grant:1", 2)]


def test_an_expired_grant_pays_nothing_from_that_very_moment() -> None:
    buckets = [bucket(1, 5, NOW), bucket(2, 3)]
    assert ledger.available(buckets, 0, NOW) == 3
    assert ledger.available(buckets, 0, NOW - timedelta(microseconds=1)) == 8
    assert ledger.draw(buckets, 10, NOW) == [Draw("grant:2", 3)]


def test_debt_is_taken_off_what_is_available() -> None:
    assert ledger.available([bucket(1, 5)], -8, NOW) == -3


def test_the_latest_draw_goes_back_first() -> None:
    legs = [Posting("grant:1", -10), Posting("grant:2", -5), Posting("debt:7", -2)]
    assert ledger.give_back(reversed(legs), 4) == [Draw("debt:7", 2), Draw("grant:2", 2)]
    assert ledger.give_back(reversed(legs), 17) == [Draw("debt:7", 2), Draw("grant:2", 5), Draw("grant:1", 10)]
    with pytest.raises(ValueError, match="than were taken"):
        ledger.give_back(reversed(legs), 18)


def test_what_went_back_already_is_no_draw_any_more() -> None:
    legs = [Posting("grant:1", -10), Posting("grant:2", -5), Posting("grant:2", 5), Posting("grant:1", 3)]
    assert ledger.give_back(reversed(legs), 7) == [Draw("grant:1", 7)]
    with pytest.raises(ValueError, match="than were taken"):
        ledger.give_back(reversed(legs), 8)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 100)), min_size=1, max_size=20), st.data())
def test_any_money_that_was_taken_can_go_back(taken: list[tuple[int, int]], data: st.DataObject) -> None:
    legs = [Posting(f"grant:{number}", -amount) for number, amount in taken]
    total = sum(amount for _, amount in taken)
    first = data.draw(st.integers(0, total))
    back = ledger.give_back(reversed(legs), first)
    legs += [Posting(part.sub, part.amount) for part in back]
    rest = ledger.give_back(reversed(legs), total - first)
    returned: dict[str, int] = {}
    for part in [*back, *rest]:
        returned[part.sub] = returned.get(part.sub, 0) + part.amount
    drawn: dict[str, int] = {}
    for number, amount in taken:
        drawn[f"grant:{number}"] = drawn.get(f"grant:{number}", 0) + amount
    assert returned == drawn


def test_legs_must_sum_to_nothing() -> None:
    with pytest.raises(ValueError, match="sum to 0"):
        Transaction("k", Kind.GRANT, 1, (Posting("a", 1), Posting("b", -2)))
    with pytest.raises(ValueError, match="empty leg"):
        Transaction("k", Kind.GRANT, 1, (Posting("a", 0),))
    with pytest.raises(ValueError, match="empty leg"):
        Transaction("k", Kind.GRANT, 1, ())


def test_every_transaction_has_its_natural_key() -> None:
    draws = [Draw("grant:3", 4)]
    keys = [
        ledger.grant(3, 1, 10).key,
        ledger.repay(3, 1, 10).key,
        ledger.hold("L", 1, draws).key,
        ledger.hold("L", 1, draws, 2).key,
        ledger.charge("L", 1, 3, 4, 4, []).key,
        ledger.hand_back(Kind.RELEASE, "L", 1, draws, set()).key,
        ledger.hand_back(Kind.SETTLE, "L", 1, draws, set()).key,
        ledger.refund("L", 1, 0, 4, 9).key,
        ledger.expire(3, 1, 6).key,
    ]
    assert keys == [
        "grant:3",
        "repay:3",
        "hold:L",
        "hold:L:2",
        "charge:L:3",
        "release:L",
        "settle:L",
        "refund:L",
        "expire:3",
    ]


@pytest.mark.parametrize(
    ("amount", "held", "draws", "legs"),
    [
        (5, 8, [], {"held:L": -5, ledger.REVENUE: 5}),
        (8, 5, [Draw("grant:1", 3)], {"held:L": -5, "grant:1": -3, ledger.REVENUE: 8}),
        (8, 0, [Draw("grant:1", 3)], {"grant:1": -3, "debt:1": -5, ledger.REVENUE: 8}),
        (-2, 1, [], {"held:L": 2, ledger.REVENUE: -2}),
    ],
    ids=["from the hold", "beyond the hold", "into debt", "taken back"],
)
def test_a_charge_takes_the_hold_then_grants_then_debt(
    amount: int, held: int, draws: list[Draw], legs: dict[str, int]
) -> None:
    txn = ledger.charge("L", 1, 1, amount, held, draws)
    assert {leg.sub: leg.amount for leg in txn.legs} == legs


def test_money_that_comes_back_to_an_expired_grant_expires_at_once() -> None:
    back = [Draw("grant:1", 4), Draw("grant:2", 6)]
    txn = ledger.hand_back(Kind.SETTLE, "L", 1, back, {"grant:1"})
    sums: dict[str, int] = {}
    for leg in txn.legs:
        sums[leg.sub] = sums.get(leg.sub, 0) + leg.amount
    assert sums == {"held:L": -10, "grant:1": 0, "grant:2": 6, ledger.EXPIRED: 4}


def test_a_refund_pays_debt_first() -> None:
    txn = ledger.refund("L", 1, 3, 7, 5)
    assert {leg.sub: leg.amount for leg in txn.legs} == {ledger.REVENUE: -10, "debt:1": 3, "grant:5": 7}
    with pytest.raises(ValueError, match="no bucket"):
        ledger.refund("L", 1, 3, 7, None)


def test_sub_accounts_tell_their_bucket() -> None:
    assert ledger.bucket_of("grant:12") == 12
    assert ledger.bucket_of("debt:12") is None
