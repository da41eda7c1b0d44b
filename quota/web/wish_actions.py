"""Wishes about the end of a server: who may have them, what is answered, and why one is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from quota.book import TooLate
from quota.errors import NotFound
from quota.groups import group_of
from quota.i18n import _
from quota.leases import Lease, Target
from quota.web.base import Handler
from quota.web.parts import ServiceParts, Viewer
from quota.web.problem import STATUS, Problem, Why
from quota.web.wish_words import refused_words
from quota.wishing import Wished, WishRefused

_REASONS = {
    "not-running": Why.NOT_RUNNING,
    "off": Why.KEEP_OFF,
    "too-long": Why.KEEP_TOO_LONG,
    "no-credit": Why.KEEP_NO_CREDIT,
    "too-soon": Why.TIME_TOO_SOON,
    "too-late": Why.TIME_TOO_LATE,
}


def may_wish(parts: ServiceParts, viewer: Viewer, lease: Lease) -> bool:
    """Its user, a lead of the group that pays for it, an administrator."""
    payer = group_of(lease.account)
    leads = next((group.leads for group in parts.groups if group.name == payer), ())
    return viewer.admin or viewer.name == lease.holder.user or viewer.name in leads


async def wish_lease(handler: Handler, lease_id: str) -> Lease:
    """A lease about whose end the viewer may wish. Raises `Problem`."""
    try:
        lease = await handler.in_thread(handler.parts.book.lease, lease_id)
    except NotFound:
        raise Problem(404, Why.NOT_FOUND, _("There is no such lease.")) from None
    if not may_wish(handler.parts, handler.viewer, lease):
        raise Problem(403, Why.FORBIDDEN, _("This lease belongs to somebody else."))
    return lease


async def keep(handler: Handler, lease_id: str, span: timedelta) -> Wished:
    """Keep it for so long from now. One that is about to be stopped for want of use is taken back first, where that
    is still possible. Raises `Problem`."""
    lease = await wish_lease(handler, lease_id)
    if lease.target is Target.STOP:
        try:
            await handler.in_thread(handler.parts.out.take_back, lease_id, handler.viewer.name)
        except TooLate:
            raise refused(handler.parts, WishRefused("not-running")) from None
    return await wish(handler, handler.parts.wishing.keep, lease_id, span)


async def no_keep(handler: Handler, lease_id: str) -> Wished:
    await wish_lease(handler, lease_id)
    return await wish(handler, handler.parts.wishing.no_keep, lease_id)


async def shut_down(handler: Handler, lease_id: str, at: datetime | None) -> Wished:
    await wish_lease(handler, lease_id)
    return await wish(handler, handler.parts.wishing.shut_down, lease_id, at)


async def when_done(handler: Handler, lease_id: str, wanted: bool) -> Wished:
    await wish_lease(handler, lease_id)
    return await wish(handler, handler.parts.wishing.when_done, lease_id, wanted)


async def wish(handler: Handler, write: Callable[..., Wished], *args: object) -> Wished:
    """Write a wish of the viewer. Raises `Problem`."""
    try:
        return await handler.in_thread(write, *args, by=handler.viewer.name)
    except WishRefused as error:
        raise refused(handler.parts, error) from None


def refused(parts: ServiceParts, error: WishRefused) -> Problem:
    """Why a wish is not granted, and what would be."""
    reason = _REASONS[error.code]
    offer = None if error.offer is None else int(error.offer.total_seconds())
    return Problem(STATUS[reason], reason, refused_words(error, parts.tz), offer=offer)
