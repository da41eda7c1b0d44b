"""What several attacks on service `berth` need: all that can be changed, all that the book says, browsers of several
people, and bytes that no client library would send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa

from quota import schema
from quota.api.routes import ADDRESSES
from quota.web.app import PAGES
from tests.contract.service_reading import xsrf
from tests.fakes.book import Desk
from tests.fakes.service import Service

#: Every form of the pages: its route, an address, what it sends, and the page it is on. `{lease}` is a running lease,
#: `{ended}` one that is over, `{doubted}` one of the administrator's own that the site has ended, `{mine}` a start that
#: they have scheduled.
FORMS: dict[str, tuple[str, dict[str, str], str]] = {
    "lease/L/wish": ("lease/{lease}/wish", {"do": "when-done"}, "lease/{lease}"),
    "lease/L/appeal": ("lease/{doubted}/appeal", {"words": "It was training."}, "lease/{doubted}"),
    "admin/appeal": ("admin/appeal", {"lease": "{doubted}", "do": "deny", "answer": "It was not."}, "admin"),
    "notices/read": ("notices/read", {}, "notices"),
    "notices/preferences": ("notices/preferences", {"digest": "daily", "language": "en"}, "notices"),
    "notices/test": ("notices/test", {}, "notices"),
    "starts/add": ("starts/add", {"at": "2026-03-03T08:00", "profile": "cpu"}, "starts"),
    "starts/move": ("starts/move", {"id": "{mine}", "at": "2026-03-03T09:00"}, "starts"),
    "starts/cancel": ("starts/cancel", {"id": "{mine}"}, "starts"),
    "lease/L/stop": ("lease/{lease}/stop", {}, "lease/{lease}/stop"),
    "lease/L/refund": ("lease/{ended}/refund", {"credits": "0.1", "note": "x"}, "lease/{ended}"),
    "admin/grant": ("admin/grant", {"account": "alice", "credits": "5"}, "admin"),
    "admin/limits": ("admin/limits", {"account": "*", "max_servers": "9"}, "admin"),
    "admin/monthly": ("admin/monthly", {"account": "*", "credits": "9"}, "admin"),
    "admin/prices": ("admin/prices", {"gpu_hour": "0", "cpu_hour": "0"}, "admin"),
}

#: Every write of REST: method, address, body.
WRITES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "POST leases/{lease_id}/stop": ("POST", "leases/{lease}/stop", {}),
    "DELETE leases/{lease_id}": ("DELETE", "leases/{lease}", {}),
    "POST leases/{lease_id}/refund": ("POST", "leases/{ended}/refund", {"credits": "0.1"}),
    "PUT leases/{lease_id}/keep": ("PUT", "leases/{lease}/keep", {"seconds": 600}),
    "DELETE leases/{lease_id}/keep": ("DELETE", "leases/{lease}/keep", {}),
    "PUT leases/{lease_id}/shutdown": ("PUT", "leases/{lease}/shutdown", {"at": "2099-01-01T00:00:00Z"}),
    "DELETE leases/{lease_id}/shutdown": ("DELETE", "leases/{lease}/shutdown", {}),
    "PUT leases/{lease_id}/when-done": ("PUT", "leases/{lease}/when-done", {}),
    "DELETE leases/{lease_id}/when-done": ("DELETE", "leases/{lease}/when-done", {}),
    "POST leases/{lease_id}/appeal": ("POST", "leases/{ended}/appeal", {"words": "It was training."}),
    "POST leases/{lease_id}/appeal/decision": (
        "POST",
        "leases/{ended}/appeal/decision",
        {"granted": False, "note": "It was not."},
    ),
    "POST scheduled-starts": ("POST", "scheduled-starts", {"at": "2026-03-03T08:00:00Z", "profile": "cpu"}),
    "PUT scheduled-starts/{start_id}": (
        "PUT",
        "scheduled-starts/{start}",
        {"at": "2026-03-03T09:00:00Z", "profile": "cpu"},
    ),
    "DELETE scheduled-starts/{start_id}": ("DELETE", "scheduled-starts/{start}", {}),
    "PUT notices/{notice_id}/read": ("PUT", "notices/{notice}/read", {}),
    "PUT notices/read": ("PUT", "notices/read", {}),
    "PUT notices/preferences": ("PUT", "notices/preferences", {"digest": "daily", "language": "en"}),
    "POST notices/test": ("POST", "notices/test", {}),
    "POST accounts/{name}/grants": ("POST", "accounts/alice/grants", {"credits": "5"}),
    "PUT accounts/{name}/limits": ("PUT", "accounts/%2A/limits", {"max_servers": 9}),
    "PUT accounts/{name}/monthly-grant": ("PUT", "accounts/%2A/monthly-grant", {"micro_credits": 9}),
    "PUT prices": ("PUT", "prices", {"gpu_hour_micro_credits": 0, "cpu_hour_micro_credits": 0}),
    "POST kit/signals": ("POST", "kit/signals", {"kernels": [], "terminals": 0}),
    "POST kit/farewell": ("POST", "kit/farewell", {"state": "done", "reason": "idle", "saved": [], "lost": []}),
    "POST kit/used": ("POST", "kit/used", {}),
}

#: Those that write what is the asker's own, whoever asks: nobody else can be named in them.
ONES_OWN = {"POST scheduled-starts", "PUT notices/read", "PUT notices/preferences", "POST notices/test"}

SAFE = {"GET", "HEAD", "OPTIONS"}


def forms(ids: Mapping[str, str]) -> list[tuple[str, dict[str, str], str]]:
    """`FORMS` with the ids of a test's leases: address, fields, page."""
    return [
        (path.format(**ids), {name: value.format(**ids) for name, value in fields.items()}, page.format(**ids))
        for path, fields, page in FORMS.values()
    ]


def forms_there_are() -> set[str]:
    """Routes of the pages that take something by POST, with L for a lease's id."""
    takes = {route for route, handler in PAGES if "post" in vars(handler) or _inherits_post(handler)}
    return {re.sub(r"\([^)]*\)", "L", route) for route in takes}


def _inherits_post(handler: type) -> bool:
    return any("post" in vars(base) and base.__module__.startswith("quota.") for base in handler.__mro__)


def writes_there_are() -> set[str]:
    """Operations of REST that are not read-only: "POST leases/{lease_id}/stop"."""
    return {
        f"{verb} {address}"
        for address, handler in ADDRESSES.items()
        for verb in ("POST", "PUT", "PATCH", "DELETE")
        if hasattr(getattr(handler, verb.lower(), None), "operation")
    }


def everything(desk: Desk) -> dict[str, list[tuple[Any, ...]]]:
    """The whole book, table by table; heartbeats apart, which come and go."""
    with desk.store.engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(sa.select(table))), key=repr)
            for table in schema.metadata.sorted_tables
            if table.name != "boot"
        }


async def logged_in(service: Service, user: str) -> httpx.AsyncClient:
    """A browser with the service's own cookies."""
    client = service.browser(user)
    assert (await client.get("")).status_code == 200
    return client


async def token_of(client: httpx.AsyncClient, page: str = "admin") -> str:
    return xsrf(await client.get(page))


@asynccontextmanager
async def dialled(service: Service) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection to the service."""
    at = urlsplit(service.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def bare(service: Service, request: bytes, seconds: float = 10) -> bytes:
    """All that is answered to these bytes until the connection ends or nothing comes for a while."""
    answer = b""
    async with dialled(service) as (reader, writer):
        writer.write(request)
        try:
            async with asyncio.timeout(seconds):
                while chunk := await reader.read(65536):
                    answer += chunk
        except (TimeoutError, ConnectionError):
            return answer
    return answer
