"""Bodies, headers and connections that are meant to hurt service `berth`: refused with a reason, soon, and for nobody
else to feel."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from tornado.netutil import bind_sockets

from quota.web.app import make_app
from quota.web.server import Server
from tests.contract.service_attacks import bare, everything, logged_in, token_of
from tests.contract.service_reading import CREDIT, FORM
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import PREFIX, Service, open_service
from tests.harness.waiting import PATIENCE

JSON = {"Content-Type": "application/json"}
GRANTS = "accounts/alice/grants"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            found.hub.add_user("boss", admin=True)
            found.hub.add_user("alice")
            for name in ("alice", "boss"):
                desk.bank.ensure_account(name)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def boss(service: Service) -> str:
    return service.hub.add_token("boss", ("access:services!service=berth",))


def nested(depth: int, opening: str, closing: str) -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


BODIES: dict[str, bytes] = {
    "lists in lists": b'{"credits": ' + nested(20_000, "[", "]") + b"}",
    "objects in objects": nested(9_000, '{"a":', "}"),
    "half a list": b'{"credits": ' + b"[" * 60_000,
    "a number of a million places": b'{"credits": 1e999999}',
    "a number of a billion places": b'{"credits": 1e-999999999}',
    "an exponent of 25 digits": b'{"credits": 1e9999999999999999999999999}',
    "an exponent of minus 25 digits": b'{"credits": 1e-9999999999999999999999999}',
    "an integer of 60,000 digits": b'{"amount_micro_credits": ' + b"9" * 60_000 + b"}",
    "a fraction of 60,000 digits": b'{"credits": 0.' + b"9" * 60_000 + b"}",
    "text of 60,000 digits": b'{"credits": "' + b"9" * 60_000 + b'"}',
    "an integer of 65 bits": b'{"amount_micro_credits": 18446744073709551617}',
    "a huge exponent as text": b'{"credits": "1e999999"}',
    "digits of other scripts": '{"credits": "٣"}'.encode(),
    "wide digits": '{"credits": "５"}'.encode(),
    "a minus that is none": '{"credits": "−5"}'.encode(),
    "not a number": b'{"credits": NaN}',
    "for ever": b'{"amount_micro_credits": Infinity}',
    "no UTF-8": b'{"credits": "5", "note": "\xff\xfe"}',
    "too long a UTF-8": b'{"credits": "5", "note": "\xc0\xaf"}',
    "UTF-16": json.dumps({"credits": "5"}).encode("utf-16"),
    "half a surrogate": b'{"credits": "5", "note": "\\ud800"}',
    "a nul": b'{"credits": "5", "note": "\\u0000"}',
    "two objects": b'{"credits": "5"}{"credits": "5"}',
    "a comment": b'{"credits": "5" /* */}',
    "10,000 fields": json.dumps({f"f{number}": 1 for number in range(5_000)}).encode(),
    "a prototype": b'{"credits": "5", "__proto__": {"admin": true}}',
    "a constructor": b'{"credits": "5", "constructor": {"prototype": {}}}',
    "a class": b'{"credits": "5", "__class__": "x"}',
    "a field of Python's": b'{"credits": "5", "model_config": {}}',
    "an actor": b'{"credits": "5", "by": "alice"}',
    "a bucket": b'{"credits": "5", "bucket": "x", "account_id": 1}',
}


async def test_every_such_body_is_refused_and_changes_nothing(service: Service, desk: Desk, boss: str) -> None:
    client, before = service.api(boss), everything(desk)
    for what, body in BODIES.items():
        for method, path in (("POST", GRANTS), ("PUT", "prices"), ("PUT", "accounts/%2A/limits")):
            answer = await client.request(method, path, content=body, headers=JSON)
            assert answer.status_code == 400, (what, path, answer.status_code)
            assert len(answer.content) < 2_000, "what was sent does not come back at length"
    kit = service.api(service.hub.server_token("alice"))
    for what, body in BODIES.items():
        answer = await kit.post("kit/signals", content=body, headers=JSON)
        assert answer.status_code in (400, 429), (what, answer.text)
    assert everything(desk) == before


async def test_the_last_of_two_equal_fields_is_not_taken_in_silence(service: Service, desk: Desk, boss: str) -> None:
    """{"credits": "5", "credits": "500"}: two readers of one body would disagree about what was asked."""
    answer = await service.api(boss).post(GRANTS, content=b'{"credits": "5", "credits": "500"}', headers=JSON)
    assert answer.status_code == 400
    assert desk.bank.account("alice").available == 100 * CREDIT


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip", "GZIP"])
async def test_a_packed_body_is_not_unpacked(service: Service, desk: Desk, boss: str, coding: str) -> None:
    """Ten megabytes of spaces in ten kilobytes, and a good request in gzip: bodies come as they are or not at all."""
    before = everything(desk)
    for plain in (b'{"credits": "5"' + b" " * 10_000_000 + b"}", b'{"credits": "5"}'):
        packed = gzip.compress(plain)
        answer = await service.api(boss).post(GRANTS, content=packed, headers={**JSON, "Content-Encoding": coding})
        assert answer.status_code in (400, 415)
    unpacked = await service.api(boss).post(GRANTS, content=plain, headers={**JSON, "Content-Encoding": coding})
    assert unpacked.status_code == 415, "nobody could say what was asked"
    assert everything(desk) == before


async def test_a_form_of_many_or_doubled_fields(service: Service, desk: Desk) -> None:
    boss = await logged_in(service, "boss")
    token, before = await token_of(boss), everything(desk)
    many = "&".join(f"f{number}=1" for number in range(8_000))
    twice = f"_xsrf={token}&account=alice&credits=5&{many}"
    headers = {**FORM, "Content-Type": "application/x-www-form-urlencoded"}
    answer = await boss.post("admin/grant", content=twice, headers=headers)
    assert answer.status_code < 500
    assert everything(desk) == before, "more fields than any form of ours has"
    for body in ("%" * 30_000, "&" * 60_000, "=" * 60_000, "a=%ff&" * 5_000, "_xsrf=" + "%00" * 10_000):
        assert (await boss.post("admin/grant", content=body, headers=headers)).status_code in (400, 403, 413)
    assert everything(desk) == before


HEAD = f"POST {PREFIX}api/v1/kit/signals HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
HIDDEN = b"GET /services/berth/health HTTP/1.1\r\nHost: x\r\n\r\n"
LENGTHS: dict[str, bytes] = {
    "both ways": b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "both ways, turned round": b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n" + HIDDEN,
    "two lengths in one": b"Content-Length: 0, 40\r\n\r\n" + HIDDEN,
    "a length with a sign": b"Content-Length: +0\r\n\r\n" + HIDDEN,
    "a length below zero": b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "a length in hexadecimal": b"Content-Length: 0x0\r\n\r\n" + HIDDEN,
    "a length of another script": "Content-Length: ٠\r\n\r\n".encode() + HIDDEN,
    "a length with an underscore": b"Content-Length: 1_0\r\n\r\n" + HIDDEN,
    "a length of 30 digits": b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + HIDDEN,
    "coded twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "coded in an unknown way": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a space before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a folded line": b"Content-Length:\r\n 0\r\n\r\n" + HIDDEN,
    "a bare carriage return": b"X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a nul": b"X: a\0b\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    "a chunk with a sign": b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + HIDDEN,
    "a chunk below zero": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + HIDDEN,
    "a chunk in hexadecimal": b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + HIDDEN,
    "a chunk of 30 digits": b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n" + HIDDEN,
    "a chunk that is longer than it says": b"Transfer-Encoding: chunked\r\n\r\n1\r\naaaa\r\n0\r\n\r\n" + HIDDEN,
}


async def test_a_body_of_two_lengths_hides_no_second_request(service: Service) -> None:
    """Request smuggling: where two readers could disagree about where a body ends, the answer is an error and the
    connection's end, never an answer to what was hidden behind it."""

    async def hides(rest: bytes) -> bool:
        return b'"status": "ok"' in await bare(service, HEAD + rest, seconds=1.5)

    hidden = await asyncio.gather(*(hides(rest) for rest in LENGTHS.values()))
    # A folded line is one header in two lines (RFC 7230, 3.2.4), so what follows is a second request to all readers.
    allowed = {"a folded line"}
    assert {what for what, found in zip(LENGTHS, hidden, strict=True) if found} <= allowed
    assert b'"status": "ok"' in await bare(service, HIDDEN, seconds=1.5), "the control"


EARLY = {
    "a method that is none": f"FOO {PREFIX}api/v1/me HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method of WebDAV at a page": f"PROPFIND {PREFIX}board HTTP/1.1\r\nHost: x\r\n\r\n",
    "an address that is no text": f"GET {PREFIX}api/v1/accounts/%FF HTTP/1.1\r\nHost: x\r\n\r\n",
    "a web socket": f"GET {PREFIX}api/v1/me HTTP/1.1\r\nHost: x\r\nSec-Fetch-Mode: websocket\r\n\r\n",
    "a body of a gigabyte": f"POST {PREFIX}api/v1/me HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 30}\r\n\r\n",
    "an address that is not there": f"GET {PREFIX}api/v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method that is not offered": f"PATCH {PREFIX}api/v1/me HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
}


async def test_a_refusal_that_ends_the_connection_says_so(service: Service) -> None:
    """The proxy sends requests of many people through one connection. One that ends unannounced takes with it what
    somebody else sends at that moment, and a POST is not sent again."""
    for what, request in EARLY.items():
        answer = await bare(service, request.encode() + HIDDEN, seconds=1)
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert head.startswith(b"http/1.1 4"), what
        assert (b"connection: close" in head) != (b'"status": "ok"' in answer), what


async def test_a_head_that_never_ends_is_cut(service: Service) -> None:
    for line in (b"X-A: " + b"a" * 200_000, b"".join(b"X-%d: a\r\n" % number for number in range(20_000))):
        answer = await bare(service, b"GET /services/berth/health HTTP/1.1\r\nHost: x\r\n" + line, seconds=5)
        assert not answer or answer.startswith(b"HTTP/1.1 4")
    long = await bare(service, b"GET /services/berth/" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", seconds=5)
    assert not long or long.startswith(b"HTTP/1.1 4")
    assert (await service.browser().get("health")).status_code == 200


async def test_large_bodies_do_not_add_up_in_memory(service: Service) -> None:
    """Forty bodies of 7 MiB at once, without a log-in: read and dropped, never kept."""
    process = psutil.Process()
    before = process.memory_info().rss
    most = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal most
        for _ in range(112):
            most = max(most, process.memory_info().rss)
            yield b"x" * 65536

    async def send() -> int:
        return (await service.api().post("kit/signals", content=chunks(), headers=JSON)).status_code

    assert set(await asyncio.gather(*(send() for _ in range(40)))) == {413}
    assert most - before < 150 * 2**20, "280 MiB were sent"


# ---- slow clients ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def impatient(service: Service) -> AsyncIterator[int]:
    """The product's own server, with the product's application, and less patience; its port."""
    threads = ThreadPoolExecutor(2)
    server = Server(make_app(service.parts, threads), idle_connection_timeout=0.5, body_timeout=0.5)
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    try:
        yield sockets[0].getsockname()[1]
    finally:
        server.stop()
        await server.close_all_connections()
        threads.shutdown()


async def dribble(port: int, start: bytes) -> float:
    """Send a byte now and then until the server has enough; how long that took."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ended = asyncio.ensure_future(reader.read())
    try:
        writer.write(start)
        while not ended.done() and time.monotonic() - began < PATIENCE * 20:
            writer.write(b"a")
            await asyncio.wait([ended], timeout=0.1)
    except ConnectionError:
        pass
    finally:
        ended.cancel()
        writer.close()
    return time.monotonic() - began


SLOW = {
    "in the head": b"GET /services/berth/health HTTP/1.1\r\nX-A: ",
    "in the first line": b"GET /services/ber",
    "in the body": HEAD + b"Content-Length: 50000\r\n\r\n",
    "in a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n",
}


async def test_who_dribbles_is_cut_off_and_others_are_served_meanwhile(service: Service) -> None:
    limits = Server(make_app(service.parts)).conn_params  # as the product makes it
    assert 90 < limits.header_timeout <= 300 and limits.body_timeout is not None and limits.body_timeout <= 60
    async with impatient(service) as port:
        slow = [asyncio.create_task(dribble(port, start)) for start in SLOW.values() for _ in range(50)]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        answers = 0
        while not all(task.done() for task in slow):
            client = service.api()
            answer = await client.get(f"http://127.0.0.1:{port}{PREFIX}health")
            assert answer.status_code == 200
            answers += 1
            await asyncio.sleep(0.05)
        assert answers > 2
        assert max(task.result() for task in slow) < PATIENCE * 15, "each was cut off"
        async with asyncio.timeout(10):
            for reader, writer in silent:
                assert await reader.read() == b""
                writer.close()


async def test_an_upgrade_to_a_web_socket_finds_none(service: Service) -> None:
    """200 upgrades at once: each is an ordinary refusal, and none stays open as a socket."""
    upgrade = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-Fetch-Mode: websocket\r\nConnection: close\r\n\r\n"
    )
    paths = ("", "board", "api/v1/me", "api/v1/kit/signals", "nothing") * 40
    asked = [f"GET {PREFIX}{path} HTTP/1.1\r\nHost: {urlsplit(service.url).netloc}\r\n{upgrade}" for path in paths]
    answers = await asyncio.gather(*(bare(service, request.encode(), seconds=20) for request in asked))
    assert {answer.split(b" ", 2)[1] for answer in answers} <= {b"400", b"401", b"403", b"404", b"405", b"302"}
