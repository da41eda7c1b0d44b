"""Outputs and a stamp put into a notebook. The rules are pure, on nbformat's values; `Notebooks` reads and writes
through the server's contents manager, so that paths, signatures and file permissions are its own affair.

A cell is found by its id, and only if its source is still what was executed; other cells are never touched.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from berth_lab.outputs import Cell

log = logging.getLogger("berth_lab")

#: Where the stamp is, in the notebook's metadata. It stays until the next one takes its place.
STAMP = "berth"

Notebook = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stamp:
    """Why Berth wrote into a notebook."""

    lease: str
    reason: str
    at: str  # RFC 3339, UTC
    saved_by: str

    def value(self) -> dict[str, str]:
        return {"lease": self.lease, "reason": self.reason, "at": self.at, "saved_by": self.saved_by}


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it."""

    notebook: Notebook
    cells: tuple[Cell, ...] = ()  # whose outputs are in it now
    elsewhere: tuple[Cell, ...] = ()  # that this notebook does not have, or has with another source


def cell_for(notebook: Notebook, cell: Cell) -> Notebook | None:
    """The code cell that was executed: of this id and source; in an old notebook without ids, the only one of this
    source."""
    code = [c for c in notebook.get("cells", ()) if c.get("cell_type") == "code"]
    same = [c for c in code if source_of(c) == cell.source]
    by_id = [c for c in same if c.get("id") == cell.id]
    if by_id or any("id" in c for c in code):
        return by_id[0] if by_id else None
    return same[0] if len(same) == 1 else None


def source_of(cell: Notebook) -> str:
    """A cell's source, which a file may have as lines."""
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def merged(notebook: Notebook, cells: Sequence[Cell], stamp: Stamp | None = None) -> Merged:
    """A copy of the notebook with the outputs in their cells, and the stamp if there is one."""
    made = copy.deepcopy(notebook)
    there, elsewhere = [], []
    for cell in cells:
        target = cell_for(made, cell)
        if target is None:
            elsewhere.append(cell)
            continue
        target["outputs"] = cell.outputs()
        target["execution_count"] = cell.count
        target.setdefault("metadata", {})["trusted"] = True  # the person's own kernel made them, just now
        there.append(cell)
    if stamp is not None:
        made.setdefault("metadata", {})[STAMP] = stamp.value()
    return Merged(made, tuple(there), tuple(elsewhere))


@dataclass(frozen=True, slots=True)
class Written:
    """One notebook after a write; `why` is None for a good one, else a code."""

    path: str
    cells: tuple[Cell, ...] = ()
    size: int = 0
    why: str | None = None


class Notebooks:
    """Writes through the contents manager. One write at a time."""

    def __init__(self, contents: Any) -> None:
        self._contents = contents
        self._get: Callable[..., Any] = contents.get  # before anybody wraps it
        self.writing: set[str] = set()  # paths that are ours at this moment, for those who watch saves

    async def write(self, path: str, cells: Sequence[Cell], stamp: Stamp | None = None) -> Written:
        """Put outputs and stamp into the notebook at `path`. Never raises: what went wrong is in the answer. A file
        that changed between our reading and writing is read anew, twice at most."""
        try:
            for _ in range(3):
                # A task of its own: the file manager's threads live as long as the task that first needed one, and a
                # task that never ends would keep the server from ending.
                written = await asyncio.create_task(self._once(path, cells, stamp))
                if written is not None:
                    return written
            return Written(path, why="changed")
        except Exception as error:
            log.warning("the outputs of %s could not be written: %s: %s", path, type(error).__name__, error)
            return Written(path, why="missing" if getattr(error, "status_code", 0) == 404 else "unwritable")

    async def _once(self, path: str, cells: Sequence[Cell], stamp: Stamp | None) -> Written | None:
        """None where somebody else wrote meanwhile."""
        model = await done(self._get(path, content=True, type="notebook"))
        content = model["content"]
        if not isinstance(content, dict) or content.get("nbformat") != 4:
            return Written(path, why="format")
        versions = {cell.request: cell.version for cell in cells}
        result = merged(content, cells, stamp)
        if result.cells or stamp is not None:
            now = await done(self._get(path, content=False, type="notebook"))
            if now["last_modified"] != model["last_modified"]:
                return None
            model = await self._save(path, result.notebook)
        for cell in result.cells:
            cell.written = versions[cell.request]
        return Written(path, result.cells, int(model.get("size") or 0))

    async def _save(self, path: str, notebook: Notebook) -> dict[str, Any]:
        self.writing.add(path)
        try:
            model: dict[str, Any] = await done(
                self._contents.save({"type": "notebook", "format": "json", "content": notebook}, path)
            )
        finally:
            self.writing.discard(path)
        return model


async def done(answer: Any) -> Any:
    """The answer of a contents manager, which may be one that waits."""
    return await answer if inspect.isawaitable(answer) else answer
