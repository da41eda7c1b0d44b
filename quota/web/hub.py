"""The Hub's REST API as the service needs it, with the service's own token."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse

from quota import tracing
from quota.dispatch import SCOPE, StartForbidden, StartRefused
from quota.web.parts import HubUnavailable, HubUser

TIMEOUT_SECONDS = 10.0
#: The Hub answers when the server is gone, or after ten seconds; somebody waits for the page, and it goes on anyway.
STOP_SECONDS = 5.0
#: The Hub answers when the server runs, or after ten seconds; before that it may ask where people log in.
START_SECONDS = 60.0
#: The Hub cuts longer answers itself; we follow its pages.
PAGE_SIZE = 200
LONGEST_LIST = 20_000
LONGEST_REFUSAL = 1000
_PAGED = "application/jupyterhub-pagination+json"


#: A list this old is read again behind the answer; one that is older, before it.
KEEP_SECONDS, FORGET_SECONDS = 30.0, 600.0

log = logging.getLogger("berth.web.hub")


@dataclass(frozen=True, slots=True)
class Kept:
    """The users as the Hub told them at `at` (monotonic); `mark` is how many there were and who was the newest."""

    mark: tuple[Any, ...]
    users: tuple[HubUser, ...]
    at: float


class HubClient:
    """`HubPort` over HTTP. `api_url` is the Hub's own ("http://127.0.0.1:8081/hub/api")."""

    def __init__(self, api_url: str, api_token: str) -> None:
        self._url = api_url.rstrip("/")
        self._token = api_token
        self._kept: Kept | None = None
        self._reading: asyncio.Task[None] | None = None

    async def users(self) -> tuple[HubUser, ...]:
        """All users. With thousands of them the Hub takes a second for its list, so it is kept: one small question,
        how many there are and who is the newest, tells whether somebody came or went since."""
        mark = await self._mark()
        kept = self._kept
        if kept is None or kept.mark != mark or time.monotonic() - kept.at > FORGET_SECONDS:
            return (await self._read_all(mark)).users
        if time.monotonic() - kept.at > KEEP_SECONDS and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_again(mark))  # who became an administrator meanwhile
        return kept.users

    async def _mark(self) -> tuple[Any, ...]:
        page = _page(await self._ask("GET", "/users?limit=1&sort=-id"))
        return (page["_pagination"].get("total"), *(item["name"] for item in page["items"]))

    async def _read_again(self, mark: tuple[Any, ...]) -> None:
        try:
            await self._read_all(mark)
        except HubUnavailable as error:
            log.info("The list of the Hub's users stays as it was: %s", error)

    async def _read_all(self, mark: tuple[Any, ...]) -> Kept:
        """All users, page by page: the Hub answers at most 200 at a time."""
        found: list[HubUser] = []
        offset: int | None = 0
        while offset is not None and len(found) < LONGEST_LIST:
            page = _page(await self._ask("GET", f"/users?limit={PAGE_SIZE}&offset={offset}"))
            try:
                found += [HubUser(str(item["name"]), bool(item.get("admin", False))) for item in page["items"]]
                following = page["_pagination"]["next"]
                offset = int(following["offset"]) if following else None
            except (KeyError, TypeError, ValueError) as error:
                raise HubUnavailable(f"the list of users has an unknown form: {error!r}") from None
        self._kept = Kept(mark, tuple(found), time.monotonic())
        return self._kept

    async def groups_of(self, user: str) -> frozenset[str]:
        """The groups that a user is in at this moment; none for somebody whom the Hub does not know."""
        return frozenset(await self._names(f"/users/{quote(user, safe='')}", "groups"))

    async def made_at(self, user: str) -> datetime | None:
        """Since when the Hub has this user; None for somebody whom it does not know."""
        path = f"/users/{quote(user, safe='')}"
        answer = await self._ask("GET", path, fine=(404,))
        if answer.code == 404:
            return None
        try:
            made_at = datetime.fromisoformat(_json(answer)["created"])
        except (KeyError, TypeError, ValueError):
            raise HubUnavailable(f"{path} has an unknown form") from None
        return made_at if made_at.tzinfo else made_at.replace(tzinfo=UTC)

    async def members(self, group: str) -> tuple[str, ...]:
        """The users in a group at this moment; none where the Hub has no such group."""
        return tuple(sorted(await self._names(f"/groups/{quote(group, safe='')}", "users")))

    async def _names(self, path: str, key: str) -> list[str]:
        answer = await self._ask("GET", path, fine=(404,))
        if answer.code == 404:
            return []
        try:
            return [str(name) for name in _json(answer)[key]]
        except (KeyError, TypeError):
            raise HubUnavailable(f"{path} has an unknown form") from None

    async def stop_server(self, user: str, server: str) -> None:
        """Ask for a server's end. Already gone (404) or going (400, pending) is fine: the book has the intent."""
        name = quote(user, safe="")
        path = f"/users/{name}/servers/{quote(server, safe='')}" if server else f"/users/{name}/server"
        await self._ask("DELETE", path, fine=(400, 404), seconds=STOP_SECONDS)

    async def scopes(self) -> frozenset[str]:
        """What the service's own token may do."""
        try:
            return frozenset(str(scope) for scope in _json(await self._ask("GET", "/user"))["scopes"])
        except (KeyError, TypeError):
            raise HubUnavailable("the Hub does not say what its token may do") from None

    async def start_server(self, user: str, server: str, options: dict[str, str], language: str = "") -> None:
        """Begin to start a server; one that is being started already is fine. The words of a refusal are the Hub's,
        in that language. Raises `StartRefused`, `StartForbidden`, `HubUnavailable`."""
        name = quote(user, safe="")
        path = f"/users/{name}/servers/{quote(server, safe='')}" if server else f"/users/{name}/server"
        body = json.dumps({"user_options": options})
        answer = await self._ask(
            "POST", path, tuple(range(400, 600)), START_SECONDS, body, {"Accept-Language": language or "en"}
        )
        if answer.code in (401, 403, 404) and SCOPE not in await self.scopes():
            raise StartForbidden
        if answer.code >= 400:
            raise StartRefused(_refusal(answer))

    async def _ask(
        self,
        method: str,
        path: str,
        fine: tuple[int, ...] = (),
        seconds: float = TIMEOUT_SECONDS,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HTTPResponse:
        request = HTTPRequest(
            self._url + path,
            method=method,
            headers={
                "Authorization": f"token {self._token}",
                "Accept": _PAGED,
                **tracing.outgoing(),
                **(headers or {}),
            },
            body=body,
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


def _refusal(answer: HTTPResponse) -> str:
    """What the Hub says of a start that it refused, on one line. Raises `HubUnavailable` where that is no refusal."""
    try:
        words = " ".join(str(json.loads(answer.body)["message"]).split())[:LONGEST_REFUSAL]
    except (ValueError, KeyError, TypeError):
        raise HubUnavailable(f"a start was answered with {answer.code}") from None
    if not words:
        raise HubUnavailable(f"a start was answered with {answer.code}")
    return words


def _page(answer: HTTPResponse) -> Any:
    """A page of a list of what has a name. Raises `HubUnavailable` for anything else."""
    page = _json(answer)
    try:
        if all(isinstance(item["name"], str) for item in page["items"]) and isinstance(page["_pagination"], dict):
            return page
    except (KeyError, TypeError):
        pass
    raise HubUnavailable("the list of users has an unknown form")


def _json(answer: HTTPResponse) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        raise HubUnavailable("the Hub's answer is not JSON") from None
