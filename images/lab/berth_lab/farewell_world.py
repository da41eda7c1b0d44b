"""The server around a farewell: its kernels, sessions, notebooks and browsers, and the service that is told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from jupyter_client.session import utcnow
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from berth_lab import activity, farewell_kernels
from berth_lab.broadcast import Broadcast
from berth_lab.farewell import told
from berth_lab.farewell_kernels import Seat, alone, seat_of
from berth_lab.farewell_report import bounded, shortened
from berth_lab.farewell_trainers import Trainers
from berth_lab.notebooks import Stamp, Written, done
from berth_lab.outputs_watch import Outputs
from berth_lab.workspace import open_documents, workspaces_folder

log = logging.getLogger("berth_lab")

POST_SECONDS = 3.0
TRIES = 3


def limits() -> dict[str, Any]:
    """Of one server's variables, as the site set them."""
    return {
        "most_mib": _number("BERTH_SAVE_MOST_MIB", 2048),
        "seconds": _number("BERTH_SAVE_SECONDS", 60),
    }


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else otherwise


class Around:
    """`farewell.World` of a real server. `states` gives each kernel's busy, by id."""

    def __init__(
        self,
        serverapp: Any,
        outputs: Outputs,
        browsers: Broadcast,
        states: Callable[[], dict[str, bool | None]],
        ask_browsers: Callable[[float], Awaitable[bool]],
        post: Callable[[dict[str, Any]], Awaitable[None]] | None,
    ) -> None:
        self._app, self._outputs, self._browsers = serverapp, outputs, browsers
        self._states, self._ask, self._post = states, ask_browsers, post
        self._trainers = Trainers(Path.home())
        self._published: dict[str, Any] | None = None
        self.kept_at: Path | None = None  # for a report that the service does not take

    def now(self) -> datetime:
        return utcnow()

    async def seats(self) -> list[Seat]:
        rows = await done(self._app.session_manager.list_sessions())
        kernels = self._app.kernel_manager
        seated = [row for row in rows if isinstance(row.get("kernel"), dict)]
        known = {row["kernel"]["id"] for row in seated}
        seated += [alone(each, kernels) for each in kernels.list_kernel_ids() if each not in known]
        return [seat_of(row, kernels) for row in seated]

    async def tabs(self) -> list[str]:
        return await asyncio.to_thread(open_documents, workspaces_folder(self._app))

    def busy(self, kernel_id: str) -> bool | None:
        return self._states().get(kernel_id)

    async def interrupt(self, kernel_id: str) -> None:
        await done(self._app.kernel_manager.interrupt_kernel(kernel_id))

    async def save_variables(self, seat: Seat, folder: Path, seconds: float) -> dict[str, Any]:
        bounds = limits()
        manager = self._app.kernel_manager.get_kernel(seat.id)
        return await farewell_kernels.save(manager, seat, folder, bounds, min(seconds, bounds["seconds"]))

    async def write_outputs(self, stamp: Stamp | None) -> list[Written]:
        return await self._outputs.write_all(stamp)

    async def ask_browsers_to_save(self, seconds: float) -> bool:
        return await self._ask(seconds)

    def busy_terminals(self) -> int:
        shells = activity.shells_of(self._app.web_app.settings.get("terminal_manager"))
        return activity.busy_terminals(shells) or 0

    async def ask_trainers(self, reason: str, until: datetime) -> None:
        await asyncio.to_thread(self._trainers.ask, reason, until)

    async def trainers_save(self) -> bool:
        return await asyncio.to_thread(self._trainers.waiting)

    async def checkpoints(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return await asyncio.to_thread(self._trainers.rows)

    async def tell(self, report: dict[str, Any]) -> bool:
        if report is not self._published:  # browsers hear it once, however often the service must be told
            self._published = report
            self._browsers.publish("saved" if report["state"] == "done" else "saving", shortened(report))
        return self._post is None or await told(self._post, report, self.kept_at)


def poster(service: str, token: str) -> Callable[[dict[str, Any]], Awaitable[None]]:
    """Posts a report to `{service}/api/v1/kit/farewell`; the final one is tried again a few times. The answer raises
    what the last try raised."""
    url = service.rstrip("/") + "/api/v1/kit/farewell"

    async def post(report: dict[str, Any]) -> None:
        client = AsyncHTTPClient(force_instance=True, defaults={"follow_redirects": False})
        tries = TRIES if report["state"] == "done" else 1
        try:
            for left in range(tries - 1, -1, -1):
                try:
                    await client.fetch(_request(url, token, bounded(report)))
                    return
                except Exception:
                    if not left:
                        raise
                await asyncio.sleep(0.5)
        finally:
            client.close()

    return post


async def used(service: str, token: str) -> bool:
    """Tell the service that a person uses this server; whether it runs on. Raises nothing: a server that may be
    stopped goes on saving."""
    url = service.rstrip("/") + "/api/v1/kit/used"
    client = AsyncHTTPClient(force_instance=True, defaults={"follow_redirects": False})
    try:
        answer = await client.fetch(_request(url, token, "{}"))
        return bool(json.loads(answer.body)["target"] == "RUN")
    except HTTPClientError as error:
        if error.code != 409:  # it is too late, or this stop is not taken back
            log.warning("the service could not be told that the server is used: %s", error)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("the service could not be told that the server is used: %s", error)
    finally:
        client.close()
    return False


def _request(url: str, token: str, body: str) -> HTTPRequest:
    return HTTPRequest(
        url,
        method="POST",
        headers={
            "Authorization": f"token {token}",
            "Content-Type": "application/json",
            "X-Request-Id": secrets.token_hex(16),
        },
        body=body,
        connect_timeout=POST_SECONDS,
        request_timeout=POST_SECONDS,
    )
