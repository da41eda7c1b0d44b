"""Runs servers as containers of this host's Docker Engine. `spawner.ports.Runtime`.

A container carries the labels `berth.deployment` and `berth.lease`: by them it is found again by whatever process, and
nothing without the deployment's label is ever touched. A pass of the agent over N containers is one call of the Engine,
and one more for each container that was not known, or ended, since the pass before.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker.errors

from spawner import docker_spec
from spawner.box import DEPLOYMENT_LABEL, LEASE_LABEL, Box
from spawner.docker_engine import CHANGE_S, LOOK_S, Engine, EngineSilent, telling, words
from spawner.docker_load import ContainerLoad
from spawner.docker_seen import LIVING, address, lease_of, seen
from spawner.lanes import lane
from spawner.local_runtime import plain
from spawner.ports import Load, Look, Seen, ServerSpec, Unreachable

log = logging.getLogger("berth.docker")

#: Seconds until a removal that is not over is trouble.
REMOVE_PATIENCE_S: Final = 30.0
#: A stop that is over by so much and has left a living container is asked for again.
STOP_SLACK_S: Final = 3.0
#: Lines of a server's log that are kept when its container is removed.
KEPT_LINES: Final = 100
#: What `nvidia-smi` may take in a container that has just started.
INSIDE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class _Known:
    """A container as it was inspected: what of it never changes while it is in that state."""

    container: str
    seen: Seen
    pid: int
    address: str


class DockerRuntime:
    """The servers of one deployment. Several processes (the hub, the agent) each have an object of their own; methods
    may be called from any thread. The last lines of a server's log are kept as LOGS/LEASE.log when its container is
    removed."""

    def __init__(self, engine: Engine, deployment: str, logs: Path | None = None) -> None:
        self._engine = engine
        self._logs = logs
        self._deployment = deployment
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}  # by lease
        self._stops: dict[str, float] = {}  # lease -> when the Engine was asked to force it, by `time.monotonic`
        self._load = ContainerLoad()

    # ---- start -------------------------------------------------------------------------------------------------

    @lane("start")
    def start(self, spec: ServerSpec) -> None:
        """Create, start, and hold what came out against what was asked for; a container that has other devices than
        its lease is removed at once. Raises `RuntimeError` in words for the log."""
        body = docker_spec.create_body(spec)
        assert spec.box is not None
        try:
            with telling():
                container = self._create(spec, body)
                self._engine.client(CHANGE_S).start(container)
                self._check(container, spec.lease_id, spec.box)
        except docker.errors.APIError as error:
            raise RuntimeError(f"the server could not be started: {words(error)}") from error

    def _create(self, spec: ServerSpec, body: Mapping[str, Any]) -> str:
        assert spec.box is not None
        client, name = self._engine.client(CHANGE_S), spec.box.name
        try:
            return str(client.create_container_from_config(body, name)["Id"])
        except docker.errors.ImageNotFound as error:
            raise RuntimeError(f"the image {spec.box.image} is not on this host: {words(error)}") from error
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            raise RuntimeError(self._whose(name, spec.lease_id)) from error

    def _whose(self, name: str, lease_id: str) -> str:
        """Words for a name that is taken."""
        try:
            labels = self._engine.client(LOOK_S).inspect_container(name)["Config"].get("Labels") or {}
        except docker.errors.NotFound:
            return f"the container {name} of an earlier run is just being removed"
        if labels.get(DEPLOYMENT_LABEL) != self._deployment:
            return f"a container called {name} is there that is not this Berth's; remove it: docker rm -f {name}"
        if labels.get(LEASE_LABEL) == lease_id:
            return f"lease {lease_id} was started before"
        return f"the container {name} of lease {labels.get(LEASE_LABEL)} is still there"

    def _check(self, container: str, lease_id: str, box: Box) -> None:
        """Fail closed: what has the wrong devices does not stay."""
        inspected = self._engine.client(LOOK_S).inspect_container(container)
        wrong = docker_spec.handed_over(inspected, box.devices)
        if not wrong and box.look_inside and box.devices:
            wrong = self._look_inside(container, box.devices)
        if wrong:
            self.remove(lease_id)
            raise RuntimeError(f"the devices were not handed over as they should be: {wrong}")
        with self._lock:
            self._known[lease_id] = _known(lease_id, inspected, box.network)

    def _look_inside(self, container: str, devices: tuple[str, ...]) -> str:
        client = self._engine.client(INSIDE_S)
        run = client.exec_create(container, ["nvidia-smi", "-L"])
        listing = client.exec_start(run["Id"]).decode("utf-8", "replace")
        if client.exec_inspect(run["Id"])["ExitCode"] != 0:
            return f"nvidia-smi in the container failed: {' '.join(listing.split())[:200]}"
        return docker_spec.seen_inside(listing, devices)

    def address(self, lease_id: str) -> str:
        """Where the server is reached that this process started; "" where it is not known (yet)."""
        with self._lock:
            known = self._known.get(lease_id)
        return known.address if known is not None else ""

    # ---- look --------------------------------------------------------------------------------------------------

    @lane("look")
    def look(self) -> Look:
        """Every server by lease id. An answer that is none, or an error of the Engine's own, is `Unreachable`."""
        try:
            with telling():
                return self._look()
        except EngineSilent as silent:
            return Unreachable(str(silent))
        except docker.errors.APIError as error:  # it may be ours, but it tells nothing of what runs
            return Unreachable(f"the Docker Engine refuses: {words(error)}")

    def _look(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for listed in self._list():
            lease_id = lease_of(listed)
            known = self._of(listed, lease_id) if lease_id else None
            if known is not None and not (lease_id in found and found[lease_id].running):
                found[lease_id] = known.seen
        with self._lock:
            for gone in self._known.keys() - found.keys():
                del self._known[gone]
                self._load.forget(gone)
        return found

    def _list(self, lease_id: str = "") -> list[Mapping[str, Any]]:
        labels = [f"{DEPLOYMENT_LABEL}={self._deployment}", *([f"{LEASE_LABEL}={lease_id}"] if lease_id else [])]
        listed: list[Mapping[str, Any]] = self._engine.client(LOOK_S).containers(all=True, filters={"label": labels})
        return listed

    def _of(self, listed: Mapping[str, Any], lease_id: str) -> _Known | None:
        """What is known of a listed container; inspected where it is new or its state changed. None: gone meanwhile."""
        with self._lock:
            known = self._known.get(lease_id)
        running = listed.get("State") in LIVING
        if known is not None and known.container == listed["Id"] and known.seen.running == running:
            if running or known.seen.ended_at is not None:
                return known
        try:
            inspected = self._engine.client(LOOK_S).inspect_container(listed["Id"])
        except docker.errors.NotFound:
            return None
        known = _known(lease_id, inspected, str(listed.get("HostConfig", {}).get("NetworkMode", "")))
        with self._lock:
            self._known[lease_id] = known
        return known

    # ---- stop, remove ------------------------------------------------------------------------------------------

    @lane("end")
    def stop(self, lease_id: str, grace_seconds: float) -> None:
        """Ask a server to end. The Engine itself forces it after the grace, whatever becomes of the caller. Asking
        again changes nothing, unless the grace got shorter, or is over in vain."""
        due = time.monotonic() + grace_seconds
        with self._lock:
            earlier = self._stops.get(lease_id)
            if earlier is not None and due >= earlier - 0.1 and time.monotonic() < earlier + STOP_SLACK_S:
                return
            self._stops[lease_id] = due
        asking = threading.Thread(
            target=self._stop, args=(lease_id, grace_seconds), name=f"stop-{lease_id}", daemon=True
        )
        asking.start()

    def _stop(self, lease_id: str, grace_seconds: float) -> None:
        """The Engine answers when the container has ended; should this process die meanwhile, it goes on."""
        grace = math.ceil(max(0.0, grace_seconds))
        try:
            with telling():
                for listed in self._list(lease_id):
                    if listed.get("State") in LIVING:
                        self._engine.client(CHANGE_S).stop(listed["Id"], timeout=grace)
        except docker.errors.NotFound:
            pass
        except (docker.errors.APIError, EngineSilent) as error:
            log.warning("Lease %s could not be asked to end: %s", lease_id, words(error))
            with self._lock:
                self._stops.pop(lease_id, None)  # the next call asks again

    @lane("end")
    def remove(self, lease_id: str) -> None:
        """End a server by force and remove its container; homes are volumes and stay. Blocks until it is seen to be
        gone; raises `RuntimeError` where it is not, or where the Engine does not tell."""
        deadline = time.monotonic() + REMOVE_PATIENCE_S
        trouble = ""
        while True:
            with telling():
                left = self._list(lease_id)
                if not left:
                    break
                self._keep_log(lease_id, left[0])
                for listed in left:
                    trouble = self._remove(str(listed["Id"])) or trouble
            if time.monotonic() >= deadline:
                raise RuntimeError(f"lease {lease_id}: its container is still there. {trouble}".rstrip())
            time.sleep(0.05)
        with self._lock:
            self._known.pop(lease_id, None)
            self._stops.pop(lease_id, None)
            self._load.forget(lease_id)

    def _remove(self, container: str) -> str:
        """Why it could not be removed; "" where it was, or somebody is at it."""
        try:
            self._engine.client(CHANGE_S).remove_container(container, force=True, v=True)
        except docker.errors.NotFound:
            return ""
        except docker.errors.APIError as error:
            if (error.status_code is not None and error.status_code >= 500) or error.status_code == 409:
                return words(error)  # "removal … is already in progress", or a device that is busy
            raise
        return ""

    # ---- load, log ---------------------------------------------------------------------------------------------

    def load(self, lease_id: str) -> Load:
        """By the host's own numbers of its processes: no call of the Engine. All None where that cannot be told."""
        with self._lock:
            known = self._known.get(lease_id)
            if known is None or not known.seen.running or not known.pid:
                return Load(None, None)
            return self._load.of(lease_id, known.container, known.pid)

    @lane("log")
    def log_tail(self, lease_id: str, lines: int) -> tuple[str, ...]:
        """The last lines of what the server wrote; empty where it wrote nothing or its container is gone."""
        if lines <= 0:
            return ()
        with telling():
            listed = self._list(lease_id)
            text = self._said(listed[0], lines) if listed else None
        if text is None:
            text = self._kept_log(lease_id)
        return tuple(plain(line) for line in text.splitlines()[-lines:])

    def _said(self, listed: Mapping[str, Any], lines: int) -> str | None:
        try:
            raw: bytes = self._engine.client(LOOK_S).logs(listed["Id"], tail=lines)
        except docker.errors.NotFound:
            return None
        return raw.decode("utf-8", "replace")

    def _keep_log(self, lease_id: str, listed: Mapping[str, Any]) -> None:
        """A log that cannot be kept holds up no removal."""
        if self._logs is None or (self._logs / f"{lease_id}.log").exists():
            return
        try:
            text = self._said(listed, KEPT_LINES)
            if text:
                self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._logs / f"{lease_id}.log").write_text(text, encoding="utf-8")
        except (OSError, docker.errors.DockerException, EngineSilent) as error:
            log.warning("The log of lease %s could not be kept: %s", lease_id, words(error))

    def _kept_log(self, lease_id: str) -> str:
        """What was kept of a server whose container is gone."""
        if self._logs is None:
            return ""
        try:
            return (self._logs / f"{lease_id}.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def _known(lease_id: str, inspected: Mapping[str, Any], network: str) -> _Known:
    pid = (inspected.get("State") or {}).get("Pid")
    return _Known(
        str(inspected["Id"]), seen(lease_id, inspected), pid if isinstance(pid, int) else 0, address(inspected, network)
    )
