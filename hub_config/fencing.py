"""Keeps the fence around servers' network while the agent runs, says so where it cannot, takes it down in the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hub_config.compose import Parts
from hub_config.ports import Ports
from quota.alerts import Alerts
from spawner import docker_network, fence
from spawner.docker_engine import EngineSilent
from spawner.egress import Fence
from spawner.fence import FenceFailed
from spawner.fencing import Keeper

log = logging.getLogger("berth.fence")

KEEP_SECONDS: Final = 1.0
RESOLVE_SECONDS: Final = 300.0
ALERT: Final = "docker-fence"


def resolvers(text: str) -> tuple[str, ...]:
    """The name servers of a `resolv.conf` that a container may ask: IPv4, none that only this host reaches. Pure."""
    words = [line.split() for line in text.splitlines()]
    found = [each[1] for each in words if len(each) > 1 and each[0] == "nameserver"]
    return tuple(each for each in found if ":" not in each and not each.startswith("127."))


def plan_of(made: Parts) -> Fence:
    """The fence of this deployment. Raises `EngineSilent`, `SettingsError`."""
    ports, deployment = Ports.load(made.data), made.hosting.deployment
    try:
        asked = resolvers(Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        asked = ()
    return Fence(
        deployment,
        docker_network.bridge_of(deployment),
        made.hosting.address,
        (ports.hub, ports.berth),
        resolvers=asked,
    )


def keep(made: Parts, every: float = KEEP_SECONDS) -> Callable[[], None]:
    """Keep it in a thread of its own until the returned function is called; the fence stays then, as servers may."""
    stopped = threading.Event()
    if not made.hosting.docker or not made.settings.docker.fence:
        return stopped.set
    thread = threading.Thread(target=_run, args=(made, stopped, every), name="fence", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join(5)

    return stop


def _run(made: Parts, stopped: threading.Event, every: float) -> None:
    keeper, resolved, told = None, float("-inf"), ""
    while not stopped.is_set():
        trouble = ""
        try:
            if keeper is None:
                network = docker_network.name_of(made.hosting.deployment)
                keeper = Keeper(made.hosting.engine, network, plan_of(made), made.settings.docker.registries)
            if time.monotonic() - resolved > RESOLVE_SECONDS:
                keeper.resolve()
                resolved = time.monotonic()
            keeper.keep()
        except EngineSilent as silent:
            log.debug("The fence stays as it is: %s", silent)  # the agent's look says so
        except FenceFailed as failed:
            trouble = str(failed)
        except Exception as error:
            log.exception("The fence could not be kept")
            trouble = f"{type(error).__name__}: {error}"
        if trouble != told:
            _tell(made.alerts, made.host, trouble)
            told = trouble
        stopped.wait(every)


def _tell(alerts: Alerts, host: str, trouble: str) -> None:
    key = f"{ALERT}:{host}"
    try:
        if not trouble:
            alerts.clear(key)
            return
        log.warning("The fence around servers does not stand: %s", trouble)
        alerts.put(
            key,
            ALERT,
            f"The fence around servers on {host} does not stand: they may reach more of the network than their profile "
            f"allows. {trouble}. The agent needs to be root, or have CAP_NET_ADMIN; docker.fence = false does without.",
            {"host": host},
        )
    except Exception:
        log.exception("Nobody could be told about the fence")


def take_down(made: Parts) -> None:
    """Leave no rule behind: when `berth up` ends, no server is left. Never raises."""
    if not made.hosting.docker or not made.settings.docker.fence:
        return
    try:
        fence.take_down(plan_of(made))
    except Exception as error:
        log.warning("Rules of the fence may be left in the packet filter: %s", error)
