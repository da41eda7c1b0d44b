"""Loaded into the hub and the agent of a deployment under test: there each dies, or waits, at a named step.

The data folder says which: `kill-at` holds the name of one step, where the process ends itself by SIGKILL as kill -9
would; at the step named in `wait-at` it stands still until that file is gone. Each works once.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _taken(data: Path, what: str, step: str) -> bool:
    """Whether this process is the one that is meant: only one can rename the file."""
    file = data / what
    try:
        if file.read_text(encoding="utf-8") != step:
            return False
        file.rename(data / f"{what}.taken")
    except FileNotFoundError:
        return False
    return True


def _at(step: str) -> None:
    data = Path(os.environ["BERTH_DATA"])
    if _taken(data, "kill-at", step):
        os.kill(os.getpid(), signal.SIGKILL)
    if _taken(data, "wait-at", step):
        while (data / "wait-at.taken").exists():
            time.sleep(0.02)


def _stepped(role: str, owner: type, name: str) -> Callable[..., Any]:
    whole = getattr(owner, name)

    @functools.wraps(whole)
    def call(*args: Any, **kwargs: Any) -> Any:
        _at(f"{role} before {name}")
        answer = whole(*args, **kwargs)
        _at(f"{role} after {name}")
        return answer

    return call


def install(role: str) -> None:
    from quota.book import Book
    from spawner.local_runtime import LocalRuntime

    for owner, names in (
        (Book, ("reserve", "mark_starting", "mark_running", "request_stop", "acknowledge")),
        (Book, ("meter", "close", "release", "settle")),
        (LocalRuntime, ("start", "stop", "remove")),
    ):
        for name in names:
            setattr(owner, name, _stepped(role, owner, name))
