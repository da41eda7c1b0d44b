"""What a stream of `serialize` is made of again. Streams name these functions: they must keep their names and
arguments as long as snapshots of format 1 are read."""

from __future__ import annotations

import bisect
import functools
import importlib
import json
import pickle
import re
import sys
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from berth_lab.serialize_refusals import Refused

#: Tensors of more bytes live in the memory that they were read into, which torch cannot make larger; a copy would need
#: all of it twice.
RESIZABLE = 64 * 1024 * 1024


class _Here:
    """Into what is restored, while it is."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] | None = None
        self.notes: set[str] = set()


_here = _Here()


def into(namespace: dict[str, Any]) -> set[str]:
    """Restore into this namespace from now on; the answer collects what a person should know."""
    _here.namespace, _here.notes = namespace, set()
    return _here.notes


def namespace() -> dict[str, Any]:
    """The globals of the notebook's functions."""
    return vars(sys.modules["__main__"]) if _here.namespace is None else _here.namespace


def function(
    code: CodeType, names: dict[str, Any], name: str, defaults: None, closure: tuple[CellType, ...] | None
) -> FunctionType:
    return FunctionType(code, names, name, defaults, closure)


def fill_function(made: FunctionType, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    made.__dict__.update(state[0])
    for name, value in state[1].items():
        setattr(made, name, value)


def remembering(called: Any, maxsize: int | None, typed: bool) -> Any:
    """A function with `functools.lru_cache`."""
    return functools.lru_cache(maxsize, typed)(called)


def cell() -> CellType:
    return CellType()


def fill_cell(made: CellType, state: tuple[Any]) -> None:
    made.cell_contents = state[0]


def view(base: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """A view of a numpy array."""
    memory = base if base.flags.c_contiguous else base.T
    made = sys.modules["numpy"].ndarray(shape, dtype, memory, offset, strides)
    made.flags.writeable = writeable
    return made


def same(value: Any) -> Any:
    return value


def storage(memory: Any, device: str) -> Any:
    """A torch storage, on its device when there is one."""
    torch: Any = module("torch")
    if not len(memory):
        made = torch.UntypedStorage(0)
    else:
        made = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        if len(memory) <= RESIZABLE:
            made = torch.UntypedStorage(len(memory)).copy_(made)
    if device == "cpu":
        return made
    try:
        return made.to(device=torch.device(device))
    except Exception:
        _here.notes.add(f"Tensors of {device} are in the machine's memory now: that device is not there.")
        return made


def with_gradient(make: Any, arguments: tuple[Any, ...], gradient: Any) -> Any:
    """A tensor and what `backward` has added to it."""
    made = make(*arguments)
    made.grad = gradient
    return made


def typed_storage(untyped: Any, dtype: Any) -> Any:
    torch: Any = module("torch")
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


class Damaged(Exception):
    """These are not the bytes that were written."""


_InPython: Any = pickle._Unpickler
#: What it says where an object is not there that another piece was to make.
_NOT_FOUND = re.compile(r"Memo value not found at index ([0-9]+)")


class _Careful(_InPython):
    """The unpickler in Python, with holes in its memo where a piece could not be read: what refers to one fails.
    CPython's in C counts objects, and would give another object instead."""

    next_index = 0
    memo: dict[int, Any]
    stack: list[Any]

    def load_memoize(self) -> None:
        self.memo[self.next_index] = self.stack[-1]
        self.next_index += 1

    dispatch = _InPython.dispatch | {pickle.MEMOIZE[0]: load_memoize}


class Restorer:
    """Reads the pieces of one stream in their order; when one fails, the others that do not share with it go on."""

    def __init__(self, source: Any, begins: list[int]) -> None:
        """`source` is a `snapshot_files.Reader`; `begins`: how many objects the stream has before each piece, of which
        the first opens the stream."""
        self._source, self._begins = source, begins
        self._reader: Any = pickle.Unpickler(source, buffers=source)

    def start(self) -> None:
        """Read what the stream opens with. Raises `Damaged`."""
        self._source.open(0)
        self._reader.load()

    def read(self, number: int) -> Any:
        """The value of a piece. Raises what `refused` knows, and whatever its class's own code raises."""
        try:
            self._source.open(number)
            if isinstance(self._reader, _Careful):
                self._reader.next_index = self._begins[number]
            return self._reader.load()[0]
        except BaseException:
            # What this piece has put into the memo may be half made.
            known = dict(self._reader.memo.copy())
            self._reader = _Careful(self._source, buffers=self._source)
            self._reader.memo = {i: value for i, value in known.items() if i < self._begins[number]}
            raise

    def made_by(self, error: BaseException) -> int | None:
        """The piece that the object of a "memo value not found" was to come from."""
        found = _NOT_FOUND.fullmatch(str(error))
        return bisect.bisect_right(self._begins, int(found[1])) - 1 if found else None


def refused(error: BaseException) -> Refused:
    """Why it could not be restored, out of what was raised."""
    if isinstance(error, Refused):
        return error
    detail = f"{type(error).__name__}: {error}"[:300]
    if isinstance(error, KeyboardInterrupt):
        return Refused("interrupted")
    if isinstance(error, MemoryError):
        return Refused("memory", detail)
    if isinstance(error, Damaged | FileNotFoundError | json.JSONDecodeError):
        return Refused("damaged", detail)
    if isinstance(error, ImportError):
        return Refused("missing-package", detail)
    if isinstance(error, pickle.UnpicklingError) and _NOT_FOUND.fullmatch(str(error)):
        return Refused("shares", detail)
    return Refused("failed", detail)
