"""A deployment with a bare backend behind its proxy, and the loads that tests put on it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
from websockets.asyncio.client import ClientConnection, connect

from tests.harness import Kernel, Stack, free_port, until

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "/services/load/"
MIB = 1 << 20

TOML = """
[hub]
named_servers = 6

[first_start]
max_servers = 8
"""
#: An external service is a route that the Hub keeps, as those of its users' servers.
EXTRA = """
c.JupyterHub.services.append({{"name": "load", "url": "http://127.0.0.1:{port}"}})
"""


@contextmanager
def site(folder: Path) -> Iterator[Stack]:
    """`berth up` with the backend at /services/load/ through its proxy."""
    port = free_port()
    words = [sys.executable, "-m", "tests.fakes.backend", str(port), PREFIX]
    backend = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}{PREFIX}counts"), 20, "the backend answers")
        with Stack(folder / "data", TOML, EXTRA.format(port=port)) as stack:
            until(lambda: answers(load(stack) + "counts"), 20, "the backend answers through the proxy")
            yield stack
    finally:
        backend.kill()
        backend.wait()


def load(stack: Stack) -> str:
    return stack.url + PREFIX


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def counts(stack: Stack) -> dict[str, int]:
    return dict(httpx.get(load(stack) + "counts", timeout=20).json())


def websocket(stack: Stack, **more: Any) -> connect:
    return connect(load(stack).replace("http", "ws", 1) + "echo", compression=None, open_timeout=30, **more)


class Memory:
    """The proxy's resident memory while a block runs: how much it grew at most, in MiB."""

    def __init__(self, stack: Stack) -> None:
        self._process = psutil.Process(stack.pid("proxy"))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.start = self.most = self._now()

    def _now(self) -> float:
        return float(self._process.memory_info().rss) / MIB

    def _look(self) -> None:
        with contextlib.suppress(psutil.Error):
            while not self._done.wait(0.02):
                self.most = max(self.most, self._now())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def growth(self) -> float:
        return self.most - self.start


async def open_sockets(stack: Stack, count: int, at_once: int = 50) -> list[ClientConnection]:
    """So many open websockets."""
    turn = asyncio.Semaphore(at_once)

    async def one() -> ClientConnection:
        async with turn:
            return await websocket(stack, ping_interval=None)

    return list(await asyncio.gather(*(one() for _ in range(count))))


class Downloads:
    """Slow downloads in threads of their own, and how each ended: "" while it runs or for one that came whole."""

    def __init__(self, stack: Stack, count: int) -> None:
        self.ends: list[str] = []
        self.got = [0] * count
        self._url = load(stack) + "down?mib=8&slow=1"
        self._threads = [threading.Thread(target=self._one, args=(number,), daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _one(self, number: int) -> None:
        try:
            with httpx.stream("GET", self._url, timeout=20) as answer:
                for chunk in answer.iter_bytes():
                    self.got[number] += len(chunk)
            self.ends.append("")
        except httpx.HTTPError as error:
            self.ends.append(type(error).__name__)

    def running(self) -> bool:
        """Whether all have had something."""
        return all(self.got)

    def wait(self) -> list[str]:
        for thread in self._threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self._threads), "a download hangs"
        return self.ends


def seconds_until(ask: Any, most: float, what: str) -> float:
    began = time.monotonic()
    until(ask, most, what, every=0.02)
    return time.monotonic() - began


def keeps(kernel: Kernel, seconds: float = 30) -> str:
    """What a kernel still knows, by a new websocket; asked until it answers."""

    def ask() -> str:
        try:
            with kernel:
                return kernel.run("print(kept)", 5)
        except Exception:  # while the proxy comes back, anything may happen to a websocket
            return ""

    return until(ask, seconds, "the kernel answers by a new websocket").strip()
