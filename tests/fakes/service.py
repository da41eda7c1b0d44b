"""The real service on a loopback port, with a real book behind it and a fake Hub beside it, at one address as the
proxy makes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from jupyterhub.httpclient import JupyterHubHTTPClient
from jupyterhub.services.auth import HubOAuth
from tornado.netutil import bind_sockets
from tornado.routing import AnyMatches, PathMatches, Rule, RuleRouter

from quota.units import MilliGpu
from quota.web.app import HubClient, ProfileView, ServiceParts, make_app
from quota.web.server import Server
from spawner.messages import words
from tests.fakes.book import Desk
from tests.fakes.hub import ACCESS, BROWSER, CLIENT_ID, FakeHub

PREFIX = "/services/berth/"
NAVIGATE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}


def menu(desk: Desk) -> Sequence[ProfileView]:
    """A small menu: `test` is what the book's fake starts."""
    from quota.pricing import hourly

    price = desk.bank.price()
    shares = {"cpu": (0, 0), "gpu-1-4": (250, 1), "test": (500, 1)}
    return [
        ProfileView(
            name=name,
            title=name,
            share_milli=share,
            count=count,
            free_now=None if not share else sum(device.free // share for device in desk.rows.devices()),
            price_per_hour_micro=hourly(price, MilliGpu(share * count)),
            images=("env",),
            simulated=bool(share),
        )
        for name, (share, count) in shares.items()
    ]


@dataclass
class Service:
    """A running service and ways to talk to it as somebody."""

    url: str
    hub: FakeHub
    desk: Desk
    parts: ServiceParts
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def api(self, token: str = "", **headers: str) -> httpx.AsyncClient:
        """REST with a token in the Authorization header."""
        known = {"Authorization": f"token {token}"} if token else {}
        return self._client(self.url + PREFIX + "api/v1/", known | headers)

    def browser(self, user: str = "") -> httpx.AsyncClient:
        """A browser that is logged in at the Hub; it follows redirects and keeps cookies."""
        client = self._client(self.url + PREFIX, NAVIGATE, follow_redirects=True)
        if user:
            client.cookies.set(BROWSER, user)
        return client

    def _client(self, base: str, headers: dict[str, str], **more: Any) -> httpx.AsyncClient:
        client = httpx.AsyncClient(base_url=base, headers=headers, timeout=20, trust_env=False, **more)
        self.clients.append(client)
        return client


@asynccontextmanager
async def open_service(desk: Desk, *, static: str | None = None, port: int = 0, **more: Any) -> AsyncIterator[Service]:
    """Serve until the block ends. `more` goes into `ServiceParts`; `static` is the Hub's folder of assets."""
    hub = FakeHub()
    sockets = bind_sockets(port, "127.0.0.1")
    url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    auth = HubOAuth(
        api_url=f"{url}/hub/api",
        api_token=hub.service_token,
        base_url=PREFIX,
        hub_prefix="/hub/",
        oauth_client_id=CLIENT_ID,
        access_scopes={ACCESS},
    )
    values: dict[str, Any] = {
        "book": desk.book,
        "bank": desk.bank,
        "rows": desk.rows,
        "alerts": desk.alerts,
        "clock": desk.clock,
        "profiles": lambda: menu(desk),
        "hub": HubClient(f"{url}/hub/api", hub.service_token),
        "cookie_secret": b"a secret of this test",
        "refusal_words": words,
        "hub_auth": auth,
    }
    parts = ServiceParts(**{**values, **more})
    threads = ThreadPoolExecutor(4)
    router = RuleRouter([Rule(PathMatches("/hub/.*"), hub.app(static)), Rule(AnyMatches(), make_app(parts, threads))])
    server = Server(router)
    server.add_sockets(sockets)
    service = Service(url, hub, desk, parts)
    try:
        yield service
    finally:
        for client in service.clients:
            await client.aclose()
        server.stop()
        await server.close_all_connections()
        await JupyterHubHTTPClient.loop_instance().close()
        threads.shutdown()
