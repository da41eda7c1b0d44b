"""What the kit in a server is told while it runs: one answer that goes on, as server-sent events."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from tornado.iostream import StreamClosedError

from quota.api.kit import KitHandler
from quota.leases import Holder
from quota.web.base import endpoint
from quota.web.parts import HubUnavailable, ServiceParts
from quota.web.problem import Problem
from quota.web.streams import GONE, Ended, Message, Stream, Streams

#: A comment keeps the way open after so much silence, in seconds.
KEEP_ALIVE = 15.0
#: How often the token is looked at again (the Hub's word about it is kept for a while, `IDENTITY_SECONDS`).
CHECK = 5.0
#: Who takes nothing off the wire for so long is dropped.
SLOW = 20.0


class KitStream(KitHandler):
    """Not in the document of REST: it has no end, and programs but the kit have no use for it."""

    def initialize(self, parts: ServiceParts, threads: Executor) -> None:
        super().initialize(parts, threads)
        self.streams: Streams = self.application.settings["berth_streams"]
        self._stream: Stream | None = None

    @endpoint(public=True)
    async def get(self) -> None:
        """The state of this server's lease, notices for its user, and that it is to stop."""
        holder = await self.holder()
        self.slowly(self.parts.streamed, holder)
        lease = await self.lease_of(holder)
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("X-Accel-Buffering", "no")
        stream = self._stream = self.streams.open(holder, lease)
        try:
            await self._send(": berth\n\n")
            await self._follow(stream, holder)
        except Ended:
            self.finish()
        except StreamClosedError:
            pass
        except TimeoutError:  # it takes nothing: what it was not told waits in memory, so it is cut off
            self.detach().close()
        finally:
            self.streams.close(stream)

    async def _follow(self, stream: Stream, holder: Holder) -> None:
        """Pass messages on. Raises `Ended` with the stream or the token."""
        loop = asyncio.get_running_loop()
        checked = spoken = loop.time()
        while True:
            message = await stream.next(CHECK)
            if message is not None or loop.time() - spoken >= KEEP_ALIVE:
                await self._send(message.text() if message else ": so far\n\n")
                spoken = loop.time()
            if loop.time() - checked >= CHECK:
                checked = loop.time()
                if not await self._still(holder):
                    await self._send(Message(GONE, {"lease_id": stream.lease_id, "reason": "token"}).text())
                    raise Ended

    async def _still(self, holder: Holder) -> bool:
        """Whether the token still speaks for this server. A Hub that does not answer changes nothing."""
        try:
            return await self.holder() == holder
        except Problem:
            return False
        except HubUnavailable:
            return True

    async def _send(self, text: str) -> None:
        self.write(text)
        async with asyncio.timeout(SLOW):
            await self.flush()

    def on_connection_close(self) -> None:
        if self._stream is not None:
            self._stream.end("closed")
