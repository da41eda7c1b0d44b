"""The dispatcher: makes the starts that users asked for, when their time has come.

What the book says of the server's leases decides; the Hub is asked only where it says nothing. So a process that ended
between its question and the Hub's answer starts nothing twice, and neither does one beside it: the claim is in the
book.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Protocol

from quota import told
from quota.alerts import Alerts
from quota.book import Book
from quota.errors import BerthError
from quota.leases import HolderKind, Lease, State, StopReason, Target
from quota.notices import Notice, start_done, start_failed
from quota.ports import Clock
from quota.schedules import Schedules, Start, StartState

log = logging.getLogger("berth.starts")

LINK: Final = "/services/berth/starts"
#: Asked of the Hub at a time.
AT_ONCE: Final = 8
#: Tries within the window.
TRIES: Final = 20
LOOK_SECONDS: Final = 2.0
#: What the token may do is asked this often.
CHECK_SECONDS: Final = 600.0
#: What the Hub lets the token start servers by; and the key of the alert where it is missing.
SCOPE: Final = "start:servers"
ALERT: Final = "dispatcher"
#: Newest leases of a user among which a start's own is.
_LEASES: Final = 50


class StartRefused(BerthError):
    """The Hub did not start a server, and says why in words for its user. `args[0]` are these."""


class StartForbidden(BerthError):
    """The Hub lets Berth start no server: the fault is the site's, not that of whoever asked for the start."""


class Starter(Protocol):
    """The Hub, as far as it is needed here."""

    async def start_server(self, user: str, server: str, options: dict[str, str], language: str = "") -> None:
        """Begin to start a server; one that is being started already is fine. `language` is that of a refusal's words.
        Raises `StartRefused`, `StartForbidden`, `HubUnavailable`."""
        ...

    async def made_at(self, user: str) -> datetime | None:
        """Since when the Hub has this user; None where it has none of that name. Raises `HubUnavailable`."""
        ...

    async def scopes(self) -> frozenset[str]:
        """What the token that asks may do. Raises `HubUnavailable`."""
        ...


class Seen(Enum):
    """What became of a start, by the book."""

    NOTHING = "nothing"
    UNDER_WAY = "under way"
    STOPPING = "the one before is being stopped"
    STARTED = "started"
    THERE = "there before"
    FAILED = "failed"


def seen_of(start: Start, leases: Iterable[Lease]) -> tuple[Seen, str]:
    """By the leases of its user, the newest first; with words where one failed. Pure."""
    for lease in leases:
        if lease.holder.kind is not HolderKind.SERVER or lease.holder.server != start.server:
            continue
        own = lease.requested_at >= start.start_at
        if not lease.live:
            failed = lease.stop_reason in (StopReason.FAILED, StopReason.LEAK)
            return (Seen.NOTHING, "") if not own else (Seen.FAILED if failed else Seen.STARTED, lease.stop_detail)
        if lease.target is Target.STOP:
            return Seen.STOPPING, told.START_BEHIND_STOP
        if lease.state is State.RUNNING:
            return Seen.STARTED if own else Seen.THERE, ""
        return Seen.UNDER_WAY, ""
    return Seen.NOTHING, ""


@dataclass(frozen=True)
class Dispatcher:
    """`tell` writes a notice durably, once for each key; `language` is how a user wishes to be told, "" where unknown.
    What is not started within `window` of its time is over."""

    schedules: Schedules
    book: Book
    hub: Starter
    alerts: Alerts
    clock: Clock
    tell: Callable[[Notice], object]
    language: Callable[[str], str]
    window: timedelta = timedelta(minutes=10)

    async def look(self) -> int:
        """Make what is due; how many were looked at. Raises what the book raises."""
        due = await asyncio.to_thread(self.schedules.due, self.window / TRIES)
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(start: Start) -> None:
            async with gate:
                await self.make(start)

        results = await asyncio.gather(*(one(start) for start in due), return_exceptions=True)
        for start, result in zip(due, results, strict=True):
            if isinstance(result, Exception):
                told_to = {"event": "scheduled-start-failed", "user": start.user, "schedule": start.id}
                log.error("A scheduled start could not be looked at: %s", result, exc_info=result, extra=told_to)
        return len(due)

    async def make(self, start: Start) -> None:
        """One step of a start that is due: whatever this process was doing when it ended, the next one goes on."""
        mine = await asyncio.to_thread(self.schedules.claim, start)
        if mine is None:
            return
        if await self._settled(mine):
            return
        late = mine.start_at + self.window < self.clock.now()
        if late and start.tried_at is None:
            await self._over(mine, StartState.MISSED, told.START_MISSED)
        elif late:
            _seen, words = seen_of(mine, await self._leases(mine))
            await self._over(mine, StartState.FAILED, words or mine.outcome or told.START_UNANSWERED)
        else:
            await self._ask(mine)

    async def _ask(self, mine: Start) -> None:
        language = await asyncio.to_thread(self.language, mine.user)
        try:
            if not await self._still_the_same(mine):
                return
            await self.hub.start_server(mine.user, mine.server, dict(mine.options), language)
        except StartRefused as error:
            await asyncio.to_thread(self.schedules.wait, mine, str(error))
        except StartForbidden:
            await asyncio.to_thread(self.schedules.wait, mine, told.START_FORBIDDEN)
            await check_scopes(self.hub, self.alerts)
        except BerthError as error:
            log.warning("The Hub did not answer to a scheduled start: %s", error)
            await asyncio.to_thread(self.schedules.wait, mine, told.START_UNANSWERED)
        else:
            if not await self._settled(mine):
                await asyncio.to_thread(self.schedules.wait, mine)

    async def _still_the_same(self, mine: Start) -> bool:
        """Whether its user is there still. Who has the name since neither asked for the start nor is told of it."""
        made_at = await self.hub.made_at(mine.user)
        if made_at is not None and made_at <= mine.created_at:
            return True
        await asyncio.to_thread(self.schedules.end, mine, StartState.CANCELLED, told.START_USER_GONE)
        more = {"event": "scheduled-start", "user": mine.user, "schedule": mine.id, "outcome": "cancelled"}
        log.info("A scheduled start is dropped: its user was deleted", extra=more)
        return False

    async def _settled(self, mine: Start) -> bool:
        """Whether the book says that nothing is to be asked now; what follows from that is done."""
        seen, words = seen_of(mine, await self._leases(mine))
        if seen is Seen.STARTED:
            await self._over(mine, StartState.STARTED, "")
        elif seen is Seen.THERE:
            await self._over(mine, StartState.STARTED, told.START_THERE)
        elif seen in (Seen.UNDER_WAY, Seen.STOPPING):
            await asyncio.to_thread(self.schedules.wait, mine, words)
        return seen not in (Seen.NOTHING, Seen.FAILED)

    async def _leases(self, start: Start) -> Sequence[Lease]:
        return await asyncio.to_thread(self.book.leases, user=start.user, limit=_LEASES)

    async def _over(self, mine: Start, state: StartState, outcome: str) -> None:
        """Told first: a process that ends in between tells the same once more, which is no second telling."""
        notice = _notice(mine, state, outcome, self.clock.now())
        if notice is not None:
            await asyncio.to_thread(self.tell, notice)
        await asyncio.to_thread(self.schedules.end, mine, state, outcome)
        more = {"event": "scheduled-start", "user": mine.user, "schedule": mine.id, "outcome": state.value}
        log.info("A scheduled start is over: %s %s", state.value, outcome, extra=more)


def _notice(start: Start, state: StartState, outcome: str, now: datetime) -> Notice | None:
    """None where somebody started it themselves, and so knows."""
    if state is StartState.STARTED:
        done = start_done(start.user, start.server, start.profile, start.id, now)
        return None if outcome else done
    return start_failed(start.user, start.server, start.profile, start.id, outcome, now, LINK)


async def check_scopes(hub: Starter, alerts: Alerts) -> bool:
    """Whether the token may start servers at all; where not, administrators are told, and where it may again, that is
    cleared. Raises `HubUnavailable`, and what the book raises."""
    may = SCOPE in await hub.scopes()
    if may:
        await asyncio.to_thread(alerts.clear, ALERT)
    else:
        log.error("The service's token lacks the scope %s", SCOPE, extra={"event": "dispatch-failed"})
        await asyncio.to_thread(alerts.put, ALERT, ALERT, told.NO_START_SCOPE % {"scope": SCOPE})
    return may


async def keep_dispatching(dispatcher: Dispatcher, every: float = LOOK_SECONDS) -> None:
    """Look every so many seconds, and ask now and then what the token may do, until cancelled."""
    unchecked = 0.0  # seconds until it is asked again
    while True:
        try:
            await dispatcher.look()
            if unchecked <= 0:
                await check_scopes(dispatcher.hub, dispatcher.alerts)
                unchecked = CHECK_SECONDS
            unchecked -= every
        except BerthError as error:
            log.warning("Scheduled starts could not be looked for: %s", error, extra={"event": "dispatch-failed"})
        except Exception:  # a fault of ours in one look must not be the end of all later ones
            log.exception("Scheduled starts could not be looked for", extra={"event": "dispatch-failed"})
        await asyncio.sleep(every)
