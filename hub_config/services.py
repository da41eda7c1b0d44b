"""The bodies of `berth service NAME` and `berth agent`: parts from the composition root, run until told to stop."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from hub_config import compose
from hub_config.compose import Parts
from hub_config.processes import die_with_parent, write_pid

log = logging.getLogger("berth")


def _begin(name: str, root: Path | None) -> Parts:
    """Die with the hub, log to one file a process, say who we are."""
    if root is None:
        if not os.environ.get("BERTH_DATA"):
            raise ValueError(f"berth service {name}: name the data folder with --data or BERTH_DATA")
        root = Path(os.environ["BERTH_DATA"])
    made = compose.parts(root)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if name != "agent":  # whose output `berth up` collects; a service's would land in the hub's log
        path = made.data.logs / f"{name}.log"
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=10_000_000, backupCount=3)
    logging.basicConfig(
        level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    write_pid(made.data.pids, name)
    return made


def agent(root: Path) -> int:
    """Observe, meter, release, until SIGTERM."""
    from spawner.agent import Agent, AgentPolicy

    made = _begin("agent", root)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    worker = Agent(
        book=made.book,
        rows=made.rows,
        runtime=made.runtime,
        inventory=compose.inventory_of(made.settings, made.data),
        clock=made.clock,
        host=made.host,
        boot=compose.new_boot("agent"),
        policy=AgentPolicy(mode=made.settings.gpus.mode),
    )
    worker.run(stop)
    made.store.close()
    return 0


def berth_service(root: Path | None) -> int:
    """Pages and REST."""
    from quota.web.app import serve

    die_with_parent()
    made = _begin("berth", root)
    asyncio.run(serve(compose.service_parts(made), compose.service_port()))
    made.store.close()
    return 0


def idle_culler(root: Path | None) -> int:
    """Verdicts and reclaim."""
    from idle_culler.app import run

    die_with_parent()
    made = _begin("idle-culler", root)
    asyncio.run(_until_told(run, made))
    made.store.close()
    return 0


async def _until_told(run: Callable[..., object], made: Parts) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(compose.culler_parts(made), stop)  # type: ignore[misc]


SERVICES: dict[str, Callable[[Path | None], int]] = {"berth": berth_service, "idle-culler": idle_culler}
