"""The generated reference: whatever there is has a row, and every row says something."""

from __future__ import annotations

import re

import pytest

from hub_config.cli import parser
from hub_config.reference import _commands, pages
from hub_config.settings import COMMENTED, Settings
from quota.api.document import document
from quota.errors import Reason


def rows(name: str) -> list[list[str]]:
    """The cells of all rows of a page's tables, without heads."""
    lines = [line for line in pages()[name].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if row[0] not in ("key", "argument", "status", "reason")]


@pytest.mark.parametrize("name", sorted(pages()))
def test_no_cell_is_empty(name: str) -> None:
    found = rows(name)
    assert found and [row for row in found if not all(row)] == []


def test_every_setting_has_its_default_as_the_file_has_it() -> None:
    shown = {row[0].strip("`"): row[2].strip("`") for row in rows("settings")}
    for table in Settings.model_fields:
        assert f"[{table}]" in pages()["settings"]
    written = dict(re.findall(r'^# (\w+) = ("[^"]*"|\S+)', COMMENTED, re.M))
    assert len(written) > 15
    own = {"name", "share", "title", "description", "groups", "leads"}  # examples there, not defaults
    assert {key: shown[key] for key in written if key not in own} == {k: v for k, v in written.items() if k not in own}


def test_every_command_says_what_it_does_and_what_it_takes() -> None:
    commands = dict(_commands(parser()))
    assert {"up", "status", "grant", "backup", "audit"} <= set(commands)
    for name, command in commands.items():
        assert (command.description or "").endswith("."), name
        assert f"## `berth {name}`" in pages()["commands"]


def test_every_operation_and_reason_is_there() -> None:
    text = pages()["operations"]
    told = document("/services/berth/")["paths"]
    wanted = [f"### `{verb.upper()} {path}`" for path, item in told.items() for verb in item if verb != "parameters"]
    assert len(wanted) > 10 and [heading for heading in wanted if heading not in text] == []
    assert [row[0].strip("`") for row in rows("reasons")] == sorted(Reason)
