"""The HTTP server of the service. What tornado refuses before any handler sees it is told as problem+json too."""

from __future__ import annotations

from asyncio import Future
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from quota.web.problem import Problem, Why, problem_text

#: All that tornado says to a request that is not HTTP, before it closes the connection.
_BARE = b"HTTP/1.1 400 Bad Request\r\n\r\n"


#: Seconds that a client may take to send a request's head (and that a connection may idle: longer than traefik keeps
#: its own, 90, or it would meet closed ones), and its body. Who dribbles holds one connection so long, and no more.
PATIENCE = {"idle_connection_timeout": 120.0, "body_timeout": 30.0}


def _malformed() -> bytes:
    """The whole answer to a request that could not be read."""
    words = "This is not a well-formed HTTP request, or its header is too large."
    body = problem_text(Problem(400, Why.REQUEST_INVALID, words)).encode()
    head = (
        "HTTP/1.1 400 Bad Request",
        "Content-Type: application/problem+json",
        "Cache-Control: no-store",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Server(HTTPServer):
    """tornado's server, with our patience unless another is given. It knows no error pages of its own for what is not
    HTTP: its bare line is replaced."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        super().initialize(*args, **{**PATIENCE, **kwargs})

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        write = stream.write

        def said(data: bytes | memoryview) -> Future[None]:
            return write(_malformed() if bytes(data) == _BARE else data)

        stream.write = said  # type: ignore[method-assign]
        super().handle_stream(stream, address)
