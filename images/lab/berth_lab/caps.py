"""An IPython extension that keeps PyTorch to the share of the GPU that the server holds.

Cooperative: it holds PyTorch's caching allocator, one process, nothing else, and a program may lift it (notes of
`torch.cuda.set_per_process_memory_fraction`). It never imports torch, and it never initialises CUDA: the cap is
queued behind torch's own lazy initialisation, since a kernel that merely imports torch must stay forkable and must not
take a CUDA context.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

WHOLE = 1000


def share() -> float | None:
    """The fraction of a GPU that this server holds; None for no GPU, whole ones, or nonsense."""
    text = os.environ.get("BERTH_GPU_SHARE_MILLI", "")
    if not text.isascii() or not text.isdigit():
        return None
    milli = int(text)
    return milli / WHOLE if 0 < milli < WHOLE else None


def cap(torch: Any, fraction: float) -> None:
    """Hold every visible device of this process to the fraction, as soon as CUDA is used. Never raises."""
    try:
        torch.cuda._lazy_call(lambda: _hold(torch.cuda, fraction))
    except Exception as error:  # another torch: the caps of the environment's variables remain
        _tell(error)


def _hold(cuda: Any, fraction: float) -> None:
    """Called by torch within its initialisation of CUDA, which an exception would break."""
    try:
        for device in range(cuda.device_count()):
            cuda.set_per_process_memory_fraction(fraction, device)
    except Exception as error:
        _tell(error)


def _tell(error: Exception) -> None:
    print(f"berth_lab: PyTorch is not held to this server's share of the GPU: {error}", file=sys.stderr)


class AfterTorch(MetaPathFinder):
    """Lets the first import of torch go its usual way and caps what comes out of it."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._looking = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "torch" or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            self._wrap(spec.loader)
        return spec

    def _wrap(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            cap(module, self._fraction)

        loader.exec_module = exec_module


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython at its start (`etc/ipython/ipython_config.py`)."""
    fraction = share()
    if fraction is None:
        return
    if "torch" in sys.modules:
        cap(sys.modules["torch"], fraction)
    elif not any(isinstance(finder, AfterTorch) for finder in sys.meta_path):
        sys.meta_path.insert(0, AfterTorch(fraction))
