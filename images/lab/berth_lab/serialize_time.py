"""A bound of time that holds inside other people's code: `TimeIsUp` is raised in it, again and again until it ends.

In the main thread by SIGALRM, which also ends a sleep or a read; in another thread by the interpreter, between two
steps of Python. What computes in C and never returns to Python cannot be ended from inside; whoever asked for the
saving has a bound of its own for that.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any

#: What swallows the first one hears another after so many seconds.
AGAIN_SECONDS = 0.2


class TimeIsUp(BaseException):
    """Not an `Exception`: code that catches those must end, too."""


class Clock:
    """What is left of a time that begins now."""

    def __init__(self, seconds: float) -> None:
        self._end = monotonic() + seconds
        self._armed = False
        self.inner_end = self._end

    def left(self) -> float:
        """Seconds; negative when over."""
        return self._end - monotonic()

    def check(self) -> None:
        """Raises `TimeIsUp` when the current piece's time is over."""
        if self._armed and monotonic() > self.inner_end:
            raise TimeIsUp

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """The body ends after `seconds` at most, by `TimeIsUp`; never after the whole time."""
        seconds = max(0.01, min(seconds, self.left()))
        self.inner_end = monotonic() + seconds
        self._armed = True
        try:
            with self._by_signal(seconds) if _in_main() else self._by_thread(seconds):
                try:
                    yield
                finally:
                    self._armed = False  # one that comes now is too late to be heard
        finally:
            self._armed = False

    @contextmanager
    def _by_signal(self, seconds: float) -> Iterator[None]:
        def rang(number: int, frame: FrameType | None) -> None:
            if self._armed:
                raise TimeIsUp

        handler: Any = signal.signal(signal.SIGALRM, rang)
        theirs, again = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
        began = monotonic()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
            if theirs:  # a timer of the user's own goes on
                signal.setitimer(signal.ITIMER_REAL, max(0.001, theirs - (monotonic() - began)), again)

    @contextmanager
    def _by_thread(self, seconds: float) -> Iterator[None]:
        target, over = threading.get_ident(), threading.Event()

        def watch() -> None:
            wait = seconds
            while not over.wait(wait):
                if self._armed:
                    _raise_in(target, TimeIsUp)
                wait = AGAIN_SECONDS

        watcher = threading.Thread(target=watch, name="berth-save-time", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            _raise_in(target, None)  # one that is on its way is taken back


def _in_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    what = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
