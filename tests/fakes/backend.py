"""A bare web server behind the proxy, so that what a test sees is the proxy.

`python -m tests.fakes.backend PORT PREFIX`. It streams bodies both ways, echoes websockets, and sends the next event
only when the one before was confirmed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
from collections.abc import Iterator

from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler, stream_request_body
from tornado.websocket import WebSocketHandler

MIB = 1 << 20
LARGEST_MESSAGE = 64 * MIB
LARGEST_BODY = 4096 * MIB


def content(mib: int, seed: int = 1) -> Iterator[bytes]:
    """So many MiB that do not compress, the same for the same seed."""
    block = random.Random(seed).randbytes(MIB)
    for number in range(mib):
        yield number.to_bytes(8, "big") + block[8:]


def digest(mib: int) -> str:
    whole = hashlib.sha256()
    for block in content(mib):
        whole.update(block)
    return whole.hexdigest()


class Counts:
    """What is going on, told at /counts."""

    def __init__(self) -> None:
        self.uploaded = self.sockets = self.downloads = 0
        self.confirmed = asyncio.Event()


class Handler(RequestHandler):
    def initialize(self, counts: Counts) -> None:
        self.counts = counts


class Told(Handler):
    def get(self) -> None:
        counts = self.counts
        told = {"uploaded": counts.uploaded, "sockets": counts.sockets, "downloads": counts.downloads}
        self.write(json.dumps(told))


@stream_request_body
class Upload(Handler):
    def prepare(self) -> None:
        self.request.connection.set_max_body_size(LARGEST_BODY)  # type: ignore[union-attr]
        self.hash = hashlib.sha256()
        self.counts.uploaded = 0

    def data_received(self, chunk: bytes) -> None:
        self.hash.update(chunk)
        self.counts.uploaded += len(chunk)

    def put(self) -> None:
        self.write({"bytes": self.counts.uploaded, "sha256": self.hash.hexdigest()})


class Download(Handler):
    """`mib` of content; with `slow` a KiB at a time, for ever, of a length that it never reaches."""

    async def get(self) -> None:
        mib, slow = int(self.get_argument("mib")), self.get_argument("slow", "")
        self.set_header("Content-Length", str(mib * MIB))
        self.counts.downloads += 1
        try:
            for block in content(mib):
                self.write(block[:1024] if slow else block)
                await self.flush()
                if slow:
                    await asyncio.sleep(0.05)
        except StreamClosedError:
            pass
        finally:
            self.counts.downloads -= 1


class Events(Handler):
    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        for number in range(int(self.get_argument("count"))):
            self.counts.confirmed.clear()
            self.write(f"data: {number}\n\n")
            await self.flush()
            await asyncio.wait_for(self.counts.confirmed.wait(), 30)

    def post(self) -> None:
        self.counts.confirmed.set()


class Echo(WebSocketHandler):
    def initialize(self, counts: Counts) -> None:
        self.counts = counts

    def open(self, *args: str, **kwargs: str) -> None:
        self.counts.sockets += 1

    def on_close(self) -> None:
        self.counts.sockets -= 1

    async def on_message(self, message: str | bytes) -> None:
        await self.write_message(message, binary=isinstance(message, bytes))


async def serve(port: int, prefix: str) -> None:
    common = {"counts": Counts()}
    kinds = {"counts": Told, "up": Upload, "down": Download, "events": Events, "echo": Echo}
    app = Application(
        [(prefix + name, kind, common) for name, kind in kinds.items()], websocket_max_message_size=LARGEST_MESSAGE
    )
    app.listen(port, "127.0.0.1", max_body_size=LARGEST_BODY)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
