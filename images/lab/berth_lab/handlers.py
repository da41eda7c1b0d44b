"""What the browser asks of the kit: one stream of events, and a few deeds. For the server's own user alone.

Nothing here counts as activity of a person: the stream is open as long as a tab is, and saving is asked for by us.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jupyter_client.session import utcnow
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, authenticated

#: A comment keeps the way open after so much silence, in seconds.
KEEP_ALIVE_SECONDS = 15.0
#: Who takes nothing off the wire for so long is gone.
SLOW_SECONDS = 20.0
#: Bytes of a body; a token and a word.
LARGEST_BODY = 4096


def add_handlers(web_app: Any, kit: Any) -> None:
    """Put the addresses below `{base_url}berth/`."""
    base = url_path_join(web_app.settings["base_url"], "berth")
    found = {"stream": Stream, "saved-docs": SavedDocs, "save-now": SaveNow, "resume": Resume}
    web_app.add_handlers(".*$", [(url_path_join(base, name), kind, {"kit": kit}) for name, kind in found.items()])


def text_of(event: Mapping[str, Any], now: datetime) -> str:
    """An event as it goes over the wire. A state has its age in seconds: the browser's clock is its own."""
    data = dict(event["data"])
    if event["event"] == "state":
        data["age"] = age_of(data.get("now"), now)
    words = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return f"event: {event['event']}\ndata: {words}\n\n"


def age_of(said_at: Any, now: datetime) -> float | None:
    """Seconds since that RFC 3339 time, never negative; None where it is none."""
    try:
        return max(0.0, (now - datetime.fromisoformat(said_at)).total_seconds())
    except (TypeError, ValueError):
        return None


class KitHandler(APIHandler):
    """Base: signed in as the server says, with its XSRF token for what writes; no activity."""

    _track_activity = False

    def initialize(self, kit: Any) -> None:
        self.kit = kit

    def body(self) -> dict[str, Any]:
        """The JSON object of the request; nothing is an empty one. Raises `HTTPError` 400 or 413."""
        if len(self.request.body) > LARGEST_BODY:
            raise HTTPError(413, f"A body may have {LARGEST_BODY} bytes at most.")
        try:
            found = json.loads(self.request.body or b"{}")
        except ValueError:
            raise HTTPError(400, "The body must be JSON.") from None
        if not isinstance(found, dict):
            raise HTTPError(400, "The body must be a JSON object.")
        return found


class Stream(KitHandler):
    """Server-sent events: what is the case now, and all that follows. Kept open until the tab or the kit goes."""

    _queue: asyncio.Queue[dict[str, Any] | None] | None = None

    @authenticated
    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")
        queue = self._queue = self.kit.subscribe()
        try:
            await self._send(": berth\n\n")
            while (text := await self._next(queue)) is not None:
                await self._send(text)
            await self._send("event: gone\ndata: {}\n\n")
        except (StreamClosedError, TimeoutError):
            pass
        finally:
            self.kit.unsubscribe(queue)

    async def _next(self, queue: asyncio.Queue[dict[str, Any] | None]) -> str | None:
        """What is to be sent next; None is the end."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                event = await queue.get()
        except TimeoutError:
            return ": so far\n\n"
        return None if event is None else text_of(event, utcnow())

    async def _send(self, text: str) -> None:
        self.write(text)
        async with asyncio.timeout(SLOW_SECONDS):
            await self.flush()

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._queue is not None:
            self.kit.unsubscribe(self._queue)
            while not self._queue.empty():
                self._queue.get_nowait()
            self._queue.put_nowait(None)


class SavedDocs(KitHandler):
    """A browser has saved its documents, as `save-please` asked."""

    @authenticated
    async def post(self) -> None:
        self.body()
        self.kit.docs_saved()
        self.finish(json.dumps({}))


class SaveNow(KitHandler):
    """Save what can be saved while all goes on; the report."""

    @authenticated
    async def post(self) -> None:
        self.body()
        self.finish(json.dumps(await self.kit.save_now()))


class Resume(KitHandler):
    """Take the offer of a snapshot, or have it offered no more."""

    @authenticated
    async def post(self) -> None:
        asked = self.body()
        token, action = asked.get("token"), asked.get("action")
        if not isinstance(token, str) or not token:
            raise HTTPError(400, "token: the one that the offer names.")
        if action not in ("restore", "dismiss"):
            raise HTTPError(400, 'action: "restore" or "dismiss".')
        try:
            found = await (self.kit.resume(token) if action == "restore" else self.kit.dismiss(token))
        except LookupError:
            raise HTTPError(404, "This snapshot is not offered, or no longer.") from None
        self.finish(json.dumps(found or {}))
