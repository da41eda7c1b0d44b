"""What servers run as on this host: processes of this machine, or containers of its Docker Engine.

The one place that knows both; everything else has a `Runtime`, an address that servers reach, and a catalogue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psutil

from hub_config.datafolder import DataFolder
from hub_config.settings import Settings, SettingsError
from images.catalog import LOCAL_IMAGES, Image
from quota.i18n import N_
from quota.ports import Clock
from quota.rows import Rows
from spawner.box import BoxPlan, Mount
from spawner.local_runtime import LocalRuntime
from spawner.ports import Runtime
from spawner.wiring import DockerWiring

log = logging.getLogger("berth.hosting")

#: Titles of `LOCAL_IMAGES`, whose package knows nothing of languages.
IMAGE_TITLES = (N_("This environment"),)

LOCAL_WORDS = N_(
    "This is a trial on one machine: every notebook runs as the same system user, so nothing isolates users "
    "from each other, and a share of a GPU is kept by agreement only."
)
DOCKER_WORDS = N_(
    "Every server runs in a container of its own: it sees its own home, its own GPUs and no other server. How well a "
    "share of a GPU is kept apart from its neighbours depends on how that GPU is divided."
)


@dataclass(frozen=True)
class Hosting:
    """Made lazily: who only reads the book needs no Engine."""

    data: DataFolder
    settings: Settings

    @property
    def docker(self) -> bool:
        """Whether servers are containers."""
        return self.settings.backend.kind == "docker"

    @property
    def words(self) -> str:
        """What the backend isolates, for people."""
        return DOCKER_WORDS if self.docker else LOCAL_WORDS

    @cached_property
    def images(self) -> Mapping[str, Image]:
        """The catalogue by name, in the order people see it."""
        if not self.docker:
            return LOCAL_IMAGES
        tables = self.settings.images
        return {each.name: Image(each.name, each.title or each.name, each.description) for each in tables}

    @property
    def deployment(self) -> str:
        """What marks everything of this data folder on the host."""
        return self.data.secret("deployment", 8)

    @cached_property
    def engine(self) -> Any:
        """The Engine (`spawner.docker_engine.Engine`)."""
        from spawner.docker_engine import Engine  # which the local backend need not load

        return Engine(self.settings.docker.url)

    @cached_property
    def runtime(self) -> Runtime:
        """What runs servers."""
        if not self.docker:
            return LocalRuntime(self.data.runs, self.deployment, logs=self.data.logs / "servers")
        from spawner.docker_runtime import DockerRuntime

        return DockerRuntime(self.engine, self.deployment, self.data.logs / "servers")

    @cached_property
    def address(self) -> str:
        """The address on which the Hub and service `berth` listen for servers: this host's own in the servers' network,
        which is made where it is missing. Raises `SettingsError`, one line."""
        if not self.docker:
            return "127.0.0.1"
        from spawner import docker_network

        try:
            return docker_network.ensure(self.engine, self.deployment, self.settings.docker.subnet).gateway
        except Exception as error:
            raise SettingsError(f"{self.data.settings_file}: backend.kind = 'docker': {error}") from error

    def wiring(self) -> DockerWiring | None:
        """What the spawner of this backend needs besides; None for local processes."""
        if not self.docker:
            return None
        from spawner.docker_images import Images
        from spawner.docker_network import name_of
        from spawner.docker_runtime import DockerRuntime

        assert isinstance(self.runtime, DockerRuntime)
        table = self.settings.docker
        return DockerWiring(
            self.engine,
            self.runtime,
            Images(self.engine),
            self._plan(name_of(self.deployment)),
            may_pull=table.pull == "missing",
            pull_patience_s=table.pull_timeout.total_seconds(),
        )

    def retire_home(self, rows: Rows, clock: Clock) -> Callable[[str], None]:
        """Told of a user who is deleted: whoever gets that name later finds an empty home, and the old one stays."""
        from spawner.docker_homes import retire

        def deleted(user: str) -> None:
            if self.settings.docker.homes == "volume":
                old = retire(rows, self.deployment, user, clock.now(), by="hub")
                log.info("The home of %s stays as volume %s", user, old.volume, extra={"event": "home-retired"})

        return deleted

    def _plan(self, network: str) -> BoxPlan:
        table = self.settings.docker
        return BoxPlan(
            deployment=self.deployment,
            network=network,
            references={each.name: each.reference for each in self.settings.images},
            host_memory_bytes=psutil.virtual_memory().total,
            user=table.user,
            home=table.home,
            host_homes="" if table.homes == "volume" else table.homes,
            pids=table.pids,
            shm=table.shm,
            log_mib=table.log_mib,
            data=tuple(Mount(each.target, each.source, "bind", not each.writable) for each in self.settings.data),
            look_inside=True,
        )
