"""The reference pages of the documents, made from the code they describe: settings, commands, REST, reasons."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterator, Mapping
from datetime import time, timedelta
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hub_config.settings import Settings
from quota.api.document import document
from quota.errors import Reason, Refused
from quota.units import CREDIT
from quota.web.interface import chapters
from spawner.messages import words

#: Settings in units of their own, told as they are written: by the end of their names.
_CREDITS = ("monthly_credits", "credits_per_gpu_hour", "credits_per_cpu_hour")
_GPUS = ("max_gpus", "share")


def pages() -> Mapping[str, str]:
    """Each page's name and its text in Markdown."""
    from hub_config.cli import parser

    return {
        "settings": settings_page(Settings),
        "commands": commands_page(parser()),
        "operations": operations_page(document("/services/berth/")),
        "reasons": reasons_page(),
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
    for name, field in model.model_fields.items():
        table, many = _table(field.annotation)
        heading = f"[[{name}]]" if many else f"[{name}]"
        lines += ["", f"## `{heading}`", "", field.description or "", "", "| key | values | default | what it does |"]
        lines += ["|---|---|---|---|", *_rows(table)]
    return "\n".join(lines) + "\n"


def _rows(table: type[BaseModel]) -> Iterator[str]:
    for key, field in table.model_fields.items():
        default = "needed" if field.is_required() else f"`{_shown(key, field.default)}`"
        yield f"| `{key}` | {_cell(values_of(key, field))} | {_cell(default)} | {_cell(field.description or '')} |"


def _table(annotation: Any) -> tuple[type[BaseModel], bool]:
    """The model behind a field of the settings, and whether there may be many of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    return next(part for part in get_args(annotation) if isinstance(part, type) and issubclass(part, BaseModel)), True


def values_of(key: str, field: FieldInfo) -> str:
    """What may be written, in words."""
    annotation = field.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [part for part in parts if part is not type(None)]
    if get_origin(kinds[0]) is Literal:
        return ", ".join(f'`"{value}"`' for value in get_args(kinds[0]))
    if key in _CREDITS:
        return "a number of credits"
    if key in _GPUS:
        return 'a share of a GPU: 0, a fraction such as `"1/4"`, a whole number'
    or_off = ' or `"off"`' if len(kinds) < len(parts) and kinds[0] in (timedelta, time) else ""
    known = {timedelta: "a duration", time: "a time of day", str: "text", int: "a whole number", float: "a number"}
    return known.get(kinds[0], "a list of names") + or_off


def _shown(key: str, value: Any) -> str:
    """A default as it is written in the file."""
    if isinstance(value, timedelta):
        minutes, seconds = divmod(int(value.total_seconds()), 60)
        hours, rest = divmod(minutes, 60)
        return (
            f'"{seconds + 60 * minutes} s"' if seconds else f'"{minutes} min"' if rest or not hours else f'"{hours} h"'
        )
    if isinstance(value, time):
        return f'"{value:%H:%M}"'
    if value is None:
        return '"off"' if key in ("with_gpu", "without_gpu", "at") else "none"
    if key in _CREDITS:
        return str(Fraction(value, CREDIT))
    if key in _GPUS:
        return str(Fraction(value, 1000))
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


# ---- commands ------------------------------------------------------------------------------------------------------


def commands_page(parser: argparse.ArgumentParser) -> str:
    """Every command with its arguments, as `--help` has them."""
    lines = [
        "# Commands",
        "",
        "In a checkout: `./berth COMMAND`. Exit codes: 0 when all is well, 1 when something was found or failed, 2",
        "for a wrong call.",
    ]
    for name, command in _commands(parser):
        lines += ["", f"## `berth {name}`", "", command.description or "", "", "| argument | what it is |", "|---|---|"]
        for action in command._actions:
            shown = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            if action.option_strings and action.nargs != 0:
                shown += f" {action.metavar or action.dest.upper()}"
            lines.append(f"| `{_cell(shown)}` | {_cell(action.help or '')} |")
    return "\n".join(lines) + "\n"


def _commands(parser: argparse.ArgumentParser, before: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """All commands below a parser that do something themselves, by their whole names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                below = list(_commands(command, f"{before}{name} "))
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


# ---- refusals ------------------------------------------------------------------------------------------------------


def reasons_page() -> str:
    """Every reason by which Berth refuses, with the words that people read where no facts are known."""
    lines = [
        "# Reasons of refusals",
        "",
        "A refusal has a reason for programs (`reason` in REST, the label of the Hub's metric) and words for people.",
        "The words here are those without the facts of the case, which a real refusal adds.",
        "",
        "| reason | words |",
        "|---|---|",
    ]
    lines += [f"| `{reason.value}` | {_cell(words(Refused(reason)))} |" for reason in sorted(Reason)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
