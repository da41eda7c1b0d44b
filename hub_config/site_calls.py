"""Calls of the site's own functions: bounded in time, and counted, logged and made an alert when they fail.

A thread cannot be ended from outside, so a call that hangs is left behind in its thread and nobody waits for it any
longer; while as many as `most_hanging` are left behind the function is not called at all, and fails at once.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from quota.errors import Refused
from spawner import metrics

log = logging.getLogger("berth.extensions")

T = TypeVar("T")

MOST_HANGING: Final = 4
#: So long without a failure, and its alert is over: a rule that fails for some people works for others meanwhile.
QUIET_SECONDS: Final = 600.0


class SiteFailed(Exception):
    """A function of the site failed, hung, or gave what it may not; the text says which, for administrators."""


class AlertBoard(Protocol):
    """Where trouble is put up for administrators (`quota.alerts.Alerts`). Calls block."""

    def put(self, key: str, kind: str, words: str) -> bool: ...

    def clear(self, key: str) -> bool: ...


class SiteFunction:
    """One function that `[extensions]` names under `key`, called in a thread for at most `seconds`."""

    def __init__(
        self,
        key: str,
        function: Callable[..., Any],
        seconds: float,
        alerts: AlertBoard | None = None,
        most_hanging: int = MOST_HANGING,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self.key = key
        self._function = function
        self._seconds = seconds
        self._alerts = alerts
        self._hanging = threading.Semaphore(most_hanging)
        self._quiet_seconds = quiet_seconds
        self._told = True  # an alert of an earlier process may still stand; the first call that works ends it
        self._failed_at = float("-inf")
        self._posts: SimpleQueue[Callable[[AlertBoard], object]] = SimpleQueue()
        self._posting = False
        self._lock = threading.Lock()
        metrics.HOOK_ERRORS.labels(self.name)  # not failed yet is a known zero

    @property
    def name(self) -> str:
        return f"extensions.{self.key}"

    def call(self, check: Callable[[Any], T], *args: object) -> T:
        """What `check` makes of the function's answer; it raises where that may not be. Raises `SiteFailed`, and
        `Refused` where the function does."""
        try:
            made: T = self._answer(check, args)
        except Refused:
            self._well()
            raise
        except SiteFailed as error:
            self._trouble(str(error))
            raise
        except (Exception, SystemExit) as error:
            self._trouble(why := _words(error), error)
            raise SiteFailed(why) from error
        self._well()
        return made

    def _answer(self, check: Callable[[Any], T], args: tuple[object, ...]) -> Any:
        if not self._hanging.acquire(blocking=False):
            raise SiteFailed("too many earlier calls of it have not come back; it is not called again until they do")
        answers: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                answer: tuple[bool, Any] = (True, check(context.run(self._function, *args)))
            except BaseException as error:
                answer = (False, error)
            finally:
                self._hanging.release()
            answers.put(answer)

        threading.Thread(target=run, name=f"site-{self.key}", daemon=True).start()
        try:
            well, answer = answers.get(timeout=self._seconds)
        except Empty:
            raise SiteFailed(f"it did not come back within {self._seconds:g} s") from None
        if well:
            return answer
        raise answer

    # ---- what others hear of it ----------------------------------------------------------------------------------

    def _trouble(self, why: str, error: BaseException | None = None) -> None:
        metrics.HOOK_ERRORS.labels(self.name).inc()
        log.error("The site's %s failed: %s", self.key, why, exc_info=error, extra={"event": "site-rule-failed"})
        again, self._told, self._failed_at = self._standing, True, time.monotonic()
        if not again:
            self._post(lambda board: board.put(self._alert, "site-rule", f"{self.name} of berth.toml failed: {why}"))

    def _well(self) -> None:
        if self._told and time.monotonic() - self._failed_at >= self._quiet_seconds:
            self._told = False
            self._post(lambda board: board.clear(self._alert))

    @property
    def _standing(self) -> bool:
        """Whether its alert was put up by this process and not taken off."""
        return self._told and self._failed_at > float("-inf")

    @property
    def _alert(self) -> str:
        return f"site-rule:{self.key}"

    def _post(self, write: Callable[[AlertBoard], object]) -> None:
        """One after another in a thread of their own: whoever calls may be inside a transaction of the same book."""
        if self._alerts is None:
            return
        self._posts.put(write)
        with self._lock:
            if not self._posting:
                self._posting = True
                threading.Thread(target=self._write_all, args=(self._alerts,), name=self._alert, daemon=True).start()

    def _write_all(self, board: AlertBoard) -> None:
        while True:
            try:
                self._posts.get()(board)
            except Exception:
                log.exception("The alert of %s could not be written", self.name)


def _words(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}"[:300] if said else type(error).__name__
