"""A real notebook server with the kit in it, a service `berth` that only listens and speaks, and a JupyterLab of a few
lines: sessions, cells with their ids, saves."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
from websockets.sync.client import ClientConnection, connect

from tests.harness.stack import free_port
from tests.harness.waiting import until

TOKEN = "server-token"
BASE = "/user/alice/"


def _whole(path: Path) -> dict[str, Any] | None:
    """None while Jupyter is writing it, which begins by emptying it."""
    try:
        return dict(json.loads(path.read_text()))
    except json.JSONDecodeError:
        return None


@dataclass
class Service:
    """Service `berth` as the kit sees it: takes signals and reports, and speaks over the stream."""

    url: str = ""
    signals: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    streams: list[queue.Queue[bytes]] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)
    refuses: bool = False
    keeps: bool = False  # whether it takes a stop back that it is asked to
    used: list[dict[str, Any]] = field(default_factory=list)

    def say(self, event: str, data: dict[str, Any]) -> None:
        """Over the newest stream."""
        self.streams[-1].put(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode())

    @property
    def done(self) -> dict[str, Any] | None:
        """The final report."""
        return next((report for report in self.reports if report["state"] == "done"), None)

    def took(self, path: str, body: dict[str, Any]) -> bool:
        """Whether the body went to a known place."""
        lists = {"kit/signals": self.signals, "kit/farewell": self.reports, "kit/used": self.used}
        kept = lists.get(path.rpartition("/api/v1/")[2])
        if kept is not None:
            kept.append(body)
        return kept is not None


def _handler(service: Service, ending: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.authorizations.add(self.headers.get("Authorization"))
            status = 503 if service.refuses else 200 if service.took(self.path, body) else 404
            too_late = self.path.endswith("kit/used") and not service.keeps
            self._answer(409 if status == 200 and too_late else status, b'{"lease_id": "l1", "target": "RUN"}')

        def do_GET(self) -> None:
            if service.refuses or not self.path.endswith("/api/v1/kit/stream"):
                self._answer(503)
                return
            service.authorizations.add(self.headers.get("Authorization"))
            mine: queue.Queue[bytes] = queue.Queue()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            service.streams.append(mine)
            while not ending.is_set() and not service.refuses:
                try:
                    self.wfile.write(mine.get(timeout=0.05))
                except queue.Empty:
                    continue
                except OSError:
                    return

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def listening() -> Iterator[Service]:
    """The service, on a port of its own."""
    service, ending = Service(), threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service, ending))
    service.url = f"http://127.0.0.1:{server.server_port}/services/berth"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield service
    finally:
        ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class NotebookServer:
    """A notebook server of one person, without a hub."""

    port: int
    home: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.home / "server.log").read_text()

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request, as the person."""
        url = f"http://127.0.0.1:{self.port}{BASE}{path}"
        return httpx.request(method, url, headers={"Authorization": "token key"}, timeout=30, **more)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return self.ask("GET", "api/status").status_code == 200
        except httpx.TransportError:
            return False

    def save(self, path: str, *sources: str) -> None:
        """A notebook with these cells; their ids are c0, c1, …"""
        cells: list[dict[str, Any]] = [
            {"id": f"c{i}", "cell_type": "code", "source": s, "metadata": {}, "outputs": [], "execution_count": None}
            for i, s in enumerate(sources)
        ]
        self.put(path, {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})

    def put(self, path: str, notebook: dict[str, Any]) -> None:
        """Save a notebook, as a browser does."""
        answer = self.ask("PUT", f"api/contents/{path}", json={"type": "notebook", "content": notebook})
        assert answer.status_code in (200, 201), answer.text

    def on_disk(self, path: str) -> dict[str, Any]:
        """The notebook as the file has it: nobody asked the server."""
        return until(lambda: _whole(self.home / path), 5, "a whole file")

    def opened(self, path: str) -> dict[str, Any]:
        """The notebook as a browser that opens it gets it."""
        return dict(self.ask("GET", f"api/contents/{path}?content=1&type=notebook").json()["content"])

    def session(self, path: str, kernel: str = "python3") -> str:
        """Start a kernel for a notebook; its id."""
        body = {"path": path, "type": "notebook", "name": "", "kernel": {"name": kernel}}
        answer = self.ask("POST", "api/sessions", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["kernel"]["id"])

    def event(self, name: str) -> dict[str, Any] | None:
        """What the browser's stream begins with under this name, if it does so within a second."""
        url = f"http://127.0.0.1:{self.port}{BASE}berth/stream"
        try:
            with httpx.stream("GET", url, headers={"Authorization": "token key"}, timeout=1) as answer:
                kind = ""
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        kind = line.removeprefix("event: ")
                    elif line.startswith("data: ") and kind == name:
                        return dict(json.loads(line.removeprefix("data: ")))
        except httpx.TimeoutException:
            pass
        return None

    def kernel_state(self, kernel_id: str) -> str:
        return str(self.ask("GET", f"api/kernels/{kernel_id}").json()["execution_state"])


class Tab:
    """One open notebook in one browser."""

    def __init__(self, server: NotebookServer, kernel_id: str) -> None:
        self.server, self.kernel_id, self.id = server, kernel_id, uuid.uuid4().hex
        url = f"ws://127.0.0.1:{server.port}{BASE}api/kernels/{kernel_id}/channels?session_id={self.id}"
        self._open = ExitStack()
        opening = connect(url, additional_headers={"Authorization": "token key"})
        self.socket: ClientConnection = self._open.enter_context(opening)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(1001)
        self._open.close()

    def break_off(self) -> None:
        """The lid is closed: nobody says good-bye."""
        self.socket.socket.shutdown(socket.SHUT_RDWR)
        self._open.close()

    def run(self, cell: str, code: str) -> str:
        """Ask for an execution of a cell, as JupyterLab does; the message's id."""
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3", "username": ""}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        message = {
            "header": header | {"session": self.id},
            "parent_header": {},
            "metadata": {"cellId": cell, "deletedCells": []},
            "content": content,
            "channel": "shell",
        }
        self.socket.send(json.dumps(message))
        return str(header["msg_id"])

    def until_seen(self, request: str, kind: str, word: str = "") -> dict[str, Any]:
        """Wait for a message of this execution; its content."""
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            mine = message.get("parent_header", {}).get("msg_id") == request
            if mine and message["msg_type"] == kind and word in json.dumps(message["content"]):
                return dict(message["content"])

    def finish(self, request: str) -> None:
        self.until_seen(request, "status", '"idle"')


def text_of(notebook: dict[str, Any], cell: str) -> str:
    """What a cell has printed."""
    found = next(c for c in notebook["cells"] if c["id"] == cell)
    parts = [o["text"] for o in found["outputs"] if o["output_type"] == "stream"]
    return "".join("".join(p) if isinstance(p, list) else p for p in parts)


@contextmanager
def serving(
    home: Path, service: Service | None, *, words: Sequence[str] = (), **environment: str
) -> Iterator[NotebookServer]:
    """A notebook server; with a service, the kit works. `words` are more of its command line."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1"]
    settings = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.base_url={BASE}"]
    env = {**os.environ, "HOME": str(home), "JUPYTER_PLATFORM_DIRS": "0"}
    env.pop("XDG_RUNTIME_DIR", None)
    if service is not None:
        env |= {"BERTH_LEASE": "l1", "BERTH_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
        env |= {"JUPYTERHUB_USER": "alice", "JUPYTERHUB_SERVER_NAME": "", "BERTH_RUNTIME_DIR": str(home / "run")}
    with (home / "server.log").open("wb") as out:
        process = subprocess.Popen(
            [*command, *settings, *words, "--IdentityProvider.token=key"],
            cwd=home,
            env=env | environment,
            stdout=out,
            stderr=out,
        )
    made = NotebookServer(port, home, process)
    try:
        until(made.answers, 60, "the notebook server answers", every=0.1)
        yield made
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        psutil.wait_procs(children, 30)
