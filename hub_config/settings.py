"""`berth.toml` in frozen settings, with exact errors: file, key, remedy.

`berth.toml` owns structure: backend, devices, profiles, idle rules, how the Hub is run. Grants, limits and prices are
owned by the book and changed on the admin page; `[first_start]` only fills a new book.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from datetime import time, timedelta
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hub_config.placeholders import unexpected
from hub_config.settings_auth import AuthTable
from hub_config.settings_docker import Data, DockerTable, Images
from hub_config.settings_docker import fault as docker_fault
from hub_config.settings_durations import Duration
from hub_config.settings_extensions import ExtensionsTable
from hub_config.settings_gpus import Gpus
from hub_config.settings_groups import GroupTable, Names, group_fault
from hub_config.settings_idle import Idle, ServiceClassName, rule_fault
from hub_config.settings_notices import ChatTable, MailTable, NoticesTable
from hub_config.settings_save import SaveTable
from hub_config.settings_schedule import ScheduleTable
from hub_config.settings_text import COMMENTED
from quota.units import WHOLE_GPU, MicroCredits, MilliGpu, parse_credits
from spawner.profiles import DEFAULT_PROFILES

__all__ = ["COMMENTED", "Settings", "SettingsError", "parse"]


class SettingsError(Exception):
    """One line for a person: which file, which key, what to do."""


# ---- small types -----------------------------------------------------------------------------------------------


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'{value!r} is not a time zone; write one such as "Europe/Berlin" or "UTC"') from None
    return value


def _credits(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number of credits, such as 100 or 0.5")
    amount = parse_credits(str(value))
    if amount < 0:
        raise ValueError(f"{value!r} is below zero")
    return amount


def _share(value: Any) -> Any:
    """Milli-GPU in all. Fractions of a device are cut down to whole milli-GPU, so that three thirds fit."""
    remedy = f'{value!r} is not a share of a GPU; write 0 (CPU only), a fraction such as "1/4", or a whole number'
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(remedy)
    try:
        share = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise ValueError(remedy) from None
    milli = share * WHOLE_GPU
    if share < 0 or share > 64 or (share != 0 and milli < 1) or (share > 1 and share.denominator != 1):
        raise ValueError(remedy)
    return int(milli)


def _book_url(value: Any) -> str:
    """A database without its password. What was written is never told again: it may hold one."""
    remedy = 'write postgresql://USER@HOST/DATABASE, or sqlite:////an/absolute/path.sqlite, or "" for the data folder'
    if not isinstance(value, str):
        raise ValueError(f"this is no text in quotes; {remedy}")
    if not value:
        return value
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        raise ValueError(f"this is not the URL of a database; {remedy}") from None
    userinfo, at, _ = parts.netloc.rpartition("@")
    options = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if (at and ":" in userinfo) or options & {"password", "passfile", "sslpassword"}:
        raise ValueError(
            "there is a password in it, where everybody reads it who sees this file; take it out, and name a file "
            "with it as password_file, or give it in the environment as BERTH_BOOK_PASSWORD"
        )
    if parts.scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        if not parts.path.strip("/"):
            raise ValueError(f"the name of the database is missing; {remedy}")
    elif parts.scheme != "sqlite" or parts.netloc or not parts.path.startswith("//") or len(parts.path) < 3:
        raise ValueError(f"Berth keeps its book in PostgreSQL or in a SQLite file; {remedy}")
    return value


def _time_of_day(value: Any) -> Any:
    if value == "off":
        return None
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", value, re.ASCII) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a time of day; write one such as "03:30", or "off"')
    return time(int(match[1]), int(match[2]))


TimeOfDayOrOff = Annotated[time | None, BeforeValidator(_time_of_day)]
BookUrl = Annotated[str, BeforeValidator(_book_url)]
Zone = Annotated[str, AfterValidator(_zone)]
Credits = Annotated[MicroCredits, BeforeValidator(_credits)]
Share = Annotated[MilliGpu, BeforeValidator(_share)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


# ---- the tables of berth.toml ----------------------------------------------------------------------------------


class Site(_Table):
    name: str = Field("Berth", min_length=1, max_length=60, description="What the site is called on its pages.")
    time_zone: Zone = Field(
        "UTC", description="Zone of the tz database in which months and days of bills begin and times are shown."
    )
    language: Literal["en", "zh-CN"] = Field(
        "en", description="What pages speak to a reader who chose no language and whose browser asks for none of these."
    )


class Backend(_Table):
    kind: Literal["local", "docker"] = Field(
        "local",
        description='What servers run as. "local": processes of this machine, a trial without isolation between users; '
        '"docker": containers of its Docker Engine.',
    )


class BookTable(_Table):
    url: BookUrl = Field(
        "",
        description="The database of the book; empty: a SQLite file in the data folder. Never with a password in it.",
    )
    password_file: str = Field(
        "",
        description="A file with the password of that database; BERTH_BOOK_PASSWORD in the environment goes before it.",
    )


class HubTable(_Table):
    start_timeout: Duration = Field(
        timedelta(minutes=2), description="How long a server may take to answer before its start is undone."
    )
    named_servers: int = Field(
        2, ge=0, le=100, description="Servers with a name that a user may have besides the default one."
    )
    extra_config: str = Field(
        "",
        description="A Python file with JupyterHub configuration (c.…), read after Berth's own; beside berth.toml.",
    )


class Audit(_Table):
    at: TimeOfDayOrOff = Field(
        time(3, 30), description='Time of day, in the site\'s zone, of the nightly audit; "off" for none.'
    )


class Logs(_Table):
    format: Literal["json", "text"] = Field("json", description='"json": an object a line; "text": lines for people.')
    level: Literal["debug", "info", "warning"] = Field("info", description="The least important that is written.")


class FirstStart(_Table):
    monthly_credits: Credits = Field(MicroCredits(100_000_000), description="Each user's grant for a calendar month.")
    credits_per_gpu_hour: Credits = Field(MicroCredits(1_000_000), description="Price of one whole GPU for an hour.")
    credits_per_cpu_hour: Credits = Field(MicroCredits(0), description="Price of a server without a GPU for an hour.")
    max_servers: int = Field(3, ge=0, le=10_000, description="Servers that a user may have at once.")
    max_gpus: Share = Field(MilliGpu(2000), description="GPUs that a user may hold at once, in all servers together.")


class ProfileTable(_Table):
    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
        description="What REST and the book call it: lower-case letters, digits and hyphens.",
    )
    title: str = Field("", max_length=80, description="What people see; empty: its name.")
    share: Share = Field(
        description='Share of a GPU: 0 for CPU only, a fraction such as "1/4", or a whole number of GPUs.'
    )
    cpu: float | None = Field(
        None, gt=0, le=1024, description="Cores that the server is told to use; without, no limit."
    )
    memory_mib: int | None = Field(
        None, ge=64, description="Host memory in MiB that the server is told to use; without, no limit."
    )
    description: str = Field("", max_length=400, description="A sentence for the start page.")
    groups: Names = Field((), description="Groups whose members may pick it; empty: everybody.")
    images: Names = Field((), description="Names of the [[images]] that it offers; empty: all of them.")
    egress: Literal["open", "registries", "none"] = Field(
        "open",
        description='What its containers may reach besides the Hub: "open": all but metadata addresses and this host; '
        '"registries": the hosts of docker.registries; "none".',
    )
    service_class: ServiceClassName = Field(
        "on-demand", alias="class", description="Its service class, by which idle rules may differ."
    )


class Settings(_Table):
    site: Site = Field(Site(), description="The site as people see it.")
    backend: Backend = Field(Backend(), description="What servers run as.")
    docker: DockerTable = Field(DockerTable(), description="Servers as containers.")
    auth: AuthTable = Field(AuthTable(), description="How people log in, and who may.")
    book: BookTable = Field(BookTable(), description="Where it is kept who holds what and what it cost.")
    gpus: Gpus = Field(Gpus(), description="The devices of this machine.")
    hub: HubTable = Field(HubTable(), description="How JupyterHub is run.")
    idle: Idle = Field(Idle(), description="When servers that nobody uses are stopped.")
    save: SaveTable = Field(SaveTable(), description="What servers save before they are ended.")
    schedule: ScheduleTable = Field(ScheduleTable(), description="Starts that users ask for at a time.")
    audit: Audit = Field(Audit(), description="The nightly check of the book.")
    logs: Logs = Field(Logs(), description="How the processes' logs are written.")
    first_start: FirstStart = Field(
        FirstStart(), description="Fills a new book once; afterwards these belong to the admin page."
    )
    notices: NoticesTable = Field(NoticesTable(), description="What people are told.")
    mail: MailTable = Field(MailTable(), description="The mail server by which people are told.")
    chat: ChatTable = Field(ChatTable(), description="Chats in which people are told.")
    extensions: ExtensionsTable = Field(ExtensionsTable(), description="Functions of the site's own.")
    profiles: tuple[ProfileTable, ...] = Field((), description="What a user may pick; without any, Berth's six.")
    images: Images = Field((), description="What servers may run, as containers.")
    data: Data = Field((), description="Folders of this host that every container sees.")
    groups: tuple[GroupTable, ...] = Field((), description="Groups of the Hub that mean something to Berth.")

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        names = [profile.name for profile in self.profiles]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"profiles: the name {twice[0]!r} is used twice; give each profile its own name")
        used = [(f"profiles {each.name}.groups", each.groups) for each in self.profiles]
        used += [(f"auth.groups {each.id}.group", (each.group,)) for each in self.auth.groups if each.group]
        used += [(f"idle.rules[{number}].groups", rule.groups) for number, rule in enumerate(self.idle.rules, 1)]
        fault = group_fault(self.groups, used) or rule_fault(
            self.idle.rules, names or [profile.name for profile in DEFAULT_PROFILES]
        )
        pictures = [(f"profiles {each.name}.images", each.images) for each in self.profiles]
        fault = fault or docker_fault(self.backend.kind, self.images, self.data, pictures)
        if fault:
            raise ValueError(fault)
        return self


# ---- reading ---------------------------------------------------------------------------------------------------


def parse(text: str, path: str = "berth.toml", *, backend: str = "") -> Settings:
    """Settings from the text of a `berth.toml`; `backend` goes before its `backend.kind`.

    Raises `SettingsError`, one line: file, key, remedy.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    wrong = unexpected(tables)
    if wrong:
        raise SettingsError(f"{path}: {wrong}")
    for key in ("profiles", "groups"):
        if isinstance(tables.get(key), list):
            tables[key] = tuple(tables[key])
    if backend and isinstance(tables.get("backend", {}), dict):
        tables["backend"] = {**tables.get("backend", {}), "kind": backend}
    try:
        return Settings.model_validate(tables)
    except ValidationError as error:
        raise SettingsError(f"{path}: {_first_problem(error)}") from None


#: What pydantic calls a type, in the words of somebody who edits a TOML file.
_WANTED = {
    "int_type": "write a whole number, without quotes",
    "float_type": "write a number, without quotes",
    "string_type": "write text in quotes",
    "bool_type": "write true or false",
    "tuple_type": "write each one under a [[profiles]] or [[groups]] line of its own",
    "model_type": "write a table, that is a [section] line",
    "model_attributes_type": "write a table, that is a [section] line",
}


def _first_problem(error: ValidationError) -> str:
    problem = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")  # a typo explains the rest
    key = _key(problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {_remedy_for_unknown(problem['loc'])}"
    if problem["type"] == "missing":
        return f"{key}: this key is needed"
    words = problem["msg"].removeprefix("Value error, ")
    if problem["type"] != "value_error":
        words = f"{problem['input']!r} does not do: {_WANTED.get(problem['type'], words[0].lower() + words[1:])}"
    return f"{key}: {words}" if key else words


def _key(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _remedy_for_unknown(loc: tuple[int | str, ...]) -> str:
    table: Any = Settings
    for part in loc[:-1]:
        if isinstance(part, str):
            annotation = table.model_fields[part].annotation
            table = next((each for each in get_args(annotation) if each is not ...), annotation)
    known = sorted(field.alias or name for name, field in table.model_fields.items())
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"remove it, or use one of: {', '.join(known)}"
