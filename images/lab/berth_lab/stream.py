"""The one stream from service `berth` to this server: what the lease costs, what is about to happen, and when to save.

`Parser` reads server-sent events; `Stream` keeps the connection, comes back after every break, waits longer each time,
and never disturbs the server it lives in.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

log = logging.getLogger("berth_lab")

#: The service sends a line every 15 s; longer silence is a dead connection.
SILENCE_SECONDS = 45.0
#: A connection is renewed after about this long, so that one that hangs somewhere in between ends as well.
RENEW_SECONDS = 600.0
CONNECT_SECONDS = 10.0
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
#: Bytes of one event.
LONGEST_EVENT = 256 * 1024
EVENTS = frozenset({"state", "notice", "stopping"})


class TooLong(Exception):
    """An event larger than any that the service sends."""


class Parser:
    """Server-sent events out of pieces of bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[tuple[str, dict[str, Any]]]:
        """The events that this piece completes, those with an object as data. Raises `TooLong`."""
        self._rest = (self._rest + piece).replace(b"\r\n", b"\n")
        *blocks, self._rest = self._rest.split(b"\n\n")
        if len(self._rest) > LONGEST_EVENT:
            raise TooLong
        return [event for block in blocks if (event := _event(block)) is not None]


def _event(block: bytes) -> tuple[str, dict[str, Any]] | None:
    name, data = "message", []
    for line in block.decode("utf-8", "replace").split("\n"):
        key, _, value = line.partition(":")
        if key == "event":
            name = value.removeprefix(" ")
        elif key == "data":
            data.append(value.removeprefix(" "))
    try:
        value_ = json.loads("\n".join(data)) if data else None
    except ValueError:
        return None
    return (name, value_) if isinstance(value_, dict) else None


def wait_after(failures: int, chance: float) -> float:
    """Seconds before the next try after so many failures in a row; `chance` in [0, 1) spreads the servers of a site."""
    most = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(failures, 10))
    return most * (0.5 + chance / 2)


class _Stale(Exception):
    """Data on a connection that was given up."""


class Stream:
    """Listens at `{service}/api/v1/kit/stream` until cancelled; `hear(name, data)` gets each event."""

    def __init__(self, service: str, token: str, hear: Callable[[str, dict[str, Any]], None]) -> None:
        self._url = service.rstrip("/") + "/api/v1/kit/stream"
        self._token = token
        self._hear = hear
        self._client = AsyncHTTPClient(force_instance=True, defaults={"follow_redirects": False})
        self._attempt = 0
        self._heard_at = 0.0
        self.failures = 0  # in a row

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            while True:
                await self._once()
                self.failures += 1
                await asyncio.sleep(wait_after(self.failures - 1, random.random()))
        finally:
            self._attempt += 1
            self._client.close()

    async def _once(self) -> None:
        """One connection, to its end, which may be anything."""
        self._attempt += 1
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        fetching = asyncio.ensure_future(self._client.fetch(self._request(self._attempt)))
        try:
            while not fetching.done():
                left = self._heard_at + SILENCE_SECONDS - loop.time()
                if left <= 0:
                    log.debug("the service's stream is silent")
                    break
                await asyncio.wait({fetching}, timeout=left)
        finally:
            if fetching.done():
                _told(fetching)
            else:
                fetching.add_done_callback(_told)  # tornado has no way to end it before its own time-out
                self._attempt += 1

    def _request(self, attempt: int) -> HTTPRequest:
        parser = Parser()

        def piece(data: bytes) -> None:
            if attempt != self._attempt:
                raise _Stale
            self._heard_at = asyncio.get_running_loop().time()
            for name, value in parser.feed(data):
                self.failures = 0
                if name in EVENTS:
                    self._quietly(name, value)

        return HTTPRequest(
            self._url,
            headers={"Authorization": f"token {self._token}", "Accept": "text/event-stream"},
            streaming_callback=piece,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=RENEW_SECONDS * random.uniform(0.8, 1.2),
            decompress_response=False,
        )

    def _quietly(self, name: str, value: dict[str, Any]) -> None:
        try:
            self._hear(name, value)
        except Exception:
            log.warning("event %s of the service was not understood", name, exc_info=True)


def _told(fetching: asyncio.Future[Any]) -> None:
    if fetching.cancelled():
        return
    error = fetching.exception()
    if isinstance(error, HTTPClientError) and error.code in {401, 403, 404}:
        log.debug("the service has no stream for this server: %s", error)
    elif error is not None:
        log.debug("the service's stream ended: %s: %s", type(error).__name__, error)
