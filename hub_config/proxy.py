"""Traefik from PyPI, supervised: restarted when it dies, dead when the hub is, quick to learn a route."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.parse import unquote

import bcrypt
from jupyterhub_traefik_proxy.fileprovider import TraefikFileProviderProxy
from traitlets import Unicode, default

from hub_config.processes import die_with_parent_hard, write_pid

#: Characters that end a quoted string in a traefik rule, or have no place in a path.
_UNSAFE = frozenset("`\"'\\") | {chr(code) for code in range(32)}

#: A traefik that ends this soon after its start, twice in a row, is started again ever more slowly.
QUICK_SECONDS = 5.0
MOST_PAUSE = 5.0


class BerthProxy(TraefikFileProviderProxy):
    """The file-provider proxy with what a platform needs of it.

    The parent never restarts a dead traefik, leaves it behind when the hub is killed, hashes its password at a cost
    of 0.3 s a request, and pastes names into rules unquoted.
    """

    pid_file = Unicode("", config=True, help="Where to write traefik's pid; empty for nowhere.")

    _stopping = False
    _quick_ends = 0  # in a row, without a life worth the name between them

    @default("traefik_api_hashed_password")
    def _cheap_hash(self) -> str:
        # The password is 256 random bits on a loopback port: bcrypt's cost protects nothing and is paid per request.
        return bcrypt.hashpw(self.traefik_api_password.encode(), bcrypt.gensalt(4)).decode()

    def _start_traefik(self) -> None:
        environment = {**os.environ, **self.traefik_env}
        self.traefik_process = Popen(
            ["traefik", "--configfile", os.path.abspath(self.static_config_file)],
            env=environment,
            preexec_fn=die_with_parent_hard,
        )
        if self.pid_file:
            write_pid(Path(self.pid_file).parent, Path(self.pid_file).stem, self.traefik_process.pid)

        self._wait_for_its_end(self.traefik_process)

    def _wait_for_its_end(self, process: Popen[bytes]) -> None:
        """A thread sleeps until traefik ends: noticed at once, and nothing to do while it lives."""
        loop, began = asyncio.get_running_loop(), time.monotonic()

        def wait() -> None:
            process.wait()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the hub itself has ended
                loop.call_soon_threadsafe(self._ended, process, time.monotonic() - began)

        threading.Thread(target=wait, name="traefik", daemon=True).start()

    def _ended(self, process: Popen[bytes], lived: float) -> None:
        if self._stopping or process is not self.traefik_process:
            return
        self._quick_ends = self._quick_ends + 1 if lived < QUICK_SECONDS else 0
        pause = min(MOST_PAUSE, 0.1 * 2**self._quick_ends) if self._quick_ends > 1 else 0.0
        self.log.warning("The proxy ended with code %s; starting it again in %g s", process.returncode, pause)
        asyncio.get_running_loop().call_later(pause, self._start_again)

    def _start_again(self) -> None:
        if not self._stopping:
            self._start_traefik()  # static and dynamic configuration are on disk: all routes come back with it

    async def start(self) -> None:
        self._keep_routes_only()
        await super().start()

    def _keep_routes_only(self) -> None:
        """Rules of a hub that was killed are kept, so that its users' servers answer while the hub is still starting;
        it deletes what is stale. Its API log-in is not kept: an old one would lock us out."""
        try:
            http = self.dynamic_config["http"]
        except Exception:
            self.log.exception("The proxy's rules cannot be read; starting without them")
            os.unlink(self.dynamic_config_file)
            return
        http.pop("middlewares", None)
        http["routers"].pop("route_api", None)

    async def stop(self) -> None:
        self._stopping = True
        await super().stop()

    async def add_route(self, routespec: str, target: str, data: Any) -> None:
        bad = sorted(_UNSAFE & set(unquote(routespec)))
        if bad:
            raise ValueError(f"The route {routespec!r} holds a character that a proxy rule cannot: {bad[0]!r}")
        await super().add_route(routespec, target, data)

    async def _wait_for_route(self, routespec: str) -> None:
        """Ask often at first: traefik reads a changed file within milliseconds, the parent's first nap is 200."""
        pause = 0.01
        for _ in range(60):
            if await self._check_for_traefik_service(routespec, "service") and await self._check_for_traefik_service(
                routespec, "router"
            ):
                return
            await asyncio.sleep(pause)
            pause = min(0.1, pause * 1.5)
        await super()._wait_for_route(routespec)
