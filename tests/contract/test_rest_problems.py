"""Every error is problem+json with a reason, also those that tornado makes before or beside our handlers."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from quota.api import document
from quota.errors import Reason
from quota.web.problem import Problem, Why, status_of
from tests.contract.service_reading import problem
from tests.fakes.book import open_desk
from tests.fakes.service import PREFIX, Service, open_service

API = PREFIX + "api/v1/"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            yield found


@pytest.fixture
def alice(service: Service) -> httpx.AsyncClient:
    return service.api(service.hub.add_user("alice"))


@pytest.fixture
def boss(service: Service) -> httpx.AsyncClient:
    return service.api(service.hub.add_user("boss", admin=True))


class Raw:
    """An answer read from the wire, for what no HTTP client would send."""

    def __init__(self, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        line, _, headers = head.partition(b"\r\n")
        self.status_code = int(line.split()[1])
        self.headers = {name.lower(): value for name, value in BytesParser().parsebytes(headers).items()}
        self.text = body.decode()

    def json(self) -> Any:
        return json.loads(self.text)


async def say(service: Service, data: bytes) -> Raw:
    """Send bytes, and read until the other side closes."""
    port = int(service.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        return Raw(await asyncio.wait_for(reader.read(), 30))
    finally:
        writer.close()


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([line, "Host: x", "Connection: close", *headers, "", ""]).encode("latin-1") + body


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    b"GET\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET / HTTP/9.9.9\r\nHost: x\r\n\r\n",
    request(f"GET {API}me HTTP/1.1", "a header without a colon"),
    request(f"GET {API}me HTTP/1.1", "X-Odd: a\x00b"),
    request(f"POST {API}accounts/a/grants HTTP/1.1", "Content-Length: x"),
    request(f"POST {API}accounts/a/grants HTTP/1.1", "Content-Length: -5"),
    request(f"POST {API}accounts/a/grants HTTP/1.1", "Content-Length: 2", "Content-Length: 3", body=b"{}"),
    request(f"POST {API}accounts/a/grants HTTP/1.1", "Content-Length: 2", "Transfer-Encoding: chunked", body=b"{}"),
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
async def test_what_is_not_http_is_told_so(service: Service, data: bytes) -> None:
    problem(await say(service, data), 400, "request-invalid")


async def test_the_service_goes_on_after_it(service: Service, alice: httpx.AsyncClient) -> None:
    for data in MALFORMED:
        await say(service, data)
    assert (await alice.get("me")).status_code == 200


@pytest.mark.parametrize("path", ["me?x=%zz", "leases?user=%", "accounts/%f/grants", "leases?limit=5%2"])
async def test_bad_percent_encoding(service: Service, path: str) -> None:
    token = service.hub.add_user("boss", admin=True)
    line = request(f"GET {API}{path} HTTP/1.1", f"Authorization: Bearer {token}")
    problem(await say(service, line), 400, "request-invalid")


async def test_bytes_that_are_no_utf_8(boss: httpx.AsyncClient) -> None:
    for path in ("leases?user=%FF", "accounts/%FF", "accounts/%C0%AF/limits"):
        problem(await boss.get(path), 400, "request-invalid")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("me", "GET"),
        ("leases/lx", "GET, DELETE"),
        ("leases/lx/stop", "POST"),
        ("accounts/a/grants", "GET, POST"),
        ("accounts/a/limits", "GET, PUT"),
        ("kit/signals", "POST"),
        ("openapi.json", "GET"),
    ],
)
async def test_a_405_tells_what_is_offered(alice: httpx.AsyncClient, path: str, allowed: str) -> None:
    verbs = {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} - set(allowed.split(", "))
    for verb in sorted(verbs):
        answer = await alice.request(verb, path)
        problem(answer, 405, "method-not-allowed")
        assert answer.headers["Allow"] == allowed
    head = await alice.head(path)
    assert (head.status_code, head.headers["Allow"], head.content) == (405, allowed, b"")


@pytest.mark.parametrize("path", ["static/%00", "static/berth.css%00", "static/a/%00b", "static/none.css"])
async def test_a_file_that_cannot_be_is_a_404(service: Service, path: str) -> None:
    problem(await service.browser().get(path), 404, "not-found")


@pytest.mark.parametrize("path", ["health", "static/berth.css", "static/none.css", ""])
async def test_what_is_neither_page_nor_rest(service: Service, path: str) -> None:
    client = service._client(service.url, {})
    url = PREFIX + path if path else PREFIX.rstrip("/")
    problem(await client.delete(url), 405, "method-not-allowed")
    if path.startswith("static/n"):
        problem(await client.get(url), 404, "not-found")


async def test_a_program_that_strays_onto_the_pages_is_answered_as_one(service: Service) -> None:
    client = service._client(service.url, {"Accept": "application/json"})
    for path in (PREFIX + "nothing", "/elsewhere"):
        problem(await client.get(path), 404, "not-found")
    assert "<h1" in (await client.get(PREFIX + "nothing", headers={"Accept": "text/html, */*"})).text


async def test_addresses_outside(service: Service) -> None:
    client = service._client(service.url, {})
    for path in ("api/", "api/v1", "api/v1/", "api/v2/me", "api/v1/me/", "api/v1//me", "api/x"):
        problem(await client.get(PREFIX + path), 404, "not-found")
        problem(await client.post(PREFIX + path), 404, "not-found")


UNKNOWN = ["me?x=1", "me/usage?since=2026-03-01", "leases?Limit=5", "accounts?name=a", "prices?_=1", "openapi.json?v=3"]


async def test_unknown_parameters_are_refused_like_unknown_fields(boss: httpx.AsyncClient) -> None:
    for path in UNKNOWN:
        detail = problem(await boss.get(path), 400, "field-unknown")["detail"]
        assert "parameter" in detail
    problem(await boss.put("prices?dry=1", json={}), 400, "field-unknown")
    known = problem(await boss.get("leases?lease=x"), 400, "field-unknown")["detail"]
    assert "limit, cursor, user, before" in known


async def test_a_name_twice_is_no_json_object(boss: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    for raw in (b'{"credits": "1", "credits": "1000"}', b'{"credits": "1", "note": {"a": 1, "a": 2}}'):
        problem(await boss.post("accounts/boss/grants", content=raw, headers=headers), 400, "json-invalid")


async def test_a_compressed_body_is_not_guessed_at(boss: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    raw = gzip.compress(b'{"credits": "1"}')
    problem(await boss.post("accounts/boss/grants", content=raw, headers=headers), 415, "media-type")


async def test_no_answer_is_a_304(boss: httpx.AsyncClient) -> None:
    """Nothing is to be stored, so nothing can be unchanged; an undeclared status would meet a client unprepared."""
    first = await boss.get("prices")
    assert "Etag" not in first.headers
    for asked in ({"If-None-Match": "*"}, {"Range": "bytes=0-1"}):
        again = await boss.get("prices", headers=asked)
        assert (again.status_code, again.content) == (200, first.content)


async def test_a_parameter_once(boss: httpx.AsyncClient) -> None:
    problem(await boss.get("leases?limit=1&limit=2"), 400, "request-invalid")
    problem(await boss.get("leases?user=a&user=a"), 400, "request-invalid")


async def test_an_error_never_repeats_what_was_sent(boss: httpx.AsyncClient) -> None:
    """A value may be a secret that went into the wrong field."""
    secret = "s3cret-t0ken"
    for answer in (
        await boss.get("leases", params={"limit": secret}),
        await boss.put("prices", json={"gpu_hour_micro_credits": secret, "cpu_hour_micro_credits": 0}),
        await boss.post("accounts/boss/grants", json={"credits": secret}),
        await boss.post("accounts/boss/grants", json={"credits": 1, "note": [secret]}),
    ):
        assert problem(answer, 400, "field-invalid")["detail"]
        assert secret not in answer.text


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("prices", {"cpu_hour_micro_credits": 0}, "gpu_hour_micro_credits"),
        ("prices", {"gpu_hour_micro_credits": "5", "cpu_hour_micro_credits": 0}, "gpu_hour_micro_credits"),
        ("accounts/boss/limits", {"max_servers": -1}, "max_servers"),
        ("accounts/boss/limits", {"profiles": ["cpu", 5]}, "profiles.1"),
        ("accounts/boss/monthly-grant", {}, "micro_credits"),
    ],
)
async def test_an_error_names_the_field(boss: httpx.AsyncClient, path: str, body: Any, named: str) -> None:
    assert named in problem(await boss.put(path, json=body), 400, "field-invalid")["detail"]


async def test_whole_numbers_in_any_json_form(boss: httpx.AsyncClient) -> None:
    """To JSON 5, 5.0 and 5e0 are one number; what is not whole, or too large to be written out, is refused."""
    headers = {"Content-Type": "application/json"}
    for text in ("5", "5.0", "5e0", "0.5e1"):
        raw = f'{{"gpu_hour_micro_credits": {text}, "cpu_hour_micro_credits": 0}}'
        assert (await boss.put("prices", content=raw, headers=headers)).json()["gpu_hour_micro_credits"] == 5
    for text in ("5.5", "1e999999999", "1e13", "-1e0", "true", "null"):
        raw = f'{{"gpu_hour_micro_credits": {text}, "cpu_hour_micro_credits": 0}}'
        problem(await boss.put("prices", content=raw, headers=headers), 400, "field-invalid")


async def test_an_answer_that_was_not_promised_is_told_in_the_log(
    alice: httpx.AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def odd() -> None:
        raise Problem(409, Why.NOT_SETTLED, "odd")

    assert (await alice.get("prices")).status_code == 200
    assert not [record for record in caplog.records if record.name == "berth.api"]
    monkeypatch.setattr(service.parts.bank, "price", odd)
    with caplog.at_level(logging.ERROR, "berth.api"):
        problem(await alice.get("prices"), 409, "not-settled")
    assert [record.getMessage() for record in caplog.records if record.name == "berth.api"] == [
        "Prices now: 409 not-settled is not in the document"
    ]


def test_statuses_of_reasons_are_those_of_the_document() -> None:
    for item in document("/services/berth/")["paths"].values():
        for told in item.values():
            for status, answer in (told["responses"] if isinstance(told, dict) else {}).items():
                schema = answer["content"].get("application/problem+json", {}).get("schema")
                for reason in schema["allOf"][1]["properties"]["reason"]["enum"] if schema else ():
                    known = Why(reason) if reason in set(Why) else Reason(reason)
                    assert status_of(known) == int(status)
