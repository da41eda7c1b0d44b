"""What cannot be kept over the end of a kernel, by code, and how it is told apart. No library is imported for it:
kinds are known by the names of their classes."""

from __future__ import annotations

import errno
from functools import lru_cache
from typing import Any

#: Sentences for people, by code.
WHY = {
    "thread": "It is or holds a running thread, which ends with the kernel.",
    "lock": "It is or holds a lock or another means of threads to wait for each other.",
    "queue": "It is or holds a queue between threads or processes.",
    "generator": "It is or holds a generator, whose place in its code cannot be kept.",
    "coroutine": "It is or holds a running coroutine, task or event loop.",
    "frame": "It is or holds a traceback or a frame of running code.",
    "file": "It is or holds an open file; open it again.",
    "socket": "It is or holds a network connection; connect again.",
    "database": "It is or holds a connection to a database; connect again.",
    "process": "It is or holds a running process or a pool of workers.",
    "weakref": "It is or holds a weak reference.",
    "memory-map": "It is or holds memory that is mapped from a file or shared with other processes.",
    "widget": "It is or holds a widget, which is bound to the page that shows it.",
    "device": "It is or holds something of a GPU other than data, such as a stream.",
    "too-large": "It is larger than what may be saved.",
    "time": "There was no time left to save it.",
    "memory": "There was not enough memory to save it.",
    "disk": "There was no room left on the disk.",
    "recursion": "It is nested too deeply.",
    "unpicklable": "Its class does not allow it to be saved.",
    # on restoring
    "python": "It was saved by another version of Python.",
    "missing-package": "A module that it needs is not installed here, or cannot be imported.",
    "no-snapshot": "No variables were saved there, or the saving was cut off before its end.",
    "damaged": "What was saved of it is damaged.",
    "foreign": "What was saved could have been written by somebody else, so it is not read.",
    "shares": "It shares objects with a variable that could not be restored.",
    "kept": "There is a variable of this name already, which was kept.",
    "failed": "Its class does not allow it to be restored.",
    "interrupted": "Restoring was interrupted.",
}

_THREADS = "Condition Event Semaphore BoundedSemaphore Barrier _RLock"
_SYNC = "SemLock Lock RLock Condition Event Semaphore"
#: code: modules and their classes. A subclass that says itself how it is pickled is left to do so.
_KINDS: dict[str, dict[str, str]] = {
    "thread": {"threading": "Thread Timer local", "_thread": "_local _ThreadHandle"},
    "lock": {"_thread": "lock RLock", "threading": _THREADS, "multiprocessing.synchronize": _SYNC},
    "queue": {"queue": "Queue SimpleQueue", "_queue": "SimpleQueue", "multiprocessing.queues": "Queue SimpleQueue"},
    "generator": {"builtins": "generator async_generator"},
    "coroutine": {
        "builtins": "coroutine",
        "_asyncio": "Task Future",
        "asyncio.futures": "Future",
        "asyncio.tasks": "Task",
        "asyncio.events": "AbstractEventLoop Handle",
        "asyncio.mixins": "_LoopBoundMixin",
        "concurrent.futures._base": "Future",
    },
    "frame": {"builtins": "frame traceback"},
    "file": {"_io": "_IOBase", "tempfile": "_TemporaryFileWrapper"},
    "socket": {
        "socket": "socket",
        "_socket": "socket",
        "ssl": "SSLContext SSLObject",
        "zmq.sugar.socket": "Socket",
        "zmq.sugar.context": "Context",
        "multiprocessing.connection": "_ConnectionBase Listener",
        "selectors": "BaseSelector",
    },
    "database": {
        "sqlite3": "Connection Cursor Blob",
        "sqlalchemy.engine.base": "Engine Connection",
        "sqlalchemy.orm.session": "Session",
        "psycopg": "Connection AsyncConnection Cursor",
        "psycopg2.extensions": "connection cursor",
        "duckdb": "DuckDBPyConnection",
        "_duckdb": "DuckDBPyConnection",
        "h5py._hl.base": "HLObject",
    },
    "process": {
        "subprocess": "Popen",
        "asyncio.subprocess": "Process",
        "multiprocessing.process": "BaseProcess",
        "multiprocessing.pool": "Pool",
        "multiprocessing.managers": "BaseManager",
        "concurrent.futures._base": "Executor",
        "_winapi": "Overlapped",
    },
    "weakref": {
        "weakref": "ReferenceType ProxyType CallableProxyType WeakKeyDictionary WeakValueDictionary WeakMethod "
        "finalize",
        "builtins": "weakref weakproxy weakcallableproxy",
    },
    "memory-map": {"mmap": "mmap", "multiprocessing.shared_memory": "SharedMemory"},
    "widget": {"ipywidgets.widgets.widget": "Widget"},
    "device": {
        "torch": "Stream Event",
        "torch._C": "_CudaStreamBase _CudaEventBase _CUDAGraph Stream",
        "torch.cuda.streams": "Stream Event",
        "torch.cuda.graphs": "CUDAGraph",
        "cupy.cuda.stream": "Stream Event",
    },
}
_CODES = {
    (module, name): code
    for code, modules in _KINDS.items()
    for module, names in modules.items()
    for name in names.split()
}
#: Files in memory are data.
_DATA = {("_io", "BytesIO"), ("_io", "StringIO")}
_OWN_WORD = ("__reduce_ex__", "__reduce__", "__getstate__")


class Refused(Exception):
    """This cannot be saved, or restored; `code` is a key of `WHY`."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(WHY[code])
        self.code = code
        self.detail = detail


def code_of(kind: Any) -> str | None:
    """Why nothing of this class can be saved; None where that is not known of the class alone. Raises whatever a
    metaclass raises."""
    try:
        return _code_of(kind)
    except TypeError:  # its metaclass makes it unhashable
        return _code_of.__wrapped__(kind)


@lru_cache(maxsize=4096)  # classes of the user's are not held for ever
def _code_of(kind: Any) -> str | None:
    for base in kind.__mro__:
        key = (base.__module__, base.__qualname__)
        if key in _DATA:
            return None
        if code := _CODES.get(key):
            return code
        if base is not object and any(word in vars(base) for word in _OWN_WORD):
            return None  # its class says itself how
    return None


def refusal_of(error: BaseException) -> Refused:
    """Why it could not be saved, out of what was raised."""
    if isinstance(error, Refused):
        return error
    detail = f"{type(error).__name__}: {error}"[:300]
    if isinstance(error, MemoryError):
        return Refused("memory", detail)
    if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
        return Refused("recursion", detail)
    return Refused("unpicklable", detail)


def full_disk(error: OSError) -> bool:
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def class_name(value: object) -> str:
    """As people write it. Never raises, whatever a metaclass does."""
    kind: Any = type(value)
    try:
        module, name = str(kind.__module__), str(kind.__qualname__)
    except Exception:
        return "?"
    return (name if module in {"builtins", "__main__"} else f"{module}.{name}")[:200]
