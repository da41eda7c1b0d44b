"""The generated reference: whatever there is has a row, and every row says something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from hub_config.cli import parser
from hub_config.log_events import EVENTS
from hub_config.reference import commands, tables
from hub_config.reference import pages as made
from hub_config.settings import COMMENTED, Settings
from quota.api.document import document
from quota.errors import Reason
from quota.leases import StopReason
from tests.architecture.source import PACKAGES, ROOT


@cache
def pages() -> Mapping[str, str]:
    return made()


def rows(name: str) -> list[list[str]]:
    """The cells of all rows of a page's tables, without heads."""
    lines = [line for line in pages()[name].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if row[0] not in ("key", "argument", "status", "reason", "metric", "event")]


@pytest.mark.parametrize("name", sorted(pages()))
def test_no_cell_is_empty(name: str) -> None:
    found = rows(name)
    assert found and [row for row in found if not all(row)] == []


def defaults(text: str) -> Iterator[tuple[str, str, str]]:
    """Table, key and value of each line of a commented `berth.toml`, up to its examples of lists of tables."""
    table = ""
    for line in text.partition("# [[")[0].splitlines():
        table = found[1] if (found := re.match(r"\[([\w.]+)\]", line)) else table
        if found := re.match(r'# (\w+) = ("[^"]*"|\[[^\]]*\]|\S+)', line):
            yield table, found[1], found[2]


def test_every_setting_is_there_with_its_default_as_the_file_has_it() -> None:
    shown: dict[tuple[str, str], str] = {}
    for name, _, table, many in tables(Settings):
        heading = f"## `[[{name}]]`" if many else f"## `[{name}]`"
        section = pages()["settings"].partition(f"{heading}\n")[2].partition("\n## ")[0]
        told = dict(re.findall(r"^\| `(\w+)` \| .* \| (?:`(?=.*` \|))?(.*?)`? \| .* \|$", section, re.M))
        keys = {field.alias or key for key, field in table.model_fields.items()}
        assert {key for key in keys if f"{name}.{key}" not in {each[0] for each in tables(Settings)}} == {*told}
        shown |= {(name, key): value for key, value in told.items()}
    written = list(defaults(COMMENTED))
    assert len(written) > 15 and [each for each in written if shown[each[:2]] != each[2]] == []


def test_every_command_says_what_it_does_and_what_it_takes() -> None:
    told = dict(commands(parser()))
    assert {"up", "status", "grant", "backup", "audit"} <= set(told)
    for name, command in told.items():
        assert (command.description or "").endswith("."), name
        section = pages()["commands"].partition(f"## `berth {name}`\n")[2].partition("\n## ")[0]
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", command.format_help()))
        assert section and [option for option in sorted(options) if option not in section] == []


def test_every_operation_and_reason_is_there() -> None:
    text = pages()["operations"]
    told = document("/services/berth/")["paths"]
    wanted = [f"### `{verb.upper()} {path}`" for path, item in told.items() for verb in item if verb != "parameters"]
    assert len(wanted) > 10 and [heading for heading in wanted if heading not in text] == []
    assert [row[0].strip("`") for row in rows("reasons")] == [*sorted(Reason), *StopReason]


# ---- what the code tells while it runs, found in the code itself -----------------------------------------------------


def nodes() -> Iterator[ast.AST]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def metric_names() -> Iterator[re.Pattern[str]]:
    """The names that calls give to metrics; what is put in while running stands for any word."""
    for node in nodes():
        first = node.args[0] if isinstance(node, ast.Call) and node.args else None
        parts = first.values if isinstance(first, ast.JoinedStr) else [first]
        texts = [str(part.value) if isinstance(part, ast.Constant) else r"[a-z_]+" for part in parts]
        if texts[0].startswith("berth_") and isinstance(node, ast.Call) and _maker(node):
            yield re.compile("".join(texts) + r"(_total|_info)?")


def _maker(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name.endswith("MetricFamily") or name in ("Counter", "Gauge", "Histogram", "Summary", "Info", "_gauge")


def test_every_metric_of_the_code_is_there() -> None:
    told = [row[0].strip("`") for row in rows("metrics")]
    wanted = list(metric_names())
    assert len(wanted) > 15
    assert [name.pattern for name in wanted if not any(name.fullmatch(each) for each in told)] == []


def test_every_event_that_the_code_logs_is_there_and_no_other() -> None:
    found = {
        each.value
        for node in nodes()
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "event"
        for each in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))
        if isinstance(each, ast.Constant)
    }
    assert len(found) > 15 and found == set(EVENTS)
    assert {row[0].strip("`") for row in rows("events")} == found
