"""A user's server is asked whether it answers before the Hub believes it. What it may say to that question costs the
hub a moment, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psutil
import pytest

from spawner import reach
from spawner.reach import http_status
from tests.harness.waiting import PATIENCE

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[tuple[int, list[bytes]]]:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with running:
        yield running.sockets[0].getsockname()[1], asked


def said(text: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return answer


async def slowly(writer: asyncio.StreamWriter) -> None:
    for sign in b"HTTP/1.1 200 OK\r\n" * 100:
        writer.write(bytes([sign]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def no_line(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def no_end(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await no_line(writer)


async def many_heads(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
        await writer.drain()


async def nothing(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


ANSWERS: dict[str, tuple[Answer, int | None]] = {
    "a byte now and then": (slowly, None),
    "no end of a line": (no_line, None),
    "no end of a body": (no_end, 200),
    "one head after another": (many_heads, 100),
    "nothing": (nothing, None),
    "a status of 5,000 digits": (said(b"HTTP/1.1 " + b"2" * 5_000 + b" OK\r\n\r\n"), None),
    "a status of other digits": (said("HTTP/1.1 ٢٠٠ OK\r\n\r\n".encode()), None),
    "a status below zero": (said(b"HTTP/1.1 -200 OK\r\n\r\n"), None),
    "another protocol": (said(b"\x16\x03\x01\x02\x00"), None),
    "a line end first": (said(b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), None),
}


@pytest.mark.parametrize(("answer", "expected"), ANSWERS.values(), ids=ANSWERS)
async def test_the_question_is_short_whatever_the_answer(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, expected: int | None
) -> None:
    assert reach.PROBE_TIMEOUT_SECONDS <= 5
    monkeypatch.setattr(reach, "PROBE_TIMEOUT_SECONDS", 0.5)
    before, began = psutil.Process().memory_info().rss, time.monotonic()
    async with server(answer) as (port, _):
        assert await http_status("127.0.0.1", port, "/user/x/api") == expected
    assert time.monotonic() - began < PATIENCE * 5
    assert psutil.Process().memory_info().rss - before < 50 * 2**20


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    """Else a user's server would have the hub ask whatever it likes: the metadata address of a cloud, for one."""
    async with server(said(b"HTTP/1.1 200 OK\r\n\r\n")) as (target, reached):
        for code in (301, 302, 303, 307, 308):
            head = f"HTTP/1.1 {code} Elsewhere\r\nLocation: http://127.0.0.1:{target}/secret\r\n\r\n"
            async with server(said(head.encode())) as (port, asked):
                assert await http_status("127.0.0.1", port, "/user/x/api") == code
                assert len(asked) == 1
        assert reached == []


async def test_the_question_carries_no_secret() -> None:
    async with server(said(b"HTTP/1.1 200 OK\r\n\r\n")) as (port, asked):
        await http_status("127.0.0.1", port, "/user/x/api")
    assert b"authorization" not in asked[0].lower() and b"cookie" not in asked[0].lower()
