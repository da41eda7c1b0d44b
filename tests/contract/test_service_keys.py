"""Idempotency keys: one effect and one answer for one request, whatever happens in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from hub_config.services import keep_tidy
from quota import schema
from quota.answers import KEPT, Answer, Answers
from quota.errors import Conflict, Reason, Refused
from tests.contract.service_reading import CREDIT, problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service
from tests.harness import until

GRANT = "accounts/alice/grants"
BODY = {"credits": "12.5", "note": "for the course"}


def key(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        desk.bank.ensure_account("alice")
        async with open_service(desk) as found:
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def alice(service: Service) -> httpx.AsyncClient:
    return service.api(service.hub.add_user("alice"))


@pytest.fixture
def boss(service: Service) -> httpx.AsyncClient:
    return service.api(service.hub.add_user("boss", admin=True))


def available(desk: Desk) -> int:
    return desk.bank.account("alice").available


def kept(desk: Desk) -> list[tuple[str, str, int]]:
    table = schema.answered
    with desk.store.read() as connection:
        return [(row.owner, row.key, row.status) for row in connection.execute(sa.select(table))]


def same(first: httpx.Response, again: httpx.Response) -> None:
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"


async def test_the_same_request_has_one_effect_and_one_answer(boss: httpx.AsyncClient, desk: Desk) -> None:
    first = await boss.post(GRANT, json=BODY, headers=key("one two ~"))
    desk.clock.advance(100)
    desk.bank.grant("alice", 5, by="boss")  # the account is another by now, the answer is not
    same(first, await boss.post(GRANT, json=dict(reversed(BODY.items())), headers=key("one two ~")))
    assert first.status_code == 201
    assert available(desk) == 112_500_005


async def test_without_a_key_each_request_is_one(boss: httpx.AsyncClient, desk: Desk) -> None:
    for _ in range(2):
        answer = await boss.post(GRANT, json=BODY)
        assert "Idempotency-Replayed" not in answer.headers
    assert available(desk) == 125_000_000
    assert kept(desk) == []


async def test_another_request_under_a_used_key_is_refused(boss: httpx.AsyncClient, desk: Desk) -> None:
    lease = desk.session(3600, profile="test")
    before = available(desk)
    await boss.post(GRANT, json=BODY, headers=key("k"))
    desk.bank.ensure_account("bob")
    for path, body in (
        (GRANT, BODY | {"credits": "13"}),
        (GRANT, BODY | {"note": ""}),
        ("accounts/bob/grants", BODY),
        (f"leases/{lease.id}/refund", {}),
        (f"leases/{lease.id}/stop", {}),
    ):
        problem(await boss.post(path, json=body, headers=key("k")), 422, "idempotency-key-reused")
    assert available(desk) == before + 12_500_000
    assert desk.bank.account("bob").available == 100 * CREDIT
    assert desk.book.lease(lease.id).charged == CREDIT // 2


@pytest.mark.parametrize("bad", ["", "x" * 201, "caf\xe9", "tab\tinside", "用户"])
async def test_a_bad_key_is_refused_before_anything_happens(boss: httpx.AsyncClient, desk: Desk, bad: str) -> None:
    problem(await boss.post(GRANT, json=BODY, headers=[(b"Idempotency-Key", bad.encode())]), 400, "field-invalid")
    assert available(desk) == 100 * CREDIT


async def test_two_keys_are_none(boss: httpx.AsyncClient, desk: Desk) -> None:
    before = available(desk)
    twice = [("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
    problem(await boss.post(GRANT, json=BODY, headers=twice), 400, "field-invalid")
    assert available(desk) == before


async def test_the_longest_key(boss: httpx.AsyncClient, desk: Desk) -> None:
    first = await boss.post(GRANT, json=BODY, headers=key("x" * 200))
    same(first, await boss.post(GRANT, json=BODY, headers=key("x" * 200)))
    assert available(desk) == 112_500_000


async def test_keys_of_two_people_never_meet(service: Service, boss: httpx.AsyncClient, desk: Desk) -> None:
    other = service.api(service.hub.add_user("chief", admin=True))
    first = await boss.post(GRANT, json=BODY, headers=key("spring"))
    second = await other.post(GRANT, json={"credits": "1"}, headers=key("spring"))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["bucket"] != second.json()["bucket"]
    third = await other.post(GRANT, json={"credits": "1", "key": "spring"})  # the key in the body is the same one
    assert third.json()["bucket"] == second.json()["bucket"]
    assert available(desk) == 113_500_000


async def test_a_key_lends_no_rights(service: Service, boss: httpx.AsyncClient, desk: Desk) -> None:
    """Whoever asks again is asked again who they are, and whether they may."""
    first = await boss.post(GRANT, json=BODY, headers=key("k"))
    assert first.status_code == 201
    problem(await service.api().post(GRANT, json=BODY, headers=key("k")), 401, "not-signed-in")
    service.hub.users["boss"] = False
    demoted = service.api(service.hub.add_token("boss", ("access:services!service=berth",)))
    problem(await demoted.post(GRANT, json=BODY, headers=key("k")), 403, "forbidden")


async def test_refusals_are_answers_too(service: Service, boss: httpx.AsyncClient, desk: Desk) -> None:
    lease = desk.run(profile="test")
    path = f"leases/{lease.id}/refund"
    first = await boss.post(path, json={}, headers=key("early"))
    problem(first, 409, "not-settled")
    desk.end(desk.book.lease(lease.id))
    same(first, await boss.post(path, json={}, headers=key("early")))
    missing = await boss.post("accounts/nobody/grants", json=BODY, headers=key("missing"))
    problem(missing, 404, "not-found")
    same(missing, await boss.post("accounts/nobody/grants", json=BODY, headers=key("missing")))


async def test_what_was_not_understood_uses_no_key(boss: httpx.AsyncClient, desk: Desk) -> None:
    problem(await boss.post(GRANT, json={"credits": "-1"}, headers=key("k")), 400, "field-invalid")
    problem(await boss.post(GRANT + "?x=1", json=BODY, headers=key("k")), 400, "field-unknown")
    problem(await boss.post(GRANT, content=b"{", headers=key("k")), 400, "json-invalid")
    assert kept(desk) == []
    assert (await boss.post(GRANT, json=BODY, headers=key("k"))).status_code == 201


async def test_a_failure_is_never_kept(
    boss: httpx.AsyncClient, desk: Desk, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = desk.bank.grant

    def busy(*_: Any, **__: Any) -> int:
        raise Refused(Reason.BOOK_UNAVAILABLE, why="a test")

    def broken(*_: Any, **__: Any) -> int:
        raise RuntimeError("a fault of ours")

    for fault, status in ((busy, 503), (broken, 500)):
        monkeypatch.setattr(desk.bank, "grant", fault)
        assert (await boss.post(GRANT, json=BODY, headers=key("k"))).status_code == status
        assert kept(desk) == []
    service.hub.down = True  # for a name that only the Hub may know
    problem(await boss.post("accounts/carol/grants", json=BODY, headers=key("hub")), 502, "hub-unavailable")
    service.hub.down = False
    assert kept(desk) == []
    monkeypatch.setattr(desk.bank, "grant", grant)
    assert (await boss.post(GRANT, json=BODY, headers=key("k"))).status_code == 201
    assert available(desk) == 112_500_000


async def test_two_at_once_have_one_effect(
    boss: httpx.AsyncClient, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first hangs in the middle: the second, and another one under the same key, are told so."""
    grant, inside, go_on = desk.bank.grant, threading.Event(), threading.Event()

    def slow(*args: Any, **more: Any) -> int:
        inside.set()
        assert go_on.wait(30)
        return grant(*args, **more)

    monkeypatch.setattr(desk.bank, "grant", slow)
    running = asyncio.create_task(boss.post(GRANT, json=BODY, headers=key("k")))
    assert await asyncio.to_thread(inside.wait, 30)
    try:
        second = await boss.post(GRANT, json=BODY, headers=key("k"))
        problem(second, 409, "idempotency-key-running")
        assert int(second.headers["Retry-After"]) > 0
        other = await boss.post(GRANT, json={"credits": "1"}, headers=key("k"))
        problem(other, 422, "idempotency-key-reused")
    finally:
        go_on.set()
    same(await running, await boss.post(GRANT, json=BODY, headers=key("k")))
    assert available(desk) == 112_500_000


async def test_twenty_at_once_in_two_services_have_one_effect(service: Service, desk: Desk, tmp_path: Path) -> None:
    """Two services on one book: each sends ten, and nobody is given twice."""
    async with open_service(desk) as other:
        clients = [each.api(each.hub.add_user("boss", admin=True)) for each in (service, other)]
        for client in clients:
            assert (await client.get("me")).status_code == 200
        asked = [client.post(GRANT, json=BODY, headers=key("race")) for _ in range(10) for client in clients]
        answers = await asyncio.gather(*asked)
        statuses = {answer.status_code for answer in answers}
        assert 201 in statuses and statuses <= {201, 409}
        assert {answer.json()["reason"] for answer in answers if answer.status_code == 409} <= {
            "idempotency-key-running"
        }
        assert len({answer.json()["bucket"] for answer in answers if answer.status_code == 201}) == 1
    assert available(desk) == 112_500_000
    assert desk.bank.audit() == []


@pytest.mark.parametrize("lost", ["finish", "begin"])
async def test_n02_a_crash_between_effect_and_answer(
    boss: httpx.AsyncClient, service: Service, desk: Desk, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The service dies after the grant, before its answer is kept: the repeat finds it begun and gives nothing more."""

    def dies(*_: Any, **__: Any) -> None:
        raise Refused(Reason.BOOK_UNAVAILABLE, why="the process is gone")

    with monkeypatch.context() as crash:
        if lost == "finish":
            crash.setattr(service.parts.answers, "finish", dies)
        else:  # even what was begun is lost
            crash.setattr(service.parts.answers, "begin", lambda *_: None)
        first = await boss.post(GRANT, json=BODY, headers=key("k"))
    assert first.status_code == 201
    assert kept(desk) == ([("boss", "k", 0)] if lost == "finish" else [])
    async with open_service(desk) as restarted:
        again = await restarted.api(restarted.hub.add_user("boss", admin=True)).post(GRANT, json=BODY, headers=key("k"))
    assert (again.status_code, again.json()["bucket"]) == (201, first.json()["bucket"])
    assert available(desk) == 112_500_000
    other = await boss.post(GRANT, json={"credits": "1"}, headers=key("k"))
    problem(other, 422, "idempotency-key-reused")
    assert available(desk) == 112_500_000


async def test_stop_under_a_key(alice: httpx.AsyncClient, desk: Desk, service: Service) -> None:
    lease = desk.run(profile="test")
    first = await alice.post(f"leases/{lease.id}/stop", headers=key("s"))
    assert first.status_code == 202
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    same(first, await alice.post(f"leases/{lease.id}/stop", headers=key("s")))
    assert service.hub.stopped == [("alice", "")]
    assert (await alice.post(f"leases/{lease.id}/stop", headers=key("t"))).status_code == 200


async def test_n06_a_refund_larger_than_the_charge_twice_after_the_month_closed(
    boss: httpx.AsyncClient, alice: httpx.AsyncClient, desk: Desk
) -> None:
    lease = desk.session(3600, profile="test")
    desk.clock.advance(timedelta(days=45).total_seconds())  # the month of the lease is closed
    path, body = f"leases/{lease.id}/refund", {"credits": "1000", "note": "sorry"}
    desk.bank.account("alice")
    before = available(desk)
    first = await boss.post(path, json=body, headers=key("r"))
    assert first.json() == {"lease_id": lease.id, "refunded_micro_credits": CREDIT // 2}
    same(first, await boss.post(path, json=body, headers=key("r")))
    for again in (key("other"), {}):  # under another key, and under none
        assert (await boss.post(path, json=body, headers=again)).json() == first.json()
    assert available(desk) == before + CREDIT // 2
    grant = (await alice.get(GRANT)).json()["items"][-1]
    assert (grant["amount_micro_credits"], grant["expires_at"]) == (CREDIT // 2, None)
    assert grant["granted_at"] == desk.now.isoformat().replace("+00:00", "Z")  # in the open month
    month = {"from": desk.now.date().replace(day=1).isoformat()}
    assert (await alice.get("me/usage", params=month)).json()["charged_micro_credits"] == -CREDIT // 2
    closed = {"from": "2026-03-01", "to": "2026-04-01"}
    assert (await alice.get("me/usage", params=closed)).json()["charged_micro_credits"] == CREDIT // 2
    problem(await boss.post(path, json={"credits": "0.1"}, headers=key("r2")), 409, "conflict")
    assert desk.bank.audit() == []


async def test_a_key_is_forgotten_after_a_week_and_the_effect_is_not_repeated(
    boss: httpx.AsyncClient, desk: Desk
) -> None:
    first = await boss.post(GRANT, json=BODY, headers=key("k"))
    desk.clock.advance(KEPT.total_seconds())
    same(first, await boss.post(GRANT, json=BODY, headers=key("k")))
    desk.clock.advance(1)
    again = await boss.post(GRANT, json=BODY, headers=key("k"))
    assert again.json()["bucket"] == first.json()["bucket"]
    assert "Idempotency-Replayed" not in again.headers
    assert available(desk) == 112_500_000


def test_old_answers_are_taken_off_once_a_day(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        answers = Answers(desk.store, desk.clock)
        for name in ("a", "b"):
            assert answers.begin("alice", name, "f") is None
            answers.finish("alice", name, "f", Answer(201, "{}"))
        assert answers.tidy() == 0
        desk.clock.advance(KEPT.total_seconds() + 1)
        assert answers.begin("bob", "c", "f") is None
        assert answers.tidy() == 2
        assert [row[:2] for row in kept(desk)] == [("bob", "c")]
        desk.clock.advance(86_399)
        assert answers.tidy() == 0
        desk.clock.advance(KEPT.total_seconds())
        assert answers.tidy() == 1
        assert kept(desk) == []
        desk.clock.jump(-30 * 86_400)  # a clock that was ahead
        assert answers.begin("bob", "d", "f") is None
        assert answers.tidy() == 0
        assert [row[:2] for row in kept(desk)] == [("bob", "d")]


async def test_the_service_forgets_by_itself(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        answers = Answers(desk.store, desk.clock)
        assert answers.begin("alice", "a", "f") is None
        desk.clock.advance(KEPT.total_seconds() + 1)
        tidying = asyncio.create_task(keep_tidy(answers, every=0.01))
        await asyncio.to_thread(until, lambda: not kept(desk), 30)
        assert answers.begin("alice", "b", "f") is None
        desk.clock.advance(KEPT.total_seconds() + 1)
        await asyncio.to_thread(until, lambda: not kept(desk), 30)
        tidying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tidying


def test_answers_one_by_one(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        answers = Answers(desk.store, desk.clock)
        assert answers.begin("alice", "k", "f") is None
        assert answers.begin("alice", "k", "f") is None  # begun, and nobody knows how it went
        assert answers.begin("bob", "k", "g") is None
        with pytest.raises(Conflict):
            answers.begin("alice", "k", "g")
        with pytest.raises(ValueError, match="500"):
            answers.finish("alice", "k", "f", Answer(500, "{}"))
        answers.finish("alice", "k", "f", Answer(201, "{}"))
        answers.finish("alice", "k", "f", Answer(409, "late"))  # the first answer stays
        answers.drop("alice", "k")  # too late as well
        assert answers.begin("alice", "k", "f") == Answer(201, "{}")
        answers.drop("bob", "k")
        assert answers.begin("bob", "k", "another") is None


def test_nobody_fills_the_book_with_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key that a person invents is a row: the newest stay, and everybody else's."""
    monkeypatch.setattr("quota.answers.MOST_KEPT", 5)
    with open_desk(tmp_path) as desk:
        answers = Answers(desk.store, desk.clock)
        answers.begin("bob", "first", "f")
        answers.finish("bob", "first", "f", Answer(201, "{}"))
        for number in range(12):
            desk.clock.advance(1)
            answers.begin("alice", str(number), "f")
            answers.finish("alice", str(number), "f", Answer(200, str(number)))
        with desk.store.read() as connection:
            kept = set(connection.execute(sa.select(schema.answered.c.key).filter_by(owner="alice")).scalars())
        assert kept == {"7", "8", "9", "10", "11"}
        assert answers.begin("alice", "11", "f") == Answer(200, "11")
        assert answers.begin("bob", "first", "f") == Answer(201, "{}")
