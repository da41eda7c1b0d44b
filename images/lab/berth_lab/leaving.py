"""From the word that a server is to stop to its end, or back: begins a farewell, hurries it, tells its result again to
a service that did not take it, and ends it when the server runs on after all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

from berth_lab.broadcast import Broadcast

if TYPE_CHECKING:
    from berth_lab.farewell import Farewell

log = logging.getLogger("berth_lab")

#: Stops that a person takes back by running code; of the service's own rule, which decides.
TAKEN_BACK = frozenset({"idle", "shutdown"})
#: Between two words to the service that the server is used.
USED_SECONDS = 5.0
#: Before the result is told again, at first and at most.
AGAIN_SECONDS, AGAIN_MOST = 2.0, 30.0


class Leaving:
    """Runs on the server's event loop."""

    def __init__(
        self,
        browsers: Broadcast,
        farewell: Callable[[str, datetime], Farewell],
        used: Callable[[], Awaitable[bool]],
    ) -> None:
        """`used` tells the service that the server is used; whether it runs on."""
        self._browsers, self._make, self._used = browsers, farewell, used
        self._farewell: Farewell | None = None
        self._saving: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._told_at = -USED_SECONDS

    @property
    def begun(self) -> bool:
        """Whether the server is to stop."""
        return self._farewell is not None

    def stopping(self, reason: str, until: datetime) -> None:
        """The server is to stop, and may save until then. Said again after every break of the service's stream, and
        when the time becomes shorter."""
        farewell = self._farewell
        if farewell is None:
            self._begin(reason, until)
        elif reason == farewell.reason and until <= farewell.until:
            farewell.until = until
        elif not farewell.finished:
            farewell.until = min(farewell.until, until)
        else:  # another stop, after one that was taken back unheard
            self._cancel()
            self._begin(reason, until)

    def _begin(self, reason: str, until: datetime) -> None:
        self._farewell = self._make(reason, until)
        self._saving = asyncio.create_task(self._save(self._farewell))

    async def _save(self, farewell: Farewell) -> None:
        """Save, and tell what came of it until the service has taken it."""
        await farewell.run()
        wait = AGAIN_SECONDS
        while not farewell.acknowledged:
            await asyncio.sleep(wait)
            wait = min(2 * wait, AGAIN_MOST)
            await farewell.tell_again()

    def runs_on(self) -> None:
        """The stop was taken back, or there is none."""
        if self._farewell is None:
            return
        self._cancel()
        for gone in ("stopping", "saving", "saved"):
            self._browsers.forget(gone)

    def asked(self) -> None:
        """A person runs code: a stop for want of use, or at a time of their own, is taken back if there is time."""
        farewell, now = self._farewell, asyncio.get_running_loop().time()
        if farewell is None or farewell.reason not in TAKEN_BACK or now - self._told_at < USED_SECONDS:
            return
        self._told_at = now
        task = asyncio.create_task(self._tell_used(farewell))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _tell_used(self, farewell: Farewell) -> None:
        try:
            if await self._used() and self._farewell is farewell:
                self.runs_on()
        except Exception as error:
            log.warning("the stop could not be taken back: %s: %s", type(error).__name__, error)

    def _cancel(self) -> None:
        saving, self._farewell, self._saving = self._saving, None, None
        if saving is not None:
            saving.cancel()
            from berth_lab.checkpoint_files import withdraw

            withdraw()
