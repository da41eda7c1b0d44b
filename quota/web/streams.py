"""The streams to the kits in servers: one reader of the book for all of them, one bounded queue for each.

A stream belongs to one server and dies with its lease; the newer one of the same server wins. Nobody waits for a
reader that is slow: what it was not told it is told again as a whole, and who takes nothing at all is dropped.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from quota.kit_reads import KitReads, Look, Whole
from quota.leases import Holder, Lease
from quota.ports import Clock
from quota.web import kit_state

log = logging.getLogger("berth.streams")

#: Between two looks at the book, in seconds.
POLL = 0.7
#: A state is told again after so many seconds, though nothing has changed.
AGAIN = 10.0
#: Messages that wait for one reader; beyond that it has fallen behind, and is dropped to come again.
MOST_WAITING = 64
#: Notices that one stream remembers having told.
MOST_TOLD = 1000

STATE, NOTICE, STOPPING, GONE = "state", "notice", "stopping", "gone"


@dataclass(frozen=True, slots=True)
class Message:
    """One server-sent event."""

    event: str
    data: Mapping[str, Any]

    def text(self) -> str:
        """As it goes over the wire: JSON has no line ends of its own, so that nothing in it ends an event."""
        return f"event: {self.event}\ndata: {json.dumps(self.data, ensure_ascii=True, separators=(',', ':'))}\n\n"


class Ended(Exception):
    """There is nothing more to tell."""


@dataclass(eq=False)
class Stream:
    """What waits to be told to one kit, and what it was told last. `None` in the queue is the end."""

    holder: Holder
    lease_id: str
    _queue: asyncio.Queue[Message | None] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING + 1))
    ended: str = ""
    told: tuple[Any, ...] | None = None
    told_at: float = 0.0
    stopping: Mapping[str, Any] | None = None
    notices: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_TOLD))

    def put(self, event: str, data: Mapping[str, Any]) -> None:
        """Another message; one more than a reader may leave waiting ends its stream."""
        if self.ended:
            return
        if self._queue.qsize() >= MOST_WAITING:
            self.end("behind")
            return
        self._queue.put_nowait(Message(event, data))

    def end(self, why: str, last: Message | None = None) -> None:
        """Nothing comes any more: `last`, where there is room for it, and the end."""
        if self.ended:
            return
        self.ended = why
        while self._queue.qsize() >= MOST_WAITING:
            self._queue.get_nowait()
        if last is not None:
            self._queue.put_nowait(last)
        self._queue.put_nowait(None)

    async def next(self, seconds: float) -> Message | None:
        """The next message, None where none came for so long. Raises `Ended`."""
        try:
            async with asyncio.timeout(seconds):
                message = await self._queue.get()
        except TimeoutError:
            return None
        if message is None:
            raise Ended
        return message


class Streams:
    """All open streams of this process. Used on the loop alone; `in_thread` runs what reads the book."""

    def __init__(
        self,
        reads: KitReads,
        clock: Clock,
        zone: ZoneInfo,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        longest: Callable[[Lease], timedelta | None],
        poll: float = POLL,
    ) -> None:
        self._reads, self._clock, self._zone = reads, clock, zone
        self._in_thread, self._longest = in_thread, longest
        self._poll = poll
        self._open: dict[Holder, Stream] = {}
        self._whole = Whole()
        self._versions: dict[str, int] = {}
        self._notice = 0
        self._reading: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, holder: Holder, lease: Lease) -> Stream:
        """The stream of this server from now on; an older one ends."""
        if holder in self._open:
            self._open[holder].end("replaced")
        stream = self._open[holder] = Stream(holder, lease.id)
        self._wake.set()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return stream

    def close(self, stream: Stream) -> None:
        """Its reader has gone, or has read its end."""
        stream.end("closed")
        if self._open.get(stream.holder) is stream:
            del self._open[stream.holder]
        if not self._open and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self) -> None:
        """Look again and again while there is a stream. A book that does not answer is looked at again: nobody is told
        anything meanwhile, and nobody loses a stream."""
        silent = False
        while self._open:
            self._wake.clear()
            try:
                await self._once()
                silent = False
            except Exception as error:
                if not silent:
                    log.warning("The book could not be read for the streams: %s", error)
                silent = True
            try:
                async with asyncio.timeout(self._poll):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _once(self) -> None:
        """One look, and what it brings to each stream."""
        time = asyncio.get_running_loop().time()
        streams = [stream for stream in self._open.values() if not stream.ended]
        ids = [stream.lease_id for stream in streams]
        due = {each.lease_id for each in streams if each.told is None or time - each.told_at >= AGAIN}
        after, known = self._notice, self._versions

        def read() -> tuple[Look, Whole | None]:
            look = self._reads.look(ids, after)
            written = {name for name, version in look.versions.items() if known.get(name) != version}
            changed = sorted(due | written)
            return look, self._reads.whole(changed) if changed else None

        look, fresh = await self._in_thread(read)
        if fresh is not None:
            self._whole = _joined(self._whole, fresh, ids)
        self._versions = dict(look.versions)
        self._notice = max((told.id for told in look.notices), default=self._notice)
        for stream in streams:
            self._tell(stream, look, time)
        self._notify(streams, look)

    def _tell(self, stream: Stream, look: Look, time: float) -> None:
        lease = self._whole.leases.get(stream.lease_id)
        if lease is None or not lease.live:
            reason = lease.stop_reason.value if lease and lease.stop_reason else None
            stream.end(GONE, Message(GONE, {"lease_id": stream.lease_id, "reason": reason}))
            return
        seen = (lease.version, *(part.get(lease.id) for part in (look.verdicts, look.uses, look.wishes)))
        if seen != stream.told or time - stream.told_at >= AGAIN:
            stream.told, stream.told_at = seen, time
            longest = self._longest(lease)
            stream.put(STATE, kit_state.state(lease, self._whole, look, self._clock.now(), self._zone, longest))
        stopping = kit_state.stopping(lease)
        if stopping != stream.stopping:
            stream.stopping = stopping
            if stopping is not None:
                stream.put(STOPPING, stopping)

    def _notify(self, streams: list[Stream], look: Look) -> None:
        of = {stream.lease_id: stream for stream in streams}
        for told in look.notices:
            stream = of.get(told.lease_id)
            if stream is not None and told.user == stream.holder.user and told.id not in stream.notices:
                stream.notices.append(told.id)
                stream.put(NOTICE, kit_state.notice(told))


def _joined(known: Whole, fresh: Whole, ids: list[str]) -> Whole:
    """What is known now. All that an account pays for was read anew with any part of it; what nobody who listens pays
    for is forgotten."""
    leases = {name: each for name, each in known.leases.items() if each.account not in fresh.payers}
    leases |= fresh.leases
    payers = {leases[name].account for name in ids if name in leases}
    leases = {name: each for name, each in leases.items() if each.account in payers}
    segments = {**known.segments, **fresh.segments}
    accounts = {**known.payers, **fresh.payers}
    return Whole(
        leases,
        {name: parts for name, parts in segments.items() if name in leases},
        {name: account for name, account in accounts.items() if name in payers},
        fresh.devices,
    )
