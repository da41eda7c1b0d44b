"""Saving before a stop: one way, whatever the reason. It never raises, and it is over before its time is.

1. training programs are asked for checkpoints, and have until the end; 2. open browsers save their documents, and
notebooks get the outputs so far; 3. idle kernels save their variables; 4. at the end of the time busy kernels are
interrupted, and save theirs; 5. notebooks get the last outputs and a stamp; 6. what was open is written down for the
next start, again and again; 7. the service hears that all is done. What fails is a row of what is lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from berth_lab import __version__
from berth_lab.farewell_files import FORMAT, MANIFEST, owner, private_folder, write_private
from berth_lab.farewell_kernels import CannotSay, Seat, lost
from berth_lab.farewell_report import listed
from berth_lab.notebooks import Stamp, Written
from berth_lab.watch import stamp as rfc3339

log = logging.getLogger("berth_lab")

#: Busy kernels are interrupted so long before the end of the time; of a short time, half of it.
INTERRUPT_SECONDS = 30.0
#: Browsers may take so long to save their documents; of a short time, a quarter.
BROWSER_SECONDS = 5.0
#: The same where a person waits and nothing is to end.
KEEP_BROWSER_SECONDS = 2.0
#: The last so many seconds are for notebooks, the manifest and the report.
WRITE_SECONDS = 4.0
#: An interrupted kernel has so many seconds to end what it runs.
END_SECONDS = 2.0
#: The very last ones are for the report.
TELL_SECONDS = 1.5
#: Kernels that save at the same time.
AT_ONCE = 4
LOOK_SECONDS = 0.2
#: Refusals of the service that say nothing about a later try: not now, too early, too often.
LATER = frozenset({408, 425, 429})
#: A step that begins when the time is over has so many seconds.
LEAST_SECONDS = 0.1


class World(Protocol):
    """The server around it."""

    def now(self) -> datetime: ...
    async def seats(self) -> list[Seat]: ...
    async def tabs(self) -> list[str]: ...
    def busy(self, kernel_id: str) -> bool | None: ...
    async def interrupt(self, kernel_id: str) -> None: ...
    async def save_variables(self, seat: Seat, folder: Path, seconds: float) -> dict[str, Any]: ...
    async def write_outputs(self, stamp: Stamp | None) -> list[Written]: ...
    async def ask_browsers_to_save(self, seconds: float) -> bool: ...
    def busy_terminals(self) -> int: ...
    async def ask_trainers(self, reason: str, until: datetime) -> None: ...
    async def trainers_save(self) -> bool: ...
    async def checkpoints(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]: ...
    async def tell(self, report: dict[str, Any]) -> bool: ...  # whether the service has taken it


def interrupt_after(seconds: float) -> float:
    """How long busy kernels are let alone when there are so many seconds: they must have ended before notebooks are
    written."""
    late = seconds - INTERRUPT_SECONDS if seconds >= 2 * INTERRUPT_SECONDS else seconds / 2
    return max(0.0, min(late, seconds - WRITE_SECONDS - END_SECONDS))


@dataclass(slots=True)
class Farewell:
    """One saving. `until` is when the server may be ended."""

    world: World
    lease: str
    reason: str
    until: datetime
    snapshots: Path
    home: Path
    token: str = ""
    began: datetime = field(init=False)
    saved: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)  # as the manifest has them, by id
    tabs: list[str] = field(default_factory=list)
    acknowledged: bool = False  # the service knows that all is done
    _resume: str | None = None
    _final: dict[str, Any] | None = None
    _done_kernels: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.began = self.world.now()
        self.token = self.token or f"{self.began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"

    @property
    def folder(self) -> Path:
        return self.snapshots / self.token

    @property
    def finished(self) -> bool:
        """Whether all that can be saved is; the service may not know it yet."""
        return self._final is not None

    def left(self) -> float:
        """Seconds."""
        return (self.until - self.world.now()).total_seconds()

    def report(self, state: str = "saving") -> dict[str, Any]:
        """All of it; the service takes it cut (`farewell_report.bounded`)."""
        seconds = (self.world.now() - self.began).total_seconds()
        return {
            "state": state,
            "reason": self.reason,
            "saved": list(self.saved),
            "lost": list(self.lost),
            "resume": self._resume,
            "seconds": round(seconds, 1),
        }

    async def run(self) -> dict[str, Any]:
        """Save all that can be saved in time; the final report. Only a cancellation comes out of it."""
        await self._step(self.world.tell(self.report()))
        await self._step(self.world.ask_trainers(self.reason, self.until))
        await self._step(self.world.ask_browsers_to_save(min(BROWSER_SECONDS, self.left() / 4)))
        await self._step(self.world.write_outputs(None))
        seats = await self._seats()
        await self._idle_kernels(seats)
        await self._busy_kernels(seats)
        await self._checkpoints()
        await self._notebooks()
        self._terminals()
        self._write_down()
        self._final = self.report("done")
        self.acknowledged = bool(await self._step(self.world.tell(self._final)))
        return self._final

    async def keep(self) -> dict[str, Any]:
        """Save what can be saved while all goes on; the report. Nothing is stopped: programs are not asked, kernels are
        not interrupted, notebooks get no stamp, and nobody is told."""
        await self._step(self.world.ask_browsers_to_save(KEEP_BROWSER_SECONDS))
        self._wrote(await self._step(self.world.write_outputs(None)) or ())
        seats = await self._seats()
        await self._idle_kernels(seats)
        for seat in self._unsaved(seats):
            self.lost.append(lost("kernel", seat.name or seat.path, seat.path, "busy-now"))
        self._write_down()
        return self.report("done")

    async def tell_again(self) -> None:
        """Say once more that all is done, however late it is; nothing while it is not."""
        if self._final is not None:
            self.acknowledged = await self.world.tell(self._final)

    async def _seats(self) -> list[Seat]:
        """Who is there; what is open is written down at once, so that an early end costs variables alone."""
        seats: list[Seat] = await self._step(self.world.seats()) or []
        self.tabs = await self._step(self.world.tabs()) or []
        self.kernels = {seat.id: seat.value() | {"folder": None, "variables": 0} for seat in seats}
        self._write_down()
        if self._resume is not None:
            self.saved.append(
                {"kind": "tabs", "path": "", "what": "", "count": len(seats) or len(self.tabs), "bytes": 0}
            )
        return seats

    async def _step(self, step: Awaitable[Any], spare: float = 0.0) -> Any:
        """One step, ended so many seconds before the time is, which may come sooner than thought; None if it failed."""
        work = asyncio.ensure_future(step)
        least = asyncio.get_running_loop().time() + LEAST_SECONDS
        try:
            while not work.done():
                left = max(self.left() - spare, least - asyncio.get_running_loop().time())
                if left <= 0:
                    log.warning("a step of saving took too long")
                    return None
                await asyncio.wait({work}, timeout=min(left, 1.0))
            return work.result()
        except Exception:
            log.warning("a step of saving failed", exc_info=True)
            return None
        finally:
            if not work.done():
                work.cancel()
                work.add_done_callback(_looked_at)
                await asyncio.wait({work}, timeout=LEAST_SECONDS)

    async def _idle_kernels(self, seats: list[Seat]) -> None:
        await self._save([seat for seat in seats if self.world.busy(seat.id) is False])

    async def _busy_kernels(self, seats: list[Seat]) -> None:
        """Let them end by themselves as long as there is time for it, then interrupt them."""
        interrupt_at = self.left() - interrupt_after(self.left())
        while (waiting := self._unsaved(seats)) and self.left() > interrupt_at:
            await self._save([seat for seat in waiting if self.world.busy(seat.id) is False])
            if self._unsaved(seats):
                await asyncio.sleep(LOOK_SECONDS)
        for seat in self._unsaved(seats):
            await self._step(self.world.interrupt(seat.id))
        while self._unsaved(seats) and self.left() > WRITE_SECONDS:
            await self._save([seat for seat in self._unsaved(seats) if self.world.busy(seat.id) is False])
            if self._unsaved(seats):
                await asyncio.sleep(LOOK_SECONDS)
        self.lost += [lost("kernel", seat.name or seat.path, seat.path, "busy") for seat in self._unsaved(seats)]

    def _unsaved(self, seats: list[Seat]) -> list[Seat]:
        return [seat for seat in seats if seat.id not in self._done_kernels]

    async def _save(self, seats: list[Seat]) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(seat: Seat) -> None:
            async with room:
                await self._variables(seat)

        self._done_kernels.update(seat.id for seat in seats)
        if seats:
            await self._step(asyncio.gather(*(one(seat) for seat in seats)), spare=WRITE_SECONDS - TELL_SECONDS)
            self._write_down()

    async def _variables(self, seat: Seat) -> None:
        entry = self.kernels[seat.id]
        folder = self.folder / f"kernel-{list(self.kernels).index(seat.id) + 1}"
        try:
            report = await self.world.save_variables(seat, folder, max(0.1, self.left() - WRITE_SECONDS))
        except CannotSay as error:
            self.lost.append(lost("kernel", seat.name or seat.path, seat.path, error.code))
            return
        except asyncio.CancelledError:
            self.lost.append(lost("kernel", seat.name or seat.path, seat.path, "time"))
            raise
        except Exception:
            log.warning("the variables of %s could not be saved", seat.path, exc_info=True)
            self.lost.append(lost("kernel", seat.name or seat.path, seat.path, "failed"))
            return
        entry |= {"folder": folder.name, "variables": len(report["saved"])}
        if report["saved"]:
            where = {"path": self._relative(folder), "what": seat.path, "bytes": report.get("bytes") or 0}
            self.saved.append({"kind": "variables", "count": len(report["saved"]), **where})
        for row in report.get("lost") or ():
            words = {"what": row["name"], "where": seat.path, "why": row["why"], "code": row["code"]}
            self.lost.append({"kind": "variable", **words})

    async def _checkpoints(self) -> None:
        """Wait for training programs as long as there is time; what they wrote, and did not."""
        while self.left() > WRITE_SECONDS:
            if not await self._step(self.world.trainers_save()):
                break
            await asyncio.sleep(LOOK_SECONDS)
        saved, lost_ = await self._step(self.world.checkpoints()) or ([], [])
        self.saved += saved
        self.lost += lost_

    async def _notebooks(self) -> None:
        stamp = Stamp(self.lease, self.reason, rfc3339(self.world.now()) or "", f"berth_lab {__version__}")
        self._wrote(await self._step(self.world.write_outputs(stamp), spare=TELL_SECONDS) or ())

    def _wrote(self, notebooks: Iterable[Written]) -> None:
        for written in notebooks:
            name = written.path.rpartition("/")[2]
            if written.why is not None:
                self.lost.append(lost("notebook", name, written.path, written.why))
                continue
            row = {"path": written.path, "what": name, "count": len(written.cells), "bytes": written.size}
            self.saved.append({"kind": "notebook", **row})

    def _terminals(self) -> None:
        if running := self.world.busy_terminals():
            self.lost.append(lost("terminal", str(running), "", "terminal"))

    def _write_down(self) -> None:
        """What the next start needs, as far as it is known now."""
        if not self.kernels and not self.tabs:
            return
        manifest = {
            "format": FORMAT,
            "token": self.token,
            "lease": self.lease,
            "owner": owner(),
            "reason": self.reason,
            "at": rfc3339(self.began),
            "kernels": list(self.kernels.values()),
            "tabs": self.tabs,
            "lost": listed(self.lost),
            "used_at": None,
        }
        try:
            private_folder(self.snapshots)
            write_private(self.folder / MANIFEST, manifest)
            self._resume = self.token
        except OSError:
            log.warning("what was open could not be written down", exc_info=True)

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self.home)


def _looked_at(work: asyncio.Future[Any]) -> None:
    """What a step that was given up raised is nobody's concern, and no line of the log."""
    if not work.cancelled():
        work.exception()


async def told(post: Callable[[dict[str, Any]], Awaitable[None]], report: dict[str, Any], path: Path | None) -> bool:
    """Send the report; where the service does not take it, keep it in the user's folder. Whether the service has
    spoken: what it has refused for good is not to be sent again. Never raises."""
    try:
        await post(report)
        return True
    except Exception as error:
        log.warning("the service did not take the report of what was saved: %s", error)
        if path is not None and report["state"] == "done":
            try:
                write_private(path, report)
            except OSError:
                log.warning("the report could not be written either", exc_info=True)
        code = getattr(error, "code", 0)
        return isinstance(code, int) and 400 <= code < 500 and code not in LATER
