"""Who may import whom, who may import what, and that pure files are pure (DESIGN: the house)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from tests.architecture.source import KIT, OURS, ROOT, imports, is_standard, module_file, package_files, tree_of
from tests.architecture.walls import (
    MAY_IMPORT,
    PURE,
    SEAMS,
    THIRD_PARTY,
    WORLDLY,
    WORLDLY_CALLS,
    WORLDLY_METHODS,
)

FILES = package_files()
KIT_FOLDER = "images/lab/"
QUIET = sorted((*PURE, *SEAMS))
THERE = [relative for relative in QUIET if (ROOT / relative).is_file()]  # one test says which are not


def owner(relative: str) -> str:
    return KIT if relative.startswith(KIT_FOLDER) else relative.partition("/")[0]


@pytest.mark.parametrize("relative", FILES)
def test_packages_import_only_whom_they_may(relative: str) -> None:
    here = owner(relative)
    allowed = MAY_IMPORT.get(here, frozenset()) | {here}
    wrong = [f"line {i.line}: {i.name}" for i in imports(relative) if i.top in OURS and i.top not in allowed]
    assert not wrong, f"{relative} ({here}) reaches through a wall: {wrong}"


@pytest.mark.parametrize("relative", FILES)
def test_third_parties_come_in_by_their_own_door(relative: str) -> None:
    wrong = []
    for found in imports(relative):
        if is_standard(found.top) or found.top in OURS:
            continue
        doors = THIRD_PARTY.get(found.top, ())
        if not any(fnmatch(relative, door) for door in doors) and found.top not in PURE.get(relative, ()):
            wrong.append(f"line {found.line}: {found.name}")
    assert not wrong, f"{relative} may not import {wrong}; tests/architecture/walls.py has the table"


@pytest.mark.parametrize("relative", THERE)
def test_pure_files_import_only_the_standard_library_and_pure_files(relative: str) -> None:
    wrong = []
    for found in imports(relative):
        if found.top in OURS:
            fine = module_file(found.name) in (*QUIET, f"{found.top}/__init__.py")
        else:
            worldly = found.top in WORLDLY or any(found.name.startswith(w) for w in WORLDLY if "." in w)
            fine = found.top in PURE.get(relative, ()) or (is_standard(found.top) and not worldly)
        if not fine:
            wrong.append(f"line {found.line}: {found.name}")
    assert not wrong, f"{relative} is pure and may not import {wrong}"


def worldly_calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in WORLDLY_CALLS:
            yield f"line {node.lineno}: {called.id}()"
        elif isinstance(called, ast.Attribute) and called.attr in WORLDLY_METHODS:
            yield f"line {node.lineno}: {ast.unparse(called)}()"


@pytest.mark.parametrize("relative", THERE)
def test_pure_files_touch_no_world(relative: str) -> None:
    wrong = list(worldly_calls(tree_of(relative)))
    assert not wrong, f"{relative} is pure but calls {wrong}"


def test_the_tables_name_real_files() -> None:
    gone = [relative for relative in QUIET if not (ROOT / relative).is_file()]
    assert not gone, f"tests/architecture/walls.py names files that are not there: {gone}"


def test_the_runner_stands_alone() -> None:
    """It outlives the hub and must start in a blink: the standard library, nothing of ours."""
    names = {found.top for found in imports("spawner/runner.py")}
    assert all(map(is_standard, names)), sorted(names)


@pytest.mark.parametrize(
    "source",
    ["open('x')", "import datetime\ndatetime.datetime.now()", "from pathlib import Path\nPath('x').read_text()"],
    ids=["open", "clock", "file"],
)
def test_the_search_for_worldly_calls_has_teeth(source: str) -> None:
    assert list(worldly_calls(ast.parse(source)))
