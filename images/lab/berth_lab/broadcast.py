"""One speaker, a few listeners: what the kit says to the open browsers. A slow listener loses old news, never memory.

An event is `{"event": NAME, "data": {...}}`. A queue yields events and, once, None: nothing comes any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

Event = dict[str, Any]

#: Open browsers that are told; one more ends the one that has listened longest.
MOST_LISTENERS = 16
#: Events that wait for one listener.
MOST_WAITING = 64
#: Of these the newest alone is worth having.
STATES = frozenset({"state", "saving"})
#: What a listener who comes late is told first, in this order.
KEPT = ("state", "stopping", "saving", "saved", "resume")
#: Notices that last come after them: so many kinds, of each the newest.
MOST_KINDS = 8


class Broadcast:
    """Runs on one event loop; nothing here blocks or raises."""

    def __init__(self) -> None:
        self._queues: list[asyncio.Queue[Event | None]] = []
        self._kept: dict[str, Event] = {}
        self._notices: dict[str, Event] = {}  # by kind, the newest last

    def __len__(self) -> int:
        """How many listen."""
        return len(self._queues)

    def subscribe(self) -> asyncio.Queue[Event | None]:
        """A queue that begins with what is the case now."""
        while len(self._queues) >= MOST_LISTENERS:
            self._end(self._queues[0])
        queue: asyncio.Queue[Event | None] = asyncio.Queue(MOST_WAITING)
        for event in [*(self._kept[name] for name in KEPT if name in self._kept), *self._notices.values()]:
            queue.put_nowait(event)
        self._queues.append(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Event | None]) -> None:
        """Forget a listener; one that is not known is no matter."""
        if queue in self._queues:
            self._queues.remove(queue)

    def publish(self, name: str, data: dict[str, Any], lasts: bool = False) -> None:
        """Tell all who listen, and whoever comes later if the event says what is the case, or is a notice that is said
        to last. Of those of one kind the newest lasts; who is told may find that its time is over."""
        event = {"event": name, "data": data}
        if name in KEPT:
            self._kept[name] = event
        elif lasts:
            kind = str(data.get("kind"))
            self._notices.pop(kind, None)
            self._notices[kind] = event
            if len(self._notices) > MOST_KINDS:
                del self._notices[next(iter(self._notices))]
        for queue in self._queues:
            _put(queue, event)

    def forget(self, name: str) -> None:
        """It is no longer the case: who comes later is not told."""
        self._kept.pop(name, None)

    def last(self, name: str) -> dict[str, Any] | None:
        """The data of the last event of this name, where such are kept."""
        event = self._kept.get(name)
        return None if event is None else event["data"]

    def _end(self, queue: asyncio.Queue[Event | None]) -> None:
        self.unsubscribe(queue)
        _put(queue, None)


def _put(queue: asyncio.Queue[Event | None], event: Event | None) -> None:
    """Put it last; where there is no room the oldest state makes it, and where there is none the oldest event."""
    if queue.full():
        waiting = [queue.get_nowait() for _ in range(queue.qsize())]
        stale = next((i for i, old in enumerate(waiting) if old and old["event"] in STATES), 0)
        for old in waiting[:stale] + waiting[stale + 1 :]:
            queue.put_nowait(old)
    queue.put_nowait(event)
