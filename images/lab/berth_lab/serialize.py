"""One stream for a whole namespace, variable by variable: what they share stays shared, and one that fails is taken
out of the stream again as if it had never been begun.

The serializer is cloudpickle, not dill. Both keep functions and classes of a notebook. cloudpickle builds on CPython's
pickler in C (dill on the one in Python; `benchmarks.snapshot` has both beside this), and that pickler has a memo that
can be set back, on which the taking out is built. dill also "saves" what is bound to a process: an open file by its
name, a lock in the state it had, which look restored and are not (tests/contract/test_snapshot_dill.py). What
cloudpickle lacks is added here: a function of the notebook keeps the notebook's own globals (cloudpickle gives it a
copy), and closures that share a variable go on sharing it.
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from types import CellType, FunctionType
from typing import Any, Protocol

import cloudpickle

from berth_lab import restore, serialize_torch
from berth_lab.serialize_refusals import Refused, class_name, code_of

PROTOCOL = 5
#: Buffers from this size on go out of band, straight from memory to the file.
LARGE = 64 * 1024

#: What `functools.lru_cache` makes.
_Remembering = type(functools.lru_cache(len))
_METADATA = ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__", "__annotations__")


class Sink(Protocol):
    """Where the stream goes."""

    def write(self, data: Any, /) -> int: ...
    def buffer(self, data: memoryview) -> None: ...


class Serializer(cloudpickle.Pickler):
    """Writes values into one stream. `namespace` is the globals of the notebook's functions; it is not saved with
    them, but found again. `owners` are ids of arrays whose views stay views of them."""

    def __init__(self, sink: Sink, namespace: dict[str, Any], owners: frozenset[int] = frozenset()) -> None:
        self.memo: Any
        super().__init__(sink, protocol=PROTOCOL, buffer_callback=self._buffer)
        self._sink, self._namespace, self._owners = sink, namespace, owners
        self._storages: dict[int, Any] = {}
        self._found_again()

    def _found_again(self) -> None:
        """Open the stream with the namespace, so that wherever it is met, a reference is written."""
        token = _Token()
        self.dump(token)
        memo = self.memo.copy()
        index, _ = memo.pop(id(token))
        self.memo = memo | {id(self._namespace): (index, self._namespace)}

    def add(self, value: Any) -> list[Any]:
        """Write one value, as a list of one; that list, which tells where in the stream it begins. Raises whatever the
        value's own code raises, and then has forgotten it."""
        piece = [value]
        try:
            self.dump(piece)
        except BaseException:
            self._take_out(piece)
            raise
        return piece

    def _take_out(self, piece: list[Any]) -> None:
        """Forget what was met since the piece began; what was written of it must be taken out of the sink."""
        memo = self.memo.copy()
        if id(piece) in memo:
            begin = memo[id(piece)][0]
            self.memo = {key: entry for key, entry in memo.items() if entry[0] < begin}

    def begins(self, pieces: Iterable[list[Any]]) -> list[int]:
        """How many objects the stream has before each of these pieces."""
        memo = self.memo.copy()
        return [memo[id(piece)][0] for piece in pieces]

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            if raw.nbytes < LARGE:
                return True
            self._sink.buffer(raw)
        return False

    def reducer_override(self, obj: Any) -> Any:
        """Called by the pickler for all but plain values and containers."""
        kind = type(obj)
        if kind is FunctionType and obj.__globals__ is self._namespace:
            return _function(obj)
        if kind is CellType:
            return _cell(obj)
        if kind is _Remembering and obj.__module__ == "__main__":
            return _remembering(obj)
        if kind is memoryview:
            return memoryview, (obj.tobytes() if obj.readonly else bytearray(obj.tobytes()),)
        if (code := code_of(kind)) is not None:
            raise Refused(code, class_name(obj))
        reduced = self._view(obj) or serialize_torch.reduced(obj, self._storages)
        return reduced if reduced is not None else super().reducer_override(obj)

    def _view(self, obj: Any) -> Any:
        """A view of an array that is a variable itself stays one."""
        numpy = sys.modules.get("numpy")
        if numpy is None or type(obj) is not numpy.ndarray or id(obj.base) not in self._owners:
            return None
        base = obj.base
        offset = obj.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return restore.view, (base, obj.dtype, obj.shape, obj.strides, offset, bool(obj.flags.writeable))


class _Token:
    def __reduce__(self) -> Any:
        return restore.namespace, ()


def _function(function: FunctionType) -> Any:
    """By its code, in the notebook's own globals."""
    slots = {name: getattr(function, name) for name in _METADATA}
    arguments = (function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    return restore.function, arguments, (dict(function.__dict__), slots), None, None, restore.fill_function


def _remembering(function: Any) -> Any:
    """A cached function of the notebook; others are found by their names. What it remembers is not kept."""
    known = function.cache_parameters()
    return restore.remembering, (function.__wrapped__, known["maxsize"], known["typed"]), dict(vars(function))


def _cell(cell: CellType) -> Any:
    """Made empty and then filled: it may hold the function that it belongs to."""
    try:
        state = (cell.cell_contents,)
    except ValueError:
        return restore.cell, ()
    return restore.cell, (), state, None, None, restore.fill_cell


def owners(values: Mapping[str, Any], most: int) -> frozenset[int]:
    """Ids of arrays that own their memory (`most` bytes at most), plain data alone: those that are variables, and
    those that variables are views of without leaving much of them out."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return frozenset()
    arrays = [value for value in values.values() if type(value) is numpy.ndarray]
    found = {id(array): array for array in arrays if array.base is None}
    views = [array for array in arrays if type(array.base) is numpy.ndarray]
    shown: Counter[int] = Counter()
    for view in views:
        shown[id(view.base)] += view.nbytes
    found |= {id(view.base): view.base for view in views if shown[id(view.base)] >= view.base.nbytes}
    return frozenset(
        number
        for number, array in found.items()
        if array.base is None
        and array.nbytes <= most
        and not array.dtype.hasobject
        and (array.flags.c_contiguous or array.flags.f_contiguous)
    )
