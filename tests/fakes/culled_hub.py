"""The Hub over HTTP as the idle culler sees it: pages of users with servers, scopes, stops.

Strict where the real one is: without a scope a 403, pages of at most `page_size`, and only with the header that asks
for pages. `down` makes every answer a 503; users may come and go between pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from idle_culler.hub_api import PAGED
from idle_culler.ports import SCOPES

TOKEN = "culler"


@dataclass
class CulledHub:
    servers: dict[tuple[str, str], str] = field(default_factory=dict)  # -> last_activity
    users: list[str] = field(default_factory=list)
    scopes: set[str] = field(default_factory=lambda: set(SCOPES))
    page_size: int = 200
    down: bool = False
    slow: set[tuple[str, str]] = field(default_factory=set)  # a stop of these is answered 202
    asked: list[str] = field(default_factory=list)
    stopped: list[tuple[str, str]] = field(default_factory=list)
    on_page: Callable[[], None] = lambda: None
    on_stop: Callable[[str, str], None] = lambda user, server: None

    def add(self, user: str, server: str = "", last_activity: str = "2026-03-02T08:59:59.000000Z") -> None:
        if user not in self.users:
            self.users.append(user)
        self.servers[user, server] = last_activity

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/hub/api/user", self._whoami)
        app.router.add_get("/hub/api/users", self._list)
        app.router.add_delete("/hub/api/users/{user}/server", self._stop)
        app.router.add_delete("/hub/api/users/{user}/servers/{server}", self._stop)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        if self.down:
            return web.json_response({"status": 503, "message": "down"}, status=503)
        if request.headers.get("Authorization") != f"token {TOKEN}":
            return self._forbidden()
        answer: web.StreamResponse = await handler(request)
        return answer

    def _forbidden(self) -> web.Response:
        message = "Action is not authorized with current scopes"
        return web.json_response({"status": 403, "message": message}, status=403)

    async def _whoami(self, request: web.Request) -> web.Response:
        return web.json_response({"kind": "service", "name": "idle-culler", "scopes": sorted(self.scopes)})

    async def _list(self, request: web.Request) -> web.Response:
        if "list:users" not in self.scopes:
            return self._forbidden()
        active = {user for user, _ in self.servers}
        names = [user for user in self.users if request.query.get("state") != "active" or user in active]
        offset = int(request.query.get("offset", 0))
        limit = min(int(request.query.get("limit", self.page_size)), self.page_size)
        items = [self._model(name) for name in itertools.islice(names, offset, offset + limit)]
        following = {"offset": offset + limit, "limit": limit} if offset + limit < len(names) else None
        pagination = {"offset": offset, "limit": limit, "total": len(names), "next": following}
        self.on_page()
        if PAGED in request.headers.get("Accept", ""):
            return web.json_response({"items": items, "_pagination": pagination})
        return web.json_response(items)

    def _model(self, name: str) -> dict[str, Any]:
        model: dict[str, Any] = {"kind": "user", "name": name}
        if "read:servers" in self.scopes:
            model["servers"] = {
                server: {"name": server, "ready": True, "pending": None, "last_activity": activity}
                for (user, server), activity in self.servers.items()
                if user == name
            }
        return model

    async def _stop(self, request: web.Request) -> web.Response:
        user, server = request.match_info["user"], request.match_info.get("server", "")
        if "delete:servers" not in self.scopes:
            return self._forbidden()
        if user not in self.users or (server and (user, server) not in self.servers):
            return web.json_response({"status": 404, "message": "Not Found"}, status=404)
        self.stopped.append((user, server))
        self.on_stop(user, server)
        if (user, server) in self.slow:
            return web.Response(status=202)
        self.servers.pop((user, server), None)
        return web.Response(status=204)
