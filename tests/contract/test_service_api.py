"""REST of service berth over HTTP: names and shapes, who may what, exact figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.leases import State, StopReason, Target
from tests.contract.service_reading import CREDIT, problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def alice(service: Service) -> str:
    return service.hub.add_user("alice")


@pytest.fixture
def boss(service: Service) -> str:
    return service.hub.add_user("boss", admin=True)


async def test_me_tells_account_and_what_runs(service: Service, alice: str, desk: Desk) -> None:
    desk.run(server="two", profile="test")
    desk.clock.advance(3600)
    me = (await service.api(alice).get("me")).json()
    assert (me["name"], me["admin"], me["time_zone"]) == ("alice", False, "UTC")
    assert me["burn_micro_credits_per_hour"] == CREDIT // 2
    assert me["account"]["available_micro_credits"] + me["account"]["held_micro_credits"] == 100 * CREDIT
    assert me["account"]["limits"]["max_servers"] == 2
    assert [lease["holder"]["server"] for lease in me["leases"]] == ["two"]


async def test_a_first_look_makes_the_account_with_its_grant(service: Service, alice: str) -> None:
    me = (await service.api(alice).get("me")).json()
    assert me["account"]["available_micro_credits"] == 100 * CREDIT
    grants = (await service.api(alice).get("accounts/alice/grants")).json()["items"]
    assert [grant["amount_micro_credits"] for grant in grants] == [100 * CREDIT]
    assert grants[0]["expires_at"] == "2026-04-01T00:00:00Z"


async def test_a_running_lease_is_charged_up_to_this_moment(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.run(profile="test")
    desk.clock.advance(100.5)
    found = (await service.api(alice).get(f"leases/{lease.id}")).json()
    assert found["milli_gpu_seconds"] == 50_250
    assert found["charged_micro_credits"] == round(100.5 * 0.5 * CREDIT / 3600)
    assert (found["state"], found["target"]) == ("RUNNING", "RUN")
    assert found["holder"] == {"user": "alice", "server": "", "kind": "server"}
    assert (found["profile"], found["image"], found["account"]) == ("test", "env", "alice")
    assert (found["share_milli"], found["count"], found["simulated"]) == (500, 1, True)
    assert found["devices"] == [{"uuid": "SIM-h1-0", "name": "simulated GPU", "host": "h1", "simulated": True}]
    assert found["requested_at"] == found["started_at"] == "2026-03-02T09:00:00Z"
    assert (found["ended_at"], found["stop_reason"], found["idle"]) == (None, None, None)
    assert found["held_micro_credits"] > 0


async def test_a_settled_lease_tells_what_the_ledger_says(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.session(3600, profile="test")
    desk.clock.advance(3600)
    found = (await service.api(alice).get(f"leases/{lease.id}")).json()
    assert (found["charged_micro_credits"], found["milli_gpu_seconds"]) == (CREDIT // 2, 1_800_000)
    assert (found["state"], found["stop_reason"], found["held_micro_credits"]) == ("SETTLED", "user", 0)
    usage = (await service.api(alice).get("me/usage")).json()
    assert usage["charged_micro_credits"] == CREDIT // 2
    assert usage["items"][0]["microseconds"] == 3600 * 10**6


async def test_usage_of_adjacent_stretches_sums_exactly(service: Service, alice: str, desk: Desk) -> None:
    desk.session(1000.123456, profile="test")
    desk.run(profile="test")
    desk.clock.advance(77.7)
    client = service.api(alice)
    cut = "2026-03-02T09:07:11.5Z"
    first = (await client.get("me/usage", params={"from": "2026-03-01", "to": cut})).json()
    second = (await client.get("me/usage", params={"from": cut, "to": "2026-04-01T00:00:00+00:00"})).json()
    whole = (await client.get("me/usage")).json()
    for key in ("charged_micro_credits", "milli_gpu_seconds"):
        assert first[key] + second[key] == whole[key]
    live = (await client.get("leases")).json()["items"][0]["charged_micro_credits"]
    assert whole["items"][0]["charged_micro_credits"] == live


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ({}, "2026-03-01", "2026-04-01"),
        ({"from": "2025-12-24"}, "2025-12-24", "2026-04-01"),
        ({"from": "2026-05-05"}, "2026-05-05", "2026-06-01"),
        ({"to": "2026-03-02"}, "2026-03-01", "2026-03-02"),
        ({"to": "2026-02-01"}, "2026-01-01", "2026-02-01"),
        ({"to": "2026-05-05"}, "2026-03-01", "2026-05-05"),
    ],
)
async def test_usage_with_one_end_or_none(
    service: Service, alice: str, query: dict[str, str], start: str, end: str
) -> None:
    usage = (await service.api(alice).get("me/usage", params=query)).json()
    assert (usage["from"], usage["to"]) == (f"{start}T00:00:00Z", f"{end}T00:00:00Z")


async def test_usage_in_the_sites_zone(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        async with open_service(desk, zone="Asia/Shanghai") as service:
            token = service.hub.add_user("alice")
            usage = (await service.api(token).get("me/usage", params={"from": "2026-03-01"})).json()
    assert (usage["from"], usage["time_zone"]) == ("2026-02-28T16:00:00Z", "Asia/Shanghai")


async def test_leases_newest_first_mine_or_all(service: Service, alice: str, boss: str, desk: Desk) -> None:
    first = desk.session(10, profile="test")
    second = desk.run(profile="test")
    other = desk.run("bob", profile="test")
    mine = (await service.api(alice).get("leases")).json()["items"]
    assert [lease["id"] for lease in mine] == [second.id, first.id]
    everybody = (await service.api(boss).get("leases")).json()["items"]
    assert {lease["id"] for lease in everybody} == {first.id, second.id, other.id}
    assert len((await service.api(boss).get("leases?limit=1")).json()["items"]) == 1
    older = (await service.api(alice).get(f"leases?before={second.id}")).json()["items"]
    assert [lease["id"] for lease in older] == [first.id]
    assert (await service.api(alice).get("leases?before=2026-03-02T09:00:00Z")).json()["items"] == []
    problem(await service.api(alice).get("leases?before=l0000000000000000"), 404, "not-found")
    assert [lease["id"] for lease in (await service.api(boss).get("leases?user=bob")).json()["items"]] == [other.id]
    problem(await service.api(alice).get("leases?user=bob"), 403, "forbidden")


async def test_somebody_elses_lease_and_account_are_refused(service: Service, alice: str, desk: Desk) -> None:
    other = desk.run("bob", profile="test")
    client = service.api(alice)
    for path in (
        f"leases/{other.id}",
        "accounts/bob",
        "accounts/bob/grants",
        "accounts/bob/limits",
        "accounts/*/limits",
    ):
        problem(await client.get(path), 403, "forbidden")
    problem(await client.delete(f"leases/{other.id}"), 403, "forbidden")
    problem(await client.post(f"leases/{other.id}/stop"), 403, "forbidden")
    assert desk.book.lease(other.id).target is Target.RUN
    assert service.hub.stopped == []


async def test_writes_of_money_are_for_administrators(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.session(10, profile="test")
    client = service.api(alice)
    asked = [
        client.post("accounts/alice/grants", json={"credits": "5"}),
        client.put("accounts/alice/limits", json={"max_servers": 9}),
        client.put("prices", json={"gpu_hour_micro_credits": 0, "cpu_hour_micro_credits": 0}),
        client.post(f"leases/{lease.id}/refund", json={}),
        client.get("accounts"),
    ]
    for each in asked:
        problem(await each, 403, "forbidden")
    assert desk.bank.account("alice").available == 100 * CREDIT - desk.book.lease(lease.id).charged


async def test_stop_by_its_user_and_by_an_administrator(service: Service, alice: str, boss: str, desk: Desk) -> None:
    mine, theirs = desk.run(profile="test"), desk.run("bob", "b2", profile="test")
    answer = await service.api(alice).delete(f"leases/{mine.id}")
    assert answer.status_code == 202
    assert (answer.json()["target"], answer.json()["stop_reason"]) == ("STOP", "user")
    assert (await service.api(boss).post(f"leases/{theirs.id}/stop")).json()["stop_reason"] == "admin"
    service.hub.add_user("bob")
    assert desk.book.lease(theirs.id).stop_by == "boss"
    assert service.hub.stopped == [("alice", "")]  # the Hub did not know bob yet, which stops nothing of ours


async def test_a_stop_is_durable_while_the_hub_is_silent(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.run(profile="test")
    client = service.api(alice)
    assert (await client.get("me")).status_code == 200  # who asks is known for a while
    service.hub.down = True
    assert (await client.delete(f"leases/{lease.id}")).status_code == 202
    found = desk.book.lease(lease.id)
    assert (found.target, found.stop_reason, found.state) == (Target.STOP, StopReason.USER, State.RUNNING)


async def test_stopping_what_has_ended_changes_nothing(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.session(10, profile="test")
    answer = await service.api(alice).delete(f"leases/{lease.id}")
    assert (answer.status_code, answer.json()["state"]) == (200, "SETTLED")
    assert service.hub.stopped == []


async def test_a_grant_is_made_once_for_one_key(service: Service, boss: str, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    client = service.api(boss)
    headers = {"Idempotency-Key": "spring-1"}
    body = {"credits": "12.5", "note": "for the course"}
    first = await client.post("accounts/alice/grants", json=body, headers=headers)
    again = await client.post("accounts/alice/grants", json=body | {"key": "spring-1"}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["bucket"] == again.json()["bucket"]
    assert desk.bank.account("alice").available == 112_500_000
    other = await client.post("accounts/alice/grants", json={"credits": "13", "key": "spring-1"})
    problem(other, 409, "conflict")
    problem(await client.post("accounts/alice/grants", json=body | {"key": "b"}, headers=headers), 400, "field-invalid")
    grants = (await client.get("accounts/alice/grants")).json()["items"]
    assert {"by": "boss", "note": "for the course"}.items() <= grants[-1].items()


async def test_a_grant_to_a_user_whom_only_the_hub_knows(service: Service, boss: str, alice: str, desk: Desk) -> None:
    client = service.api(boss)
    answer = await client.post("accounts/Alice/grants", json={"amount_micro_credits": 5})
    assert answer.json()["account"]["name"] == "alice"
    problem(await client.post("accounts/nobody/grants", json={"credits": 1}), 404, "not-found")
    assert [view.account.name for view in desk.bank.accounts()] == ["alice"]


async def test_limits_and_prices(service: Service, boss: str, alice: str, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    client = service.api(boss)
    limits = await client.put("accounts/alice/limits", json={"max_servers": 1, "profiles": ["cpu"]})
    assert limits.json() == {
        "max_servers": 1,
        "max_gpu_milli": 2000,
        "monthly_micro_credits": None,
        "profiles": ["cpu"],
    }
    assert (await service.api(alice).get("accounts/alice/limits")).json() == limits.json()
    everybody = await client.put("accounts/%2A/limits", json={"max_gpu_milli": None, "monthly_micro_credits": 5})
    assert everybody.json()["max_gpu_milli"] is None
    assert (await client.get("accounts/alice/limits")).json()["monthly_micro_credits"] == 5
    price = await client.put("prices", json={"gpu_hour_micro_credits": 2_000_000, "cpu_hour_micro_credits": 10})
    assert price.json() == {"plan_id": 2, "gpu_hour_micro_credits": 2_000_000, "cpu_hour_micro_credits": 10}
    assert (await service.api(alice).get("prices")).json() == price.json()


async def test_the_monthly_grant_is_the_admins_to_change(service: Service, boss: str, alice: str, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    client = service.api(boss)
    assert (await client.get("accounts/%2A/monthly-grant")).json() == {"account": "*", "micro_credits": 100 * CREDIT}
    answer = await client.put("accounts/alice/monthly-grant", json={"micro_credits": 0})
    assert answer.json() == {"account": "alice", "micro_credits": 0}
    problem(await client.put("accounts/alice/monthly-grant", json={"micro_credits": -1}), 400, "field-invalid")
    problem(await service.api(alice).put("accounts/alice/monthly-grant", json={"micro_credits": 5}), 403, "forbidden")


async def test_refund_gives_back_what_was_charged_once(service: Service, boss: str, desk: Desk) -> None:
    lease = desk.session(3600, profile="test")
    running = desk.run(profile="test")
    client = service.api(boss)
    assert (await client.post(f"leases/{lease.id}/refund", json={"note": "sorry"})).json() == {
        "lease_id": lease.id,
        "refunded_micro_credits": CREDIT // 2,
    }
    assert (await client.post(f"leases/{lease.id}/refund")).json()["refunded_micro_credits"] == CREDIT // 2
    problem(await client.post(f"leases/{lease.id}/refund", json={"credits": "0.1"}), 409, "conflict")
    problem(await client.post(f"leases/{running.id}/refund"), 409, "not-settled")
    assert (await client.get(f"leases/{lease.id}")).json()["charged_micro_credits"] == 0
    assert desk.bank.audit() == []


async def test_p14_profiles_tell_what_is_free_now(service: Service, alice: str, desk: Desk) -> None:
    desk.run("bob", profile="test")
    found = {each["name"]: each for each in (await service.api(alice).get("profiles")).json()["items"]}
    assert (found["cpu"]["free_now"], found["test"]["free_now"], found["gpu-1-4"]["free_now"]) == (None, 3, 6)
    assert found["gpu-1-4"]["price_per_hour_micro_credits"] == CREDIT // 4
    assert (found["cpu"]["simulated"], found["test"]["simulated"]) == (False, True)


async def test_p17_the_fleet_tells_everybody_who_holds_what_without_money(
    service: Service, alice: str, desk: Desk
) -> None:
    desk.run("bob", profile="test")
    answer = await service.api(alice).get("fleet")
    first = answer.json()["items"][0]
    assert (first["used_milli"], first["free_milli"], first["simulated"]) == (500, 500, True)
    assert first["holders"] == [{"user": "bob", "server": "", "share_milli": 500}]
    assert "credits" not in answer.text


async def test_the_idle_verdict_is_told(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.run(profile="test")
    deadline = desk.now + timedelta(minutes=5)
    desk.rows.put_verdict(lease.id, desk.now, "warn", "idle", "not used since nine", {"limit_s": 1800}, deadline)
    found = (await service.api(alice).get(f"leases/{lease.id}")).json()["idle"]
    assert found == {
        "kind": "warn",
        "rule": "idle",
        "words": "not used since nine",
        "at": "2026-03-02T09:00:00Z",
        "deadline": "2026-03-02T09:05:00Z",
    }


async def test_i20_looking_at_pages_and_answers_changes_no_lease(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.run(profile="test")
    before = desk.book.lease(lease.id)
    client = service.api(alice)
    for path in ("me", "me/usage", "leases", f"leases/{lease.id}", "fleet", "profiles") * 5:
        assert (await client.get(path)).status_code == 200
    assert desk.book.lease(lease.id) == before


@pytest.mark.usefixtures("sqlite_only")  # a lock on the whole book is what only SQLite has
async def test_a_locked_book_is_a_503_with_a_time_to_come_back(
    service: Service, boss: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.bank.ensure_account("alice")
    monkeypatch.setattr("quota.store.BUSY_SECONDS", 0.2)
    held, done = asyncio.Event(), asyncio.Event()

    def hold(loop: asyncio.AbstractEventLoop) -> None:
        with desk.store.write():
            loop.call_soon_threadsafe(held.set)
            asyncio.run_coroutine_threadsafe(done.wait(), loop).result(30)

    holding = asyncio.get_running_loop().run_in_executor(None, hold, asyncio.get_running_loop())
    await held.wait()
    try:
        answer = await service.api(boss).post("accounts/alice/grants", json={"credits": "5"})
        problem(answer, 503, "book-unavailable")
        assert answer.headers["Retry-After"] == "2"
        assert (await service.api(boss).get("prices")).status_code == 200  # readers never wait
    finally:
        done.set()
        await holding
    assert desk.bank.account("alice").available == 100 * CREDIT
