"""What all addresses of REST share: checked parameters and bodies, pages, keys, and answers that were promised."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import urlencode

from pydantic import BaseModel

from quota import tracing
from quota.answers import Answer
from quota.api.asked import Paged, Parameters, read, read_key
from quota.api.operation import Access, Operation, words_of
from quota.api.paging import Cursors, Key, scope_of
from quota.api.shapes import Page, Shape
from quota.errors import BerthError, Conflict, Reason
from quota.i18n import _
from quota.web import fields
from quota.web.base import JsonHandler, endpoint, too_large
from quota.web.parts import ServiceParts
from quota.web.problem import Problem, Why, problem_of, problem_text

log = logging.getLogger("berth.api")

#: What says "try again" is no answer to keep: the next try may well succeed.
_PASSING = (Why.CHANGED,)
_NO_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

P = ParamSpec("P")
H = TypeVar("H", bound="ApiHandler")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers."""

    content: Shape
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class ApiHandler(JsonHandler):
    """Base of the addresses. A verb is a method with `operation` that returns a `Reply` (or just its content)."""

    spec: Operation | None = None

    def initialize(self, parts: ServiceParts, threads: Executor) -> None:
        super().initialize(parts, threads)
        #: Requests with a key that run in this process now: what they are, by owner and key. Only the loop touches it.
        self.running: dict[tuple[str, str], str] = self.application.settings["berth_running"]
        self._query: BaseModel = Parameters()
        self._body: BaseModel | None = None
        self.content: dict[str, Any] = {}

    # ---- what was asked ----

    def query(self, model: type[M]) -> M:
        """The parameters of the address, as the operation declares them."""
        assert isinstance(self._query, model)
        return self._query

    def body(self, model: type[M]) -> M:
        """The body, as the operation declares it."""
        assert isinstance(self._body, model)
        return self._body

    def read_query(self, model: type[Parameters]) -> Parameters:
        """Raises `Problem`: a parameter is unknown, wrong, given twice or not in UTF-8."""
        if _NO_PERCENT.search(self.request.uri or ""):
            raise Problem(400, Why.REQUEST_INVALID, _("A % in the address must be followed by two hexadecimal digits."))
        found: dict[str, str] = {}
        for name, values in self.request.query_arguments.items():
            if len(values) != 1:
                raise Problem(400, Why.REQUEST_INVALID, _("%(name)s is given more than once.", name=repr(name[:40])))
            try:
                found[name] = values[0].decode("utf-8")
            except UnicodeDecodeError:
                raise Problem(400, Why.REQUEST_INVALID, _("%(name)s is not in UTF-8.", name=repr(name[:40]))) from None
        return read(model, found, "parameter")

    def read_content(self) -> dict[str, Any]:
        """The JSON object of the body; none is an empty one. Raises `Problem`."""
        if self.overflow:
            raise too_large(self.largest)
        kind = self.request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
        packed = self.request.headers.get("Content-Encoding", "identity").strip().lower() != "identity"
        if self.raw and (kind != "application/json" or packed):
            raise Problem(415, Why.MEDIA_TYPE, _("The body must be application/json, and not compressed."))
        return fields.json_object(bytes(self.raw))

    # ---- answering ----

    async def serve(self, spec: Operation, act: Callable[[], Awaitable[Reply | Shape]]) -> None:
        """One request of somebody who may ask: check what is asked, do it (once for one key), answer."""
        self._query = self.read_query(spec.query)
        if spec.body is not None:
            self.content = self.read_content()
            self._body = read(spec.body, self.content)
        key = self.idempotency_key() if spec.keyed else None
        if key is not None:
            await self._once(spec, key, act)
            return
        reply = as_reply(await act())
        self.send_text(reply.status, text_of(spec, reply), reply.headers)

    def idempotency_key(self) -> str | None:
        """The key in the header. Raises `Problem` for a bad one, for two of them, and where the body says another."""
        given = self.request.headers.get_list("Idempotency-Key")
        if len(given) > 1:  # tornado would make one of them, which nobody chose
            raise fields.wrong("Idempotency-Key", _("it is given more than once"))
        return read_key(given[0] if given else None, self.content)

    async def _once(self, spec: Operation, key: str, act: Callable[[], Awaitable[Reply | Shape]]) -> None:
        mine, print_ = (self.viewer.name, key), self.fingerprint()
        running = self.running.get(mine)
        if running is not None:
            raise _reused() if running != print_ else _still_running()
        self.running[mine] = print_
        try:
            try:
                before = await self.in_thread(self.parts.answers.begin, *mine, print_)
            except Conflict:
                raise _reused() from None
            if before is not None:
                self.send_text(before.status, before.body, {"Idempotency-Replayed": "true"})
                return
            await self._first(spec, mine, print_, act)
        finally:
            del self.running[mine]

    async def _first(
        self, spec: Operation, mine: tuple[str, str], print_: str, act: Callable[[], Awaitable[Reply | Shape]]
    ) -> None:
        """Run the request and keep its answer before it is sent; what says "try again" is not kept."""
        headers: Mapping[str, str]
        try:
            reply = as_reply(await act())
            answer, headers = Answer(reply.status, text_of(spec, reply)), reply.headers
        except BaseException as error:
            problem = problem_of(error, self.parts)
            if problem is None or problem.status >= 500 or problem.reason in _PASSING:
                await self._quietly(self.parts.answers.drop, *mine)
                raise
            self.check_promised(problem)
            answer = Answer(problem.status, problem_text(problem, tracing.request_id()))
            headers = problem.headers
        await self._quietly(self.parts.answers.finish, *mine, print_, answer)
        self.send_text(answer.status, answer.body, headers)

    async def _quietly(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """A note beside what was done: whoever asked hears of the deed even where the note failed."""
        try:
            await self.in_thread(call, *args, **kwargs)
        except BerthError as error:
            log.warning("An answer to a request with a key could not be kept or dropped: %s", error)

    def fingerprint(self) -> str:
        """What this request is: its method, address and content (the key itself left out)."""
        content = {name: value for name, value in self.content.items() if name != "key"}
        said = [self.request.method, self.request.uri, content]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    def ledger_key(self, key: str | None) -> str | None:
        """The natural key in the ledger for somebody's key: those of two people never meet."""
        if key is None:
            return None
        return "api:" + hashlib.sha256(f"{self.viewer.name}\0{key}".encode()).hexdigest()

    # ---- pages ----

    def cursors(self, **filters: object) -> tuple[Cursors, Key | None]:
        """Cursors of this list with these filters, and where the page begins. Raises `Problem`."""
        made = Cursors(self.parts.cookie_secret, scope_of(self.request.path, **filters))
        cursor = self.query(Paged).cursor
        return made, None if cursor is None else made.read(cursor)

    def page(self, content: Page, dropped: tuple[str, ...] = ()) -> Reply:
        """A page with its Link header (RFC 8288). `dropped`: parameters that the cursor stands for."""
        if content.next is None:
            return Reply(content)
        kept = {
            name: values[0].decode()
            for name, values in self.request.query_arguments.items()
            if name not in ("cursor", *dropped)
        }
        link = f"{self.request.path}?{urlencode({**kept, 'cursor': content.next})}"
        return Reply(content, headers={"Link": f'<{link}>; rel="next"'})

    # ---- errors ----

    def answer_problem(self, problem: Problem) -> None:
        self.check_promised(problem)
        super().answer_problem(problem)

    def check_promised(self, problem: Problem) -> None:
        if self.spec is not None and not self.spec.promised(problem.status, problem.reason):
            log.error("%s: %d %s is not in the document", self.spec.summary, problem.status, problem.reason)


def _reused() -> Problem:
    words = _("This Idempotency-Key was sent before with another request. Nothing was changed; use a new key.")
    return Problem(422, Why.KEY_REUSED, words)


def _still_running() -> Problem:
    words = _("The request with this Idempotency-Key is still running. Ask again in a moment for its answer.")
    return Problem(409, Why.KEY_RUNNING, words, {"Retry-After": "1"})


def as_reply(answer: Reply | Shape) -> Reply:
    return answer if isinstance(answer, Reply) else Reply(answer)


def text_of(spec: Operation, reply: Reply) -> str:
    """The JSON of an answer, which must be one that the operation promised."""
    assert isinstance(reply.content, spec.answers[reply.status])
    return reply.content.model_dump_json(by_alias=True)


def operation(
    summary: str,
    answers: type[Shape] | Mapping[int, type[Shape]],
    *,
    query: type[Parameters] = Parameters,
    body: type[BaseModel] | None = None,
    problems: tuple[Why | Reason, ...] = (),
    access: Access = Access.USER,
    keyed: bool = False,
) -> Callable[[Callable[Concatenate[H, P], Awaitable[Reply | Shape]]], Callable[Concatenate[H, P], Awaitable[None]]]:
    """A verb of an address: what it promises, beside the method that keeps the promise. Its docstring goes into the
    document."""

    def wrap(
        method: Callable[Concatenate[H, P], Awaitable[Reply | Shape]],
    ) -> Callable[Concatenate[H, P], Awaitable[None]]:
        found = answers if isinstance(answers, Mapping) else {200: answers}
        spec = Operation(summary, found, query, body, problems, access, keyed, words_of(method))

        async def act(self: H, /, *args: P.args, **kwargs: P.kwargs) -> None:
            await self.serve(spec, functools.partial(method, self, *args, **kwargs))

        served = endpoint(admin=access is Access.ADMIN, public=access in (Access.ANYBODY, Access.SERVER))(act)

        @functools.wraps(method)
        async def run(self: H, /, *args: P.args, **kwargs: P.kwargs) -> None:
            self.spec = spec
            await served(self, *args, **kwargs)

        run.operation = spec  # type: ignore[attr-defined]  # how `quota.api.document` finds it
        return cast(Callable[Concatenate[H, P], Awaitable[None]], run)

    return wrap
