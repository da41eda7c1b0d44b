"""What the kit in a user's server reports, checked and brought into the one form that the book keeps. Pure but for
`Problem`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from quota.leases import Holder
from quota.web import fields
from quota.web.problem import Problem, Why
from quota.web.words import instant_or_none

MOST_KERNELS = 500
MOST_TERMINALS = 10_000
_SCOPE = re.compile(r"custom:berth:kit!server=([^/]+)/(.*)")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def holder_of(model: Mapping[str, Any] | None) -> Holder:
    """Whose server a token belongs to, by its one kit scope. Raises `Problem` where it is none, or not exactly one.

    A user's own token holds the scope for all their servers and says nothing about which one speaks.
    """
    if model is None:
        raise Problem(401, Why.NOT_SIGNED_IN, "Send the server's own token in the Authorization header.")
    found = {match.groups() for scope in model.get("scopes", ()) if (match := _SCOPE.fullmatch(scope))}
    if len(found) != 1:
        raise Problem(403, Why.FORBIDDEN, "Only the token of one server can report for it.")
    user, server = found.pop()
    if user != model.get("name"):
        raise Problem(403, Why.FORBIDDEN, "The token belongs to one user, and its scope to another.")
    return Holder(user, server)


def _moment(content: Mapping[str, Any], name: str, now: datetime) -> datetime | None:
    """A time of the server's own clock, which may be wrong: never after `now`."""
    value = content.get(name)
    if value is None:
        return None
    try:
        if not isinstance(value, str) or len(value) > 64:
            raise ValueError
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError
        return max(_EPOCH, min(moment.astimezone(UTC), now))
    except (ValueError, OverflowError):
        raise Problem(400, Why.DATE_INVALID, f"{name}: an RFC 3339 time with its zone, or null, is needed") from None


def _kernel(content: Any, now: datetime) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise fields.wrong("kernels", "each kernel is an object")
    if not isinstance(content.get("busy"), bool | None):
        raise fields.wrong("busy", "true, false or null (unknown) is needed")
    return {
        "id": fields.text(content, "id", 128),
        "busy": content.get("busy"),
        "last_execute_at": instant_or_none(_moment(content, "last_execute_at", now)),
        "busy_since": instant_or_none(_moment(content, "busy_since", now)),
    }


def read_signals(content: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The payload of the signal "kit": kernels with their times clamped to `now`, and the number of terminals.

    What a newer kit may say besides is left out.
    """
    kernels = content.get("kernels")
    if not isinstance(kernels, list) or len(kernels) > MOST_KERNELS:
        raise fields.wrong("kernels", f"a list of at most {MOST_KERNELS} kernels is needed")
    terminals = fields.integer(content, "terminals", 0, MOST_TERMINALS)
    return {"kernels": [_kernel(kernel, now) for kernel in kernels], "terminals": terminals}
