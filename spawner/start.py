"""One start of one server: from the request to the answer, or back to nothing.

The steps and why in this order: DESIGN of the lease protocol (ARCHITECTURE, "The lease protocol"). A start runs as a
task of its own that nobody cancels: it is told to give up (`abort`) and does so between two steps, so it always
knows what it holds and undoes exactly that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Concatenate, Final, ParamSpec, TypeVar

from quota import tracing
from quota.errors import BerthError, Reason, Refused, Stale
from quota.i18n import N_, _
from quota.leases import Holder, Lease, LeaseRequest, State, StopReason, Target
from quota.told import LEFT_BEHIND, START_FAILED
from quota.transitions import IllegalMove
from spawner import metrics
from spawner.fleet import describe, held_words
from spawner.ports import Seen, ServerSpec, Unreachable
from spawner.progress import Progress
from spawner.threads import begin, in_thread, looks_at
from spawner.wiring import Wiring

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("berth.spawner")

#: How long a start waits for the end of the same server's last run, its time to save not counted.
EARLIER_SECONDS: Final = 20.0
#: A ready server is seen at once; the Hub's own waiting backs off to seconds.
PROBE_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.25
BOOK_SECONDS: Final = 1.0
#: How often a write is tried that met somebody else's.
TRIES: Final = 10
#: While the book cannot be written, giving up is tried again this often.
RETRY_SECONDS: Final = 5.0

Probe = Callable[[], Awaitable[bool]]
MakeSpec = Callable[[Lease], ServerSpec]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Why a start is to give up: a reason for the book, words for its row, and who asked."""

    reason: StopReason
    detail: str
    by: str = ""


class Start:
    """One start. `make_spec` blocks (it prepares the home) and runs in a thread; `probe` tells whether the server
    answers; `prepare` is waited for before anything is held (an image that has to come). `lease` is set as soon as
    there is one."""

    def __init__(
        self,
        wiring: Wiring,
        request: LeaseRequest,
        make_spec: MakeSpec,
        probe: Probe,
        told: Progress,
        prepare: Prepare | None = None,
    ) -> None:
        self.lease: Lease | None = None
        self._wiring = wiring
        self._request = request
        self._make_spec = make_spec
        self._probe = probe
        self._told = told
        self._prepare = prepare
        self._give_up: GiveUp | None = None
        self._confirming = False  # the book may have it as running
        self._woken = asyncio.Event()
        self._tell_from = 1
        self._next_look = 0.0
        self._next_book = 0.0

    def abort(self, why: GiveUp) -> None:
        """Have it give up at the next step; the first reason stays."""
        self._give_up = self._give_up or why
        self._woken.set()

    async def run(self) -> Lease:
        """The lease, running and answering.

        Raises `Refused`: what the book refuses, STOPPING, STOP_REQUESTED, START_FAILED (facts `exit_code`, `tail`,
        `log`), START_TIMEOUT, BOOK_UNAVAILABLE. Then nothing is held any more, or is on its way to be given back.
        """
        holder = self._request.holder
        tracing.bind(user=holder.user, server=holder.server)
        _UNDER_WAY[holder] = self
        try:
            return await self._steps()
        except Exception as error:
            await self._undo(error)
            raise
        finally:
            if _UNDER_WAY.get(holder) is self:
                del _UNDER_WAY[holder]
            self._told.finish()

    async def _steps(self) -> Lease:
        wiring = self._wiring
        self._told.say(5, _("Checking your request"))
        if self._prepare is not None:
            await self._prepare(self)
        await self._wait_for_earlier()
        with metrics.timed("reserve"):
            lease = self.lease = await self._book(wiring.book.reserve, self._request, wiring.place)
        _OURS.add(lease.id)
        metrics.RESERVATIONS.inc()
        tracing.bind(lease=lease.id)
        log.info("Lease %s is reserved for %s", lease.id, lease.holder, extra={"event": "lease-reserved"})
        self._told.say(25, await self._room_words(lease))
        deadline = wiring.clock.now() + timedelta(seconds=wiring.start_timeout_s)
        give_up_at = time.monotonic() + wiring.start_timeout_s
        lease = self.lease = await self._advance(wiring.book.mark_starting, deadline)
        spec = await self._world(self._make_spec, lease)
        self._check()
        await self._check_wanted()  # it may have taken long; nobody else's room is used then
        self._told.say(35, _("Starting the server"))
        with metrics.timed("start"):
            await self._world(wiring.runtime.start, spec)
        with metrics.timed("ready"):
            await self._until_it_answers(give_up_at)
        self._confirming = True
        lease = self.lease = await self._advance(wiring.book.mark_running, wiring.boot, wiring.clock.now())
        _OURS.discard(lease.id)
        log.info("Lease %s runs: the server answers", lease.id, extra={"event": "lease-running"})
        self._told.say(95, _("JupyterLab answers"))
        return lease

    # ---- before anything is held -------------------------------------------------------------------------------

    async def _wait_for_earlier(self) -> None:
        """Visibly wait until the last run of this server has let go. The Hub starts a server only when it has none,
        so a lease that still means to run was left behind and is told to stop."""
        book, holder = self._wiring.book, self._request.holder
        began, self._tell_from = time.monotonic(), 1
        while True:
            self._check()
            earlier = await self._book(book.live_of, holder)
            if earlier is None:
                return
            if earlier.target is Target.RUN and earlier.id not in _OURS:
                await self._stop_left_behind(earlier)
            waited = time.monotonic() - began
            if waited > EARLIER_SECONDS + self._wiring.graces.by_hand.total_seconds():
                raise Refused(Reason.STOPPING, lease=earlier.id)
            self._tell_waiting(10, N_("Waiting for the last run of this server to end"), began)
            await self._pause(0.2)

    async def _stop_left_behind(self, lease: Lease) -> None:
        log.warning("Lease %s of %s was left behind; stopping it for a new start", lease.id, lease.holder)
        book, out, by = self._wiring.book, self._wiring.way_out, self._request.requested_by
        await self._book(out.request, lease.id, StopReason.PLATFORM, detail=LEFT_BEHIND, by=by)
        if lease.owner == self._wiring.boot and lease.state in (State.RESERVED, State.STARTING):
            await self._book(book.acknowledge, lease.id, self._wiring.boot)  # by a start of ours that could not
        if await self._book(out.wait_until, lease.id) is None:  # else the agent ends it when it has saved
            await self._world(self._wiring.runtime.stop, lease.id, 5.0)

    async def _room_words(self, lease: Lease) -> str:
        uuids = {slot.device for slot in lease.slots if slot.device is not None}
        if not uuids:
            return _("Room found: CPU only")
        devices = await self._book(self._wiring.rows.devices)
        names = sorted(describe(device) for device in devices if device.uuid in uuids)
        held = held_words(lease.share, lease.count, lease.simulated)
        return _("Room found: %(share)s on %(devices)s", share=held, devices="; ".join(names))

    # ---- until it answers --------------------------------------------------------------------------------------

    async def _until_it_answers(self, give_up_at: float) -> None:
        began, self._tell_from = time.monotonic(), 2
        while not await self._probe():
            self._check()
            await self._watch(began)
            if time.monotonic() > give_up_at:
                tail = await self._tail()
                raise Refused(Reason.START_TIMEOUT, seconds=round(self._wiring.start_timeout_s), log=tail)
            self._tell_waiting(45, N_("Waiting for JupyterLab"), began)
            await self._pause(PROBE_SECONDS)
        self._check()

    async def _watch(self, began: float) -> None:
        """Notice an early exit, and a stop that somebody else asked for."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            await self._check_alive(max(began, now - LOOK_SECONDS))
        if now >= self._next_book:
            self._next_book = now + BOOK_SECONDS
            await self._check_wanted()

    async def _check_alive(self, newer_than: float) -> None:
        assert self.lease is not None
        look = await looks_at(self._wiring.runtime).newer_than(newer_than)
        if isinstance(look, Unreachable):
            return
        seen = look.get(self.lease.id, Seen(self.lease.id, running=False))
        if seen.running:
            return
        await self._check_wanted()
        tail = await self._tail()
        last = next((line for line in reversed(tail) if line.strip()), "")
        raise Refused(Reason.START_FAILED, exit_code=seen.exit_code, tail=last, log=tail)

    async def _check_wanted(self) -> None:
        assert self.lease is not None
        lease = await self._book(self._wiring.book.lease, self.lease.id)
        self._refuse_if_stopped(lease)

    @staticmethod
    def _refuse_if_stopped(lease: Lease) -> None:
        if lease.target is Target.STOP:
            raise Refused(Reason.STOP_REQUESTED, by=lease.stop_by, stop_reason=str(lease.stop_reason or ""))

    async def _tail(self) -> tuple[str, ...]:
        assert self.lease is not None
        try:
            return await in_thread(self._wiring.runtime.log_tail, self.lease.id, 20)
        except Exception:
            log.exception("The log of lease %s could not be read", self.lease.id)
            return ()

    # ---- giving up ---------------------------------------------------------------------------------------------

    async def _undo(self, error: Exception) -> None:
        """Nothing may be left of a start that failed. The slot is not freed here: the agent does, once it has seen
        that nothing runs; acknowledging tells it that nothing more will come."""
        why = self._give_up or GiveUp(StopReason.FAILED, _detail(error))
        if self.lease is None:
            self.lease = await self._perhaps_reserved(error, why)
        if self.lease is None:
            return
        if await self._try_to_undo(self.lease.id, why):
            _OURS.discard(self.lease.id)
            return
        begin(self._undo_later(self.lease.id, why))

    async def _perhaps_reserved(self, error: Exception, why: GiveUp) -> Lease | None:
        """A book that failed us may have committed first."""
        if not isinstance(error, Refused) or error.reason is not Reason.BOOK_UNAVAILABLE:
            return None
        try:
            return await self._left_reserved()
        except Exception:
            log.exception("The book cannot tell whether %s holds anything", self._request.holder)
            begin(self._undo_when_found(why))
            return None

    async def _left_reserved(self) -> Lease | None:
        """What this server holds by a start of this process that knows nothing of it."""
        lease = await in_thread(self._wiring.book.live_of, self._request.holder)
        if lease is None or lease.state is not State.RESERVED or lease.owner != self._wiring.boot or lease.id in _OURS:
            return None
        return lease

    async def _undo_when_found(self, why: GiveUp) -> None:
        """A reservation that was committed and not answered is nobody's but ours: ask until the book tells. Another
        start of the same server finds it first; what that one holds is left alone."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                lease = await self._left_reserved()
                if self._request.holder in _UNDER_WAY:
                    continue
                if lease is None:
                    return
                request_stop = partial(self._wiring.book.request_stop, detail=why.detail, by=why.by, expect=lease)
                await in_thread(request_stop, lease.id, why.reason)
            except Exception as error:
                log.info("What %s holds cannot be given back yet: %s", self._request.holder, error)
                continue
            if not await self._try_to_undo(lease.id, why):
                await self._undo_later(lease.id, why)
            return

    async def _try_to_undo(self, lease_id: str, why: GiveUp) -> bool:
        book, undone = self._wiring.book, True
        try:
            lease = await in_thread(book.request_stop, lease_id, why.reason, detail=why.detail, by=why.by)
            if lease.started_at is not None:  # it was confirmed, and the answer was lost: still a start that failed
                await in_thread(book.void, lease_id)
        except Exception:
            log.exception("Lease %s of a failed start could not be told to stop", lease_id)
            undone = False
            if self._confirming:
                return False  # nobody ends what the book may have as running before the intent is in the book
        try:
            await in_thread(self._wiring.runtime.remove, lease_id)
        except Exception:
            log.exception("The server of lease %s could not be removed; the agent goes on with it", lease_id)
        try:
            await in_thread(book.acknowledge, lease_id, self._wiring.boot)
        except Exception:
            log.exception("Lease %s of a failed start could not be given up", lease_id)
            undone = False
        return undone

    async def _undo_later(self, lease_id: str, why: GiveUp) -> None:
        """Only the living owner takes a lease out of STARTING: until the book can be written again, it is on us."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            if await self._try_to_undo(lease_id, why):
                _OURS.discard(lease_id)
                return

    # ---- small things ------------------------------------------------------------------------------------------

    async def _book(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call of the book. What is no word of the book's own is trouble with the book."""
        try:
            return await in_thread(call, *args, **kwargs)
        except BerthError:
            raise
        except Exception as error:
            raise Refused(Reason.BOOK_UNAVAILABLE, why=f"{type(error).__name__}: {error}") from error

    async def _world(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call of the runtime or the disk."""
        try:
            return await in_thread(call, *args, **kwargs)
        except BerthError:
            raise
        except Exception as error:
            raise Refused(Reason.START_FAILED, why=f"{type(error).__name__}: {error}") from error

    async def _advance(self, move: Callable[Concatenate[Lease, P], Lease], *args: P.args, **kwargs: P.kwargs) -> Lease:
        """A step of our own lease, again with what is there now when somebody else wrote it in between."""
        assert self.lease is not None
        lease = self.lease
        for _attempt in range(TRIES):
            self._check()
            try:
                return await self._book(move, lease, *args, **kwargs)
            except (Stale, IllegalMove) as error:
                lease = await self._book(self._wiring.book.lease, lease.id)
                self._refuse_if_stopped(lease)
                log.info("Lease %s: trying again after %s", lease.id, error)
                await self._pause(0.1)
        raise Refused(Reason.BOOK_UNAVAILABLE, why="the lease is written by others all the time")

    @property
    def image(self) -> str:
        """The name of the image that is asked for."""
        return self._request.image

    def check(self) -> None:
        """Raises `Refused(STOP_REQUESTED)` where it is to give up."""
        self._check()

    def _check(self) -> None:
        if self._give_up is not None:
            raise Refused(Reason.STOP_REQUESTED, by=self._give_up.by)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return

    def _tell_waiting(self, percent: int, words: str, began: float) -> None:
        """The seconds so far, more and more rarely, so that the page's log stays readable."""
        seconds = int(time.monotonic() - began)
        if seconds >= self._tell_from:
            self._tell_from = seconds + (2 if seconds < 10 else 5 if seconds < 60 else 15)
            self._told.say(min(90, percent + seconds), _("%(what)s (%(seconds)s s)", what=_(words), seconds=seconds))


#: What a start waits for before anything is held.
Prepare = Callable[[Start], Awaitable[None]]

#: Leases that a start of this process holds or is giving back: whoever meets one waits for it.
_OURS: set[str] = set()

#: Starts of this process that are not over, by whose they are.
_UNDER_WAY: dict[Holder, Start] = {}


def _detail(error: Exception) -> str:
    """For the lease's row: why a start failed, one line."""
    if not isinstance(error, Refused):
        return START_FAILED % {"reason": type(error).__name__}
    known = [f"{key} {error.facts[key]}" for key in ("exit_code", "seconds", "why") if error.facts.get(key) is not None]
    return ", ".join([START_FAILED % {"reason": error.reason.value}, *known])[:300]
