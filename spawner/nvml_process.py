"""The devices of this host, read in a process that can be ended: an `Inventory` for those who must never hang.

The library of a driver may hang in a way that no time-out of ours undoes, and may take its process with it. The agent
therefore asks a child (`spawner.nvml_child`). One that dies, does not answer or says that it is stuck is ended, and the
next read has another, after a pause that grows. A device that hangs alone stays with its child, so that all others
are read without a gap; from time to time a second child tries whether it hangs for a new process as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from spawner.nvml import DEVICE_TIMEOUT_S, DRIVER_TIMEOUT_S
from spawner.ports import GpuReading, Unreachable

#: Seconds beyond both time-outs in which a child that works has answered; it starts Python first.
SLACK_S = 10.0
#: Pauses before another child: the first, and the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 120.0
#: How long a device has hung when a second child first tries it; the pause doubles up to the other.
FIRST_TRY_S, LONGEST_TRY_S = 60.0, 900.0
#: How long `close` waits for a read to come to its end by itself.
CLOSE_PATIENCE_S = 0.5
#: Children that cannot be ended (they hang inside the kernel) before no more are made.
MOST_UNDYING = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """`missing`: this host has no driver library. `silent`: devices whose call hangs. `stuck`: this process can learn
    nothing more about the driver. `threads`: how many it has."""

    found: tuple[GpuReading, ...] | Unreachable = ()
    missing: bool = False
    silent: int = 0
    stuck: bool = False
    threads: int = 0


class _Gone(Exception):
    """The child gives no answer; the words say why."""


class _Child:
    """One reading process."""

    def __init__(self, env: Mapping[str, str] | None, device_timeout_s: float, driver_timeout_s: float) -> None:
        ours, theirs = Pipe()
        self._connection: Connection = ours
        command = [sys.executable, "-P", "-m", "spawner.nvml_child", str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                [*command, str(device_timeout_s), str(driver_timeout_s)],
                env=_environment(env),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for whoever asks
            )
        finally:
            theirs.close()
        self._patience_s = device_timeout_s + driver_timeout_s + SLACK_S
        self.asked_at = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, question: str) -> None:
        """Raises `_Gone`."""
        self.asked_at = time.monotonic()
        try:
            self._connection.send(question)
        except OSError:
            raise _Gone(self._how_it_ended()) from None

    def receive(self, *, wait: bool = True) -> Reply | None:
        """The reply to what was asked; None where it has not come and `wait` is False. Raises `_Gone`."""
        left = self.asked_at + self._patience_s - time.monotonic()
        try:
            if self._connection.poll(max(0.0, left) if wait else 0.0):
                reply: Reply = self._connection.recv()
                return reply
        except (EOFError, OSError):
            raise _Gone(self._how_it_ended()) from None
        if wait or left <= 0:
            raise _Gone(f"the NVIDIA driver's library did not answer within {self._patience_s:g} s")
        return None

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.poll()
        how = f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by {signal.Signals(-code).name}"
        return f"the process that reads the NVIDIA driver ended {how}"

    def end(self) -> bool:
        """End it by force; False where it did not die in a second, because it hangs inside the kernel."""
        self._connection.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        return self.ended()

    def ended(self) -> bool:
        return self._process.poll() is not None


class NvmlProcess:
    """Reads the devices of this host; `detect` makes one. `close` ends its child; so does the end of this process.

    `env` is the child's environment, None for this process's own. A read takes at most both time-outs and ten seconds.
    Safe from several threads; they wait for each other.
    """

    simulated = False

    def __init__(
        self,
        *,
        device_timeout_s: float = DEVICE_TIMEOUT_S,
        driver_timeout_s: float = DRIVER_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._timeouts = (device_timeout_s, driver_timeout_s)
        self._env = env
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._trial: _Child | None = None
        self._try_at: float | None = None  # when a second child is due; None while no device hangs
        self._try_pause = FIRST_TRY_S
        self._undying: list[_Child] = []
        self._not_before = float("-inf")
        self._pause = FIRST_PAUSE_S
        self._why = Unreachable("the NVIDIA driver was not asked yet")
        self.threads = 0  # of the child at its last reply

    @classmethod
    def detect(cls, *, env: Mapping[str, str] | None = None, **timeouts: float) -> NvmlProcess | None:
        """An inventory where this host has NVIDIA's driver library, else None. What does not work is told by `read`."""
        inventory = cls(env=env, **timeouts)
        if inventory._missing():
            inventory.close()
            return None
        return inventory

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that read for this one at present."""
        children = [self._child, self._trial, *self._undying]
        return tuple(child.pid for child in children if child is not None)

    def close(self) -> None:
        """End the reading processes now; a read that waits for one fails by that."""
        held = self._lock.acquire(timeout=CLOSE_PATIENCE_S)
        try:
            for child in (self._child, self._trial):
                if child is not None:
                    child.end()
            self._child = self._trial = None
        finally:
            if held:
                self._lock.release()

    def _missing(self) -> bool:
        with self._lock:
            try:
                reply = self._asked("detect")
            except _Gone as gone:
                self._failed(gone)
                return False
            if isinstance(reply.found, Unreachable):
                self._why = reply.found
            return reply.missing

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        """All devices by position, and those that hang with their error; `Unreachable` where the driver as a whole does
        not work, or no child can be had."""
        with self._lock:
            if self._child is None and time.monotonic() < self._not_before:
                return self._why
            try:
                reply = self._asked("read")
            except _Gone as gone:
                return self._failed(gone)
            self.threads = reply.threads
            if reply.stuck and isinstance(reply.found, Unreachable):
                return self._failed(_Gone(reply.found.why))
            self._pause = FIRST_PAUSE_S
            self._try_another(reply)
            return reply.found

    def _asked(self, question: str) -> Reply:
        self._undying = [child for child in self._undying if not child.ended()]
        if self._child is None:
            if len(self._undying) >= MOST_UNDYING:
                raise _Gone(
                    f"{MOST_UNDYING} processes hang inside the NVIDIA driver and cannot be ended: reboot this host"
                )
            self._child = self._new()
        self._child.send(question)
        reply = self._child.receive()
        assert reply is not None  # it was waited for
        return reply

    def _new(self) -> _Child:
        try:
            return _Child(self._env, *self._timeouts)
        except OSError as error:
            raise _Gone(f"the process that reads the NVIDIA driver cannot be started: {error}") from error

    def _failed(self, gone: _Gone) -> Unreachable:
        """The child is of no use any more; another comes after a pause."""
        if self._child is not None:
            self._retire(self._child)
            self._child = None
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        self._why = Unreachable(str(gone))
        return self._why

    def _retire(self, child: _Child) -> None:
        if not child.end():
            self._undying.append(child)

    # ---- a device that hangs -----------------------------------------------------------------------------------

    def _try_another(self, reply: Reply) -> None:
        """While devices hang, see now and then whether they do for a new process, and go on with that one if not."""
        if not reply.silent:
            self._give_up_trial()
            self._try_at, self._try_pause = None, FIRST_TRY_S
        elif self._trial is not None:
            self._take_trial(self._trial, reply.silent)
        elif self._try_at is None:
            self._try_at = time.monotonic() + self._try_pause
        elif time.monotonic() >= self._try_at and len(self._undying) < MOST_UNDYING:
            with suppress(_Gone):
                self._trial = self._new()
                self._trial.send("read")
            self._try_pause = min(2 * self._try_pause, LONGEST_TRY_S)
            self._try_at = time.monotonic() + self._try_pause

    def _take_trial(self, trial: _Child, silent: int) -> None:
        try:
            reply = trial.receive(wait=False)
        except _Gone:
            self._give_up_trial()
            return
        if reply is None:
            return
        if isinstance(reply.found, Unreachable) or reply.silent >= silent or self._child is None:
            self._give_up_trial()
            return
        self._retire(self._child)
        self._child, self._trial = trial, None

    def _give_up_trial(self) -> None:
        if self._trial is not None:
            self._retire(self._trial)
            self._trial = None


class NoDriver:
    """The inventory of a host whose settings ask for NVIDIA devices and which has no driver: every read says so."""

    simulated = False

    def read(self) -> Unreachable:
        return Unreachable(
            "berth.toml asks for NVIDIA GPUs (gpus.source), and this host has no NVIDIA driver (libnvidia-ml.so.1)"
        )


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """That of the child: it must find this very package, wherever the parent found it."""
    found = dict(os.environ if env is None else env)
    root = str(Path(__file__).resolve().parents[1])
    before = found.get("PYTHONPATH", "")
    if root not in before.split(os.pathsep):
        found["PYTHONPATH"] = f"{before}{os.pathsep}{root}" if before else root
    return found
