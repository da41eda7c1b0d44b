"""[W] The Hub's REST API, as much as the idle culler needs of it (JupyterHub 6.1)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import aiohttp

from idle_culler.ports import HubForbidden, HubServer, HubUnavailable, Stopped
from quota import tracing

#: A stop is answered within the Hub's slow_stop_timeout (10 s), with 202 where it takes longer.
TIMEOUT_SECONDS = 30.0
#: Without this the Hub cuts a list at its own limit and says nothing of the rest.
PAGED = "application/jupyterhub-pagination+json"
PAGE = 200
MOST_PAGES = 5000


class HubClient:
    """`HubApi` over HTTP with one token. One session per event loop; `close` it on the same loop."""

    def __init__(self, url: str, token: str, page: int = PAGE, timeout: float = TIMEOUT_SECONDS) -> None:
        """`url` is the Hub's API, such as `http://127.0.0.1:8081/hub/api`."""
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"token {token}", "Accept": PAGED}
        self._page = page
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def scopes(self) -> frozenset[str]:
        _, model = await self._ask("GET", "/user")
        scopes = model.get("scopes") if isinstance(model, Mapping) else None
        if not isinstance(scopes, list):
            raise HubUnavailable("the Hub does not say what its token may do")
        return frozenset(str(scope) for scope in scopes)

    async def servers(self) -> list[HubServer]:
        found: dict[tuple[str, str], HubServer] = {}  # a user who moves between pages is still one
        offset: int | None = 0
        for _ in range(MOST_PAGES):
            if offset is None:
                return list(found.values())
            _, answer = await self._ask("GET", f"/users?state=active&offset={offset}&limit={self._page}")
            users, offset = _page(answer, offset)
            for user in users:
                for server in _servers(user):
                    found[server.user, server.server] = server
        raise HubUnavailable("the Hub's list of users has no end")

    async def stop(self, user: str, server: str) -> Stopped:
        place = f"servers/{quote(server, safe='')}" if server else "server"
        status, _ = await self._ask("DELETE", f"/users/{quote(user, safe='')}/{place}", may_be_absent=True)
        return {404: Stopped.ABSENT, 202: Stopped.STOPPING}.get(status, Stopped.STOPPED)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, method: str, path: str, *, may_be_absent: bool = False) -> tuple[int, Any]:
        """The status and the JSON of an answer (None where it has none)."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout, headers=self._headers, trust_env=False)
        what = f"{method} {path.partition('?')[0]}"
        try:
            async with self._session.request(
                method, self._url + path, allow_redirects=False, headers=tracing.outgoing()
            ) as answer:
                body = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            raise HubUnavailable(f"{what}: {type(error).__name__} {error}".rstrip()) from None
        if status == 404 and may_be_absent:
            return status, None
        if status in (401, 403):
            raise HubForbidden(f"{what}: {status} {_message(body)}".rstrip())
        if not 200 <= status < 300:
            raise HubUnavailable(f"{what}: {status} {_message(body)}".rstrip())
        return status, _json(body, what) if body else None


def _json(body: bytes, what: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise HubUnavailable(f"{what}: the answer is not JSON") from None


def _message(body: bytes) -> str:
    """What the Hub says of an error, briefly."""
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    return str(said.get("message", ""))[:200] if isinstance(said, Mapping) else ""


def _page(answer: Any, offset: int) -> tuple[list[Any], int | None]:
    """The users of one page, and the offset of the next; None at the end."""
    if isinstance(answer, list):  # a Hub without paging answers all at once
        return answer, None
    if not isinstance(answer, Mapping) or not isinstance(answer.get("items"), list):
        raise HubUnavailable("the Hub's list of users cannot be read")
    following = (answer.get("_pagination") or {}).get("next")
    if not following:
        return answer["items"], None
    following_offset = following.get("offset")
    if not isinstance(following_offset, int) or following_offset <= offset:
        raise HubUnavailable("the Hub's list of users goes round in circles")
    return answer["items"], following_offset


def _servers(user: Any) -> list[HubServer]:
    """The servers of one user; one that cannot be read is left out, as the book knows all that matter."""
    if not isinstance(user, Mapping) or not isinstance(user.get("servers"), Mapping):
        return []
    return [
        HubServer(str(user.get("name")), str(name), bool(server.get("ready")), _moment(server.get("last_activity")))
        for name, server in user["servers"].items()
        if isinstance(server, Mapping)
    ]


def _moment(value: object) -> datetime | None:
    """A stamp of the Hub, aware; one without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
