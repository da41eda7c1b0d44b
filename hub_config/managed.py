"""The Hub's managed services, looked at every second instead of every half minute."""

from __future__ import annotations

import time
from typing import Any

from jupyterhub.services import service as hub_service
from traitlets import Float, Integer

_Spawner: type[Any] = hub_service._ServiceSpawner


class QuickServiceSpawner(_Spawner):
    """Starts a service that has ended again within a second or two; one that ends at once, every few seconds.

    JupyterHub 6.1 makes this spawner without its configuration, so that no setting reaches `poll_interval`.
    """

    poll_interval = Integer(1)
    poll_jitter = Float(0.0)
    #: Not more often than this is one service started again, in seconds: a start costs a second of processor time.
    rest_seconds = 3.0
    _started = 0.0

    def start(self) -> None:
        self._started = time.monotonic()
        super().start()

    async def poll_and_notify(self) -> None:
        if time.monotonic() - self._started >= self.rest_seconds:
            await super().poll_and_notify()


def install() -> None:
    """Have the Hub of this process start its services by `QuickServiceSpawner`."""
    hub_service._ServiceSpawner = QuickServiceSpawner
