"""The service `berth`: all addresses, assembled from the parts that the composition root hands over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from jupyterhub.services.auth import HubOAuth
from tornado.web import Application, HTTPError, RedirectHandler, RequestHandler, StaticFileHandler

from quota.api import API_ROUTES, ApiNotFound, document
from quota.api.kit_stream import KitStream
from quota.book_timing import time_transactions
from quota.kit_reads import KitReads
from quota.web.access import log_request
from quota.web.appeal_pages import APPEAL_ROUTES
from quota.web.arrival import RequestId
from quota.web.base import plain_problem
from quota.web.compressed import CompressedFiles
from quota.web.group_pages import GROUP_ROUTES
from quota.web.hub import HubClient
from quota.web.interface import Interface
from quota.web.metrics import Meters
from quota.web.notice_pages import NOTICE_ROUTES
from quota.web.pages import PAGE_ROUTES, PageNotFound
from quota.web.parts import HubPort, HubUnavailable, HubUser, ProfileView, ServiceParts
from quota.web.problem import problem_text
from quota.web.render import STATIC, Pages
from quota.web.scrape import MetricsPage, Scraper
from quota.web.start_pages import START_ROUTES
from quota.web.streams import Streams
from quota.web.wish_pages import WISH_ROUTES

__all__ = ["HubClient", "HubPort", "HubUnavailable", "HubUser", "ProfileView", "ServiceParts", "make_app"]

#: Threads for calls of the book; more would only wait for each other at its lock.
BOOK_THREADS = 8
#: How long the Hub's word about a token is kept: so long does a revoked one still count, and a former administrator.
IDENTITY_SECONDS = 30


class Plain(RequestHandler):
    """Base of what is neither a page nor REST: its errors are problem+json too."""

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

    def write_error(self, status_code: int, **_: Any) -> None:
        problem = plain_problem(self, status_code)
        self.clear()
        self.set_status(problem.status)
        for name, value in problem.headers.items():
            self.set_header(name, value)
        self.set_header("Content-Type", "application/problem+json")
        self.finish(problem_text(problem))


class Assets(Plain, StaticFileHandler):
    """Styles, scripts and pictures of the pages."""

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        if "\0" in absolute_path:  # no file's name; tornado would ask the system for it, and fail
            raise HTTPError(404)
        return super().validate_absolute_path(root, absolute_path)


class Away(Plain, RedirectHandler):
    """From the bare name to the address with its slash."""


class Health(Plain):
    """Answers while the service lives: no log-in, no book, nothing told."""

    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish({"status": "ok"})


#: All pages and their forms, below the service's prefix.
PAGES = (*PAGE_ROUTES, *GROUP_ROUTES, *WISH_ROUTES, *APPEAL_ROUTES, *START_ROUTES, *NOTICE_ROUTES)


def keep_secrets(record: logging.LogRecord) -> bool:
    """Drop the lines in which the Hub's library writes session ids and hashes of tokens."""
    return not str(record.msg).startswith("Setting new xsrf cookie")


def make_app(parts: ServiceParts, threads: Executor | None = None) -> Application:
    """The tornado application. It makes its own threads for the book unless some are given."""
    logging.getLogger("tornado.application").addFilter(keep_secrets)
    if parts.hub_auth is None:
        HubOAuth.instance(cache_max_age=IDENTITY_SECONDS)
    prefix = "/" + parts.prefix.strip("/") + "/"
    common: dict[str, Any] = {"parts": parts, "threads": threads or ThreadPoolExecutor(BOOK_THREADS, "book")}
    routes: list[Any] = [(prefix + "api/v1/" + path, handler, common) for path, handler in API_ROUTES]
    routes.append((prefix + "api/v1/kit/stream", KitStream, common))
    routes.append((prefix + "api/.*", ApiNotFound, common))
    routes += [(prefix + path, handler, common) for path, handler in PAGES]
    routes += [
        (prefix + "api", Interface, common),
        (prefix + "health", Health),
        (prefix + "metrics", MetricsPage, common),
        (prefix + "static/(.*)", Assets, {"path": str(STATIC)}),
        (prefix.rstrip("/"), Away, {"url": prefix, "permanent": False}),
    ]
    meters = Meters(prefix, routes)
    time_transactions(parts.book.store, meters.transaction)
    return Application(
        routes,
        transforms=[RequestId, CompressedFiles],
        default_handler_class=PageNotFound,
        default_handler_args=common,
        log_function=log_request,
        cookie_secret=parts.cookie_secret,
        xsrf_cookie_kwargs={"samesite": "Lax"},
        berth_pages=Pages(parts.zone, parts.templates),
        berth_prefix=prefix,
        berth_document=document(prefix, parts.site),
        berth_running={},
        berth_streams=_streams(parts, common["threads"]),
        berth_meters=meters,
        berth_scraper=Scraper(parts),
    )


def _streams(parts: ServiceParts, threads: Executor) -> Streams:
    async def in_thread(call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(threads, call)

    return Streams(KitReads(parts.bank), parts.clock, parts.tz, in_thread, parts.longest)
