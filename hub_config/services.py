"""The bodies of `berth service NAME` and `berth agent`: parts from the composition root, run until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from hub_config import compose, deliver, logs, schedule
from hub_config.compose import Parts
from hub_config.processes import die_with_parent, write_pid
from quota import catalogues
from quota.answers import Answers
from quota.dispatch import keep_dispatching
from quota.errors import BerthError
from quota.nightly import Nightly
from quota.watch import Watch

log = logging.getLogger("berth.services")

MAX_BODY_BYTES = 1_000_000  # far above any form or signal; the API has its own, smaller limit
#: After a hub's death its last start is waited for so long. A local server's run folder is there before anything is
#: run, so that little can be on its way unseen.
START_GRACE_SECONDS = 5
#: The Engine may carry out what a dead hub had asked of it.
DOCKER_START_GRACE_SECONDS = 20
TIDY_SECONDS = 3600  # a look at the clock; the work is done once a day
WATCH_SECONDS = 20
AUDIT_LOOK_SECONDS = 30
OBSERVE_SECONDS = 3  # a commit each; of a server that left no record of its end, so much may go uncharged
METER_SECONDS = 60  # a posting each; the hold reaches 15 minutes ahead and pages compute what runs since


def _begin(name: str, root: Path | None) -> Parts:
    """Die with the hub, log to one file a process, say who we are."""
    if root is None:
        if not os.environ.get("BERTH_DATA"):
            raise ValueError(f"berth service {name}: name the data folder with --data or BERTH_DATA")
        root = Path(os.environ["BERTH_DATA"])
    made = compose.parts(root)
    logs.set_up(name, made.data.logs, made.settings)
    log.info("%s begins", name, extra={"event": "process-begins", "pid": os.getpid()})
    write_pid(made.data.pids, name)
    catalogues.load(made.settings.site.language)
    made.store.check()  # they do not migrate: who does is `berth up`, or somebody with `berth migrate`
    return made


def agent(root: Path) -> int:
    """Observe, meter, release, until SIGTERM."""
    from spawner.agent import Agent, AgentPolicy

    made = _begin("agent", root)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    inventory = compose.inventory_of(made.settings, made.data)
    notifier = compose.notifier_of(made)
    worker = Agent(
        book=made.book,
        rows=made.rows,
        runtime=made.runtime,
        inventory=inventory,
        clock=made.clock,
        host=made.host,
        boot=compose.new_boot("agent"),
        policy=AgentPolicy(
            mode=made.settings.gpus.mode,
            rules=made.settings.gpus.rules,
            over_share=made.settings.gpus.share_policy,
            meter=METER_SECONDS,
            observe=OBSERVE_SECONDS,
            start_grace=DOCKER_START_GRACE_SECONDS if made.hosting.docker else START_GRACE_SECONDS,
            quota_grace=made.way_out.graces.automatic.total_seconds(),
        ),
        alerts=made.alerts,
        notifier=notifier,
    )
    stop_fence = keep_fence(made)
    worker.run(stop)
    stop_fence()
    notifier.close()
    compose.close_inventory(inventory)
    made.store.close()
    return 0


def keep_fence(made: Parts) -> Callable[[], None]:
    """What servers may reach is kept in step with them, until the returned function is called."""
    if not made.hosting.docker:
        return lambda: None
    from hub_config import fencing  # loads the Engine's client

    return fencing.keep(made)


def _die_with_hub() -> None:
    """From now on with the hub; at once if it ended while this process was still loading."""
    die_with_parent()
    hub = os.environ.get("BERTH_HUB_PID")
    if hub and os.getppid() != int(hub):
        sys.exit("The hub that started this service has ended.")


def berth_service(root: Path | None) -> int:
    """Pages and REST."""
    _die_with_hub()
    made = _begin("berth", root)
    asyncio.run(_serve(made))
    made.store.close()
    return 0


async def _serve(made: Parts) -> None:
    from quota.web.app import make_app
    from quota.web.server import Server

    address = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    worker = deliver.worker_of(made)
    parts = replace(compose.service_parts(made), sent=worker.counts)
    server = Server(make_app(parts), max_body_size=MAX_BODY_BYTES)
    server.listen(address.port or 80, address.hostname or "127.0.0.1")
    stop_watching = keep_watching(compose.watch(made))
    stop_delivering = worker.start()
    stop_auditing = keep_auditing(compose.nightly(made))
    tidying = asyncio.create_task(keep_tidy(parts.answers))
    dispatching = asyncio.create_task(keep_dispatching(schedule.dispatcher_of(made, parts.hub)))
    await _told_event().wait()
    server.stop()
    tidying.cancel()
    dispatching.cancel()
    await asyncio.to_thread(stop_watching)
    await asyncio.to_thread(stop_delivering)
    await asyncio.to_thread(stop_auditing)


async def keep_tidy(answers: Answers, every: float = TIDY_SECONDS) -> None:
    """Once a day, forget the answers to requests with a key that are older than a week; until cancelled."""
    while True:
        try:
            await asyncio.to_thread(answers.tidy)
        except BerthError:
            log.exception("Old answers could not be forgotten", extra={"event": "tidy-failed"})
        await asyncio.sleep(every)


def keep_watching(watch: Watch, every: float = WATCH_SECONDS) -> Callable[[], None]:
    """Look every so many seconds, in a thread of its own, until the returned function is called. It waits a moment
    for a look that is under way; a book that hangs holds up nobody's end."""
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            try:
                watch.look()
            except Exception:
                log.exception("The watch could not look", extra={"event": "watch-failed"})
            stopped.wait(every)
        watch.close()

    thread = threading.Thread(target=run, name="watch", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join(2)

    return stop


class _Ended(Exception):
    """The service ends while an audit is under way; the next start makes it."""


def keep_auditing(nightly: Nightly | None, every: float = AUDIT_LOOK_SECONDS) -> Callable[[], None]:
    """Look every so many seconds whether the night's audit is due, in a thread of its own, until the returned function
    is called; an audit under way is given up then, between two checks. None is no audit."""
    stopped = threading.Event()
    if nightly is None:
        return stopped.set

    def go_on(*_: object) -> None:
        if stopped.is_set():
            raise _Ended

    def run() -> None:
        while not stopped.is_set():
            try:
                nightly.look(go_on)
            except _Ended:
                return
            except Exception:
                log.exception("The nightly audit could not be made", extra={"event": "audit-failed"})
            stopped.wait(every)

    thread = threading.Thread(target=run, name="audit", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join(2)

    return stop


def idle_culler(root: Path | None) -> int:
    """Verdicts and reclaim."""
    _die_with_hub()
    made = _begin("idle-culler", root)
    asyncio.run(_cull(made))
    made.store.close()
    return 0


async def _cull(made: Parts) -> None:
    from idle_culler.app import run

    notifier = compose.notifier_of(made)
    await run(compose.culler_parts(made, notifier), _told_event())
    await asyncio.to_thread(notifier.close)


def _told_event() -> asyncio.Event:
    """Set when this process is told to end."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    return told


SERVICES: dict[str, Callable[[Path | None], int]] = {"berth": berth_service, "idle-culler": idle_culler}
