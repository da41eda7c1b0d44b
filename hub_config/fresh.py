"""Membership is asked anew at every start, whoever asks for it.

JupyterHub 6.1 asks the provider before a start, but where it cannot send the user to a log-in page (a token, an admin,
a service) it goes on with the groups that it knew, so that whoever was removed could still start. Its strict setting
would refuse every other request of such a user as well, the running servers' own reports included.
"""

from __future__ import annotations

from typing import Any

from tornado import web

from quota.errors import Reason, Refused
from spawner.messages import status, words

_KEPT = "_berth_refreshed"


def remember(handler: Any, name: str, refusal: Reason | None) -> None:
    """Keep with the request why that user's starts are refused, or that they are not."""
    if handler is not None:
        handler.__dict__.setdefault(_KEPT, {})[name] = refusal


async def demand(handler: Any, user: Any) -> None:
    """Ask the provider, once a request; no-op for ways to log in that know nothing anew. Raises `HTTPError`."""
    if not handler.authenticator.refresh_pre_spawn:
        return
    await handler.refresh_auth(user, force=True)
    reason = handler.__dict__.get(_KEPT, {}).get(user.name)
    if reason is not None:
        raise refusal(reason)


def refusal(reason: Reason, **facts: object) -> web.HTTPError:
    """The error of a request that is refused for that reason, in words."""
    return web.HTTPError(status(reason), words(Refused(reason, **facts)))
