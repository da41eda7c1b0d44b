"""Tensors: their memory goes straight to the file, from the CPU or by way of it, and two that share it go on sharing.

torch's own pickling of a storage makes a copy in memory, and forgets what is shared and what gradients there are.
Nothing is imported: without torch in the program there is no tensor.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from typing import Any

from berth_lab import restore


def reduced(obj: Any, seen: dict[int, Any]) -> Any:
    """How torch's storages, and tensors with gradients, are pickled; None for anything else. `seen` has the storages of
    this stream by their place."""
    torch: Any = sys.modules.get("torch")
    kind = type(obj)
    if torch is None or not kind.__module__.startswith("torch"):
        return None
    tensor, typed, untyped = (getattr(torch, name, ()) for name in ("Tensor", "TypedStorage", "UntypedStorage"))
    if issubclass(kind, tensor):
        return _with_gradient(obj)
    if issubclass(kind, typed):
        return restore.typed_storage, (obj._untyped_storage, obj.dtype)
    if not issubclass(kind, untyped):
        return None
    first = seen.setdefault(obj._cdata, obj)
    if first is not obj:
        return restore.same, (first,)
    return restore.storage, (_memory(obj), str(obj.device))


def _with_gradient(tensor: Any) -> Any:
    """A parameter after `backward`; None where there is no gradient, or torch says more than is known here."""
    if not tensor.is_leaf or tensor.grad is None:
        return None
    made = tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    return (restore.with_gradient, (*made, tensor.grad)) if len(made) == 2 else None


def _memory(storage: Any) -> Any:
    """The bytes of a storage, without a copy when they are in the machine's memory."""
    here = storage if storage.device.type == "cpu" else storage.cpu()
    size = here.nbytes()
    if not size:
        return b""
    memory = (_Bytes * size).from_address(here.data_ptr())
    memory.owner = here
    return pickle.PickleBuffer(memory)


class _Bytes(ctypes.c_ubyte):
    """Its arrays may have attributes."""
