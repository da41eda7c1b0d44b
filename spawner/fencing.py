"""Keeps the fence in step with the servers that run: one call of the Engine a pass, and the packet filter only where
something changed or somebody took the rules out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spawner import fence
from spawner.box import DEPLOYMENT_LABEL, EGRESS_LABEL
from spawner.docker_engine import LOOK_S, Engine, telling
from spawner.docker_seen import LIVING, address
from spawner.egress import Egress, Fence


def admitted(listed: Mapping[str, Any], network: str) -> dict[str, Egress]:
    """The address of one container in a list, with what it may reach; empty where it has no address there (yet) or has
    ended. Without a label, or with a word that is none of `Egress`: nothing."""
    where = address(listed, network)
    if not where or listed.get("State") not in LIVING:
        return {}
    word = str((listed.get("Labels") or {}).get(EGRESS_LABEL) or "")
    return {where: Egress(word) if word in tuple(Egress) else Egress.NONE}


class Keeper:
    """Of one deployment's fence; one thread's. `network` is the Engine's name for the network, `hosts` the names that
    `Egress.REGISTRIES` lets through."""

    def __init__(self, engine: Engine, network: str, plan: Fence, hosts: tuple[str, ...] = ()) -> None:
        self._engine, self._network, self._plan, self._hosts = engine, network, plan, hosts
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._up: tuple[Fence, dict[str, Egress]] | None = None

    def resolve(self) -> None:
        """Ask anew where the hosts lie. Takes as long as the resolver does."""
        self._addresses = fence.resolved(self._hosts, self._addresses)

    def keep(self) -> bool:
        """One pass; whether the packet filter was changed. Raises `EngineSilent` (what stands goes on standing) and
        `spawner.fence.FenceFailed`."""
        with telling():
            labels = [f"{DEPLOYMENT_LABEL}={self._plan.deployment}"]
            containers = self._engine.client(LOOK_S).containers(filters={"label": labels})
        wanted: dict[str, Egress] = {}
        for listed in containers:
            wanted |= admitted(listed, self._network)
        places = sorted({f"{each}/32" for found in self._addresses.values() for each in found})
        plan = replace(self._plan, registries=(*self._plan.registries, *places))
        if self._up == (plan, wanted) and fence.stands(plan):
            return False
        fence.put_up(plan, wanted)
        self._up = (plan, wanted)
        return True
