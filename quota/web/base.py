"""What every handler shares: who asks, bodies with a limit, threads for the book, answers to errors."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

from jupyterhub.services.auth import HubOAuth, HubOAuthenticated, UserNotAllowed
from tornado.http1connection import HTTP1Connection
from tornado.httputil import HTTPInputError, parse_body_arguments
from tornado.web import Finish, HTTPError, RequestHandler, stream_request_body

from quota import tracing
from quota.i18n import _
from quota.web.parts import HubUnavailable, ServiceParts, Viewer
from quota.web.problem import Problem, Why, problem_of, problem_text

log = logging.getLogger("berth.web")

LARGEST_BODY = 64 * 1024
#: A longer body is read to its end (and dropped) before it is refused, so that the client hears why; up to here.
LARGEST_DRAINED = 8 * 1024 * 1024

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound="Handler")


def too_large(limit: int = LARGEST_BODY) -> Problem:
    return Problem(413, Why.TOO_LARGE, _("A request's body may have %(number)s bytes at most.", number=limit))


@stream_request_body
class Handler(HubOAuthenticated, RequestHandler):
    """Base of pages and REST. Bodies are streamed, so that a large one is refused before it is stored."""

    viewer: Viewer
    largest: ClassVar[int] = LARGEST_BODY

    def initialize(self, parts: ServiceParts, threads: Executor) -> None:
        self.parts = parts
        self.threads = threads
        self.hub_auth = parts.hub_auth or HubOAuth.instance()
        self.raw = bytearray()
        self.overflow = False
        #: Whether the body is still to come: tornado ends the connection behind an answer that did not wait for it.
        self.early = True

    # ---- bodies ----

    def prepare(self) -> None:
        if self.request.headers.get("Sec-Fetch-Mode") == "websocket":
            # The Hub's library takes such a request for a web socket: no XSRF token, and a token in the address.
            self.answer_problem(Problem(400, Why.REQUEST_INVALID, _("There are no web sockets here.")))
            return
        length = self.request.headers.get("Content-Length", "0")
        size = int(length) if length.isascii() and length.isdigit() else 0
        self.overflow = size > self.largest
        if size > LARGEST_DRAINED:
            self.answer_problem(too_large(self.largest))
        self.early = False
        connection = self.request.connection
        if isinstance(connection, HTTP1Connection):
            connection.set_max_body_size(LARGEST_DRAINED)

    def data_received(self, chunk: bytes) -> None:
        self.overflow = self.overflow or len(self.raw) + len(chunk) > self.largest
        if not self.overflow:
            self.raw += chunk

    def read_form(self) -> None:
        """Take the fields of a form from the body. Raises `Problem`."""
        if self.overflow:
            raise too_large(self.largest)
        kind = self.request.headers.get("Content-Type", "")
        if not kind.startswith("application/x-www-form-urlencoded"):
            return
        try:
            parse_body_arguments(kind, bytes(self.raw), self.request.body_arguments, {}, self.request.headers)
        except HTTPInputError:
            raise Problem(400, Why.REQUEST_INVALID, _("The form could not be read.")) from None
        for name, values in self.request.body_arguments.items():
            self.request.arguments.setdefault(name, []).extend(values)

    # ---- the book, in threads ----

    async def in_thread(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call of the book without holding up the loop."""
        loop = asyncio.get_running_loop()
        in_context = functools.partial(contextvars.copy_context().run, call, *args, **kwargs)
        return await loop.run_in_executor(self.threads, in_context)

    # ---- who asks ----

    def get_current_user(self) -> None:
        """Nobody until `identify` was awaited: the mix-in's own way would ask the Hub here, and block the loop."""

    async def identify(self) -> Viewer | None:
        """The user whom a token or cookie belongs to, None where neither is good. Raises `Problem`.

        The Hub's own mix-in blocks the loop for this; here the same check is awaited. A cookie counts for a write
        (and for any request that script code made) only with its XSRF token: `HubOAuth` checks that.
        """
        try:
            model = await self.hub_auth.get_user(self, sync=False)
            model = self.check_hub_user(model) if model else None
        except UserNotAllowed:
            self.current_user = None
            raise Problem(403, Why.FORBIDDEN, _("This token or user has no access to Berth.")) from None
        except HTTPError as error:
            self.current_user = None
            raise HubUnavailable(str(error.log_message)) from None
        self.current_user = model
        if model is None:
            return None
        if model.get("kind", "user") != "user":
            raise Problem(403, Why.FORBIDDEN, _("Only users have accounts and servers; this token is a service's."))
        groups = frozenset(str(name) for name in model.get("groups") or ())
        return Viewer(str(model["name"]), bool(model.get("admin", False)), groups)

    def cookie_refused(self) -> bool:
        """Whether a cookie was there and did not count for want of its XSRF token."""
        if not self.hub_auth._get_token_cookie(self):
            return False
        try:
            self.check_xsrf_cookie()
        except HTTPError:
            return True
        return False

    async def sign_in(self) -> Viewer:
        raise NotImplementedError

    def need_admin(self) -> None:
        """Raises `Problem` unless an administrator asks."""
        if not self.viewer.admin:
            raise Problem(403, Why.FORBIDDEN, _("Only administrators may see or do this."))

    # ---- answers ----

    def answer_problem(self, problem: Problem) -> None:
        """Finish the request with an error."""
        self.clear()
        self.set_status(problem.status)
        if self.early:  # said, so that the proxy sends nobody else's request into a connection that is about to end
            self.set_header("Connection", "close")
        for name, value in problem.headers.items():
            self.set_header(name, value)
        self.show_problem(problem)

    def show_problem(self, problem: Problem) -> None:
        raise NotImplementedError

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Errors of tornado's own, and faults of ours: nothing of them is shown but that they happened."""
        exc_info = kwargs.get("exc_info")
        error = exc_info[1] if exc_info else None
        problem = problem_of(error, self.parts) if error is not None and not isinstance(error, HTTPError) else None
        self.answer_problem(problem or plain_problem(self, status_code))

    def _request_summary(self) -> str:
        # Never the query: it may carry an OAuth code or a token.
        return f"{self.request.method} {self.request.path} ({self.request.remote_ip})"


def plain_problem(handler: RequestHandler, status: int) -> Problem:
    """What an error of tornado's own means to whoever asked `handler`."""
    if status == 405:
        return Problem(
            405, Why.METHOD, _("This address does not offer that."), {"Allow": ", ".join(verbs_of(type(handler)))}
        )
    plain = {
        400: (Why.REQUEST_INVALID, _("Something in the address or the request is not well formed.")),
        403: (Why.FORBIDDEN, _("This is not allowed.")),
        404: (Why.NOT_FOUND, _("There is nothing at this address.")),
    }
    reason, detail = plain.get(status, (Why.INTERNAL, _("The log of the service says more.")))
    return Problem(status if status in plain else 500, reason, detail)


def verbs_of(kind: type[RequestHandler]) -> list[str]:
    """The methods that a handler offers, in tornado's order."""
    nothing = RequestHandler._unimplemented_method
    return [verb for verb in kind.SUPPORTED_METHODS if getattr(kind, verb.lower()) is not nothing]


def endpoint(
    *, admin: bool = False, public: bool = False
) -> Callable[[Callable[Concatenate[H, P], Awaitable[None]]], Callable[Concatenate[H, P], Awaitable[None]]]:
    """A verb of a handler: reads the form, finds out who asks, and turns known errors into answers."""

    def wrap(method: Callable[Concatenate[H, P], Awaitable[None]]) -> Callable[Concatenate[H, P], Awaitable[None]]:
        @functools.wraps(method)
        async def run(self: H, /, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                self.read_form()
                if not public:
                    self.viewer = await self.sign_in()
                if admin:
                    self.need_admin()
                await method(self, *args, **kwargs)
            except Finish:
                raise
            except Exception as error:
                problem = problem_of(error, self.parts)
                if problem is None:
                    raise
                self.answer_problem(problem)

        return cast(Callable[Concatenate[H, P], Awaitable[None]], run)

    return wrap


class JsonHandler(Handler):
    """Base of REST: a token in the Authorization header, or the pages' cookie with its XSRF token."""

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

    def compute_etag(self) -> None:
        """None: what is never stored (`no-store`) is never asked for again by its hash, so nothing is a 304."""

    async def sign_in(self) -> Viewer:
        viewer = await self.identify()
        if viewer is not None:
            return viewer
        if self.cookie_refused():
            raise Problem(403, Why.XSRF, _("A request with a cookie needs its XSRF token in the X-XSRFToken header."))
        raise Problem(
            401,
            Why.NOT_SIGNED_IN,
            _("Send a token of the Hub in the Authorization header."),
            {"WWW-Authenticate": 'token realm="JupyterHub"'},
        )

    def send_text(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        """Finish with JSON that is ready."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        for name, value in (headers or {}).items():
            self.set_header(name, value)
        self.finish(text)

    def show_problem(self, problem: Problem) -> None:
        self.send_text(problem.status, problem_text(problem, tracing.request_id()))
