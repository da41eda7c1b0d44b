"""The reference pages of the documents, made from the code they describe: settings, commands, REST, reasons. What a
site tells while it runs, metrics and log events, is in `hub_config.reference_running`."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterator, Mapping
from datetime import time, timedelta
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hub_config.command_parser import CommandParser
from hub_config.settings import Settings
from quota.api.document import document
from quota.errors import Reason, Refused
from quota.leases import StopReason
from quota.said import STOP_WORDS
from quota.units import CREDIT, WHOLE_GPU, MicroCredits, MilliGpu
from quota.web.interface import chapters
from spawner.messages import words

#: Types of settings in the words of somebody who edits the file.
_KINDS: Mapping[Any, str] = {
    MicroCredits: "a number of credits",
    MilliGpu: 'a share of a GPU: 0, a fraction such as `"1/4"`, a whole number',
    timedelta: "a duration",
    time: "a time of day",
    bool: "`true` or `false`",
    str: "text",
    int: "a whole number",
    float: "a number",
    tuple[int, int]: 'two times of day, such as `"22:00-06:00"`',
}


def pages() -> Mapping[str, str]:
    """Each page's name and its text in Markdown."""
    from hub_config.cli import parser
    from hub_config.reference_running import events_page, metrics_page

    return {
        "settings": settings_page(Settings),
        "commands": commands_page(parser()),
        "operations": operations_page(document("/services/berth/")),
        "reasons": reasons_page(),
        "metrics": metrics_page(),
        "events": events_page(),
    }


# ---- settings ------------------------------------------------------------------------------------------------------


def settings_page(model: type[BaseModel]) -> str:
    """One section a table of `berth.toml`, one row a key."""
    lines = [
        "# Settings",
        "",
        "`berth.toml` lies in the data folder and is written, with every default as a comment, by the first",
        "`berth up`. A mistake in it ends the start with one line: file, key, remedy. Grants, limits and prices are",
        "not here: an admin changes them on the admin page.",
    ]
    for name, description, table, many in tables(model):
        heading = f"[[{name}]]" if many else f"[{name}]"
        lines += ["", f"## `{heading}`", "", description, "", "| key | values | default | what it does |"]
        lines += ["|---|---|---|---|", *_rows(table)]
    return "\n".join(lines) + "\n"


def tables(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, str, type[BaseModel], bool]]:
    """All tables below a model, those within tables too: name, description, model, and whether there may be many."""
    for key, field in model.model_fields.items():
        table = _table(field.annotation)
        if table is not None:
            yield f"{before}{key}", field.description or "", table, field.annotation is not table
            yield from tables(table, f"{before}{key}.")


def _rows(table: type[BaseModel]) -> Iterator[str]:
    for key, field in table.model_fields.items():
        if _table(field.annotation) is None:
            default = "needed" if field.is_required() else f"`{_shown(field)}`"
            values, words = _cell(values_of(field)), _cell(field.description or "")
            yield f"| `{field.alias or key}` | {values} | {_cell(default)} | {words} |"


def _table(annotation: Any) -> type[BaseModel] | None:
    """The model behind a field of the settings, alone or in a list; None for a value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((part for part in get_args(annotation) if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _kinds(field: FieldInfo) -> tuple[list[Any], bool]:
    """The types that a value may have, and whether it may be absent as well."""
    annotation = field.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [part for part in parts if part is not type(None)]
    return kinds, len(kinds) < len(parts)


def values_of(field: FieldInfo) -> str:
    """What may be written, in words."""
    kinds, absent = _kinds(field)
    if get_origin(kinds[0]) is Literal:
        return ", ".join(f'`"{value}"`' for value in get_args(kinds[0]))
    or_off = ' or `"off"`' if absent and kinds[0] in (timedelta, time) else ""
    return _KINDS.get(kinds[0], "a list of names") + or_off


def _shown(field: FieldInfo) -> str:
    """A default as it is written in the file."""
    value: Any = field.default
    (kind, *_), _ = _kinds(field)
    if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("unset"):
        return "not set"
    if value is None:
        return '"off"' if kind in (timedelta, time) else "none"
    if kind is MicroCredits:
        return str(Fraction(value, CREDIT))
    if kind is MilliGpu:
        return str(Fraction(value, WHOLE_GPU))
    if isinstance(value, timedelta):
        return f'"{_duration(int(value.total_seconds()))}"'
    if isinstance(value, time):
        return f'"{value:%H:%M}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _duration(seconds: int) -> str:
    """In the largest unit that is exact; days from two on."""
    if seconds % 86400 == 0 and seconds > 86400:
        return f"{seconds // 86400} d"
    if seconds % 60:
        return f"{seconds} s"
    return f"{seconds // 3600} h" if seconds % 3600 == 0 else f"{seconds // 60} min"


# ---- commands ------------------------------------------------------------------------------------------------------


def commands_page(parser: CommandParser) -> str:
    """Every command with its arguments, as `--help` has them."""
    lines = [
        "# Commands",
        "",
        "In a checkout: `./berth COMMAND`. Exit codes: 0 when all is well, 1 when something was found or failed, 2",
        "for a wrong call.",
    ]
    for name, command in commands(parser):
        lines += ["", f"## `berth {name}`", "", command.description or "", "", "| argument | what it is |", "|---|---|"]
        for action in command.taken:
            lines.append(f"| `{_cell(_call(action))}` | {_cell(action.help or '')} |")
    return "\n".join(lines) + "\n"


def _call(action: argparse.Action) -> str:
    """An argument as it is written: its options, and what follows them."""
    if not action.option_strings:
        return str(action.metavar or action.dest)
    shown = ", ".join(action.option_strings)
    return shown if action.nargs == 0 else f"{shown} {action.metavar or action.dest.upper()}"


def commands(parser: CommandParser, before: str = "") -> Iterator[tuple[str, CommandParser]]:
    """All commands below a parser that do something themselves, by their whole names."""
    for name, command in parser.commands.items():
        below = list(commands(command, f"{before}{name} "))
        yield from below or [(before + name, command)]


# ---- REST ----------------------------------------------------------------------------------------------------------


def operations_page(told: Mapping[str, Any]) -> str:
    """Every operation of the OpenAPI document."""
    base = told["servers"][0]["url"]
    lines = [
        "# REST operations",
        "",
        f"All below `{base}`; [REST](../rest.md) tells tokens, paging, keys and errors.",
        "",
    ]
    lines.append("The same for tools is `openapi.json` there (OpenAPI 3.1).")
    for chapter in chapters(told):
        lines += ["", f"## {chapter.name}", "", chapter.words]
        for row in chapter.rows:
            lines += ["", f"### `{row.verb} {row.path}`", "", f"{row.summary}. {row.words}", ""]
            if row.asked:
                lines += ["Takes: " + ", ".join(f"`{name}`" for name in row.asked) + ".", ""]
            if row.body:
                lines += ["Fields of the body: " + ", ".join(f"`{name}`" for name in row.body) + ".", ""]
            lines += ["| status | what it says |", "|---|---|"]
            lines += [f"| {status} | {_cell(answer)} |" for status, answer in row.answers]
    return "\n".join(lines) + "\n"


# ---- reasons -------------------------------------------------------------------------------------------------------


def reasons_page() -> str:
    """Every reason by which Berth refuses, with the words that people read, and why a server ended."""
    lines = [
        "# Reasons",
        "",
        "A reason is one word for programs, and a sentence or two for people. The word never changes its meaning; the",
        "words may.",
        "",
        "## Why a start was refused",
        "",
        "`reason` in the label of the Hub's metric `berth_refusals_total`, and the message in the Hub's answer. The",
        "words here are made up of an example; a real refusal tells the facts of the case.",
        "",
        "| reason | for example |",
        "|---|---|",
    ]
    lines += [
        f"| `{reason.value}` | {_cell(words(Refused(reason, **{**_EXAMPLE, **_OF_ONE.get(reason, {})})))} |"
        for reason in sorted(Reason)
    ]
    lines += ["", "## Why a server ended", "", "`stop_reason` of a lease. Some are kept for what is not built yet.", ""]
    lines += ["| reason | words |", "|---|---|"]
    lines += [f"| `{reason.value}` | {_cell(STOP_WORDS[reason])} |" for reason in StopReason]
    return "\n".join(lines) + "\n"


#: Facts of which refusals make their words; each takes those that it knows.
_EXAMPLE: Mapping[str, object] = {
    "profile": "gpu-1",
    "image": "course",
    "account": "lab-a",
    "payer": "lab-a",
    "option": "gpu",
    "name": "ada lovelace",
    "allowed": "cpu, gpu-1-4",
    "asked": 1000,
    "held": 250,
    "largest": 750,
    "devices": 1,
    "available": 30_000,
    "needed": 250_000,
    "seconds": 120,
    "exit_code": 1,
}
#: Facts that mean something else in each refusal.
_OF_ONE: Mapping[Reason, Mapping[str, object]] = {
    Reason.PROFILE_UNKNOWN: {"known": "cpu, gpu-1-4"},
    Reason.IMAGE_UNKNOWN: {"known": "this-environment"},
    Reason.OPTION_UNKNOWN: {"known": "profile, image, payer"},
    Reason.ACCOUNT_FORBIDDEN: {"allowed": "group:lab-b"},
    Reason.NO_DEVICES: {"asked": 2000},
    Reason.TOO_MANY_SERVERS: {"limit": 3},
    Reason.TOO_MANY_GPUS: {"limit": 1000},
    Reason.MONTHLY_LIMIT: {"limit": 30_000_000, "used": 29_900_000},
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
