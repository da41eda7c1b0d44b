"""NVIDIA's MPS daemons of this host: one for each GPU, started, watched, recycled and ended by the agent.

A daemon is a child in the foreground (`nvidia-cuda-mps-control -f`) that is known by pid *and* start time. Its GPU is
in compute mode EXCLUSIVE_PROCESS meanwhile: there a program that does not go through MPS gets no context, instead of
the whole device. `Daemon` is not for use from several threads at once; its calls block, for a few times `PATIENCE_S`
at most.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from spawner.mps import PROGRAM, MpsPlan
from spawner.processes import Identity, Process, boot_id, command, end, living, process

log = logging.getLogger("berth.mps")

#: Seconds for the daemon to listen, to answer a command, and to end.
PATIENCE_S = 10.0
_STEP_S = 0.05
#: Waits between attempts to start one that does not stay: doubled each time.
FIRST_BACK_OFF: Final = timedelta(seconds=2)
MOST_BACK_OFF: Final = timedelta(minutes=5)
#: The pipe on which the daemon listens for commands.
CONTROL_PIPE: Final = "control"
_RECORD: Final = "daemon.json"


class MpsError(Exception):
    """The daemon cannot run or did not answer; the words are for an administrator."""


class ComputeModes(Protocol):
    """The driver's compute mode of a device, by UUID. Calls raise `OSError` with words where the driver refuses."""

    def exclusive(self, uuid: str) -> None:
        """One process alone (the MPS server) may have a context."""

    def default(self, uuid: str) -> None:
        """Any number may."""


class SharedMemory(Protocol):
    """A bounded tmpfs. Calls raise `OSError`."""

    def mount(self, folder: str, size_bytes: int) -> None:
        """Mount one there, unless there is one."""

    def unmount(self, folder: str) -> None:
        """Unmount it, if there is one."""


class Tmpfs:
    """Memory mounted by `mount(8)`; needs root."""

    def mount(self, folder: str, size_bytes: int) -> None:
        if not os.path.ismount(folder):
            options = f"rw,nosuid,nodev,noexec,mode=1777,size={size_bytes}"
            _run(["mount", "-t", "tmpfs", "-o", options, "berth-mps", folder])

    def unmount(self, folder: str) -> None:
        if os.path.ismount(folder):
            _run(["umount", folder])


def _run(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{argv[0]} did not end within {PATIENCE_S:g} s") from error
    if done.returncode:
        raise OSError(done.stderr.strip() or f"{argv[0]} ended with {done.returncode}")


class Daemon:
    """The daemon of one GPU. `program` is NVIDIA's control program, `owner` (uid, gid) who all its clients run as."""

    def __init__(
        self,
        plan: MpsPlan,
        modes: ComputeModes,
        memory: SharedMemory,
        *,
        program: str = PROGRAM,
        owner: tuple[int, int] | None = None,
    ) -> None:
        self.plan = plan
        self.why = "its MPS daemon has not been started yet"
        self._modes = modes
        self._memory = memory
        self._program = program
        self._owner = owner
        self._child: subprocess.Popen[bytes] | None = None  # None for one that was taken over
        self._known: Process | None = None
        self._next: datetime | None = None
        self._back_off = FIRST_BACK_OFF
        self._record = Path(plan.pipes).parent / _RECORD

    @property
    def ready(self) -> bool:
        """Whether clients may come."""
        return not self.why

    @property
    def pid(self) -> int | None:
        """Of the daemon, while it lives."""
        if self._child is not None:
            self._child.poll()  # reaps it
        return self._known.pid if self._known is not None and not _left(self._known) else None

    def tend(self, now: datetime) -> None:
        """Start it where it does not run and it is time to; `why` then says what keeps it from running, "" nothing."""
        if self.pid is not None and self.ready:
            return
        if self._known is not None and self.ready:
            self._later(f"its MPS daemon ended by itself ({_how(self._child)})", now)
        if self._next is not None and now < self._next:
            return
        try:
            if not self._take_over():
                self._start()
        except (MpsError, OSError) as error:
            with suppress(MpsError, OSError):
                self._clean()
            self._later(f"its MPS daemon cannot run: {error}", now)
        else:
            self.why = ""

    def settled(self) -> None:
        """It has done well for long enough: the next failure is a first one."""
        self._back_off, self._next = FIRST_BACK_OFF, None

    def recycle(self, now: datetime) -> None:
        """End it and start it anew: after a client's fault a daemon takes no new ones until all old ones are gone. Only
        while nobody holds the device."""
        self._quit()
        self._clean()
        self._next = None
        self.why = "its MPS daemon is started anew"
        self.tend(now)

    def stop(self) -> None:
        """End it and give the device back as it was: compute mode DEFAULT, no folders. Only while nobody holds the
        device: clients lose their GPU. Raises `MpsError` where it does not end, `OSError` where the driver refuses."""
        self._quit()
        self._clean()
        self.why = "its MPS daemon was ended"
        self._modes.default(self.plan.uuid)

    # ---- steps -------------------------------------------------------------------------------------------------

    def _take_over(self) -> bool:
        """Go on with the daemon of an agent before this one: servers outlive the agent, and would not outlive their
        daemon. One that does not answer is ended."""
        if self._known is not None:
            return False
        self._known = self._earlier()
        if self._known is None:
            return False
        try:
            for line in self.plan.commands:  # the site's shares may have changed meanwhile
                self.say(line)
        except MpsError as error:
            log.warning("The MPS daemon of %s that runs already is of no use: %s", self.plan.uuid, error)
            return False
        log.info("The MPS daemon of %s that runs already (pid %s) is kept", self.plan.uuid, self._known.pid)
        return True

    def _start(self) -> None:
        self._clean()  # a daemon does not start over the pipes of one that died, and clients of it would hang
        for folder in (self.plan.pipes, self.plan.logs, self.plan.shm):
            os.makedirs(folder, mode=0o755)
        self._memory.mount(self.plan.shm, self.plan.shm_bytes)
        if self._owner is not None:
            os.chown(self.plan.pipes, *self._owner)
        self._modes.exclusive(self.plan.uuid)
        with open(f"{self.plan.logs}/berth.log", "ab") as out:
            self._child = subprocess.Popen(
                [self._program, "-f"],
                env={**os.environ, **self.plan.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._known = process(self._child.pid)
        self._write_record()
        self._wait_for(self._listens, "it does not listen")
        for line in self.plan.commands:
            self.say(line)

    def _listens(self) -> bool:
        if self.pid is None:
            raise MpsError(f"it ended at once ({_how(self._child)}): {self._last_words()}")
        return os.path.exists(f"{self.plan.pipes}/{CONTROL_PIPE}")

    def say(self, line: str) -> str:
        """What the daemon answers to a command. Raises `MpsError`."""
        try:
            done = subprocess.run(
                [self._program],
                input=f"{line}\n",
                env={**os.environ, **self.plan.env},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise MpsError(f"it did not answer to {line!r} within {PATIENCE_S:g} s") from error
        if done.returncode:
            raise MpsError(f"it refused {line!r}: {(done.stderr or done.stdout).strip()}")
        return done.stdout.strip()

    def _quit(self) -> None:
        """Ask it to end, then make it. The MPS servers that it started end with it. Raises `MpsError` where it does not
        end even when killed."""
        known, self._known = self._known, None
        if known is not None and not _left(known):
            with suppress(MpsError, OSError):
                self.say("quit -t 1")
            if not self._gone(lambda: self._ended(known)):
                log.warning("The MPS daemon of %s did not end when asked; it is killed", self.plan.uuid)
                end(known, signal.SIGKILL)
                if not self._gone(lambda: self._ended(known)):
                    self._known = known
                    raise MpsError(f"the one before (pid {known.pid}) does not end, not even when killed")
        self._child = None

    def _ended(self, known: Process) -> bool:
        if self._child is not None:
            self._child.poll()  # reaps it
        return _left(known)

    def _earlier(self) -> Process | None:
        """The daemon that an agent before this one started, if it lives."""
        try:
            record = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return None
        found = living(Identity.of_record(record if isinstance(record, dict) else None), boot_id())
        return found if found is not None and _is_ours(found, self._program) else None

    def _write_record(self) -> None:
        if self._known is not None:
            record = {"pid": self._known.pid, "start_time": self._known.start_time, "boot_id": boot_id()}
            self._record.write_text(json.dumps(record))

    def _clean(self) -> None:
        self._quit()
        folder = Path(self.plan.pipes).parent
        self._memory.unmount(self.plan.shm)
        if folder.exists():
            shutil.rmtree(folder)

    def _last_words(self) -> str:
        try:
            text = Path(self.plan.logs, "berth.log").read_text(errors="replace")
        except OSError:
            text = ""
        return text.strip()[-300:] or "it said nothing"

    def _later(self, why: str, now: datetime) -> None:
        log.warning("GPU %s: %s", self.plan.uuid, why)
        self.why = why
        self._next = now + self._back_off
        self._back_off = min(2 * self._back_off, MOST_BACK_OFF)

    def _wait_for(self, condition: Callable[[], bool], words: str) -> None:
        if not self._gone(condition):
            raise MpsError(f"{words} after {PATIENCE_S:g} s")

    @staticmethod
    def _gone(condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        return True


def _left(known: Process) -> bool:
    now = process(known.pid)
    return now is None or not now.alive or now.start_time != known.start_time


def _is_ours(found: Process, program: str) -> bool:
    return any(os.path.basename(word) == os.path.basename(program) for word in command(found.pid))


def _how(child: subprocess.Popen[bytes] | None) -> str:
    if child is None or child.returncode is None:
        return "nobody knows how"
    return f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
