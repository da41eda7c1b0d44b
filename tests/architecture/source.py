"""The source tree as the architecture tests read it: files, imports, functions."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Our import packages; the kit is a distribution of its own.
PACKAGES = ("images", "quota", "spawner", "idle_culler", "hub_config")
KIT = "berth_lab"
OURS = frozenset((*PACKAGES, KIT))


@dataclass(frozen=True, slots=True)
class Import:
    """One import: the full dotted name (`from a.b import c` is `a.b.c`) and where it stands."""

    name: str
    line: int

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def package_files() -> list[str]:
    """All Python files of our packages, relative to the root, with the kit's."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if not {"build", "dist"} & set(relative.parts):
                found.append(str(relative))
    return found


@cache
def tracked_files() -> tuple[str, ...]:
    """What git tracks; empty outside a clone."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    return tuple(name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file())


@cache
def tree_of(relative: str) -> ast.Module:
    return ast.parse((ROOT / relative).read_bytes(), relative)


def imports(relative: str) -> list[Import]:
    """Every import of a file, those inside functions and under TYPE_CHECKING too."""
    return list(_imports(relative))


def _imports(relative: str) -> Iterator[Import]:
    for node in ast.walk(tree_of(relative)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = Path(relative).parts[: -node.level]
                base = ".".join((*above, base) if base else above)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(first.value, node.lineno)


def module_file(dotted: str) -> str | None:
    """The file of ours that a dotted import name comes from, relative to the root."""
    parts = dotted.split(".")
    while parts:
        stem = ROOT.joinpath(*parts)
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return str(path.relative_to(ROOT))
        parts.pop()
    return None


def is_standard(top: str) -> bool:
    return top in sys.stdlib_module_names
