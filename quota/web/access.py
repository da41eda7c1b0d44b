"""One line of the log for each request of the service, and its part of the metrics."""

from __future__ import annotations

import logging

from tornado.web import RequestHandler

from quota.web.metrics import Meters

log = logging.getLogger("berth.web.access")


def log_request(handler: RequestHandler) -> None:
    """Without its query or headers: those may carry tokens."""
    meters: Meters = handler.application.settings["berth_meters"]
    route, status, request = meters.count(handler), handler.get_status(), handler.request
    level = logging.ERROR if status >= 500 else logging.WARNING if status >= 400 else logging.INFO
    viewer = getattr(handler, "viewer", None)
    log.log(
        level if route != "health" else logging.DEBUG,  # asked twice a second while Berth starts
        "%d %s %s",
        status,
        request.method,
        request.path,
        extra={
            "event": "request",
            "method": request.method,
            "path": request.path,
            "route": route,
            "status": status,
            "duration_ms": round(1000 * request.request_time(), 1),
            "by": viewer.name if viewer else None,
        },
    )
