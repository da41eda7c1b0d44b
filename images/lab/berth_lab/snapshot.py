"""A notebook's variables, saved before its kernel ends and taken back by the next one. Runs inside the kernel.

    save(folder, limits)    writes `variables.*` and `report.json`; never raises
    load(folder)            takes the variables back and writes `restored.json`; never raises

`report.json`: {"format": 1, "saved": [{"name", "type", "bytes"}], "lost": [{"name", "type", "code", "why", "detail"}],
"seconds", "bytes", "python", "packages", "cwd", "notes": [sentences]}. `restored.json`: the same, where `saved` are
the variables that are there again.

Code of others runs only where their own classes say how they are pickled, and whatever it does is caught. One variable
that fails costs no other. Files of a snapshot are read as code would be: only from the user's own folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from berth_lab import __version__, restore, snapshot_state
from berth_lab.serialize import Serializer, owners
from berth_lab.serialize_refusals import WHY, Refused, class_name, code_of, refusal_of
from berth_lab.serialize_time import Clock, TimeIsUp
from berth_lab.snapshot_files import Reader, Writer, read_index, write_whole

FORMAT = 1
MIB = 1024 * 1024
#: IPython's own names: outputs, inputs and what they were.
IPYTHON = re.compile(r"_+|_\d+|_i+|_i\d+|_[iod]h|_exit_code|__\w+__|In|Out|exit|quit|get_ipython|open|display")
#: A single variable may take this part of the time that is left.
PART_OF_TIME = 0.5
#: The last so many seconds are for putting the files in their place.
FINISH_SECONDS = 0.5
MOST_NOTES = 50
#: What is taken for the size of an instance.
UNKNOWN_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of one variable and of all, seconds of all."""

    each: int = 2048 * MIB
    most: int = 2048 * MIB
    seconds: float = 60.0

    @classmethod
    def of(cls, given: str | Mapping[str, Any] | None) -> Limits:
        """Out of {"most_mib", "each_mib", "seconds"}, or its JSON; what is missing or nonsense is as by default."""
        values: Any = json.loads(given) if isinstance(given, str) else given or {}
        most = _positive(values.get("most_mib"), 2048)
        return cls(
            int(_positive(values.get("each_mib"), most) * MIB), int(most * MIB), _positive(values.get("seconds"), 60)
        )


def _positive(value: Any, otherwise: float) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if good else float(otherwise)


def save(folder: str | Path, limits: str | Mapping[str, Any] | None = None) -> str:
    """Save the variables; how many, as JSON. Never raises."""
    began, folder = monotonic(), Path(folder)
    try:
        with _quietly():
            report = _Saving(folder, Limits.of(limits), began).run()
    except BaseException as error:
        report = _empty(began, refusal_of(error) if not isinstance(error, TimeIsUp) else Refused("time"))
    return _told(folder / "report.json", report)


def load(folder: str | Path) -> str:
    """Take the variables back; how many, as JSON. Never raises."""
    began, folder = monotonic(), Path(folder)
    try:
        with _quietly():
            report = _Loading(folder, began).run()
    except BaseException as error:
        report = _empty(began, restore.refused(error))
    return _told(folder / "restored.json", report)


def _told(path: Path, report: dict[str, Any]) -> str:
    with contextlib.suppress(BaseException):
        write_whole(path, json.dumps(report).encode())
    return json.dumps({"saved": len(report["saved"]), "lost": len(report["lost"]), "seconds": report["seconds"]})


def _empty(began: float, error: Refused) -> dict[str, Any]:
    """Nothing could be done."""
    return _report(began, [], [_row("*", "", error)], 0)


def _report(began: float, saved: list[Any], lost: list[Any], size: int, **more: Any) -> dict[str, Any]:
    report = {"format": FORMAT, "saved": saved, "lost": lost, "seconds": round(monotonic() - began, 3), "bytes": size}
    return report | {"python": _python(), "packages": snapshot_state.packages(), "notes": []} | more


def _row(name: str, kind: str, error: Refused) -> dict[str, Any]:
    return {"name": name[:200], "type": kind, "code": error.code, "why": WHY[error.code], "detail": error.detail[:300]}


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What classes print or warn of is not put into the notebook."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def _shell() -> Any:
    """IPython's shell; None in a program without."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _namespace() -> dict[str, Any]:
    shell = _shell()
    names: dict[str, Any] = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    return names


def variables() -> dict[str, Any]:
    """The user's own, in the order in which they were made."""
    names, hidden = _namespace(), getattr(_shell(), "user_ns_hidden", {})
    nothing = object()
    return {
        name: value
        for name, value in list(names.items())
        if isinstance(name, str) and not IPYTHON.fullmatch(name) and hidden.get(name, nothing) is not value
    }


def weight(value: Any) -> tuple[int, int]:
    """What comes first: what others are made of, then the small, so that little is lost when the time is over.
    What a library says of itself is believed; what it raises costs nothing."""
    try:
        return _weight(value)
    except Exception:
        return 1, UNKNOWN_BYTES


def _weight(value: Any) -> tuple[int, int]:
    kind = type(value)
    if issubclass(kind, ModuleType | type | FunctionType | BuiltinFunctionType):
        return 0, 0
    root = str(getattr(kind, "__module__", "")).partition(".")[0]
    if root == "numpy" and hasattr(kind, "nbytes"):
        return 1, int(value.nbytes)
    if root == "torch" and hasattr(kind, "element_size"):
        return 1, int(value.numel() * value.element_size())
    if root == "pandas" and hasattr(kind, "size"):
        return 1, 8 * int(value.size)
    return 1, sys.getsizeof(value) if root == "builtins" else UNKNOWN_BYTES


class _Saving:
    """One saving."""

    def __init__(self, folder: Path, limits: Limits, began: float) -> None:
        self.clock, self.limits, self.began = Clock(limits.seconds), limits, began
        self.writer = Writer(folder, limits.each, limits.most, self.clock.check)
        self.saved: list[dict[str, Any]] = []
        self.lost: list[dict[str, Any]] = []
        self.pieces: list[dict[str, Any]] = []
        self.heads: list[list[Any]] = []

    def run(self) -> dict[str, Any]:
        """The report. Raises `OSError`."""
        try:
            values = variables()
            cells = [cell for cell in list(_namespace().get("_ih", ()))[-snapshot_state.MOST_CELLS :]]
            state = snapshot_state.captured(cell for cell in cells if isinstance(cell, str))
            self._pieces(values)
            begins = self.stream.begins(self.heads)
            pieces = [piece | {"begins": begin} for piece, begin in zip(self.pieces, begins, strict=True)]
            size = self.writer.total()
            index = {"format": FORMAT, "kit": __version__, "python": _python(), "packages": snapshot_state.packages()}
            self.writer.finish(index | {"opening": self.opening, "pieces": pieces, "state": state})
        except BaseException:
            self.writer.abandon()
            raise
        order = {name: number for number, name in enumerate(values)}
        for rows in (self.saved, self.lost):
            rows.sort(key=lambda row: order.get(row["name"], 0))
        notes = [f"Withheld: {name}" for name in state["withheld"]]
        return _report(self.began, self.saved, self.lost, size, cwd=state["cwd"], notes=notes[:MOST_NOTES])

    def _pieces(self, values: dict[str, Any]) -> None:
        self.stream = Serializer(self.writer, _namespace(), owners(values, self.limits.each))
        self.opening = self.writer.piece()
        with contextlib.suppress(Exception):
            for name, value in snapshot_state.random_states().items():
                self._one(name, value, 0, "random")
        order = {name: number for number, name in enumerate(values)}
        for name in sorted(values, key=lambda each: weight(values[each])):
            self._one(name, values[name], order[name], "variable")

    def _one(self, name: str, value: Any, order: int, kind: str) -> None:
        error = self._written(value)
        type_name = class_name(value)
        if error is not None:
            if kind == "variable":
                self.lost.append(_row(name, type_name, error))
            return
        self.pieces.append({"kind": kind, "name": name, "type": type_name, "order": order} | self.writer.piece())
        if kind == "variable":
            self.saved.append({"name": name, "type": type_name, "bytes": self.writer.piece_bytes()})

    def _written(self, value: Any) -> Refused | None:
        """Write one value; why not, otherwise. Nothing comes out of it."""
        left = self.clock.left() - FINISH_SECONDS
        if left <= 0:
            return Refused("time")
        self.writer.begin()
        try:
            with self.clock.within(left * PART_OF_TIME if left > 1 else left):
                if (code := code_of(type(value))) is not None:
                    raise Refused(code)
                head = self.stream.add(value)
        except (TimeIsUp, KeyboardInterrupt):
            error = Refused("time")
        except BaseException as raised:
            error = refusal_of(raised)
        else:
            self.heads.append(head)
            return None
        self.writer.take_out()
        return error


class _Loading:
    """One restoring."""

    def __init__(self, folder: Path, began: float) -> None:
        self.folder, self.began, self.interrupted = folder, began, False
        self.notes: set[str] = set()
        self.saved: list[dict[str, Any]] = []
        self.lost: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """The report. Raises `restore.Damaged`, `OSError`."""
        index = read_index(self.folder)
        pieces = index["pieces"]
        if index["format"] != FORMAT or index["python"] != _python():
            return self._other_python(index)
        names = _namespace()
        notes = restore.into(names)
        notes.update(snapshot_state.bring_back(index["state"]))
        notes.update(_versions(index["packages"]))
        reader = Reader(self.folder, index["data"], [index["opening"], *pieces])
        try:
            restorer = restore.Restorer(reader, [0, *(piece["begins"] for piece in pieces)])
            restorer.start()
            found = self._read(restorer, pieces, names)
        finally:
            reader.close()
        self._in_order(names, found)
        return _report(self.began, self.saved, self.lost, 0, notes=sorted(notes | self.notes)[:MOST_NOTES])

    def _other_python(self, index: dict[str, Any]) -> dict[str, Any]:
        words = f"It was saved by Python {index['python']}; this is {_python()}. Choose an environment with that one."
        rows = [piece for piece in index["pieces"] if piece["kind"] == "variable"]
        lost = [_row(piece["name"], piece["type"], Refused("python", words)) for piece in rows]
        return _report(self.began, [], lost, 0, notes=[words])

    def _read(self, restorer: restore.Restorer, pieces: list[dict[str, Any]], names: dict[str, Any]) -> dict[int, Any]:
        """The pieces that are back, by their variables' order. Each is in its place at once: the code of later ones may
        need it."""
        theirs, found, errors = variables(), {}, dict[int, Refused]()
        for number, piece in enumerate(pieces, 1):
            try:
                value = self._piece(restorer, number, piece, theirs)
            except BaseException as raised:
                error = errors[number] = self._first_hand(restorer, raised, pieces, errors)
                self.interrupted = self.interrupted or error.code == "interrupted"
                if piece["kind"] == "variable":
                    self.lost.append(_row(piece["name"], piece["type"], error))
                else:
                    self.notes.add(f"Random numbers of {piece['name']} do not go on as they would have.")
                continue
            if piece["kind"] == "variable":
                names[piece["name"]] = value
                found[piece["order"]] = piece
        return found

    def _first_hand(
        self,
        restorer: restore.Restorer,
        raised: BaseException,
        pieces: list[dict[str, Any]],
        errors: Mapping[int, Refused],
    ) -> Refused:
        """Why it failed; of one that shares with another, which, and a remedy that the other has is its own."""
        error, maker = restore.refused(raised), restorer.made_by(raised)
        if error.code != "shares" or maker is None or maker not in errors:
            return error
        first, made = errors[maker], pieces[maker - 1]
        if first.code == "missing-package":
            return first
        return Refused("shares", f"with {made['name'] if made['kind'] == 'variable' else 'random numbers'}")

    def _piece(self, restorer: restore.Restorer, number: int, piece: dict[str, Any], theirs: Mapping[str, Any]) -> Any:
        if self.interrupted:
            raise Refused("interrupted")
        value, name = restorer.read(number), piece["name"]
        if piece["kind"] == "random":
            snapshot_state.set_random(name, value)
        elif name in theirs and not (isinstance(value, ModuleType) and theirs[name] is value):
            raise Refused("kept")  # a variable that was made since is the newer one
        return value

    def _in_order(self, names: dict[str, Any], found: dict[int, Any]) -> None:
        """As they were made, not as they were read."""
        for _, piece in sorted(found.items()):
            names[piece["name"]] = names.pop(piece["name"])
            size = piece["pickle"][1] + sum(buffer[1] for buffer in piece["buffers"])
            self.saved.append({"name": piece["name"], "type": piece["type"], "bytes": size})


def _versions(saved: Mapping[str, str]) -> Iterator[str]:
    """What has another version now, of what is imported already or known by its distribution."""
    for name, version in saved.items():
        now = getattr(sys.modules.get(name), "__version__", version)
        if now != version:
            yield f"{name} was {version} and is {now} here."
