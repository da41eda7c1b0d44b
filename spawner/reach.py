"""Loopback ports and the question whether a server answers there."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Final

PROBE_TIMEOUT_SECONDS: Final = 2.0
#: A port is not handed out again before its first taker has had the time to listen.
KEPT_SECONDS: Final = 120.0

_HANDED_OUT: dict[int, float] = {}


def free_port() -> int:
    """A loopback port that nobody listens on and that nobody was given lately. Raises `OSError` when there is none."""
    now = time.monotonic()
    for old in [old for old, given in _HANDED_OUT.items() if now - given > KEPT_SECONDS]:
        del _HANDED_OUT[old]
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _HANDED_OUT:
            _HANDED_OUT[port] = now
            return port


def reachable(listening: str) -> str:
    """The address by which this machine reaches a server that listens on `listening`."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(listening, listening)


async def connects(ip: str, port: int) -> bool:
    """Whether something listens there."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(ip, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def http_status(ip: str, port: int, path: str) -> int | None:
    """The status of a GET, None where nothing answers. `path` is escaped already."""
    request = f"GET {path} HTTP/1.1\r\nHost: {ip}:{port}\r\nUser-Agent: berth\r\nConnection: close\r\n\r\n"
    writer = None
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(ip, port)
            writer.write(request.encode("ascii"))
            line = await reader.readline()
    except (OSError, TimeoutError, ValueError):
        return None
    finally:
        if writer is not None:
            writer.close()
    parts = line.split(maxsplit=2)
    status = parts[1] if len(parts) > 1 and parts[0].startswith(b"HTTP/") else b""
    return int(status) if len(status) == 3 and status.isdigit() else None
