"""`/services/berth/metrics`: who may look, and how a scrape is made without ever holding up anybody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from tornado.web import HTTPError

from quota.facts import Facts, read_facts
from quota.i18n import _
from quota.web.base import JsonHandler, endpoint
from quota.web.metrics import Meters, families
from quota.web.parts import HubUnavailable, ServiceParts, Viewer
from quota.web.problem import Problem, Why

log = logging.getLogger("berth.web")

#: Held by the token of the Hub's service `prometheus`.
SCOPE = "custom:berth:metrics"
#: Prometheus itself waits for 10 s by default.
PATIENCE_SECONDS = 5.0


class Scraper:
    """Reads the book for whoever scrapes, in a thread of its own: one look at a time, shared by all who wait for it."""

    def __init__(self, parts: ServiceParts) -> None:
        self._parts = parts
        self._thread = ThreadPoolExecutor(1, "scrape")
        self._look: asyncio.Future[tuple[Facts, tuple[str, ...]]] | None = None

    async def look(self) -> tuple[Facts | None, Sequence[str]]:
        """The facts and the names of the profiles; (None, ()) where the book does not answer in time."""
        if self._look is None:
            self._look = asyncio.get_running_loop().run_in_executor(self._thread, self._read)
            self._look.add_done_callback(self._over)
        try:
            return await asyncio.wait_for(asyncio.shield(self._look), PATIENCE_SECONDS)
        except TimeoutError:
            log.warning("The book did not answer a scrape in time", extra={"event": "scrape-slow"})
        except Exception as error:
            log.warning("The book cannot be read for a scrape: %s", error, extra={"event": "scrape-failed"})
        return None, ()

    def _over(self, look: asyncio.Future[tuple[Facts, tuple[str, ...]]]) -> None:
        self._look = None
        if not look.cancelled():
            look.exception()  # else asyncio complains when nobody waits for it any more

    def _read(self) -> tuple[Facts, tuple[str, ...]]:
        facts = read_facts(self._parts.book.store, self._parts.clock.now())
        return facts, tuple(profile.name for profile in self._parts.profiles())

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Page:
    """What the encoders of prometheus_client take for a registry."""

    def __init__(self, meters: Meters, book: Iterable[Metric]) -> None:
        self._meters, self._book = meters, list(book)

    def collect(self) -> Iterator[Metric]:
        yield from self._meters.registry.collect()
        yield from self._book


def _encoder(accepted: str) -> tuple[Callable[[Any], bytes], str]:
    """How the page is written, and its type; the plain format where what is asked for cannot be read."""
    try:
        return choose_encoder(accepted)
    except (TypeError, ValueError):  # a version that is none: prometheus_client compares it all the same
        return choose_encoder("")


class MetricsPage(JsonHandler):
    """For the scrape token, and for administrators who look themselves."""

    def initialize(self, parts: ServiceParts, threads: Executor) -> None:
        super().initialize(parts, threads)
        self.set_header("Vary", "Accept")

    async def sign_in(self) -> Viewer:
        """Raises `Problem` for anybody else."""
        try:
            model = await self.hub_auth.get_user(self, sync=False)
        except HTTPError as error:
            if error.status_code == 403:
                raise Problem(403, Why.FORBIDDEN, _("This token has no access to Berth's metrics.")) from None
            raise HubUnavailable(str(error.log_message)) from None
        if model is None:
            return await super().sign_in()  # which says what is missing
        if SCOPE in model.get("scopes", ()) or (model.get("kind", "user") == "user" and model.get("admin")):
            return Viewer(str(model["name"]), False)
        raise Problem(403, Why.FORBIDDEN, _("Only the scrape token and administrators may read the metrics."))

    @endpoint()
    async def get(self) -> None:
        scraper: Scraper = self.application.settings["berth_scraper"]
        meters: Meters = self.application.settings["berth_meters"]
        facts, profiles = await scraper.look()
        encode, kind = _encoder(self.request.headers.get("Accept", ""))
        page = _Page(meters, families(facts, profiles, self.parts.clock.now(), self.parts.sent()))
        self.set_header("Content-Type", kind)
        self.finish(encode(page))
