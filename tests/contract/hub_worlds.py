"""Hubs for the contract of `HubApi`: the fake over loopback, and a real JupyterHub with servers that only answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from aiohttp import web

from idle_culler.hub_api import HubClient
from idle_culler.ports import SCOPES
from tests.fakes.culled_hub import TOKEN, CulledHub
from tests.harness.stack import free_port

ADMIN = "admin-token-of-this-test"
CULLER = "culler-token-of-this-test"
BLIND = "culler-token-without-read-servers"

#: The real Hub's servers: they answer, nothing else.
SERVER = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *_): pass
at = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
HTTPServer((at.hostname, at.port), Answer).serve_forever()
"""

CONFIG = """
import os
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):
    should_start = False
    routes = {{}}
    async def add_route(self, routespec, target, data):
        self.routes[routespec] = dict(routespec=routespec, target=target, data=data)
    async def delete_route(self, routespec): self.routes.pop(routespec, None)
    async def get_all_routes(self): return self.routes

c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.cmd = [{python!r}, {server!r}]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.username_map = {{}}
c.JupyterHub.db_url = "sqlite:///" + {db!r}
c.JupyterHub.cookie_secret_file = {folder!r} + "/cookie"
c.JupyterHub.hub_bind_url = {hub!r}
c.JupyterHub.bind_url = {public!r}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.api_page_max_limit = 3
c.JupyterHub.services = [
    {{"name": "tester", "api_token": {admin!r}}},
    {{"name": "idle-culler", "api_token": {culler!r}}},
    {{"name": "blind", "api_token": {blind!r}}},
]
c.JupyterHub.load_roles = [
    {{"name": "tester", "scopes": ["admin:users", "admin:servers"], "services": ["tester"]}},
    {{"name": "idle-culler", "scopes": {scopes!r}, "services": ["idle-culler"]}},
    {{"name": "blind", "scopes": [s for s in {scopes!r} if s != "read:servers"], "services": ["blind"]}},
]
"""


@dataclass
class World:
    """A Hub with users `u0`..`u6`; `u1` and `u5` run their default server, `u5` the server `two` as well."""

    hub: HubClient
    blind: HubClient
    strange: HubClient
    gone: HubClient


async def close(world: World) -> None:
    for client in (world.hub, world.blind, world.strange, world.gone):
        await client.close()


def clients(url: str, culler: str, blind: str) -> World:
    gone = f"http://127.0.0.1:{free_port()}/hub/api"
    return World(
        HubClient(url, culler, page=2),
        HubClient(url, blind),
        HubClient(url, "no-such-token"),
        HubClient(gone, culler, timeout=5),
    )


@asynccontextmanager
async def fake_world(folder: Path) -> AsyncIterator[World]:
    """The fake, whose token loses a scope for the one that is blind: a second fake."""
    full, less = (CulledHub(page_size=3) for _ in range(2))
    less.scopes.discard("read:servers")
    runners = []
    urls = []
    for hub in (full, less):
        hub.users = [f"u{number}" for number in range(7)]
        for user, server in (("u1", ""), ("u5", ""), ("u5", "two")):
            hub.add(user, server)
        runner = web.AppRunner(hub.app())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}/hub/api")
    world = clients(urls[0], TOKEN, TOKEN)
    world.blind = HubClient(urls[1], TOKEN)
    try:
        yield world
    finally:
        await close(world)
        for runner in runners:
            await runner.cleanup()


@asynccontextmanager
async def real_world(folder: Path) -> AsyncIterator[World]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/hub/api"
    with closing(RealHub(folder, port)) as hub:
        await asyncio.to_thread(hub.prepare, url)
        world = clients(url, CULLER, BLIND)
        try:
            yield world
        finally:
            await close(world)


class RealHub:
    """A JupyterHub process without a proxy."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        server = folder / "server.py"
        server.write_text(SERVER)
        (folder / "homes").mkdir()
        config = folder / "config.py"
        config.write_text(
            CONFIG.format(
                homes=str(folder / "homes"),
                python=sys.executable,
                server=str(server),
                db=str(folder / "hub.sqlite"),
                folder=str(folder),
                hub=f"http://127.0.0.1:{port}",
                public=f"http://127.0.0.1:{free_port()}",
                admin=ADMIN,
                culler=CULLER,
                blind=BLIND,
                scopes=list(SCOPES),
            )
        )
        self.log = folder / "hub.log"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the Hub runs alembic by its name
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(config)],
                cwd=folder,
                stdout=out,
                stderr=out,
                env={**os.environ, "PATH": path, "HOME": str(folder)},
            )

    def prepare(self, url: str) -> None:
        headers = {"Authorization": f"token {ADMIN}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as admin:
            self._until_up(admin)
            admin.post("/users", json={"usernames": [f"u{number}" for number in range(7)]}).raise_for_status()
            for place in ("u1/server", "u5/server", "u5/servers/two"):
                assert admin.post(f"/users/{place}").status_code == 201, self.log.read_text()[-3000:]

    def _until_up(self, admin: httpx.Client) -> None:
        deadline = time.monotonic() + 90
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-3000:]
            try:
                if admin.get("/users").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)

    def close(self) -> None:
        children = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self.process.terminate()
        self.process.wait(60)
        for child in psutil.wait_procs(children, 10)[1]:
            child.kill()
