"""A function fits a screen, a file is a chapter. The aims are 40 and 400 lines; these are the hard stops."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source import ROOT, tracked_files, tree_of

LONGEST_FUNCTION = 60
LONGEST_FILE = 500

#: Migrations list a schema as it was on one day; cutting that into functions would only hide it.
FILES = [name for name in tracked_files() if name.endswith(".py") and "/migrations/versions/" not in name]

pytestmark = pytest.mark.skipif(not FILES, reason="not a git clone: the tracked files are unknown")


def functions(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("relative", FILES)
def test_functions_and_files_stay_short(relative: str) -> None:
    lines = len((ROOT / relative).read_bytes().splitlines())
    assert lines <= LONGEST_FILE, f"{relative} has {lines} lines; split it by what changes together"
    long = [
        f"{name} (line {line}): {size}" for name, line, size in functions(tree_of(relative)) if size > LONGEST_FUNCTION
    ]
    assert not long, f"{relative}: functions over {LONGEST_FUNCTION} lines: {long}"
