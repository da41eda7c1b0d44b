"""How long transactions of the book take, told to whoever wants to know. Nothing of a transaction is changed by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from quota.store import Store

#: (what: "read" or "write", outcome: "committed" or "rolled-back", seconds)
Observe = Callable[[str, str, float], None]

_BEGAN = "berth_began"


def time_transactions(store: Store, observe: Observe) -> None:
    """Call `observe` at the end of every transaction from now on, from the thread that ran it. The wait for SQLite's
    write lock counts: that is where time goes under load."""

    def began(connection: sa.Connection) -> None:
        connection.info[_BEGAN] = time.monotonic()

    def ended(outcome: str) -> Callable[[Any], None]:
        def tell(connection: sa.Connection) -> None:
            since = connection.info.pop(_BEGAN, None)
            if since is not None:
                what = "write" if connection.get_execution_options().get("berth_write") else "read"
                observe(what, outcome, time.monotonic() - since)

        return tell

    sa.event.listen(store.engine, "begin", began, insert=True)
    sa.event.listen(store.engine, "commit", ended("committed"))
    sa.event.listen(store.engine, "rollback", ended("rolled-back"))
