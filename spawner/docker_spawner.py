"""The Hub's spawner for servers in containers: Berth's protocol of starts and stops on dockerspawner's settings.

Of `DockerSpawner` the site's settings count (`volumes`, `read_only_volumes`, `mounts`, `extra_host_config`,
`extra_create_kwargs`); how a server is started, polled and stopped is `GpuSpawner`'s, since dockerspawner takes an
error of the Engine for "gone" and makes every call in one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dockerspawner import DockerSpawner
from jupyterhub.spawner import Spawner
from traitlets import default

from quota.leases import Lease
from spawner import docker_homes
from spawner.box import RUNTIME_FOLDER, SERVER_PORT, Mount, box_of
from spawner.container import Place, server_spec
from spawner.docker_images import brought
from spawner.docker_spec import ENGINE_WORDS
from spawner.gpu_spawner import GpuSpawner
from spawner.ports import ServerSpec
from spawner.start import Start
from spawner.wiring import DockerWiring

#: What dockerspawner's `extra_create_kwargs` may name, in the Engine's words. Others are Berth's own to set.
_CREATE = {"hostname": "Hostname", "domainname": "Domainname", "stop_signal": "StopSignal", "entrypoint": "Entrypoint"}


class DockerGpuSpawner(GpuSpawner, DockerSpawner):
    """Servers as hardened containers of the host's Docker Engine."""

    @property
    def docker_wiring(self) -> DockerWiring:
        """What the composition root hands to this backend. Raises `RuntimeError` where it set none."""
        found = self.wiring.docker
        if found is None:
            raise RuntimeError('backend.kind is not "docker": Berth\'s own JupyterHub configuration sets the spawner')
        return found

    @default("cmd")
    def _default_cmd(self) -> list[str]:
        return ["python3", "-m", "berth_lab.launch"]

    @default("env_keep")
    def _default_env_keep(self) -> list[str]:
        return []

    @default("ip")
    def _default_ip(self) -> str:
        return "0.0.0.0"

    def get_env(self) -> dict[str, str]:
        env: dict[str, str] = Spawner.get_env(self)  # dockerspawner adds its own image's name
        return env

    def listening(self) -> tuple[str, int]:
        """On every address of its container; which that is shows when it runs."""
        return "", SERVER_PORT

    def reached_at(self, lease_id: str, listening: str) -> str:
        return self.docker_wiring.runtime.address(lease_id)

    async def prepare(self, start: Start) -> None:
        """The image first, before anything is held."""
        wiring, docker = self.wiring, self.docker_wiring
        await brought(
            docker.images,
            docker.plan.references[start.image],
            wiring.images.get(start.image, start.image),
            self._told,
            start.check,
            may_pull=docker.may_pull,
            patience_s=docker.pull_patience_s,
        )

    def make_spec(self, lease: Lease, env: Mapping[str, str]) -> ServerSpec:
        """The server of a lease in a container of its own. Raises `EngineSilent`, `RuntimeError`, `ValueError`."""
        wiring, docker = self.wiring, self.docker_wiring
        plan = docker.plan
        user = lease.holder.user
        home = docker_homes.home_mount(wiring.rows, plan.deployment, user, plan.home, plan.host_homes)
        docker_homes.ensure_volume(docker.engine, plan.deployment, user, home)
        devices = wiring.rows.devices() if lease.count else []
        place = Place(plan.home, service_url=wiring.service_url, runtime=RUNTIME_FOLDER)
        profile = next((each for each in wiring.profiles if each.name == lease.profile), None)
        spec = server_spec(lease, self._argv(), {**env, **wiring.server_env}, devices, place)
        visible = spec.env["NVIDIA_VISIBLE_DEVICES"]
        box = box_of(
            plan,
            lease,
            profile,
            home,
            () if visible == "void" else tuple(visible.split(",")),
            mounts=self._site_mounts(),
            host_config=_engine_words(self.extra_host_config),
            config={_CREATE[key]: value for key, value in self.extra_create_kwargs.items() if key in _CREATE},
        )
        if lease.simulated:
            spec.env["NVIDIA_VISIBLE_DEVICES"] = "void"  # type: ignore[index]
        return ServerSpec(spec.lease_id, spec.argv, spec.env, spec.cwd, box)

    def _argv(self) -> list[str]:
        return [*self.cmd, *self.get_args()]

    def _site_mounts(self) -> tuple[Mount, ...]:
        """Volumes and folders that the site's own configuration adds to every server."""
        found = []
        for source, bind in self.volume_binds.items():
            kind = "bind" if source.startswith("/") else "volume"
            found.append(Mount(bind["bind"], source, kind, read_only="ro" in bind["mode"].split(",")))  # type: ignore[arg-type]
        for mount in self.mount_binds:
            found.append(
                Mount(mount["Target"], mount["Source"] or "", mount["Type"], read_only=bool(mount.get("ReadOnly")))
            )
        return tuple(found)

    def get_state(self) -> dict[str, Any]:
        """The lease's id and nothing else: which container that is, its labels tell."""
        state = super().get_state()
        return {key: value for key, value in state.items() if key not in ("object_id", "object_name")}


def _engine_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """`extra_host_config` in the Engine's own words: dockerspawner takes those of docker-py (`cap_add`)."""
    return {ENGINE_WORDS.get(name, name): value for name, value in given.items()}
