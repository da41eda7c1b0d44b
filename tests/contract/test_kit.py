"""The kit in a real notebook server, with a real kernel and a service that only listens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from berth_lab import activity
from quota.api.asked import Report, read
from quota.api.kit import signals_of
from tests.harness.kernel import Kernel
from tests.harness.stack import free_port
from tests.harness.waiting import until, while_true

TOKEN = "server-token"
BASE = "/user/alice/"


@dataclass
class Collector:
    """Service `berth` as the kit sees it: takes reports, or refuses them while `down`."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    down: bool = False
    url: str = ""

    @property
    def last(self) -> dict[str, Any]:
        return self.reports[-1] if self.reports else {"kernels": [], "terminals": -1}

    def kernel(self, kernel_id: str) -> dict[str, Any] | None:
        return next((k for k in self.last["kernels"] if k["id"] == kernel_id), None)

    def busy(self, kernel_id: str) -> bool | None:
        found = self.kernel(kernel_id)
        return None if found is None else found["busy"]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.requests.append((self.path, self.headers.get("Authorization")))
            if not made.down:
                made.reports.append(json.loads(body))
            self.send_response(503 if made.down else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}/services/berth"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Notebook:
    """A notebook server with the interface that `Kernel` drives a person's server by."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]
    name: str = "alice"
    token: str = "key"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def notebook(self, method: str, path: str, *, server: str = "", user: str = "", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"token {self.token}"}
        return httpx.request(method, f"{self.url}{BASE}{path}", headers=headers, timeout=30, **more)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.notebook("GET", "api/status").status_code == 200
        except httpx.TransportError:
            return False

    def kernel(self) -> Kernel:
        return Kernel(self)  # type: ignore[arg-type]  # all that it asks of a person is here


@contextmanager
def running(home: Path, **environment: str) -> Iterator[Notebook]:
    """A notebook server without a hub, its home in a folder of the test."""
    home.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), home / "server.log"
    command = [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1"]
    settings = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.base_url={BASE}"]
    env = {**os.environ, "HOME": str(home), "JUPYTER_PLATFORM_DIRS": "0", **environment}
    env.pop("XDG_RUNTIME_DIR", None)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *settings, "--IdentityProvider.token=key"], cwd=home, env=env, stdout=out, stderr=out
        )
    made = Notebook(port, log, process)
    try:
        until(made.answers, 60, "the notebook server answers", every=0.1)
        yield made
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        process.wait(30)
        psutil.wait_procs(children, 30)


@pytest.fixture
def notebook(tmp_path: Path, collector: Collector) -> Iterator[Notebook]:
    environment = {"BERTH_LEASE": "l1", "BERTH_SERVICE_URL": collector.url + "/", "JUPYTERHUB_API_TOKEN": TOKEN}
    with running(tmp_path / "home", **environment) as made:
        yield made


def moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


def test_busy_then_idle_and_who_speaks(notebook: Notebook, collector: Collector) -> None:
    until(lambda: collector.reports, 30, "a first report, before there is any kernel")
    expected = {"kernels": [], "terminals": 0, "children": 0, "background": 0, "saved_at": None, "unsaved": 0}
    assert collector.last == expected
    assert set(signals_of(read(Report, collector.last), datetime.now(UTC))) == set(expected), "the service keeps it all"
    assert collector.requests[0] == ("/services/berth/api/v1/kit/signals", f"token {TOKEN}")
    with notebook.kernel() as kernel:
        until(lambda: collector.busy(kernel.id) is False, 30, "the new kernel is seen idle")
        found = collector.kernel(kernel.id)
        assert found and found["last_execute_at"] is None, "starting a kernel is not use"
        kernel.send("import time; time.sleep(600)")
        until(lambda: collector.busy(kernel.id) is True, 30, "the silent loop is seen busy")
        found = collector.kernel(kernel.id)
        assert found and found["busy_since"]
        notebook.notebook("POST", f"api/kernels/{kernel.id}/interrupt")
        until(lambda: collector.busy(kernel.id) is False, 30, "it is seen idle again")
        found = collector.kernel(kernel.id)
        assert found and moment(found["last_execute_at"]).utcoffset() is not None and found["busy_since"] is None
    notebook.notebook("DELETE", f"api/kernels/{kernel.id}")
    until(lambda: collector.last["kernels"] == [], 30, "a kernel that is gone is dropped")


def test_i03_i05_tabs_pollers_and_status_messages_leave_no_trace(notebook: Notebook, collector: Collector) -> None:
    with notebook.kernel() as kernel:
        kernel.run("x = 1")
        until(lambda: collector.busy(kernel.id) is False, 30)
        until(lambda: (collector.kernel(kernel.id) or {}).get("last_execute_at"), 30)
        before = collector.kernel(kernel.id)
        seen = len(collector.reports)

        def disturb() -> bool:
            """Everything an open tab does by itself."""
            for kind in ("kernel_info_request", "comm_info_request", "complete_request", "debug_request"):
                ask(kernel, kind)
            notebook.notebook("GET", "api/kernels")
            notebook.notebook("GET", "api/status")
            notebook.notebook("GET", "api/contents")
            assert collector.kernel(kernel.id) == before
            return len(collector.reports) > seen

        until(disturb, 30, "a further report while a tab polls")
        activity = notebook.notebook("GET", f"api/kernels/{kernel.id}").json()["last_activity"]
        assert before and moment(activity) > moment(before["last_execute_at"]), "the server's own word is bumped"


def ask(kernel: Kernel, kind: str) -> None:
    """Send a request that executes nothing."""
    content: dict[str, Any] = {"complete_request": {"code": "x", "cursor_pos": 1}}.get(kind, {})
    if kind == "debug_request":
        content = {"type": "request", "seq": 1, "command": "debugInfo", "arguments": {}}
    channel = "control" if kind == "debug_request" else "shell"
    header = {"msg_id": f"q{time.monotonic_ns()}", "msg_type": kind, "version": "5.3", "username": "", "session": "t"}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": channel}
    kernel.attach().send(json.dumps(message))


def test_i01_a_silent_loop_with_the_tab_closed_stays_busy(notebook: Notebook, collector: Collector) -> None:
    with notebook.kernel() as kernel:
        until(lambda: collector.busy(kernel.id) is False, 30)
        kernel.send("import time\nwhile True: time.sleep(1)")
        until(lambda: collector.busy(kernel.id) is True, 30)
    reports = len(collector.reports)
    while_true(lambda: collector.busy(kernel.id) is True, 12, "busy with no client")
    assert len(collector.reports) > reports, "it goes on reporting"
    notebook.notebook("POST", f"api/kernels/{kernel.id}/interrupt")
    until(lambda: collector.busy(kernel.id) is False, 30, "an interrupt ends it")


def answers(kernel: Kernel) -> bool:
    """Whether the kernel executes something within a moment, on a connection of its own."""
    kernel.leave()
    try:
        kernel.run("pass", 5)
    except AssertionError:
        return False
    return True


def test_a_restart_and_a_killed_kernel_are_followed(notebook: Notebook, collector: Collector) -> None:
    with notebook.kernel() as kernel:
        until(lambda: collector.busy(kernel.id) is False, 30)
        kernel.send("import time; time.sleep(600)")
        until(lambda: collector.busy(kernel.id) is True, 30)
        assert notebook.notebook("POST", f"api/kernels/{kernel.id}/restart").status_code == 200
        until(lambda: collector.busy(kernel.id) is False, 30, "the restarted kernel is seen idle")
        kernel.leave()
        kernel.send("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        until(lambda: "restarting kernel" in notebook.log.read_text(), 30, "the server notices the death")
        until(lambda: answers(kernel), 60, "the kernel that follows answers")  # until then what is sent gets lost
        until(lambda: collector.busy(kernel.id) is False, 30, "the kernel that follows is seen idle")
        kernel.leave()
        kernel.send("import time; time.sleep(600)")
        until(lambda: collector.busy(kernel.id) is True, 30, "executions in the new one are seen")
        notebook.notebook("POST", f"api/kernels/{kernel.id}/interrupt")
        until(lambda: collector.busy(kernel.id) is False, 30, "and their ends")


def test_a_flood_of_output_hides_nothing(notebook: Notebook, collector: Collector) -> None:
    with notebook.kernel() as kernel:
        kernel.run("for i in range(30000): print(i, flush=i % 50 == 0)", 120)
        kernel.send("import time; time.sleep(600)")
        until(lambda: collector.busy(kernel.id) is True, 30)
        notebook.notebook("POST", f"api/kernels/{kernel.id}/interrupt")
        until(lambda: collector.busy(kernel.id) is False, 30)


def test_terminals_are_counted(notebook: Notebook, collector: Collector) -> None:
    name = notebook.notebook("POST", "api/terminals").json()["name"]
    until(lambda: collector.last["terminals"] == 1, 30)
    assert collector.last["children"] == 0, "a shell that waits runs nothing"
    shell = next(p for p in psutil.Process(notebook.process.pid).children() if "bash" in p.name() or p.name() == "sh")
    assert activity.busy_terminals([shell.pid]) == 0
    notebook.notebook("DELETE", f"api/terminals/{name}")
    until(lambda: collector.last["terminals"] == 0, 30)


def test_a_service_that_is_down_disturbs_nobody(notebook: Notebook, collector: Collector) -> None:
    until(lambda: collector.reports, 30)
    collector.down = True
    with notebook.kernel() as kernel:
        refused = len(collector.requests)
        assert kernel.run("print(6 * 7)").strip() == "42"
        until(lambda: len(collector.requests) > refused, 30)
        collector.down = False
        until(lambda: collector.busy(kernel.id) is False, 30, "reports are taken again")
    said = [line for line in notebook.log.read_text().splitlines() if "berth" in line and "xtension" not in line]
    assert not said, "only the server's own lines about extensions speak of the kit"


def test_an_ordinary_server_is_left_alone(tmp_path: Path, collector: Collector) -> None:
    """Without Berth's environment the extension loads, says nothing and does nothing."""
    with running(tmp_path / "home", BERTH_SERVICE_URL=collector.url) as notebook, notebook.kernel() as kernel:
        assert kernel.run("print(1)").strip() == "1"
        assert "berth_lab | extension was successfully loaded" in notebook.log.read_text()
    assert collector.requests == []


def test_the_caps_extension_is_loaded_in_every_kernel(tmp_path: Path) -> None:
    with running(tmp_path / "home", BERTH_GPU_SHARE_MILLI="250") as notebook, notebook.kernel() as kernel:
        code = "import sys; print([type(f).__name__ for f in sys.meta_path][0], 'torch' in sys.modules)"
        assert kernel.run(code).strip() == "AfterTorch False"
