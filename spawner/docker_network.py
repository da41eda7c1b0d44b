"""The network of one deployment: servers reach the Hub and the world through it, and never each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import docker.errors

from spawner.box import DEPLOYMENT_LABEL
from spawner.docker_engine import CHANGE_S, LOOK_S, Engine, telling

#: Linux takes 15 signs for the name of an interface.
_BRIDGE_SIGNS: Final = 15


@dataclass(frozen=True, slots=True)
class Network:
    """`gateway` is the host's own address in it, on which the Hub and service `berth` listen for servers; `bridge` is
    the host's interface."""

    name: str
    gateway: str
    subnet: str
    bridge: str


def name_of(deployment: str) -> str:
    """What the Engine calls it."""
    return f"berth-{deployment}"


def bridge_of(deployment: str) -> str:
    """The interface of the host."""
    return f"berth-{deployment}"[:_BRIDGE_SIGNS]


def ensure(engine: Engine, deployment: str, subnet: str = "") -> Network:
    """The network, made where it is missing; `subnet` (such as "10.90.0.0/16") is the Engine's choice where it is "".

    Raises `EngineSilent`; `RuntimeError` in words for an administrator where a network of this name is somebody
    else's, or lies elsewhere than the settings say.
    """
    with telling():
        found = _find(engine, deployment)
        if found is None:
            _create(engine, deployment, subnet)
            found = _find(engine, deployment)
    if found is None:
        raise RuntimeError(f"the network {name_of(deployment)} was made and is not there")
    config = (found.get("IPAM", {}).get("Config") or [{}])[0]
    network = Network(name_of(deployment), config.get("Gateway", ""), config.get("Subnet", ""), bridge_of(deployment))
    if found.get("Labels", {}).get(DEPLOYMENT_LABEL) != deployment:
        raise RuntimeError(
            f"the network {network.name} was not made by this Berth; remove it: docker network rm {network.name}"
        )
    if subnet and network.subnet != subnet:
        raise RuntimeError(
            f"the network {network.name} lies in {network.subnet}, the settings want {subnet} (docker.subnet): stop "
            f"all servers, then: docker network rm {network.name}"
        )
    if not network.gateway:
        raise RuntimeError(f"the network {network.name} has no gateway; remove it: docker network rm {network.name}")
    return network


def _find(engine: Engine, deployment: str) -> dict[str, Any] | None:
    client, name = engine.client(LOOK_S), name_of(deployment)
    try:
        found: dict[str, Any] = client.inspect_network(name)
    except docker.errors.NotFound:
        return None
    return found


def _create(engine: Engine, deployment: str, subnet: str) -> None:
    pools = [docker.types.IPAMPool(subnet=subnet)] if subnet else []
    try:
        engine.client(CHANGE_S).create_network(
            name_of(deployment),
            driver="bridge",
            options={
                "com.docker.network.bridge.name": bridge_of(deployment),
                "com.docker.network.bridge.enable_icc": "false",
            },
            ipam=docker.types.IPAMConfig(pool_configs=pools) if pools else None,
            check_duplicate=True,
            labels={DEPLOYMENT_LABEL: deployment},
        )
    except docker.errors.APIError as error:
        if error.status_code != 409:  # another process of this deployment was first
            raise
