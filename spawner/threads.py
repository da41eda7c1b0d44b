"""Blocking calls of the Hub's process: each in a thread, so that its loop never waits for a disk or a runtime."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from spawner.lanes import LANES, lane_of
from spawner.ports import Look, Runtime, Unreachable

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("berth.spawner")

#: One slow call must not hold up another user's: the stock Docker spawner has a single thread for everybody.
_POOLS: Final = {
    "": ThreadPoolExecutor(max_workers=16, thread_name_prefix="berth-spawner"),
    **{name: ThreadPoolExecutor(number, thread_name_prefix=f"berth-{name}") for name, number in LANES.items()},
}


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a blocking call, made in the caller's context and in the function's lane. Cancelling the caller
    does not stop a call that has begun."""
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_POOLS[lane_of(function)], call)


_BEGUN: set[asyncio.Task[Any]] = set()


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that runs to its end whoever forgets it; the loop alone would hold it weakly."""
    task = asyncio.ensure_future(work)
    _BEGUN.add(task)
    task.add_done_callback(_BEGUN.discard)
    return task


class Looks:
    """Looks at one runtime, shared by everybody who waits for one at the same time: polling 200 servers is one look."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._began = float("-inf")
        self._look: Look = Unreachable("not looked yet")
        self._under_way: asyncio.Task[None] | None = None

    async def newer_than(self, moment: float) -> Look:
        """A look that began after `moment` (of `time.monotonic`). An error of the runtime is `Unreachable`."""
        while self._began <= moment:
            if self._under_way is None:
                self._under_way = asyncio.ensure_future(self._once())
            await asyncio.shield(self._under_way)
        return self._look

    async def _once(self) -> None:
        began = time.monotonic()
        try:
            look = await in_thread(self._runtime.look)
        except Exception as error:
            log.exception("The runtime could not be looked at")
            look = Unreachable(f"{type(error).__name__}: {error}")
        finally:
            self._under_way = None
        self._look, self._began = look, began


_LOOKS: dict[int, tuple[Runtime, Looks]] = {}


def looks_at(runtime: Runtime) -> Looks:
    """The shared looks of this runtime."""
    return _LOOKS.setdefault(id(runtime), (runtime, Looks(runtime)))[1]
