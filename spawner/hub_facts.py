"""What the Hub knows and does not tell its spawners, found without importing it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from quota.leases import StopReason


def name_of(asker: object) -> str:
    """Who made a request: a user's name, "service:NAME", or "" where nobody did."""
    name = getattr(asker, "name", None)
    if not isinstance(name, str):
        return ""
    return f"service:{name}" if getattr(asker, "kind", "user") == "service" else name


def asked_by(task: asyncio.Task[Any] | None, owner: str) -> tuple[str, StopReason]:
    """Who asked for the stop that `task` carries out, and the reason that makes it.

    The Hub calls `Spawner.stop` without a word of that. Its request handler stops a server in a task of its own, whose
    coroutine closes over the handler; its own shut-down makes a task of `User.stop` itself. Where a later Hub does it
    otherwise, this says "user" and nobody, which is what a stop is by default.
    """
    work = task.get_coro() if task is not None else None
    if not isinstance(work, Coroutine):
        return "", StopReason.USER
    kind = getattr(work, "__qualname__", "")
    if kind == "User.stop":
        return "hub", StopReason.PLATFORM
    if not kind.endswith("stop_single_user.<locals>.stop"):
        return "", StopReason.USER
    frame = getattr(work, "cr_frame", None)
    handler = frame.f_locals.get("self") if frame is not None else None
    by = name_of(getattr(handler, "current_user", None))
    return by, StopReason.USER if by in ("", owner) else StopReason.ADMIN
