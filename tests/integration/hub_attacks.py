"""What attacks on a real site need: every write that the Hub offers, bytes as they are, browsers without manners."""

from __future__ import annotations

import inspect
import re
import socket
from collections.abc import Iterator

import httpx
from jupyterhub import apihandlers, handlers

from tests.harness import Person, Stack

READS = ("get",)
WRITES = ("post", "put", "patch", "delete")


def addresses_of_the_hub(verbs: tuple[str, ...], user: str = "researcher") -> Iterator[tuple[str, str]]:
    """Method and address of all that the Hub offers, from its own table; about `user` where it is about somebody."""
    for route, handler, *_ in [*handlers.default_handlers, *apihandlers.default_handlers]:
        for verb in verbs:
            defined = getattr(handler, verb, None)
            if defined is not None and inspect.unwrap(defined).__module__.startswith("jupyterhub"):
                fill = iter((user, "one", "two"))
                path = re.sub(r"\((?:[^()]|\([^()]*\))*\)\??", lambda _: next(fill), route)  # noqa: B023
                yield verb.upper(), f"/hub{path}".rstrip("$?")


def writes_of_the_hub() -> Iterator[tuple[str, str]]:
    """All that changes something."""
    return addresses_of_the_hub(WRITES)


def naked(person: Person) -> httpx.Client:
    """The person's cookies in a browser that follows nothing and adds nothing."""
    client = httpx.Client(base_url=person.url, timeout=30, follow_redirects=False)
    for cookie in person.browser.cookies.jar:
        client.cookies.jar.set_cookie(cookie)
    return client


def raw(stack: Stack, request: bytes, seconds: float = 3.0, most: int = 200_000) -> bytes:
    """All that the proxy answers to these bytes until it ends the connection or says nothing for a while."""
    answer = b""
    with socket.create_connection(("127.0.0.1", stack.port), 5) as plug:
        plug.settimeout(seconds)
        try:
            plug.sendall(request)
            while len(answer) < most and (chunk := plug.recv(65536)):
                answer += chunk
        except OSError:
            return answer
    return answer


def codes(answer: bytes) -> list[int]:
    """The statuses of all answers in these bytes."""
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]
