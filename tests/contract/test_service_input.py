"""REST of service berth: bad input, unknown callers and the kit's reports never do more than they may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

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


BAD_GRANTS = [
    ({}, "field-invalid"),
    ({"credits": "0"}, "field-invalid"),
    ({"credits": "-1"}, "field-invalid"),
    ({"credits": "1e3000000000"}, "field-invalid"),
    ({"credits": "NaN"}, "field-invalid"),
    ({"credits": "0.0000001"}, "field-invalid"),
    ({"credits": 10**30}, "field-invalid"),
    ({"credits": [1]}, "field-invalid"),
    ({"credits": True}, "field-invalid"),
    ({"amount_micro_credits": 1.5}, "field-invalid"),
    ({"amount_micro_credits": "5"}, "field-invalid"),
    ({"amount_micro_credits": 2**70}, "field-invalid"),
    ({"amount_micro_credits": 1, "credits": "1"}, "field-invalid"),
    ({"credits": "1", "note": 5}, "field-invalid"),
    ({"credits": "1", "note": "a\x00b"}, "field-invalid"),
    ({"credits": "1", "note": "\ud800"}, "field-invalid"),
    ({"credits": "1", "key": ""}, "field-invalid"),
    ({"credits": "1", "key": 7}, "field-invalid"),
    ({"credits": "1", "note": "x" * 501}, "field-invalid"),
    ({"credits": "1", "account": "bob"}, "field-unknown"),
]


async def test_bad_grants_change_nothing(service: Service, boss: str, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    client, headers = service.api(boss), {"Content-Type": "application/json"}
    for body, reason in BAD_GRANTS:
        problem(await client.post("accounts/alice/grants", content=json.dumps(body), headers=headers), 400, reason)
    assert desk.bank.account("alice").available == 100 * CREDIT


BAD_BODIES = [
    b"{",
    b"[]",
    b"1",
    b"null",
    b"\xff",
    b'{"credits": NaN}',
    b"[" * 50_000,
    b'{"credits": ' + b"9" * 5000 + b"}",
]


async def test_bodies_that_are_no_json_object(service: Service, boss: str, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    client, headers = service.api(boss), {"Content-Type": "application/json"}
    for raw in BAD_BODIES:
        answer = await client.post("accounts/alice/grants", content=raw, headers=headers)
        problem(answer, 400, "json-invalid")


@pytest.mark.parametrize("size", [64 * 1024 + 1, 5_000_000])
async def test_a_large_body_is_a_413(service: Service, boss: str, size: int) -> None:
    headers = {"Content-Type": "application/json"}
    raw = b'{"note": "' + b"x" * (size - 12) + b'"}'
    problem(await service.api(boss).post("accounts/alice/grants", content=raw, headers=headers), 413, "too-large")

    async def chunks() -> AsyncIterator[bytes]:  # without a Content-Length
        for start in range(0, size, 16384):
            yield raw[start : start + 16384]

    problem(await service.api(boss).post("accounts/alice/grants", content=chunks(), headers=headers), 413, "too-large")
    problem(await service.api().post("kit/signals", content=raw, headers=headers), 413, "too-large")


async def test_a_form_is_no_json(service: Service, boss: str, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    answer = await service.api(boss).post("accounts/alice/grants", data={"credits": "5"})
    problem(answer, 415, "media-type")


BAD_DATES = (
    "from=x",
    "from=2026-03-01T00:00:00",
    "to=0001-01-01T00:00:00%2B14:00",
    "to=9999-12-31T23:59:59-14:00",
    "from=2026-03-02&to=2026-03-02",
    "from=2026-03-03&to=2026-03-02",
    "from=%F0%9F%98%80",
    "to=2026-13-01",
    "to=1e9",
)


async def test_bad_arguments_are_a_400(service: Service, alice: str) -> None:
    client = service.api(alice)
    for query in BAD_DATES:
        problem(await client.get(f"me/usage?{query}"), 400, "date-invalid")
    for query in ("limit=0", "limit=-1", "limit=x", "limit=100001", "limit=٣", "limit=1e3"):
        problem(await client.get(f"leases?{query}"), 400, "field-invalid")


async def test_unknown_addresses_are_a_404_problem(service: Service, alice: str) -> None:
    client = service.api(alice)
    for path in ("", "nothing", "leases/lx", "leases/a/b/c", "accounts/x/y/z", "leases/l%00", "me/"):
        problem(await client.get(path), 404, "not-found")


async def test_strange_names_are_refused(service: Service, boss: str) -> None:
    client = service.api(boss)
    for path in ("accounts/%FF", "leases?user=%FF", "accounts/%00", "accounts/" + "x" * 300, "accounts/%0A"):
        assert (await client.get(path)).status_code in (400, 404), path


async def test_a_method_that_is_not_there(service: Service, alice: str) -> None:
    problem(await service.api(alice).patch("me"), 405, "method-not-allowed")


async def test_who_asks_must_be_known(service: Service) -> None:
    answer = await service.api().get("me")
    problem(answer, 401, "not-signed-in")
    assert "token" in answer.headers["WWW-Authenticate"]
    problem(await service.api("wrong").get("me"), 401, "not-signed-in")
    service.hub.add_user("eve")
    limited = service.hub.add_token("eve", ("read:users!user=eve",))
    problem(await service.api(limited).get("me"), 403, "forbidden")
    machine = service.hub.add_token("idle-culler", ("access:services!service=berth",), kind="service")
    problem(await service.api(machine).get("me"), 403, "forbidden")


async def test_a_token_in_the_address_is_none(service: Service, alice: str) -> None:
    problem(await service.api().get(f"me?token={alice}"), 401, "not-signed-in")


async def test_a_silent_hub_is_a_502(service: Service) -> None:
    service.hub.down = True
    problem(await service.api("whatever").get("me"), 502, "hub-unavailable")


BAD_LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"max_servers": -1},
    {"max_servers": "2"},
    {"max_servers": True},
    {"max_gpu_milli": 2**60},
    {"profiles": "cpu"},
    {"profiles": ["nothing"]},
    {"profiles": [1]},
    {"monthly_micro_credits": 1.5},
    {"x": 1},
)


async def test_bad_limits_and_prices_change_nothing(service: Service, boss: str, desk: Desk) -> None:
    limits, price, client = desk.bank.limits("*"), desk.bank.price(), service.api(boss)
    for body in BAD_LIMITS:
        assert (await client.put("accounts/%2A/limits", json=body)).status_code == 400, body
    for gpu in (-1, 1.5, "1", None, True, 10**18):
        body = {"gpu_hour_micro_credits": gpu, "cpu_hour_micro_credits": 0}
        problem(await client.put("prices", json=body), 400, "field-invalid")
    assert (desk.bank.limits("*"), desk.bank.price()) == (limits, price)


async def test_the_kit_reports_for_its_own_server_alone(service: Service, alice: str, desk: Desk) -> None:
    one, two = desk.run(profile="test"), desk.run(server="two", profile="test")
    token = service.hub.server_token("alice", "two")
    future = (desk.now + timedelta(hours=5)).isoformat()
    report = {
        "kernels": [
            {"id": "k", "busy": True, "last_execute_at": future, "busy_since": None, "newer": 1},
            {"id": "u", "busy": None, "last_execute_at": "2026-03-02T09:00:00+02:00", "busy_since": None},
        ],
        "terminals": 1,
        "children": 1,
        "saved_at": future,
        "unsaved": None,
    }
    answer = await service.api(token).post("kit/signals", json=report)
    assert (answer.status_code, answer.json()["lease_id"]) == (200, two.id)
    at, payload = desk.rows.signals(two.id)["kit"]
    assert at == desk.now
    assert payload == {
        "kernels": [
            {"id": "k", "busy": True, "last_execute_at": "2026-03-02T09:00:00Z", "busy_since": None},
            {"id": "u", "busy": None, "last_execute_at": "2026-03-02T07:00:00Z", "busy_since": None},
        ],
        "terminals": 1,
        "children": 1,
        "background": None,
        "saved_at": "2026-03-02T09:00:00Z",
        "unsaved": None,
    }
    assert desk.rows.signals(one.id) == {}
    problem(await service.api(token).get("me"), 403, "forbidden")  # it sees nothing of the pages
    problem(await service.api(alice).post("kit/signals", json=report), 403, "forbidden")  # which server speaks?
    problem(await service.api().post("kit/signals", json=report), 401, "not-signed-in")
    other = service.hub.server_token("alice", "three")
    problem(await service.api(other).post("kit/signals", json=report), 404, "no-lease")


BAD_REPORTS: tuple[dict[str, Any], ...] = (
    {},
    {"kernels": [], "terminals": -1},
    {"kernels": {}, "terminals": 0},
    {"kernels": [5], "terminals": 0},
    {"kernels": [{"id": "k", "busy": "yes"}], "terminals": 0},
    {"kernels": [{"id": "k", "busy": True, "last_execute_at": "09:00"}], "terminals": 0},
    {"kernels": [{"id": "k", "busy": True, "last_execute_at": "2026-03-02T09:00:00"}], "terminals": 0},
    {"kernels": [{"id": "k", "busy": True, "last_execute_at": 5}], "terminals": 0},
    {"kernels": [{"id": 5, "busy": True}], "terminals": 0},
    {"kernels": [{"id": "k", "busy": True}] * 501, "terminals": 0},
    {"kernels": [], "terminals": 0, "children": -1},
    {"kernels": [], "terminals": 0, "children": True},
    {"kernels": [], "terminals": 0, "background": 1.5},
    {"kernels": [], "terminals": 0, "unsaved": "3"},
    {"kernels": [], "terminals": 0, "unsaved": 10**7},
    {"kernels": [], "terminals": 0, "saved_at": "yesterday"},
)


async def test_bad_reports_are_refused(service: Service, desk: Desk) -> None:
    lease = desk.run(profile="test")
    service.hub.add_user("alice")
    client = service.api(service.hub.server_token("alice"))
    for report in BAD_REPORTS:
        assert (await client.post("kit/signals", json=report)).status_code == 400, report
    assert desk.rows.signals(lease.id) == {}
