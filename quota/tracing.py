"""Which request this work is part of: one id that goes along through tasks, threads and processes.

It arrives as the header `X-Request-Id`, lives in a context variable, leaves with every answer, call of the Hub, log
line and line of history, so that `grep ID logs/*` shows one story. `bind` adds what else every line of a piece of work
should say (lease, user, server).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextvars import ContextVar

__all__ = ["HEADER", "begin", "bind", "facts", "new_id", "outgoing", "request_id"]

HEADER = "X-Request-Id"
#: What is taken from outside as it is. Anything else could forge a line of the log, or a header.
_GOOD = re.compile(r"[A-Za-z0-9._-]{1,64}")

_FACTS: ContextVar[Mapping[str, str]] = ContextVar("berth_facts", default={})  # noqa: B039  never changed in place


def new_id() -> str:
    """A random id of 128 bits."""
    return secrets.token_hex(16)


def begin(given: str | None = None) -> str:
    """From now on this context works for one request: the id that came with it where it is well formed, else a new
    one. Forgets what was bound before."""
    chosen = given if given is not None and _GOOD.fullmatch(given) else new_id()
    _FACTS.set({"request_id": chosen})
    return chosen


def bind(**more: str) -> None:
    """Say this too with every line from here on, in this context."""
    _FACTS.set({**_FACTS.get(), **more})


def facts() -> Mapping[str, str]:
    """All that is bound here: `request_id`, perhaps `lease`, `user`, `server`."""
    return _FACTS.get()


def request_id() -> str:
    """The id of the request that is worked for; "" outside of any."""
    return _FACTS.get().get("request_id", "")


def outgoing() -> dict[str, str]:
    """The header for a call of another process; none outside of any request."""
    current = request_id()
    return {HEADER: current} if current else {}
