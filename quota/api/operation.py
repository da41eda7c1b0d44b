"""What a verb of an address promises, as a value beside its handler. The document is made of these values, and an error
that was not promised is told in the log."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from pydantic import BaseModel

from quota.api.asked import Paged, Parameters
from quota.api.shapes import Shape
from quota.errors import Reason
from quota.web.problem import Why, status_of


class Access(StrEnum):
    """Who may ask."""

    ANYBODY = "anybody"
    USER = "user"
    ADMIN = "admin"
    SERVER = "server"


_ALWAYS = (Why.REQUEST_INVALID, Why.FIELD_UNKNOWN, Why.TOO_LARGE, Why.INTERNAL)
_HUB = (Why.NOT_SIGNED_IN, Why.FORBIDDEN, Why.HUB_UNAVAILABLE, Why.BOOK_UNAVAILABLE)
_BODY = (Why.JSON_INVALID, Why.FIELD_INVALID, Why.MEDIA_TYPE)
_PAGED = (Why.CURSOR, Why.FIELD_INVALID)
_KEYED = (Why.FIELD_INVALID, Why.KEY_REUSED, Why.KEY_RUNNING)


@dataclass(frozen=True)
class Operation:
    """One verb of one address. `answers` by status; `problems` are the reasons that are its own, beside those that its
    kind brings (`reasons` has all). `keyed`: it takes an Idempotency-Key."""

    summary: str
    answers: Mapping[int, type[Shape]]
    query: type[Parameters] = Parameters
    body: type[BaseModel] | None = None
    problems: tuple[Why | Reason, ...] = ()
    access: Access = Access.USER
    keyed: bool = False
    words: str = field(default="")

    @cached_property
    def reasons(self) -> Mapping[int, tuple[str, ...]]:
        """All reasons of refusals by status."""
        found: dict[int, set[str]] = {}
        for reason in (*_ALWAYS, *self._kinds(), *self.problems):
            found.setdefault(status_of(reason), set()).add(reason.value)
        return {status: tuple(sorted(names)) for status, names in sorted(found.items())}

    def _kinds(self) -> tuple[Why, ...]:
        kinds: tuple[Why, ...] = () if self.access is Access.ANYBODY else _HUB
        kinds += (Why.XSRF,) if self.access in (Access.USER, Access.ADMIN) else ()
        kinds += _BODY if self.body is not None else ()
        kinds += _PAGED if issubclass(self.query, Paged) else ()
        return kinds + (_KEYED if self.keyed else ())

    def promised(self, status: int, reason: str) -> bool:
        """Whether an error with this status and reason is one that the document tells."""
        return reason in self.reasons.get(status, ())


def words_of(thing: object) -> str:
    """A docstring as one paragraph."""
    return " ".join((inspect.getdoc(thing) or "").split())
