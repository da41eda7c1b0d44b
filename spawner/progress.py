"""Progress of a start in words: everybody who follows it, however late, gets every event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

Event = dict[str, int | str]


class Progress:
    """A list of events that grows until it is finished."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._finished = False
        self._changed = asyncio.Event()

    def say(self, percent: int, message: str) -> None:
        """Tell a step: `percent` of the bar, and words without markup."""
        self._events.append({"progress": percent, "message": message})
        self._wake()

    def finish(self) -> None:
        """No more events come."""
        self._finished = True
        self._wake()

    def restart(self) -> None:
        """Forget all: a new start begins. Whoever followed the old one is let go."""
        self._events = []
        self._finished = False
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self) -> AsyncIterator[Event]:
        """Every event from the first one on, until the end."""
        events, told = self._events, 0
        while events is self._events:
            if told < len(events):
                yield dict(events[told])
                told += 1
            elif self._finished:
                return
            else:
                await self._changed.wait()
