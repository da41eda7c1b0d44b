"""Homes as volumes. A volume cannot be renamed, so its name carries a generation: when a user is deleted the next
generation begins, and whoever gets that name later finds an empty home. The old volume stays, listed with its date."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import docker.errors

from spawner.box import DEPLOYMENT_LABEL, USER_LABEL, Mount
from spawner.docker_engine import CHANGE_S, Engine, telling
from spawner.names import home_name, volume_name

RETIRED_EVENT: Final = "home-retired"


class Kept(Protocol):
    """What keeps a few words for ever (`quota.rows.Rows`)."""

    def meta(self, key: str) -> str | None: ...

    def set_meta(self, key: str, value: str) -> None: ...

    def add_event(
        self,
        kind: str,
        lease_id: str | None = None,
        account_id: int | None = None,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Retired:
    """A volume whose user was deleted."""

    user: str
    volume: str
    at: datetime


def generation(kept: Kept, user: str) -> int:
    """How often a user of this name was deleted."""
    return int(kept.meta(_key(user)) or 0)


def volume_of(deployment: str, user: str, number: int) -> str:
    """The volume of the home of the n-th user of that name, from 0. Injective: no user name has a control character."""
    return volume_name(deployment, f"{user}\n{number}" if number else user)


def home_mount(kept: Kept, deployment: str, user: str, target: str, host_homes: str = "") -> Mount:
    """A user's home: a volume, or a folder of the host by the template `host_homes` with `{user}` in it, which is
    replaced by what `names.home_name` makes of the name."""
    if host_homes:
        return Mount(target, host_homes.replace("{user}", home_name(user)), "bind")
    return Mount(target, volume_of(deployment, user, generation(kept, user)))


def ensure_volume(engine: Engine, deployment: str, user: str, mount: Mount) -> None:
    """Make the volume with its labels where it is missing; the Engine does nothing where it is there. Raises
    `EngineSilent`; `RuntimeError` where a volume of that name is somebody else's."""
    if mount.kind != "volume":
        return
    with telling():
        labels = {DEPLOYMENT_LABEL: deployment, USER_LABEL: user}
        made = engine.client(CHANGE_S).create_volume(mount.source, labels=labels)
    if (made.get("Labels") or {}).get(DEPLOYMENT_LABEL) != deployment:
        raise RuntimeError(f"the volume {mount.source} is not of this Berth; rename or remove it")


def retire(kept: Kept, deployment: str, user: str, now: datetime, by: str = "") -> Retired:
    """Begin the next generation for this name: called when the user is deleted. What was in the home stays."""
    number = generation(kept, user)
    old = Retired(user, volume_of(deployment, user, number), now)
    kept.set_meta(_key(user), str(number + 1))
    kept.set_meta(f"{_RETIRED}{old.volume}", json.dumps({"user": user, "at": now.isoformat()}))
    kept.add_event(RETIRED_EVENT, by=by, detail={"user": user, "volume": old.volume, "at": now.isoformat()})
    return old


def exists(engine: Engine, volume: str) -> bool:
    """Whether the Engine has the volume. Raises `EngineSilent`."""
    try:
        with telling():
            engine.client(CHANGE_S).inspect_volume(volume)
    except docker.errors.NotFound:
        return False
    return True


_RETIRED: Final = "home-retired:"


def _key(user: str) -> str:
    return f"home-generation:{user}"
