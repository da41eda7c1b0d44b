"""The table `[extensions]` of `berth.toml`: functions of the site that Berth calls."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)


def _reference(value: str) -> str:
    if value and not _REFERENCE.fullmatch(value):
        raise ValueError(f'{value!r} is not a reference to a function; write one such as "site_rules:place"')
    return value


Reference = Annotated[str, AfterValidator(_reference)]


#: What else lies beside `berth.toml`, and is nobody's to replace.
RESERVED = frozenset(
    {"hub", "runs", "homes", "logs", "secrets", "pids", "berth.toml", "book.sqlite", "host", "up.json", "up.lock"}
)


def _folder(value: str) -> str:
    parts = value.split("/")
    if value and (not all(_NAME.fullmatch(part) for part in parts) or parts[0] in RESERVED):
        raise ValueError(
            f'{value!r} is no folder of the site; write one that lies beside this file, such as "templates"'
        )
    return value


Folder = Annotated[str, AfterValidator(_folder)]


class ExtensionsTable(BaseModel):
    """A reference is `module:function`: a Python file beside `berth.toml`, or an installed module."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    profiles: Reference = Field(
        "", description='The function that says which profiles a user is offered, e.g. "site_rules:profiles".'
    )
    price: Reference = Field(
        "", description='The function that says what a server costs somebody, e.g. "site_rules:price".'
    )
    notify: Reference = Field(
        "", description='The function that tells users what happens to their servers, e.g. "site_rules:notify".'
    )
    templates: Folder = Field(
        "",
        description="A folder with the site's own pages, relative to berth.toml, divided into hub, service and shared.",
    )
    placement: Reference = Field(
        "", description='The function that chooses devices for a server, e.g. "site_rules:place"; empty: best fit.'
    )
