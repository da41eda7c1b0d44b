"""What a server's container is, besides its program: one frozen value, made by a pure function from lease and settings.

A lease becomes a `Box` here; `docker_spec` puts it into the Engine's words. Tests compare whole boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from quota.leases import Lease
from spawner.names import container_name
from spawner.profiles import Profile

#: Labels by which containers, volumes and networks are known. Nothing without the deployment's own is ever touched.
DEPLOYMENT_LABEL: Final = "berth.deployment"
LEASE_LABEL: Final = "berth.lease"
USER_LABEL: Final = "berth.user"
SERVER_LABEL: Final = "berth.server"
#: What the server's profile lets it reach; without it: the Hub and nothing else.
EGRESS_LABEL: Final = "berth.egress"

MIB: Final = 1 << 20
#: The port that a server listens on in its container.
SERVER_PORT: Final = 8888
#: Where a server keeps what must be writable though its home is full: connection files of kernels, its cookie secret.
RUNTIME_FOLDER: Final = "/run/berth"

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mount:
    """Something seen at `target` in a container: a named volume, a folder of the host, or memory (`tmpfs`, of
    `size_bytes` at most)."""

    target: str
    source: str = ""
    kind: Literal["volume", "bind", "tmpfs"] = "volume"
    read_only: bool = False
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """One container. `devices` are UUIDs of GPUs, empty for none; `cores` and `memory_bytes` None for no limit;
    `look_inside` asks that the devices are looked at from inside after the start. `host_config` and `config` are the
    site's own additions in the Engine's words; what Berth sets goes before them."""

    name: str
    image: str
    labels: Mapping[str, str]
    network: str
    user: str
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    memory_bytes: int | None = None
    cores: float | None = None
    pids: int = 4096
    shm_bytes: int = 64 * MIB
    log_mib: int = 10
    look_inside: bool = False
    host_config: Mapping[str, object] = field(default_factory=lambda: NOTHING)
    config: Mapping[str, object] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """What all containers of a deployment have in common.

    `references` maps the catalogue's names to what the Engine calls the images. `home` is where the user's home is
    seen; `host_homes` is a template of a folder of the host with `{user}` in it, "" keeps homes in volumes. `shm` is
    the part of a server's memory that /dev/shm may take; `host_memory_bytes` is what that is a part of where a profile
    sets no limit.
    """

    deployment: str
    network: str
    references: Mapping[str, str]
    host_memory_bytes: int
    user: str = "1000:100"
    home: str = "/home/jovyan"
    host_homes: str = ""
    pids: int = 4096
    shm: float = 0.5
    log_mib: int = 10
    data: tuple[Mount, ...] = ()
    look_inside: bool = False


def box_of(
    plan: BoxPlan,
    lease: Lease,
    profile: Profile | None,
    home: Mount,
    devices: tuple[str, ...],
    *,
    mounts: tuple[Mount, ...] = (),
    host_config: Mapping[str, object] = NOTHING,
    config: Mapping[str, object] = NOTHING,
) -> Box:
    """The container of a lease. `devices` are the UUIDs by which the driver knows its devices now; simulated ones are
    no devices of the host. Raises `KeyError` for an image that the plan does not know."""
    memory = profile.memory_mib * MIB if profile is not None and profile.memory_mib is not None else None
    limited = min(memory or plan.host_memory_bytes, plan.host_memory_bytes)
    user, _, group = plan.user.partition(":")
    runtime = Mount(RUNTIME_FOLDER, kind="tmpfs", size_bytes=64 * MIB)
    assert user.isdigit() and (not group or group.isdigit()), plan.user
    return Box(
        name=container_name(plan.deployment, lease.holder.user, lease.holder.server),
        image=plan.references[lease.image],
        labels={
            DEPLOYMENT_LABEL: plan.deployment,
            LEASE_LABEL: lease.id,
            USER_LABEL: lease.holder.user,
            SERVER_LABEL: lease.holder.server,
            EGRESS_LABEL: profile.egress if profile is not None else "none",
        },
        network=plan.network,
        user=plan.user,
        mounts=(home, runtime, *plan.data, *mounts),
        devices=() if lease.simulated else devices,
        memory_bytes=memory,
        cores=profile.cpu if profile is not None else None,
        pids=plan.pids,
        shm_bytes=max(64 * MIB, int(limited * plan.shm)),
        log_mib=plan.log_mib,
        look_inside=plan.look_inside and not lease.simulated,
        host_config=host_config,
        config=config,
    )
