"""Ports and probes against real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spawner import reach
from spawner.reach import connects, free_port, http_status, reachable


@asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with running:
        yield running.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n{}", 200),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", 404),
        (b"HTTP/1.1 503\r\n\r\n", 503),
        (b"SSH-2.0-OpenSSH\r\n", None),
        (b"", None),
        (b"HTTP/1.1 \xff\r\n", None),
        (b"x" * 200_000, None),
    ],
)
async def test_the_status_of_an_answer(answer: bytes, status: int | None) -> None:
    async with server(answer) as port:
        assert await http_status("127.0.0.1", port, "/user/a%40b/api") == status


async def test_nobody_there_and_nobody_who_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "PROBE_TIMEOUT_SECONDS", 0.2)
    port = free_port()
    assert await http_status("127.0.0.1", port, "/") is None
    assert not await connects("127.0.0.1", port)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert await http_status("127.0.0.1", silent.getsockname()[1], "/") is None
        assert await connects("127.0.0.1", silent.getsockname()[1])


def test_no_port_is_given_twice_in_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == 200
    monkeypatch.setattr(reach, "KEPT_SECONDS", 0.0)
    free_port()
    assert len(reach._HANDED_OUT) == 1


@pytest.mark.parametrize(
    ("listening", "reached"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("::", "::1"), ("10.0.0.5", "10.0.0.5")],
)
def test_where_a_server_is_reached(listening: str, reached: str) -> None:
    assert reachable(listening) == reached
