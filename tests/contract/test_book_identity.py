"""Who pays is an id that was decided at the start: names, groups and limits may change, the ledger does not."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from hub_config.settings import parse
from quota import schema
from quota.answers import Answer, Answers
from quota.errors import Conflict, NotFound, Reason, Refused
from quota.leases import StopReason
from quota.units import CREDIT
from tests.fakes.book import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as opened:
        opened.devices(1)
        yield opened
        assert opened.bank.audit() == []


def payers(desk: Desk, lease_id: str) -> set[int]:
    table = schema.posting
    with desk.store.read() as connection:
        return set(connection.scalars(sa.select(table.c.account_id).where(table.c.lease_id == lease_id)))


# ---- in the middle of a session --------------------------------------------------------------------------------------


def test_n05_what_may_change_in_a_session_moves_no_hold(desk: Desk) -> None:
    """A group of the same user, other limits, another price: the account that authorised it goes on paying."""
    lease = desk.run(share=1000)
    group = desk.bank.ensure_account("group:lab", kind="group")
    desk.bank.grant("group:lab", 5 * CREDIT, "admin")
    desk.bank.set_limits("alice", {"profiles": {"other"}, "max_gpu_milli": 0}, "admin")
    desk.bank.set_price(9 * CREDIT, 0, "admin")
    for _ in range(10):
        desk.clock.advance(360)
        lease = desk.book.meter(lease, desk.now).lease
    lease = desk.end(lease)
    assert lease.charged == CREDIT
    assert payers(desk, lease.id) == {lease.account_id}
    assert lease.account_id != group.id
    assert desk.bank.account("group:lab").available == 5 * CREDIT


def test_n05_a_hold_of_another_account_is_refused_before_anything_is_held(desk: Desk) -> None:
    desk.bank.ensure_account("group:lab", kind="group")
    with pytest.raises(Refused) as refused:
        desk.reserve("alice", account="lab")
    assert refused.value.reason is Reason.ACCOUNT_FORBIDDEN


# ---- names -----------------------------------------------------------------------------------------------------------


def test_n09_a_renamed_account_keeps_its_ledger(desk: Desk) -> None:
    lease = desk.session(3600, share=1000)
    before = desk.bank.account("alice")
    renamed = desk.bank.rename("alice", "alicia", by="admin")
    assert (renamed.id, renamed.name) == (before.account.id, "alicia")
    after = desk.bank.account("alicia")
    assert (after.available, after.month_charged, after.buckets) == (
        before.available,
        before.month_charged,
        before.buckets,
    )
    (line,) = desk.bank.statement("alicia", lease.requested_at, desk.now)
    assert line.charged == CREDIT
    assert desk.bank.refund(lease.id, None, "admin", "") == CREDIT
    (event,) = [event for event in desk.rows.events(account_id=renamed.id) if event.kind == "account-renamed"]
    assert event.detail == {"before": "alice", "after": "alicia"}


def test_n09_who_takes_a_freed_name_inherits_nothing(desk: Desk) -> None:
    desk.session(3600, share=1000)
    desk.bank.grant("alice", 7 * CREDIT, "admin")
    answers = Answers(desk.store, desk.clock)
    answers.begin("alice", "spring-1", "a request")
    answers.finish("alice", "spring-1", "a request", Answer(201, "{}"))
    desk.bank.rename("alice", "alice (left 2026)", by="admin")
    assert desk.session(0).account == "alice", "a hub that knew the name finds a new account behind it"
    assert answers.begin("alice", "spring-1", "another request") is None
    new = desk.bank.account("alice").account
    view = desk.bank.account("alice")
    assert new.id != desk.bank.account("alice (left 2026)").account.id
    assert (view.available, view.month_charged) == (100 * CREDIT, 0)
    assert desk.bank.statement("alice", new.created_at, desk.now) == []


def test_n09_no_name_is_taken_twice_and_none_from_under_a_server(desk: Desk) -> None:
    lease = desk.run("alice")
    desk.bank.ensure_account("bob")
    with pytest.raises(Conflict, match="has servers"):
        desk.bank.rename("alice", "alicia", by="admin")
    with pytest.raises(Conflict, match="bob exists"):
        desk.bank.rename("alice", "bob", by="admin")
    with pytest.raises(NotFound):
        desk.bank.rename("nobody", "somebody", by="admin")
    desk.book.request_stop(lease.id, StopReason.USER)
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    assert desk.bank.rename("alice", "alicia", by="admin").name == "alicia"


# ---- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [3, 7, 10])
def test_n07_so_many_parts_of_a_device_fit_as_it_is_cut_into(desk: Desk, parts: int) -> None:
    """Ten tenths, three thirds: 0.1 + 0.1 + 0.1 is no float here, and nobody is refused for its last digit."""
    (profile,) = parse(f'[[profiles]]\nname = "part"\nshare = "1/{parts}"').profiles
    assert profile.share == Fraction(1000, parts).__floor__()
    desk.bank.set_limits("*", {"max_servers": None, "max_gpu_milli": None}, "admin")
    for number in range(parts):
        desk.run(f"user{number}", share=profile.share)
    with pytest.raises(Refused) as refused:
        desk.reserve("late", share=profile.share)
    assert refused.value.reason is Reason.NO_ROOM
