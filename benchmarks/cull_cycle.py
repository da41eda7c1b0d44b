"""One cycle of the idle culler over a full house, against a real Hub: our culler, and jupyterhub-idle-culler beside it.

`python -m benchmarks.cull_cycle --json [--users 5000] [--servers 2000] [--cycles 3]`

A real `jupyterhub` process has the users and servers in its database; a spawner that starts nothing says that they run,
and one small HTTP server answers for all of them. Our book holds a running lease with fresh reports of kit and host for
each. Both cullers run in processes of their own, one cycle of the one after one of the other; nobody is idle, so that
none of them changes the house. `first_s` is of the first cycle, which for ours writes all verdicts, `median_s` of the
others, `mib` by how much memory grew over what the process had before its first cycle, `rss_mib` all of it. Ours is to
take at most 5 s and 60 MiB, else the exit code is 1.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from benchmarks.common import arguments, machine, show
from benchmarks.scale import fill_book, name
from hub_config.compose import parts
from quota import schema
from quota.clock import SystemClock

TARGET_S, TARGET_MIB = 5.0, 60.0
SIDES = ("ours", "jupyterhub-idle-culler")
TOML = '[gpus]\nsource = "simulated"\nsimulated = 2\n\n[first_start]\nmax_servers = 50\n'

CONFIG = """
from jupyterhub.auth import DummyAuthenticator
from jupyterhub.proxy import Proxy
from jupyterhub.spawner import Spawner
from traitlets import Any


class Running(Spawner):
    async def start(self): raise NotImplementedError
    async def stop(self, now=False): pass
    async def poll(self): return None
    async def get_url(self): return self.server.url


class NoProxy(Proxy):
    should_start = False
    routes = {}
    async def add_route(self, routespec, target, data): self.routes[routespec] = dict(target=target, data=data)
    async def delete_route(self, routespec): self.routes.pop(routespec, None)
    async def get_all_routes(self): return dict(self.routes)


c.JupyterHub.authenticator_class = DummyAuthenticator
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = Running
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.db_url = "sqlite:///%(folder)s/hub.sqlite"
c.JupyterHub.cookie_secret_file = "%(folder)s/cookie"
c.JupyterHub.hub_port = %(port)d
c.JupyterHub.bind_url = "http://127.0.0.1:%(other)d"
c.JupyterHub.allow_named_servers = True
c.JupyterHub.init_spawners_timeout = 600
c.JupyterHub.cleanup_servers = False
c.JupyterHub.log_level = "WARN"
c.JupyterHub.services = [{"name": "culler", "api_token": "%(token)s"}]
scopes = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
c.JupyterHub.load_roles = [{"name": "culler", "scopes": scopes, "services": ["culler"]}]
"""


# ---- the house -------------------------------------------------------------------------------------------------------


class _Answers(BaseHTTPRequestHandler):
    """What the Hub asks of a server to believe that it is there."""

    def do_GET(self) -> None:
        body = b'{"version": "0"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-JupyterHub-Version", "6.1.1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def servers() -> Iterator[int]:
    """The port on which all user servers answer."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def fill_hub(file: Path, users: int, running: int, port: int) -> None:
    """Users, and for the first of them a ready server, as the Hub itself would have left them."""
    from jupyterhub import orm

    orm.new_session_factory(f"sqlite:///{file}")().close()
    now = SystemClock().now().replace(tzinfo=None).isoformat(" ")
    with closing(sqlite3.connect(file)) as connection, connection:
        for number in range(users):
            user = name(number)
            add = "INSERT INTO users (name, admin, cookie_id, created, last_activity) VALUES (?, 0, ?, ?, ?)"
            user_id = connection.execute(add, (user, f"cookie-{number}", now, now)).lastrowid
            if number >= running:
                continue
            add = "INSERT INTO servers (proto, ip, port, base_url, cookie_name) VALUES ('http', '127.0.0.1', ?, ?, ?)"
            server_id = connection.execute(add, (port, f"/user/{user}/s0/", f"cookie-{user}")).lastrowid
            add = (
                "INSERT INTO spawners (user_id, server_id, state, name, started, last_activity, user_options) "
                "VALUES (?, ?, '{}', 's0', ?, ?, '{}')"
            )
            connection.execute(add, (user_id, server_id, now, now))


@contextmanager
def hub(folder: Path, users: int, running: int) -> Iterator[tuple[str, str]]:
    """The API's URL and the culler's token of a Hub in which so many servers run."""
    from tests.harness import free_port  # a program of the clone, not of an installation

    token, port = secrets.token_hex(16), free_port()
    with servers() as answering:
        fill_hub(folder / "hub.sqlite", users, running, answering)
        config = folder / "jupyterhub_config.py"
        values = {"folder": folder, "port": port, "other": free_port(), "token": token}
        config.write_text(CONFIG % values, encoding="utf-8")
        with (folder / "hub.log").open("wb") as log:
            command = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}/hub/api"
            _wait(process, url, token, running, folder / "hub.log")
            yield url, token
        finally:
            process.terminate()
            process.wait(60)


def _wait(process: subprocess.Popen[bytes], url: str, token: str, running: int, log: Path) -> None:
    """Until the Hub says that all servers are ready."""
    deadline = time.monotonic() + 600
    headers = {"Authorization": f"token {token}", "Accept": "application/jupyterhub-pagination+json"}
    total = -1
    while total != running:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Hub is not ready ({total} of {running}):\n{log.read_text()[-2000:]}")
        time.sleep(0.5)
        with suppress(httpx.HTTPError, KeyError):
            answer = httpx.get(f"{url}/users?state=ready&limit=1", headers=headers, timeout=60)
            total = answer.json()["_pagination"]["total"]


def fill_reports(folder: Path) -> None:
    """Fresh reports of kit and host for every lease: some at work, some not."""
    made = parts(folder)
    now = made.clock.now()
    stamp = now.isoformat()
    rows = []
    for number, lease in enumerate(made.book.live()):
        kernel = {"id": "k", "busy": number % 3 == 0, "last_execute_at": stamp, "busy_since": None}
        kit = {"kernels": [kernel], "terminals": 1, "children": 0, "saved_at": stamp}
        host = {
            "cpu_percent": 1.0,
            "cpu_active_at": stamp,
            "io_bytes_per_s": 9.0,
            "io_active_at": stamp,
            "processes": 2,
        }
        rows += [{"lease_id": lease.id, "source": "kit", "at": now, "payload": kit}]
        rows += [{"lease_id": lease.id, "source": "host", "at": now, "payload": host}]
    with made.store.write() as connection:
        connection.execute(sa.delete(schema.signal))
        connection.execute(sa.insert(schema.signal), rows)
    made.store.close()


# ---- one culler, in a process of its own -----------------------------------------------------------------------------


def one_side(side: str, folder: Path) -> None:
    """Make a cycle for each line that is read; answer each with what it took."""
    cycle = _ours(folder) if side == "ours" else _theirs()
    before = _memory("VmRSS")
    loop = asyncio.new_event_loop()
    for _ in sys.stdin:
        began = time.perf_counter()
        looked = loop.run_until_complete(cycle())
        took = time.perf_counter() - began
        figures = {"s": took, "looked": looked, "mib": _memory("VmHWM") - before, "rss_mib": _memory("VmHWM")}
        print(json.dumps(figures), flush=True)
    os._exit(0)  # sessions and threads end with it


def _ours(folder: Path) -> Any:
    from hub_config import compose
    from idle_culler.app import Culler

    made = parts(folder)
    culler = Culler(compose.culler_parts(made, compose.notifier_of(made)))

    async def cycle() -> int:
        done = await culler.cycle()
        if done.failed or done.reclaimed or not culler.health().startswith("ok"):
            raise RuntimeError(f"{done}: {culler.health()}")
        return done.judged

    return cycle


def _theirs() -> Any:
    import jupyterhub_idle_culler as package

    looked = 0

    def arbiter(**about: Any) -> bool:
        nonlocal looked
        looked += 1
        return package.default_cull_arbiter(**about)

    async def cycle() -> int:
        nonlocal looked
        looked = 0
        url, token = os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"]
        await package.cull_idle(url, token, 86400, logging.getLogger("theirs"), cull_arbiter=arbiter)
        return looked

    return cycle


def _memory(word: str) -> float:
    """MiB of this process now ("VmRSS") or at most so far ("VmHWM"), by the kernel."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{word}:")) / 1024


# ---- both ------------------------------------------------------------------------------------------------------------


def measure(users: int, running: int, cycles: int, folder: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as root:
        house, hub_folder = Path(root) / "house", Path(root) / "hub"
        house.mkdir(mode=0o700)
        hub_folder.mkdir(mode=0o700)
        (house / "berth.toml").write_text(TOML, encoding="utf-8")
        made = parts(house)
        fill_book(made, running, users)
        made.store.close()
        with hub(hub_folder, users, running) as (url, token):
            return _alternate(house, {"JUPYTERHUB_API_URL": url, "JUPYTERHUB_API_TOKEN": token}, cycles)


def _alternate(house: Path, env: dict[str, str], cycles: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.cull_cycle", "--folder", str(house), "--side"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with ExitStack() as running:
        sides = {
            side: running.enter_context(subprocess.Popen([*command, side], env=os.environ | env, **pipes))
            for side in SIDES
        }
        for _ in range(cycles):
            fill_reports(house)
            for side, process in sides.items():
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError(f"{side} ended with {process.wait(10)}")
                found[side].append(json.loads(line))
    return {side: _figures(each) for side, each in found.items()}


def _figures(each: list[dict[str, float]]) -> dict[str, float]:
    times = [one["s"] for one in each]
    return {
        "servers": each[-1]["looked"],
        "first_s": round(times[0], 2),
        "median_s": round(statistics.median(times[1:] or times), 2),
        "worst_s": round(max(times), 2),
        "mib": round(each[-1]["mib"], 1),
        "rss_mib": round(each[-1]["rss_mib"], 1),
    }


def main(words: list[str] | None = None) -> int:
    parser = arguments("cull_cycle", __doc__)
    parser.add_argument("--users", type=int, default=5000, help="users of the Hub, and accounts (5000)")
    parser.add_argument("--servers", type=int, default=2000, help="running servers, one a user (2000)")
    parser.add_argument("--cycles", type=int, default=3, help="cycles of each (3)")
    parser.add_argument("--folder", help="where the folders lie (the system's temporary folder)")
    parser.add_argument("--side", choices=SIDES, help="be one of the two cullers (used by this program itself)")
    options = parser.parse_args(words)
    if options.side:
        one_side(options.side, Path(options.folder))
        return 0
    found = measure(options.users, options.servers, options.cycles, options.folder)
    setting = {"benchmark": "cull_cycle", "users": options.users, "servers": options.servers}
    targets = {"target_s": TARGET_S, "target_mib": TARGET_MIB}
    show(setting | targets | {"machine": machine()} | found, options.json)
    ours = found["ours"]
    return 1 if ours["worst_s"] > TARGET_S or ours["mib"] > TARGET_MIB else 0


if __name__ == "__main__":
    raise SystemExit(main())
