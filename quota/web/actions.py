"""What pages and REST both do: look a lease up for somebody, stop it, find the account of a name."""

from __future__ import annotations

import asyncio
import logging

from quota.errors import BerthError, Conflict, NotFound
from quota.groups import Group, group_of, no_payer
from quota.i18n import _
from quota.leases import HolderKind, Lease, State, StopReason, Target
from quota.web import fields
from quota.web.base import Handler
from quota.web.parts import HubUnavailable
from quota.web.problem import Problem, Why

log = logging.getLogger("berth.web")


async def lease_for(handler: Handler, lease_id: str) -> Lease:
    """A lease that the viewer may see: their own, or any for an administrator. Raises `Problem`."""
    try:
        lease = await handler.in_thread(handler.parts.book.lease, lease_id)
    except NotFound:
        raise Problem(404, Why.NOT_FOUND, _("There is no such lease.")) from None
    if lease.holder.user != handler.viewer.name and not handler.viewer.admin:
        raise Problem(403, Why.FORBIDDEN, _("This lease belongs to somebody else."))
    return lease


async def stop_lease(handler: Handler, lease_id: str) -> Lease:
    """Record the intent in the book, and ask the Hub once the server has saved. Where the Hub does not answer the
    agent sees to it."""
    lease = await lease_for(handler, lease_id)
    if not lease.live:
        return lease
    reason = StopReason.USER if lease.holder.user == handler.viewer.name else StopReason.ADMIN
    lease = await handler.in_thread(handler.parts.out.request, lease_id, reason, by=handler.viewer.name)
    told = {"event": "lease-stop-requested", "lease": lease.id, "reason": reason.value, "by": handler.viewer.name}
    log.info("Lease %s is to stop", lease.id, extra=told)
    if lease.live and lease.holder.kind is HolderKind.SERVER:
        if await handler.in_thread(handler.parts.out.wait_until, lease_id) is None:
            await _ask_hub(handler, lease)
        else:
            task = asyncio.create_task(_ask_hub_later(handler, lease))
            _LATER.add(task)
            task.add_done_callback(_LATER.discard)
    return lease


#: Stops that wait for their servers to save. The Hub is asked so that it knows at once: should this process end
#: meanwhile, the agent ends the servers all the same.
_LATER: set[asyncio.Task[None]] = set()
_LOOK_SECONDS = 0.5


async def _ask_hub(handler: Handler, lease: Lease) -> None:
    try:
        await handler.parts.hub.stop_server(lease.holder.user, lease.holder.server)
    except HubUnavailable as error:
        log.warning("The Hub did not stop the server of lease %s: %s", lease.id, error)


async def _ask_hub_later(handler: Handler, lease: Lease) -> None:
    """The Hub takes a server's address away before it stops it: browsers could save nothing any more."""
    try:
        while True:
            if await handler.in_thread(handler.parts.out.wait_until, lease.id) is None:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        if (await handler.in_thread(handler.parts.book.lease, lease.id)).target is Target.STOP:
            await _ask_hub(handler, lease)
    except BerthError as error:
        log.warning("The stop of lease %s is left to the agent: %s", lease.id, error)


async def refund_lease(handler: Handler, lease_id: str, amount: int | None, note: str) -> int:
    """Refund a settled lease, wholly where `amount` is None; micro-credits that went back. Raises `Problem`."""
    lease = await lease_for(handler, lease_id)
    if lease.state is not State.SETTLED:
        raise Problem(409, Why.NOT_SETTLED, _("Only a settled lease can be refunded. Stop it first."))
    try:
        return await handler.in_thread(handler.parts.bank.refund, lease_id, amount, by=handler.viewer.name, note=note)
    except Conflict:
        raise Problem(
            409, Why.CONFLICT, _("It was refunded before, with another amount. Nothing was changed.")
        ) from None


async def group_for(handler: Handler, name: str) -> Group:
    """A group that pays and whose use the viewer may see: one they are in at this moment or lead, or any for an
    administrator. Raises `Problem`."""
    viewer, group = handler.viewer, next((each for each in handler.parts.groups if each.name == name), None)
    if group is None or not group.pays:
        raise Problem(404, Why.NOT_FOUND, _("There is no group of this name that pays for servers."))
    if viewer.admin or viewer.name in group.leads or name in await handler.parts.hub.groups_of(viewer.name):
        return group
    raise Problem(403, Why.FORBIDDEN, _("Only members and leads of this group and administrators may see its use."))


async def groups_of(handler: Handler) -> tuple[Group, ...]:
    """The groups that `group_for` gives the viewer."""
    viewer, groups = handler.viewer, tuple(group for group in handler.parts.groups if group.pays)
    if viewer.admin or not groups:
        return groups
    names = await handler.parts.hub.groups_of(viewer.name)
    return tuple(group for group in groups if group.name in names or viewer.name in group.leads)


async def need_payer(handler: Handler, name: str) -> None:
    """Raises `Problem` for the account of a group that the site does not have, or that does not pay."""
    if group_of(name) is not None:
        why = no_payer(handler.parts.groups, name)
        if why:
            raise Problem(404, Why.NOT_FOUND, why)
        await handler.in_thread(handler.parts.bank.ensure_account, name, "group")


async def known_account(handler: Handler, name: str) -> str:
    """The name of an account in the book, made now for a user whom only the Hub knows. Raises `Problem`.

    Names are lower-case at log-in, so "Alice" finds alice.
    """
    candidates = [name, name.lower()] if name != name.lower() else [name]
    for candidate in filter(fields.is_name, candidates):
        try:
            view = await handler.in_thread(handler.parts.bank.account, candidate)
            return view.account.name
        except NotFound:
            continue
    if group_of(name) is not None:
        await need_payer(handler, name)
        return name
    users = {user.name for user in await handler.parts.hub.users()}
    for candidate in candidates:
        if candidate in users:
            account = await handler.in_thread(handler.parts.bank.ensure_account, candidate)
            return account.name
    raise Problem(404, Why.NOT_FOUND, _("There is no user or account called %(name)s.", name=repr(name[:80])))
