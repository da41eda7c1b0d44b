"""Follows the executions of notebooks' cells and keeps their outputs, for the notebook file.

Which cell an execution belongs to is in the request that JupyterLab sends (`cellId` in its metadata); the server's
websocket connection is where it comes by. Its class is a setting of the server: ours is a child of whatever is set.
Outputs arrive over an iopub connection of our own. They are written to the notebook

* when somebody reads the notebook from the server, just before it is read;
* when a browser that went away properly has left, at the execution's end and every minute;
* by the farewell.

A browser whose connection just broke (a lid was closed) may come back to the same page; the server hands it what it
missed, and a file that changed under it would only make it ask. So nothing is written behind its back.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from jupyter_client.session import Session, utcnow
from zmq.eventloop.zmqstream import ZMQStream

from berth_lab.notebooks import Notebooks, Stamp, Written, done
from berth_lab.outputs import WORTH_KEEPING, Cell, Cells

log = logging.getLogger("berth_lab")

#: Between two writes of a cell that goes on.
WRITE_SECONDS = 60.0
#: After a cell's end, for others of a "run all".
SETTLE_SECONDS = 1.0
NEEDED = ("connect", "disconnect", "handle_incoming_message")
PARTED_PROPERLY = frozenset({1000, 1001})
V1 = "v1.kernel.websocket.jupyter.org"


class DoesNotFit(Exception):
    """The server's websocket connections are not what we know."""


class KernelOutputs:
    """One kernel: who is connected, and the cells' outputs."""

    def __init__(self, kernel_id: str, manager: Any, ended: Callable[[], None]) -> None:
        self.id = kernel_id
        self.cells = Cells()
        self.connections: dict[int, str] = {}  # sessions of the browsers that are here
        self.parted_properly = True  # the last browser that was here
        self._ended = ended
        self._session = Session(
            key=manager.session.key, signature_scheme=manager.session.signature_scheme, digest_history_size=0
        )
        stream = manager.connect_iopub()
        self._iopub = stream if isinstance(stream, ZMQStream) else ZMQStream(stream)
        self._iopub.on_recv(self._on_iopub)

    @property
    def attached(self) -> bool:
        return bool(self.connections)

    @property
    def broken(self) -> bool:
        return bool(self._iopub.closed())

    @property
    def present(self) -> frozenset[str]:
        return frozenset(self.connections.values())

    def unwritten(self, *, seen: bool = False) -> list[Cell]:
        """As `Cells.unwritten`, by who is here now."""
        return self.cells.unwritten(self.present, seen=seen)

    def requested(self, message: dict[str, Any], asker: str) -> None:
        """A request for an execution came by; it counts if it says whose cell it is."""
        content, cell = message["content"], message["metadata"].get("cellId")
        if not isinstance(cell, str) or content.get("silent"):
            return
        self.cells.begin(str(message["header"]["msg_id"]), cell, str(content["code"]), utcnow(), asker)

    def _on_iopub(self, frames: list[bytes]) -> None:
        try:
            self._take(frames)
        except Exception:  # ill-formed or forged: not ours to complain about
            log.debug("an iopub message of kernel %s could not be read", self.id, exc_info=True)

    def _take(self, frames: list[bytes]) -> None:
        parts: Any
        _, parts = self._session.feed_identities(frames)
        if b'"starting"' in parts[4] and json.loads(parts[1])["msg_type"] == "status":
            self.cells.kernel_began_again(utcnow(), self.present)
            return
        request = json.loads(parts[2]).get("msg_id")
        if request not in self.cells.by_request:
            return
        message = self._session.deserialize(parts)
        kind = message["header"]["msg_type"]
        if kind != "status" and kind not in WORTH_KEEPING:
            return
        ended = self.cells.message(kind, request, message["content"], utcnow(), self.present)
        if ended is not None and not ended.seen:
            self._ended()

    def close(self) -> None:
        if not self._iopub.closed():
            self._iopub.close(linger=0)


class Outputs:
    """All kernels of a server, and the writing."""

    def __init__(self, kernels: Any, sessions: Any, notebooks: Notebooks) -> None:
        """`kernels` and `sessions` are the server's managers."""
        self._kernels, self._sessions, self._notebooks = kernels, sessions, notebooks
        self._known: dict[str, KernelOutputs] = {}
        self._paths: dict[str, list[str]] = {}  # as last heard, for kernels that are gone
        self.asked: Callable[[], None] = lambda: None  # called when a person runs something
        self._due = asyncio.Event()
        self._lock = asyncio.Lock()

    # ---- the server's websockets ----

    def opened(self, kernel_id: str, connection: object, session: str) -> None:
        """A browser connects to a kernel."""
        kernel = self._known.get(kernel_id)
        if kernel is None or kernel.broken:
            kernel = self._known[kernel_id] = KernelOutputs(
                kernel_id, self._kernels.get_kernel(kernel_id), self._due.set
            )
        kernel.connections[id(connection)] = session

    def closed(self, kernel_id: str, connection: object, code: int | None) -> None:
        """It went; `code` is the websocket's, None if it just broke."""
        kernel = self._known.get(kernel_id)
        if kernel is None or id(connection) not in kernel.connections:
            return
        del kernel.connections[id(connection)]
        kernel.parted_properly = code in PARTED_PROPERLY

    def incoming(self, kernel_id: str, message: dict[str, Any], session: str) -> None:
        """What a browser asks of a kernel."""
        if not message["content"].get("silent"):
            self.asked()
        if (kernel := self._known.get(kernel_id)) is not None:
            kernel.requested(message, session)

    # ---- what is known ----

    def running(self) -> list[tuple[str, Cell]]:
        """Kernel and cell of what runs now, as far as it came from a notebook."""
        return [(kernel.id, cell) for kernel in self._known.values() for cell in kernel.cells.running()]

    def unsaved(self) -> int:
        """Cells whose outputs only we have."""
        return sum(len(kernel.unwritten()) for kernel in self._known.values())

    def saved_by_browser(self, path: str) -> None:
        """A browser saved the notebook at `path`."""
        asyncio.get_running_loop().create_task(self._saved(path))

    async def _saved(self, path: str) -> None:
        now = utcnow()
        for kernel_id, where in (await self.paths()).items():
            if path in where and kernel_id in self._known:
                self._known[kernel_id].cells.saved_by_browser(now)

    async def paths(self) -> dict[str, list[str]]:
        """The notebooks of each kernel."""
        found: dict[str, list[str]] = {}
        for row in await done(self._sessions.list_sessions()):
            if row.get("type") == "notebook" and isinstance(row.get("kernel"), dict):
                found.setdefault(row["kernel"]["id"], []).append(str(row["path"]).strip("/"))
        self._paths = {i: where for i, where in self._paths.items() if i in self._known} | found
        return dict(self._paths)

    # ---- the writing ----

    async def run(self) -> None:
        """Write what no browser will, until cancelled."""
        while True:
            self._due.clear()
            try:
                await asyncio.wait_for(self._due.wait(), WRITE_SECONDS)
                await asyncio.sleep(SETTLE_SECONDS)
            except TimeoutError:
                pass
            try:
                await self._round()
            except Exception:
                log.warning("outputs could not be written; they are kept", exc_info=True)

    async def _round(self) -> None:
        gone = self._known.keys() - set(self._kernels.list_kernel_ids())
        left = [k.id for k in self._known.values() if (not k.attached and k.parted_properly) or k.id in gone]
        if left:
            await self.write(left)
        for kernel_id in gone:
            self._known.pop(kernel_id).close()

    async def write(self, kernels: list[str], *, seen: bool = False) -> list[Written]:
        """Put what is not written into the notebooks of these kernels; `seen`: what a browser has, too."""
        async with self._lock:
            paths = await self.paths()
            written = []
            for kernel in (self._known[i] for i in kernels if i in self._known):
                for path in paths.get(kernel.id, ()):
                    cells = kernel.unwritten(seen=seen)
                    if cells:
                        written.append(await self._notebooks.write(path, cells))
                kernel.cells.forget(list(kernel.cells.by_request.values()))
            return written

    async def write_all(self, stamp: Stamp | None) -> list[Written]:
        """What is not written, into every notebook that has a kernel. With a stamp, also what a browser may have: its
        server ends."""
        async with self._lock:
            written = []
            for kernel_id, where in (await self.paths()).items():
                kernel = self._known.get(kernel_id)
                for path in where:
                    cells = kernel.unwritten(seen=stamp is not None) if kernel else []
                    if cells or stamp is not None:
                        written.append(await self._notebooks.write(path, cells, stamp))
            return written

    async def before_read(self, path: str) -> None:
        """Somebody opens the notebook at `path`: it shall have what only we have."""
        try:
            paths = await self.paths()
            mine = [k for k in self._known.values() if path in paths.get(k.id, ())]
            if any(k.unwritten() for k in mine):
                await self.write([k.id for k in mine])
        except Exception:
            log.warning("outputs could not be put into %s before it was read", path, exc_info=True)


def followed(base: type[Any], outputs: Outputs) -> type[Any]:
    """A child of the server's websocket connection class that lets `outputs` know what passes. Raises `DoesNotFit`."""
    for name in NEEDED:
        if not callable(getattr(base, name, None)):
            raise DoesNotFit(f"{base.__name__} has no {name}")

    class Followed(base):
        """The server's own connection, with an ear."""

        def connect(self) -> Any:
            _quietly(lambda: outputs.opened(self.kernel_id, self, self.session.session))
            return super().connect()

        def disconnect(self) -> None:
            code = getattr(self.websocket_handler, "close_code", None)
            _quietly(lambda: outputs.closed(self.kernel_id, self, code))
            super().disconnect()

        def handle_incoming_message(self, incoming_msg: Any) -> None:
            _quietly(lambda: _heard(self, incoming_msg, outputs))
            super().handle_incoming_message(incoming_msg)

    Followed.__name__ = Followed.__qualname__ = base.__name__
    return Followed


def _quietly(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        log.debug("what passed a kernel's websocket was not understood", exc_info=True)


def _heard(connection: Any, raw: Any, outputs: Outputs) -> None:
    asks = b"execute_request" in raw if isinstance(raw, bytes) else "execute_request" in raw
    if not asks or not connection.channels:
        return
    message = read(raw, v1=connection.subprotocol == V1)
    if message is not None and message["header"].get("msg_type") == "execute_request":
        outputs.incoming(connection.kernel_id, message, connection.session.session)


def read(raw: Any, *, v1: bool) -> dict[str, Any] | None:
    """A message of the shell channel as a browser sends it. Raises for an ill-formed one."""
    import jupyter_server.services.kernels.connection.base as wire

    if v1:
        channel, parts = wire.deserialize_msg_from_ws_v1(raw)  # type: ignore[no-untyped-call]
        header, _, metadata, content = (json.loads(part) for part in parts[:4])
        return {"header": header, "metadata": metadata, "content": content} if channel == "shell" else None
    message: dict[str, Any] = (
        wire.deserialize_binary_message(raw)  # type: ignore[no-untyped-call]
        if isinstance(raw, bytes)
        else json.loads(raw)
    )
    return message if message.get("channel", "shell") == "shell" else None


def before_reads(contents: Any, outputs: Outputs) -> None:
    """Let `outputs` write before the server reads a notebook's content for somebody. Raises `DoesNotFit`."""
    import inspect

    get = contents.get
    if not inspect.iscoroutinefunction(get):
        raise DoesNotFit(f"{type(contents).__name__} does not wait for its files")

    async def reading(path: str, content: bool = True, *args: Any, **more: Any) -> Any:
        if content and str(path).endswith(".ipynb"):
            await outputs.before_read(str(path).strip("/"))
        return await get(path, content, *args, **more)

    contents.get = reading
