"""A single-user server by the quick start, under a Hub that only answers: it serves, and authenticates as ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.harness.stack import free_port
from tests.harness.waiting import until

ACCESS = "access:servers!server=alice/"


@pytest.fixture
def hub_api() -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == "token alices"
            user = {"kind": "user", "name": "alice", "admin": False, "groups": [], "scopes": [ACCESS]}
            body = json.dumps(user if known else {"version": "6.1.1"}).encode()
            self.send_response(403 if self.path.endswith("/user") and not known else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-JupyterHub-Version", "6.1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hub/api"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_quick_start_serves_and_authenticates(hub_api: str, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/user/alice/"
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "JUPYTERHUB_API_URL": hub_api,
        "JUPYTERHUB_ACTIVITY_URL": f"{hub_api}/users/alice/activity",
        "JUPYTERHUB_API_TOKEN": "servers-own",
        "JUPYTERHUB_USER": "alice",
        "JUPYTERHUB_SERVER_NAME": "",
        "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-alice",
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_HOST": "",
        "JUPYTERHUB_SERVICE_URL": url,
        "JUPYTERHUB_SERVICE_PREFIX": "/user/alice/",
        "JUPYTERHUB_OAUTH_CALLBACK_URL": "/user/alice/oauth_callback",
        "JUPYTERHUB_OAUTH_SCOPES": json.dumps([ACCESS]),
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps([ACCESS]),
        "JUPYTERHUB_OAUTH_CLIENT_ALLOWED_SCOPES": "[]",
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "berth_lab.launch", "--allow-root"]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=out)
    try:

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return httpx.get(url + "api", timeout=10).status_code == 200
            except httpx.TransportError:
                return False

        until(answers, 90, "the server answers", every=0.1)
        assert "starting plainly" not in log.read_text()
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "sqlalchemy" not in maps, "the Hub's database layer was loaded"
        known = {"Authorization": "token alices"}
        assert httpx.get(url + "api/kernels", headers=known, timeout=30).json() == []
        assert httpx.get(url + "lab", headers=known, timeout=30).status_code == 200
        assert httpx.get(url + "api/kernels", headers={"Authorization": "token x"}, timeout=30).status_code == 403
        assert httpx.get(url + "lab", timeout=30).status_code == 302, "a stranger is sent to log in"
    finally:
        process.terminate()
        process.wait(30)
