"""Hands notices to the site's own function: from a queue with an end, in a thread, so that nobody waits or fails.

A notice is delivered at most once: what was in the queue when the process ended is lost, and nothing is tried again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from hub_config.site_calls import AlertBoard, SiteFailed, SiteFunction
from quota.errors import Refused
from quota.notices import Notice
from quota.told import retold

log = logging.getLogger("berth.notices")

#: Notices that wait for the site's function; a mail server that is away must not fill the memory.
MOST_WAITING: Final = 256
DELIVERY_SECONDS: Final = 30.0
#: At the process's end, what still waits gets so long.
LAST_SECONDS: Final = 5.0

_OUTCOMES: Final = ("notices_delivered", "notices_failed", "notices_dropped")


class SiteNotifier:
    """A `quota.ports.Notifier` before one function of the site."""

    def __init__(
        self, own: Callable[..., Any], alerts: AlertBoard | None = None, seconds: float = DELIVERY_SECONDS
    ) -> None:
        self._site = SiteFunction("notify", own, seconds, alerts)
        self._waiting: queue.Queue[Notice | None] = queue.Queue(MOST_WAITING)
        self._counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def deliver(self, notice: Notice) -> None:
        """Put it in line. Where the line is full it is dropped, logged and counted."""
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            self._count("notices_dropped", notice, "too many notices wait")

    def counts(self) -> Mapping[str, int]:
        """What became of notices since the process began."""
        return {name: self._counts[name] for name in _OUTCOMES}

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Give what waits a last chance, bounded; for the end of the process."""
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            try:
                self._site.call(lambda answer: answer, replace(notice, words=retold(notice.words)))
            except (SiteFailed, Refused) as error:
                self._count("notices_failed", notice, str(error))
            else:
                self._counts["notices_delivered"] += 1

    def _count(self, outcome: str, notice: Notice, why: str) -> None:
        self._counts[outcome] += 1
        told = {"event": "notice-lost", "user": notice.user, "notice": notice.kind.value}
        log.warning("The notice %s to %s was not delivered: %s", notice.kind.value, notice.user, why, extra=told)
