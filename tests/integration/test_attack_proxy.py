"""Attacks on what stands between a site and everybody: the proxy, and whoever is behind it at the same time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from tests.harness import Stack, until
from tests.harness.waiting import PATIENCE
from tests.integration.hub_attacks import codes, raw

pytestmark = pytest.mark.hub

API = "/services/berth/api/v1"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("door") / "data", '[gpus]\nsource = "simulated"\n') as stack:
        stack.researcher.start("cpu")
        yield stack


SIGNALS = b"POST /services/berth/api/v1/kit/signals HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HIDDEN = b"GET /services/berth/health?hidden HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
TWO_WAYS: dict[str, bytes] = {
    "both ways": b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both ways, the length last": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a tab": b"Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "an underscore": b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\naaaaa",
    "a folded line": b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bare line feed": b"X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "handed to the next hop": b"Connection: Content-Length\r\nContent-Length: 5\r\n\r\naaaaa",
    "an upgrade to HTTP/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
}


def test_proxy_and_service_agree_on_where_a_request_ends(stack: Stack) -> None:
    """Smuggling: bytes that the proxy takes for a body and the service for a request. Each attempt goes over one
    connection, on which a client that is answered twice has found two requests that *both* saw; a service that saw one
    more than the proxy would answer the *next* client of their shared connection with it."""
    for what, rest in TWO_WAYS.items():
        answer = raw(stack, SIGNALS + rest + HIDDEN, seconds=0.7)
        seen = codes(answer)
        assert len(seen) <= 2 and all(code in (200, 400, 401, 408, 411, 415, 431, 501) for code in seen), (what, seen)
    for _ in range(20):  # whoever shares the proxy's connections gets their own answers
        assert httpx.get(f"{stack.url}/services/berth/api/v1/me").status_code == 401
        assert httpx.get(f"{stack.url}/services/berth/health").json() == {"status": "ok"}


def test_a_host_or_a_forwarding_that_is_made_up_changes_no_answer(stack: Stack) -> None:
    spoofs = (
        b"Host: evil.example\r\n",
        b"Host: 127.0.0.1\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Prefix: //evil.example\r\n",
        b"Host: 127.0.0.1\r\nForwarded: host=evil.example;for=6.6.6.6;proto=https\r\n",
        b"Host: 127.0.0.1\r\nX-Original-URL: /hub/admin\r\nX-Rewrite-URL: /hub/admin\r\n",
        b"Host: 127.0.0.1\r\nX_Forwarded_Host: evil.example\r\nX_Forwarded_For: 6.6.6.6\r\n",
        b"Host: 127.0.0.1\r\nConnection: close, X-Forwarded-For, X-Real-Ip, X-Forwarded-Proto\r\n",
    )
    for path in (b"/hub/", b"/services/berth/", b"/user/researcher/lab", b"/hub/login?next=%2F", b"/services/berth"):
        for spoof in spoofs:
            request = b"GET " + path + b" HTTP/1.1\r\n" + spoof + b"Connection: close\r\n\r\n"
            answer = raw(stack, request)
            assert b"evil.example" not in answer.partition(b"\r\n\r\n")[0], (path, spoof)
            assert codes(answer)[0] in (200, 302, 403, 404), (path, spoof)
    for line in (b"GET http://evil.example/hub/login HTTP/1.1", b"GET //evil.example/hub/login HTTP/1.1"):
        answer = raw(stack, line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b"Location: http" not in answer and b"Location: //" not in answer


def test_whose_address_a_request_came_from_is_the_proxys_word(stack: Stack) -> None:
    """Neither an address of the client's own invention nor many of them reach the logs."""
    for name in ("X-Forwarded-For", "X-Real-Ip", "X-Real-IP", "X_Forwarded_For", "Forwarded", "True-Client-IP"):
        for path in ("/hub/nothing-here", "/services/berth/nothing-here"):
            httpx.get(stack.url + path, headers={name: "6.6.6.6, 7.7.7.7"})
    until(lambda: "nothing-here" in stack.log("hub.log") + stack.log("berth.log"), 10, "the requests are in the log")
    for name in ("hub.log", "berth.log"):
        assert "6.6.6.6" not in stack.log(name) and "7.7.7.7" not in stack.log(name)


PATHS = (
    "/services/berth/../../hub/admin",
    "/services/berth/%2e%2e/%2e%2e/hub/admin",
    "/services/berth/..%2f..%2fhub/admin",
    "/services/berth/..;/admin",
    "/services/berth//admin",
    "//services/berth/admin",
    "/services/berth/./admin",
    "/services/berth/admin%00",
    "/services/berth/admin%20",
    "/services/berth/admin/",
    "/services/berth/ADMIN",
    "/services/berth/static/../admin",
    "/services/berth/static/..%2f..%2f..%2f..%2fetc/passwd",
    "/services/berth/static/%2fetc%2fpasswd",
    "/services/berth/static/....//....//etc/passwd",
    "/services/berth/static/%c0%ae%c0%ae/%c0%ae%c0%ae/app.py",
    "/services/berth/static/../templates/page.html",
    "/services/berth/static/../app.py",
    "/hub/static/..%2f..%2f..%2fetc/passwd",
    "/hub/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/user/researcher/..%2fadmin/api/status",
    "/user/researcher%2f..%2fadmin/api/status",
)


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_past_a_check_or_out_of_a_folder(stack: Stack, path: str) -> None:
    cookies = "; ".join(
        f"{c.name}={c.value}" for c in stack.researcher.browser.cookies.jar if c.path != "/user/researcher/"
    )
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookies}\r\nConnection: close\r\n\r\n"
    answer = raw(stack, request.encode())
    assert codes(answer)[0] in (301, 302, 307, 400, 403, 404), path
    assert b"root:" not in answer and b"def " not in answer and b"{%" not in answer


def test_large_heads_and_bodies_end_at_the_door(stack: Stack) -> None:
    head = b"GET /hub/login HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    for lines in (
        b"X-A: " + b"a" * 2_000_000,
        b"".join(b"X-%d: a\r\n" % number for number in range(20_000)) + b"X: a",
        b"Cookie: " + b"a=b; " * 40_000,
    ):
        seen = codes(raw(stack, head + lines + b"\r\nConnection: close\r\n\r\n"))
        assert not seen or seen[0] in (400, 413, 431, 502), seen
    body = b"username=admin&password=" + b"x" * (30 << 20)
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        for path in (
            "/hub/login",
            "/hub/api/users",
            "/services/berth/admin/grant",
            "/services/berth/api/v1/kit/signals",
        ):
            try:
                code = client.post(path, content=body).status_code
            except httpx.TransportError:
                continue  # the door was shut while it was still sending
            assert code in (400, 401, 403, 413, 502), path
    assert stack.answers()


def test_slow_clients_and_floods_of_sockets_leave_the_others_served(stack: Stack) -> None:
    """300 clients that dribble their requests to Hub, service and a user's server, and 100 upgrades to sockets of that
    server at once; everybody else is answered meanwhile."""
    starts = (
        b"GET /hub/login HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ",
        b"POST /hub/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000\r\n\r\na",
        b"POST /services/berth/api/v1/kit/signals HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n{",
        b"GET /user/researcher/api/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-B: ",
    )
    token = stack.researcher.token
    upgrade = (
        "GET /user/researcher/api/events/subscribe HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: token {token}\r\n\r\n"
    ).encode()
    done = threading.Event()
    with ExitStack() as opened:
        plugs: list[socket.socket] = []

        def dial(request: bytes) -> None:
            plug = opened.enter_context(socket.create_connection(("127.0.0.1", stack.port), 10))
            plug.settimeout(20)
            plug.sendall(request)
            plugs.append(plug)

        def dribble() -> None:
            while not done.wait(0.5):
                for plug in plugs[:300]:
                    try:
                        plug.send(b"a")
                    except OSError:
                        continue

        for number in range(300):
            dial(starts[number % len(starts)])
        thread = threading.Thread(target=dribble, daemon=True)
        thread.start()
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(dial, [upgrade] * 100))
        slowest = 0.0
        for _ in range(10):
            for path in ("/hub/health", "/services/berth/health", "/hub/login"):
                began = time.monotonic()
                assert httpx.get(stack.url + path, timeout=20).status_code == 200
                slowest = max(slowest, time.monotonic() - began)
        assert stack.researcher.notebook("GET", "api/status").status_code == 200
        done.set()
        thread.join()
        assert slowest < PATIENCE * 10
    assert stack.answers()
    until(lambda: stack.researcher.ready(), 10, "the user's server is there as before")
