"""A price by the site's own rule is a plan like any other: pinned, held, billed, and found right without the rule."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quota import schema
from quota.errors import Reason, Refused
from quota.leases import Lease, Quote
from quota.units import MicroCredits
from quota.web.figures import line, segments_of
from tests.fakes.book import Desk, open_desk

STUDENT = Quote(MicroCredits(333_333), "student price")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(2)
        yield opened


def quoted(desk: Desk, user: str, quote: Quote | None = STUDENT, **more: Any) -> Lease:
    return desk.run(user, quote=quote, **more)


def plans(desk: Desk) -> list[tuple[int, int | None, str | None]]:
    own = schema.rule_price.c
    chosen = sa.select(schema.price_plan.c.id, own.per_hour, own.rule).outerjoin(schema.rule_price)
    with desk.store.read() as connection:
        return [tuple(row) for row in connection.execute(chosen.order_by(schema.price_plan.c.id))]


def test_it_is_pinned_held_and_billed_to_the_micro_credit(desk: Desk) -> None:
    lease = quoted(desk, "alice", share=125)
    assert (lease.price.per_hour, lease.price.rule) == (333_333, "student price")
    assert lease.held == 83_334, "a quarter of an hour ahead, rounded up"
    desk.clock.advance(1800)
    (segment,) = desk.book.segments([lease.id])[lease.id]
    shown = line(segment, timedelta(hours=1), lease.share, lease.count)
    assert (shown.factor, shown.amount) == ("1\u00a0server", "0.333333")
    assert shown.rate == "0.333333\u00a0credits/h (student price)"
    desk.bank.set_price(9_000_000, 9_000_000, by="admin")  # what runs keeps its price
    desk.clock.advance(1800)
    assert desk.end(lease).charged == 333_333
    assert segments_of(desk.book.lease(lease.id))[0].price == lease.price
    event = next(event for event in desk.rows.events(lease.id) if event.kind == "lease-reserved")
    assert (event.detail["price_rule"], event.detail["price_per_hour"]) == ("student price", 333_333)
    assert desk.bank.audit() == []


def test_the_audit_computes_it_again_and_names_the_rule(desk: Desk) -> None:
    lease = quoted(desk, "alice")
    desk.clock.advance(3600)
    desk.end(lease)
    with desk.store.write() as connection:
        connection.execute(sa.update(schema.rule_price).values(per_hour=400_000))
    (finding,) = [each for each in desk.bank.audit() if "its time costs" in each]
    assert finding.endswith(
        f"lease {lease.id} is charged 333333, its time costs 400000 by the site's rule 'student price'"
    )


def test_the_list_of_prices_goes_on_beside_it(desk: Desk) -> None:
    quoted(desk, "alice")
    assert desk.bank.price().plan_id == 1, "a rule's price is nobody else's"
    again = quoted(desk, "bob", server="b")
    other = quoted(desk, "carol", Quote(MicroCredits(0), "course"), share=125)
    assert desk.bank.set_price(2_000_000, 0, by="admin").plan_id == 4
    listed = quoted(desk, "dora", None, share=125)
    assert plans(desk) == [(1, None, None), (2, 333_333, "student price"), (3, 0, "course"), (4, None, None)]
    assert (again.price.plan_id, other.price.plan_id, listed.price.plan_id) == (2, 3, 4)
    assert (other.held, listed.price.per_hour) == (0, None)
    assert desk.bank.audit() == []


def test_a_quote_that_cannot_be_paid_is_refused_and_leaves_no_plan(desk: Desk) -> None:
    with pytest.raises(Refused) as refused:
        quoted(desk, "alice", Quote(MicroCredits(10**12), "dear"))
    assert refused.value.reason is Reason.NO_CREDIT
    assert plans(desk) == [(1, None, None)]


def test_the_first_of_a_price_is_made_once_by_many_at_a_time(desk: Desk) -> None:
    desk.devices(4)
    users = [f"user-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(lambda user: desk.reserve(user, share=250, quote=STUDENT), users))
    assert {lease.price.plan_id for lease in leases} == {2}
    assert plans(desk) == [(1, None, None), (2, 333_333, "student price")]
