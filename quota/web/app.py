"""The service `berth`: all addresses, assembled from the parts that the composition root hands over."""

from __future__ import annotations

import logging
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from jupyterhub.services.auth import HubOAuth
from tornado.web import Application, RedirectHandler, RequestHandler, StaticFileHandler

from quota.api import API_ROUTES, ApiNotFound, document
from quota.web.hub import HubClient
from quota.web.pages import PAGE_ROUTES, PageNotFound
from quota.web.parts import HubPort, HubUnavailable, HubUser, ProfileView, ServiceParts
from quota.web.render import STATIC, make_environment

__all__ = ["HubClient", "HubPort", "HubUnavailable", "HubUser", "ProfileView", "ServiceParts", "make_app"]

log = logging.getLogger("berth.web.access")

#: Threads for calls of the book; more would only wait for each other at its lock.
BOOK_THREADS = 8
#: How long the Hub's word about a token is kept: so long does a revoked one still count, and a former administrator.
IDENTITY_SECONDS = 30


class Health(RequestHandler):
    """Answers while the service lives: no log-in, no book, nothing told."""

    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish({"status": "ok"})


def log_request(handler: RequestHandler) -> None:
    """One line a request, without its query or headers: those may carry tokens."""
    status, request = handler.get_status(), handler.request
    level = logging.ERROR if status >= 500 else logging.WARNING if status >= 400 else logging.INFO
    viewer = getattr(handler, "viewer", None)
    log.log(
        level,
        "%d %s %s %s %.0f ms",
        status,
        request.method,
        request.path,
        viewer.name if viewer else "-",
        1000 * request.request_time(),
    )


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
    routes.append((prefix + "api/.*", ApiNotFound, common))
    routes += [(prefix + path, handler, common) for path, handler in PAGE_ROUTES]
    routes += [
        (prefix + "health", Health),
        (prefix + "static/(.*)", StaticFileHandler, {"path": str(STATIC)}),
        (prefix.rstrip("/"), RedirectHandler, {"url": prefix, "permanent": False}),
    ]
    return Application(
        routes,
        default_handler_class=PageNotFound,
        default_handler_args=common,
        log_function=log_request,
        cookie_secret=parts.cookie_secret,
        berth_pages=make_environment(parts.zone),
        berth_prefix=prefix,
        berth_document=document(prefix, parts.site),
        berth_running={},
    )
