"""One stop of one server: the intent into the book, the server to its end, its slot left to the agent.

The book and the runtime may both be away in that moment. The server is ended all the same, and the book is told as
soon as it can be: else nobody would know that a server which goes on was stopped, and it would be charged on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from quota.errors import BerthError, Reason, Refused
from spawner.ports import Runtime, Seen, Unreachable
from spawner.start import RETRY_SECONDS, GiveUp
from spawner.threads import begin, in_thread, looks_at
from spawner.wiring import Wiring

log = logging.getLogger("berth.spawner")

#: Between two looks whether the kit of a server that is to stop is done.
SAVE_SECONDS: Final = 0.3
#: A stop waits so long for the agent to free the room: who is told "stopped" should find it free.
FREED_SECONDS: Final = 3.0


async def exit_code(runtime: Runtime, lease_id: str, newer_than: float) -> int | None:
    """None while it runs or nobody can tell; else the exit code, 0 where that is unknown. By a look that began after
    `newer_than` (of `time.monotonic`)."""
    look = await looks_at(runtime).newer_than(newer_than)
    if isinstance(look, Unreachable):
        return None
    seen = look.get(lease_id, Seen(lease_id, running=False))
    return None if seen.running else seen.exit_code or 0


class Stop:
    """`in_vain`: its start failed after all, and nothing of it is charged."""

    def __init__(self, wiring: Wiring, lease_id: str, why: GiveUp, *, in_vain: bool) -> None:
        self._wiring = wiring
        self._lease_id = lease_id
        self._why = why
        self._at_once = in_vain
        self._untold: list[Callable[[], Any]] = [self._request]
        if in_vain:
            self._untold.insert(0, self._void)

    async def run(self, grace: float) -> None:
        """Let it save, ask it to end, force it after `grace` seconds; 0 lets it save nothing. Never raises: the Hub
        would keep a server pending for ever."""
        self._at_once = self._at_once or grace <= 0
        await self._tell()
        await self._let_save()
        ended = await self._end(grace)
        if not await self._tell():
            begin(self._tell_later())
        if not ended:
            log.error("The server of lease %s has not ended yet; the agent goes on with it", self._lease_id)
            return
        await self._try("given up", self._wiring.book.acknowledge, self._lease_id, self._wiring.boot)
        await self._until_freed()

    # ---- the book ------------------------------------------------------------------------------------------------

    def _void(self) -> None:
        self._wiring.book.void(self._lease_id)

    def _request(self) -> None:
        """A reason that is in the book already stays; this one is for a stop that came by the Hub alone."""
        why = self._why
        out = self._wiring.way_out
        out.request(self._lease_id, why.reason, detail=why.detail, by=why.by, at_once=self._at_once)

    async def _tell(self) -> bool:
        """Tell the book what it was not told yet; whether nothing is left. What it refuses is not tried again."""
        for write in list(self._untold):
            try:
                await in_thread(write)
            except Exception as error:
                log.exception("The stop of lease %s could not be written", self._lease_id)
                if not isinstance(error, BerthError) or _no_answer(error):
                    return False
            self._untold.remove(write)
        return True

    async def _tell_later(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            if await self._tell():
                log.info("The stop of lease %s is in the book now", self._lease_id)
                return

    async def _let_save(self) -> None:
        """Wait until the kit is done or its time is over, or the server has ended by itself. A book that goes away
        meanwhile cannot make it longer."""
        runtime, until = self._wiring.runtime, None
        while not self._at_once:
            try:
                until = await in_thread(self._wiring.way_out.wait_until, self._lease_id)
            except Exception:
                log.exception("Nobody can tell whether the server of lease %s is still saving", self._lease_id)
            if until is None or until <= self._wiring.clock.now():
                return
            if await exit_code(runtime, self._lease_id, time.monotonic() - 1) is not None:
                return
            await asyncio.sleep(SAVE_SECONDS)

    async def _until_freed(self) -> None:
        """Wait, within bounds, until the agent has seen for itself that nothing runs."""
        asked = time.monotonic()
        while time.monotonic() < asked + FREED_SECONDS:
            try:
                if not (await in_thread(self._wiring.book.lease, self._lease_id)).live:
                    return
            except Exception:
                return
            await asyncio.sleep(0.1)

    # ---- the server ----------------------------------------------------------------------------------------------

    async def _end(self, grace: float) -> bool:
        """Whether the server has been seen to be gone, forced after the grace."""
        runtime, asked = self._wiring.runtime, time.monotonic()
        await self._try("asked to end", runtime.stop, self._lease_id, grace)
        while time.monotonic() < asked + grace + 2:
            if await exit_code(runtime, self._lease_id, time.monotonic() - 0.05) is not None:
                return True
            await asyncio.sleep(0.05)
        # The last look may be old by now, and a removal takes the record of an end away before the agent has read it.
        if await exit_code(runtime, self._lease_id, time.monotonic()) is not None:
            return True
        await self._tell()  # else the agent would find a server gone that was meant to run
        return await self._try("forced to end", runtime.remove, self._lease_id)

    async def _try(self, what: str, call: Any, *args: Any) -> bool:
        """A call that must not keep the rest of a stop from happening."""
        try:
            await in_thread(call, *args)
        except Exception:
            log.exception("The server of lease %s could not be %s", self._lease_id, what)
            return False
        return True


def _no_answer(error: BerthError) -> bool:
    return isinstance(error, Refused) and error.reason is Reason.BOOK_UNAVAILABLE
