"""`[docker]`, `[[images]]` and `[[data]]` of `berth.toml`: servers as containers of this host's Docker Engine."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from hub_config.settings_durations import Duration
from hub_config.settings_groups import Names
from spawner.docker_spec import is_socket


def _subnet(value: str) -> str:
    if value:
        try:
            network = ipaddress.ip_network(value)
        except ValueError:
            raise ValueError(f'{value!r} is not a network; write one such as "10.90.0.0/16", or "" for any') from None
        if network.prefixlen > network.max_prefixlen - 3:
            raise ValueError(f"{value!r} has no room for servers; write a larger one, such as a /16")
    return value


def _folder(value: str) -> str:
    if not value.startswith("/") or "/../" in f"{value}/" or value == "/":
        raise ValueError(f'{value!r} is not a folder; write an absolute path such as "/data/imagenet", without ".."')
    if is_socket(value):
        raise ValueError(
            f"{value!r} holds the Engine's socket: whoever can write to it is root on this host, and takes any GPU. "
            "Name a folder that has nothing but data"
        )
    return value


def _homes(value: str) -> str:
    if value == "volume":
        return value
    if value.count("{user}") != 1:
        raise ValueError(
            f'{value!r} is neither "volume" nor a folder for each user; write one such as "/data/homes/{{user}}"'
        )
    _folder(value.replace("{user}", "x"))
    return value


def _user(value: str) -> str:
    uid, colon, gid = value.partition(":")
    if not (uid.isascii() and uid.isdigit() and (not colon or (gid.isascii() and gid.isdigit()))):
        raise ValueError(f'{value!r} is not a user; write numbers, "UID" or "UID:GID", such as "1000:100"')
    if int(uid) == 0:
        raise ValueError("a server as root would have more rights than its user; write the image's own user, 1000:100")
    return value


def tuples(value: Any) -> Any:
    """TOML has lists; what is frozen wants tuples."""
    return tuple(value) if isinstance(value, list) else value


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DockerTable(_Table):
    url: str = Field("", description='The Engine, such as "unix:///run/docker.sock"; empty: DOCKER_HOST, or the usual.')
    homes: Annotated[str, AfterValidator(_homes)] = Field(
        "volume",
        description='Where homes are. "volume": a named volume each; or a folder of this host with {user} in it, such '
        'as "/data/homes/{user}".',
    )
    home: Annotated[str, AfterValidator(_folder)] = Field("/home/jovyan", description="Where a server sees the home.")
    user: Annotated[str, AfterValidator(_user)] = Field(
        "1000:100", description="User and group, as numbers, that all servers run as; never root."
    )
    subnet: Annotated[str, AfterValidator(_subnet)] = Field(
        "", description='The servers\' own network, such as "10.90.0.0/16"; empty: the Engine chooses.'
    )
    pids: int = Field(4096, ge=64, le=4_194_304, description="Processes and threads that a server may have at once.")
    shm: float = Field(0.5, gt=0, le=1, description="The part of its memory that a server's /dev/shm may take.")
    log_mib: int = Field(10, ge=1, le=10_240, description="MiB that are kept of a server's log, twice.")
    fence: bool = Field(
        True,
        description="Whether the agent bounds what servers reach, by rules in the packet filter; needs root.",
    )
    registries: Names = Field(
        (), description='Hosts that profiles with egress = "registries" may reach on ports 80 and 443.'
    )
    pull: Literal["missing", "never"] = Field(
        "missing", description='"missing": an image that is not on this host is fetched at a start; "never": refused.'
    )
    pull_timeout: Duration = Field(
        timedelta(minutes=30), description="How long that may take. Nothing is held or charged meanwhile."
    )


class ImageTable(_Table):
    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$",
        description="What REST and the book call it: lower-case letters, digits, '.', '_' and '-'.",
    )
    reference: str = Field(
        min_length=1, max_length=400, description='What the Engine calls it, such as "lab/pytorch:2.9".'
    )
    title: str = Field("", max_length=80, description="What people see; empty: its name.")
    description: str = Field("", max_length=400, description="A sentence for the start page.")

    @field_validator("reference")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.isascii() or not value.isprintable() or " " in value or value != value.strip():
            raise ValueError(f'{value!r} is not the name of an image; write one such as "lab/pytorch:2.9"')
        return value


class DataTable(_Table):
    source: Annotated[str, AfterValidator(_folder)] = Field(description="A folder of this host.")
    target: Annotated[str, AfterValidator(_folder)] = Field(description="Where every server sees it.")
    writable: bool = Field(False, description="Whether servers may write there; else it is read-only.")


Images = Annotated[tuple[ImageTable, ...], BeforeValidator(tuples)]
Data = Annotated[tuple[DataTable, ...], BeforeValidator(tuples)]


def fault(
    kind: str, images: Sequence[ImageTable], data: Sequence[DataTable], used: Sequence[tuple[str, Sequence[str]]]
) -> str:
    """What is wrong with these tables together; "" where nothing is. `used` are the images that each profile names.
    With the local backend nothing reads them, so that a site may try its settings without an Engine."""
    if not images and kind == "docker":
        return 'backend.kind = "docker" needs an image: write an [[images]] table with a name and a reference'
    names = [image.name for image in images]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"images: the name {twice[0]!r} is used twice; give each image its own name"
    targets = [each.target for each in data]
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        return f"data: {twice[0]!r} is used twice; give each folder a target of its own"
    for who, wanted in used:
        missing = [name for name in wanted if name not in names]
        if missing:
            return f"{who}: there is no image {missing[0]!r}; use one of: {', '.join(names)}"
    return ""
