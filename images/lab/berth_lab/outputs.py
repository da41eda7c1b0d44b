"""What a cell has printed and shown, kept whether a browser looks or not.

`Cell` is the rule, without a socket: it takes the iopub messages of one execution in and gives nbformat's outputs out.
Its size is bounded: of a long stream the beginning and the newest part are kept, of pictures and results as many as
fit, and a mark says that something is missing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

#: Bytes (characters, for text) of one execution's outputs that are kept: shown things, and streams.
MOST_SHOWN = 4 * 1024 * 1024
MOST_STREAM = 1024 * 1024
#: Outputs of one execution; streams that take turns count each time.
MOST_OUTPUTS = 2000
#: A line without an end (a progress bar) is cut here.
LONGEST_LINE = 64 * 1024

WORTH_KEEPING = frozenset(
    {"stream", "display_data", "execute_result", "error", "update_display_data", "clear_output", "execute_input"}
)


def overwritten(line: str) -> str:
    """A line as a terminal shows it: after a carriage return, what follows covers what was there."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown


@dataclass(slots=True)
class Stream:
    """Text of one stream in a row: the beginning, the newest lines, and how much fell out between them."""

    name: str
    most: int = MOST_STREAM
    _head: list[str] = field(default_factory=list)
    _newest: deque[str] = field(default_factory=deque)
    _line: str = ""  # not ended yet
    _head_size: int = 0
    _newest_size: int = 0
    dropped: int = 0  # characters

    @property
    def size(self) -> int:
        return self._head_size + self._newest_size + len(self._line)

    def add(self, text: str) -> None:
        *ended, rest = (self._line + text).split("\n")
        for line in ended:
            self._end(overwritten(line) + "\n" if "\r" in line else line + "\n")
        if "\r" in rest[:-1]:  # a return at the very end may yet be followed by a line's end
            rest = overwritten(rest[:-1]) + rest[-1] if rest.endswith("\r") else overwritten(rest)
        if len(rest) > LONGEST_LINE:
            self._end(rest)
            rest = ""
        self._line = rest

    def _end(self, line: str) -> None:
        if not self._newest and self._head_size + len(line) <= self.most // 2:
            self._head.append(line)
            self._head_size += len(line)
            return
        self._newest.append(line)
        self._newest_size += len(line)
        while self._newest_size > self.most // 2 and len(self._newest) > 1:
            fell = len(self._newest.popleft())
            self._newest_size -= fell
            self.dropped += fell

    def text(self) -> str:
        gap = f"\n[… {self.dropped:,} characters were not kept by Berth …]\n" if self.dropped else ""
        return "".join(self._head) + gap + "".join(self._newest) + self._line


@dataclass(slots=True)
class Cell:
    """One execution of one cell of a notebook."""

    request: str  # the message's id
    id: str  # the cell's
    source: str
    began: datetime
    asker: str = ""  # the session of the browser that asked
    ended: datetime | None = None
    seen: bool = False  # that browser was there when it ended: it has the outputs
    count: int | None = None
    version: int = 0  # grows with each change
    written: int = -1  # the version that the notebook file has
    _outputs: list[Stream | dict[str, Any]] = field(default_factory=list)
    _shown: int = 0  # bytes of what is no stream
    _left_out: int = 0  # outputs that did not fit
    _clear_first: bool = False

    @property
    def size(self) -> int:
        """Bytes held, about."""
        return self._shown + sum(o.size for o in self._outputs if isinstance(o, Stream)) + len(self.source)

    @property
    def truncated(self) -> bool:
        return bool(self._left_out) or any(o.dropped for o in self._outputs if isinstance(o, Stream))

    @property
    def waiting(self) -> bool:
        """The notebook file does not have all of it."""
        return self.written != self.version

    def message(self, kind: str, content: dict[str, Any]) -> dict[str, Any] | None:
        """Take in an iopub message of this execution; the output that a display id may name later, if there is one.
        Raises `KeyError` and the like for an ill-formed one."""
        if kind not in WORTH_KEEPING or kind == "update_display_data":
            return None
        self.version += 1
        if kind == "execute_input":
            self.count = content["execution_count"]
        elif kind == "clear_output":
            self._clear_first = bool(content.get("wait"))
            if not self._clear_first:
                self._clear()
        elif kind == "stream":
            self._clear_if_due()
            self._stream(str(content["name"]), str(content["text"]))
        else:
            self._clear_if_due()
            return self._show(kind, content)
        return None

    def changed(self, size: int) -> None:
        """One of its outputs was replaced by `update_display_data`; it grew by `size` bytes."""
        self._shown += size
        self.version += 1

    def _clear_if_due(self) -> None:
        if self._clear_first:
            self._clear()

    def _clear(self) -> None:
        self._clear_first = False
        self._outputs.clear()
        self._shown = self._left_out = 0

    def _stream(self, name: str, text: str) -> None:
        last = self._outputs[-1] if self._outputs else None
        if not isinstance(last, Stream) or last.name != name:
            room = MOST_STREAM - sum(o.size for o in self._outputs if isinstance(o, Stream))
            if room < MOST_STREAM // 16 or len(self._outputs) >= MOST_OUTPUTS:
                self._left_out += 1
                return
            last = Stream(name, room)
            self._outputs.append(last)
        last.add(text)

    def _show(self, kind: str, content: dict[str, Any]) -> dict[str, Any] | None:
        output = output_of(kind, content)
        size = size_of(output)
        if self._shown + size > MOST_SHOWN or len(self._outputs) >= MOST_OUTPUTS:
            self._left_out += 1
            return None
        self._shown += size
        self._outputs.append(output)
        return output

    def outputs(self) -> list[dict[str, Any]]:
        """As nbformat has them."""
        made: list[dict[str, Any]] = [
            {"output_type": "stream", "name": o.name, "text": o.text()} if isinstance(o, Stream) else dict(o)
            for o in self._outputs
        ]
        if self._left_out:
            text = f"[Berth kept the first {len(made):,} outputs of this cell; {self._left_out:,} more did not fit]\n"
            made.append({"output_type": "stream", "name": "stderr", "text": text})
        return made


def output_of(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """An nbformat output of a `display_data`, `execute_result` or `error` message. Raises `KeyError`."""
    if kind == "error":
        return {"output_type": kind, **{name: content[name] for name in ("ename", "evalue", "traceback")}}
    output = {"output_type": kind, "data": content["data"], "metadata": content.get("metadata") or {}}
    if kind == "execute_result":
        output["execution_count"] = content["execution_count"]
    return output


def size_of(output: dict[str, Any]) -> int:
    """Bytes of an output in the notebook file, about."""
    data = output.get("data")
    if not isinstance(data, dict):
        return len(json.dumps(output))
    return sum(len(value) if isinstance(value, str) else len(json.dumps(value)) for value in data.values())


#: Cells of one kernel that are remembered at all, and the bytes of them.
MOST_CELLS = 2000
MOST_BYTES = 32 * 1024 * 1024
#: Outputs that a display id names.
MOST_DISPLAYS = 2000


class Cells:
    """The newest execution of each cell of one kernel, as far as no notebook file has it for certain."""

    def __init__(self) -> None:
        self.by_request: dict[str, Cell] = {}
        self._displays: dict[str, tuple[Cell, dict[str, Any]]] = {}
        self._size = 0

    def begin(self, request: str, cell: str, source: str, now: datetime, asker: str = "") -> None:
        """An execution was asked for. An older one of the same cell is forgotten: a cell shows the newest."""
        for old in [c.request for c in self.by_request.values() if c.id == cell]:
            del self.by_request[old]
        while len(self.by_request) >= MOST_CELLS or (self.by_request and self.size() > MOST_BYTES):
            ended = (c.request for c in self.by_request.values() if c.ended)
            del self.by_request[next(ended, next(iter(self.by_request)))]
        self.by_request[request] = Cell(request, cell, source, now, asker)

    def size(self) -> int:
        return sum(cell.size for cell in self.by_request.values())

    def message(
        self, kind: str, request: str, content: dict[str, Any], now: datetime, present: Collection[str] = ()
    ) -> Cell | None:
        """Take in a message of the execution `request`; the cell if it ended by it. `present` are the sessions of the
        browsers that are connected. Raises for an ill-formed message."""
        cell = self.by_request.get(request)
        if cell is None:
            return None
        if kind == "status":
            ends = content.get("execution_state") == "idle" and cell.ended is None
            return self._end(cell, now, present) if ends else None
        cell.seen = cell.seen and cell.asker in present  # a thread may print when its cell has ended
        if kind == "update_display_data":
            self._update(content)
        elif (output := cell.message(kind, content)) is not None:
            name = (content.get("transient") or {}).get("display_id")
            if isinstance(name, str) and len(self._displays) < MOST_DISPLAYS:
                self._displays[name] = (cell, output)
        return None

    def _update(self, content: dict[str, Any]) -> None:
        found = self._displays.get((content.get("transient") or {}).get("display_id") or "")
        if found is None:
            return
        cell, output = found
        before = size_of(output)
        output.update(data=content["data"], metadata=content.get("metadata") or {})
        cell.changed(size_of(output) - before)

    @staticmethod
    def _end(cell: Cell, now: datetime, present: Collection[str]) -> Cell:
        cell.ended, cell.seen = now, cell.asker in present
        return cell

    def kernel_began_again(self, now: datetime, present: Collection[str] = ()) -> None:
        """Whatever ran has ended with its process."""
        for cell in self.by_request.values():
            if cell.ended is None:
                self._end(cell, now, present)
        self._displays.clear()

    def running(self) -> list[Cell]:
        return [cell for cell in self.by_request.values() if cell.ended is None]

    def unwritten(self, present: Collection[str] = (), *, seen: bool = False) -> list[Cell]:
        """Cells with something that the file lacks: those whose browser is not there and did not see them end, or
        (`seen`) all that are known."""
        return [
            c
            for c in self.by_request.values()
            if c.waiting and (seen or not (c.seen or (c.ended is None and c.asker in present)))
        ]

    def forget(self, cells: list[Cell]) -> None:
        """The file has them: those that have ended need no keeping."""
        for cell in cells:
            if cell.ended is not None and not cell.waiting:
                self.by_request.pop(cell.request, None)
        self._displays = {n: (c, o) for n, (c, o) in self._displays.items() if c.request in self.by_request}

    def saved_by_browser(self, now: datetime) -> None:
        """A browser saved the notebook: what had ended before was in it."""
        done = [c for c in self.by_request.values() if c.ended is not None and c.ended <= now and c.seen]
        for cell in done:
            cell.written = cell.version
        self.forget(done)
