"""An ipykernel of its own, without a server, driven by its channels; asked to save and restore as the kit asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from berth_lab import farewell_kernels
from berth_lab.farewell_kernels import Seat

PYTHON = Seat("k", "python3", "python", "a.ipynb", "notebook", "a.ipynb", None)


class OwnKernel:
    """`run` executes a cell, `values` evaluates expressions; `save` and `load` are the kit's own."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def run(self, code: str, seconds: float = 60) -> None:
        """One cell. Raises `AssertionError` for an error in it."""
        reply = self._reply(code, {}, seconds)
        assert reply["status"] == "ok", "\n".join(reply.get("traceback", [str(reply)]))

    def values(self, expressions: dict[str, str], seconds: float = 60) -> dict[str, str]:
        """Their values as text, or what they raised."""
        found = self._reply("", expressions, seconds)["user_expressions"]
        return {
            name: value["data"]["text/plain"] if value["status"] == "ok" else f"{value['ename']}: {value['evalue']}"
            for name, value in found.items()
        }

    def value(self, expression: str, seconds: float = 60) -> str:
        return self.values({"it": expression}, seconds)["it"]

    def _reply(self, code: str, expressions: dict[str, str], seconds: float) -> dict[str, Any]:
        sent = self.client.execute(code, silent=not code, user_expressions=expressions, allow_stdin=False)
        while True:
            reply = self.client.get_shell_msg(timeout=seconds)
            if reply["parent_header"].get("msg_id") == sent:
                return dict(reply["content"])

    def save(self, folder: Path, limits: dict[str, Any] | None = None, seconds: float = 60) -> dict[str, Any]:
        asked = limits or {"most_mib": 512, "seconds": 30}
        return asyncio.run(farewell_kernels.save(self.manager, PYTHON, folder, asked, seconds))

    def load(self, folder: Path, seconds: float = 60) -> dict[str, Any]:
        return asyncio.run(farewell_kernels.load(self.manager, folder, seconds))


@contextmanager
def own_kernel(home: Path) -> Iterator[OwnKernel]:
    """A fresh kernel that works in this folder."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(home))
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        yield OwnKernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
