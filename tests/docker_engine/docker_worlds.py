"""The world of the runtimes' contract in which servers are containers of a real Engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from spawner import docker_network
from spawner.box import DEPLOYMENT_LABEL, LEASE_LABEL, Box, Mount
from spawner.docker_engine import Engine
from spawner.docker_runtime import DockerRuntime
from spawner.ports import ServerSpec
from tests.contract.runtime_worlds import SERVER, until
from tests.harness import engine as engines

USER = "1000:100"


class DockerWorld:
    """One deployment on the Engine of the tests. Homes are folders of the host, so that both sides see the files."""

    def __init__(self, engine: engines.Engine, folder: Path, image: str, deployment: str = "0123456789abcdef") -> None:
        self.engine, self.folder, self.image, self.deployment = engine, folder, image, deployment
        self.api = Engine(engine.url)
        self.runtime = self.again()
        self.network = docker_network.ensure(self.api, deployment)
        self.lost = False

    def again(self) -> DockerRuntime:
        """Another object on the same deployment, as another process has it."""
        return DockerRuntime(Engine(self.engine.url), self.deployment, self.folder / "logs")

    def home(self, lease_id: str) -> Path:
        home = self.folder / "homes" / lease_id
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o777)
        return home

    def box(self, lease_id: str, **more: Any) -> Box:
        labels = {DEPLOYMENT_LABEL: self.deployment, LEASE_LABEL: lease_id}
        mounts = (Mount("/srv/home", str(self.home(lease_id)), "bind"), *more.pop("mounts", ()))
        name = f"berth--{self.deployment}--{lease_id}"
        return Box(name, self.image, labels, self.network.name, USER, mounts, **more)

    def spec(self, lease_id: str, *arguments: str, code: str = SERVER, **more: Any) -> ServerSpec:
        env = {"PYTHONUNBUFFERED": "1", "NVIDIA_VISIBLE_DEVICES": ",".join(more.get("devices", ())) or "void"}
        env |= more.pop("env", {})
        argv = ("python3", "-I", "-S", "-c", code, *arguments)
        return ServerSpec(lease_id, argv, env, "/srv/home", self.box(lease_id, **more))

    def start(self, lease_id: str, *, deaf: bool = False, code: str = SERVER, **more: Any) -> None:
        self.runtime.start(self.spec(lease_id, *(["deaf"] if deaf else []), code=code, **more))
        until((self.home(lease_id) / "ready").exists, "the server is up")

    def ask_start(self, lease_id: str) -> None:
        self.runtime.start(self.spec(lease_id))

    def finish(self, lease_id: str, code: int) -> None:
        written = self.home(lease_id) / "finish"
        written.write_text(str(code))
        os.chmod(written, 0o644)
        written.rename(self.home(lease_id) / "finish.done")

    def inspected(self, lease_id: str) -> dict[str, Any]:
        """The container of a lease as the Engine has it."""
        found: dict[str, Any] = self.api.client(60).inspect_container(f"berth--{self.deployment}--{lease_id}")
        return found

    def kill(self, lease_id: str) -> None:
        self.api.client(60).kill(f"berth--{self.deployment}--{lease_id}")

    def inside(self, lease_id: str, script: str) -> str:
        """What a shell in the container says."""
        client = self.api.client(60)
        run = client.exec_create(f"berth--{self.deployment}--{lease_id}", ["sh", "-c", script])
        said: bytes = client.exec_start(run["Id"])
        return said.decode()

    def lose(self) -> None:
        self.lost = True
        self.engine.pause()

    def until(self, predicate: Any, what: str = "") -> None:
        until(predicate, what)

    def clean(self) -> None:
        if self.lost:
            self.engine.resume()
            self.lost = False
        self.engine.clear()
