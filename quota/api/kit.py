"""Where the kit in a user's server reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from jupyterhub.services.auth import HubAuth
from tornado.web import HTTPError

from quota.api import asked, fill, shapes
from quota.api.base import ApiHandler, operation
from quota.api.operation import Access
from quota.i18n import _
from quota.leases import Holder, Lease
from quota.web.parts import HubUnavailable
from quota.web.problem import Problem, Why
from quota.web.throttle import Throttle
from quota.web.words import instant_or_none

_SCOPE = re.compile(r"custom:berth:kit!server=([^/]+)/(.*)")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def holder_of(model: Mapping[str, Any] | None) -> Holder:
    """Whose server a token belongs to, by its one kit scope. Raises `Problem` where it is none, or not exactly one.

    A user's own token holds the scope for all their servers and says nothing about which one speaks.
    """
    if model is None:
        raise Problem(401, Why.NOT_SIGNED_IN, _("Send the server's own token in the Authorization header."))
    found = {match.groups() for scope in model.get("scopes", ()) if (match := _SCOPE.fullmatch(scope))}
    if len(found) != 1:
        raise Problem(403, Why.FORBIDDEN, _("Only the token of one server can report for it."))
    user, server = found.pop()
    if user != model.get("name"):
        raise Problem(403, Why.FORBIDDEN, _("The token belongs to one user, and its scope to another."))
    return Holder(user, server)


def _clamped(moment: datetime | None, now: datetime) -> str | None:
    """A time of the server's own clock, which may be wrong: never after `now`."""
    return instant_or_none(None if moment is None else max(_EPOCH, min(moment, now)))


def signals_of(report: asked.Report, now: datetime) -> dict[str, Any]:
    """The payload of the signal "kit", in the one form that the book keeps."""
    kernels = [
        {
            "id": kernel.id,
            "busy": kernel.busy,
            "last_execute_at": _clamped(kernel.last_execute_at, now),
            "busy_since": _clamped(kernel.busy_since, now),
        }
        for kernel in report.kernels
    ]
    return {
        "kernels": kernels,
        "terminals": report.terminals,
        "children": report.children,
        "background": report.background,
        "saved_at": _clamped(report.saved_at, now),
        "unsaved": report.unsaved,
    }


class KitHandler(ApiHandler):
    """Base of what a kit may ask, with its server's own token and for that server alone."""

    async def holder(self) -> Holder:
        """Whose server asks. Raises `Problem`, and `HubUnavailable` where the Hub cannot say."""
        token = HubAuth.get_token(self.hub_auth, self, in_cookie=False)
        try:
            model = await self.hub_auth.user_for_token(token, sync=False) if token else None
        except HTTPError as error:
            raise HubUnavailable(str(error.log_message)) from None
        return holder_of(model)

    async def lease_of(self, holder: Holder) -> Lease:
        """Its live lease. Raises `Problem`."""
        lease = await self.in_thread(self.parts.book.live_of, holder)
        if lease is None:
            raise Problem(404, Why.NO_LEASE, _("This server holds no lease."))
        return lease

    def slowly(self, throttle: Throttle, holder: Holder) -> None:
        """Raises `Problem` where this server comes too often."""
        if wait := throttle.take(holder, self.parts.clock.now()):
            raise Problem(429, Why.TOO_OFTEN, _("This server reports too often."), {"Retry-After": str(wait)})


class KitSignals(KitHandler):
    """What the kernels do."""

    @operation(
        "Report of the kit in a server",
        shapes.Heard,
        body=asked.Report,
        problems=(Why.DATE_INVALID, Why.NO_LEASE, Why.NOT_FOUND, Why.TOO_OFTEN),
        access=Access.SERVER,
    )
    async def post(self) -> shapes.Heard:
        """Kernels, terminals and what else goes on, with the server's own token and for that server alone."""
        holder, now = await self.holder(), self.parts.clock.now()
        self.slowly(self.parts.reports, holder)
        payload = signals_of(self.body(asked.Report), now)
        lease = await self.lease_of(holder)
        await self.in_thread(self.parts.rows.put_signal, lease.id, "kit", payload, now)
        idle = await self.in_thread(self.parts.rows.verdict, lease.id)
        return shapes.Heard(lease_id=lease.id, at=now, idle=fill.verdict(idle))
