"""The Hub's REST API as the service needs it, with the service's own token."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse

from quota import tracing
from quota.web.parts import HubUnavailable, HubUser

TIMEOUT_SECONDS = 10.0
#: The Hub answers when the server is gone, or after ten seconds; somebody waits for the page, and it goes on anyway.
STOP_SECONDS = 5.0
#: The Hub cuts longer answers itself; we follow its pages.
PAGE_SIZE = 200
LONGEST_LIST = 20_000
_PAGED = "application/jupyterhub-pagination+json"


class HubClient:
    """`HubPort` over HTTP. `api_url` is the Hub's own ("http://127.0.0.1:8081/hub/api")."""

    def __init__(self, api_url: str, api_token: str) -> None:
        self._url = api_url.rstrip("/")
        self._token = api_token

    async def users(self) -> tuple[HubUser, ...]:
        """All users, page by page: the Hub answers at most 200 at a time."""
        found: list[HubUser] = []
        offset: int | None = 0
        while offset is not None and len(found) < LONGEST_LIST:
            answer = await self._ask("GET", f"/users?limit={PAGE_SIZE}&offset={offset}")
            page = _json(answer)
            try:
                found += [HubUser(str(item["name"]), bool(item.get("admin", False))) for item in page["items"]]
                following = page["_pagination"]["next"]
                offset = int(following["offset"]) if following else None
            except (KeyError, TypeError, ValueError) as error:
                raise HubUnavailable(f"the list of users has an unknown form: {error!r}") from None
        return tuple(found)

    async def stop_server(self, user: str, server: str) -> None:
        """Ask for a server's end. Already gone (404) or going (400, pending) is fine: the book has the intent."""
        name = quote(user, safe="")
        path = f"/users/{name}/servers/{quote(server, safe='')}" if server else f"/users/{name}/server"
        await self._ask("DELETE", path, fine=(400, 404), seconds=STOP_SECONDS)

    async def _ask(
        self, method: str, path: str, fine: tuple[int, ...] = (), seconds: float = TIMEOUT_SECONDS
    ) -> HTTPResponse:
        request = HTTPRequest(
            self._url + path,
            method=method,
            headers={"Authorization": f"token {self._token}", "Accept": _PAGED, **tracing.outgoing()},
            connect_timeout=TIMEOUT_SECONDS,
            request_timeout=seconds,
            follow_redirects=False,
        )
        try:
            answer = await AsyncHTTPClient().fetch(request, raise_error=False)
        except (HTTPClientError, OSError) as error:
            raise HubUnavailable(str(error)) from None
        if answer.code >= 400 and answer.code not in fine:
            raise HubUnavailable(f"{method} {path} -> {answer.code}")
        return answer


def _json(answer: HTTPResponse) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        raise HubUnavailable("the Hub's answer is not JSON") from None
