"""Leases: look, stop, refund."""

from __future__ import annotations

import re
from datetime import datetime

from quota.api import asked, shapes
from quota.api.base import Reply, operation
from quota.api.operation import Access
from quota.api.own import AccountHandler
from quota.i18n import _
from quota.leases import Lease
from quota.web import actions, fields
from quota.web.problem import Problem, Why


class LeaseHandler(AccountHandler):
    async def reply_of(self, lease: Lease, status: int = 200) -> Reply:
        return Reply((await self.shapes_of([lease]))[0], status)

    async def stop(self, lease_id: str) -> Reply:
        lease = await actions.stop_lease(self, lease_id)
        return await self.reply_of(lease, 202 if lease.live else 200)


class Leases(LeaseHandler):
    @operation("Leases", shapes.Leases, query=asked.AskedLeases, problems=(Why.DATE_INVALID, Why.NOT_FOUND))
    async def get(self) -> Reply:
        """One's own, or everybody's for an administrator; the newest first."""
        query = self.query(asked.AskedLeases)
        user = query.user
        if not self.viewer.admin:
            if user not in (None, self.viewer.name):
                raise Problem(403, Why.FORBIDDEN, _("These leases are somebody else's."))
            user = self.viewer.name
        cursors, after = self.cursors(user=user)
        if after is not None and query.before is not None:
            raise fields.wrong("before", _("a cursor says already where the page begins"))
        before = self.before(query.before) if after is None else str(after[0])
        found = await self.in_thread(self.parts.book.leases, user=user, limit=query.limit + 1, before=before)
        page = found[: query.limit]
        following = cursors.write((page[-1].id,)) if len(found) > query.limit else None
        return self.page(shapes.Leases(items=await self.shapes_of(page), next=following), dropped=("before",))

    def before(self, text: str | None) -> datetime | str | None:
        """Where a page ends: the id of a lease (exact), or a moment. Raises `Problem`."""
        return text if text and re.fullmatch(asked.LEASE_ID, text) else self.moment("before", text)


class OneLease(LeaseHandler):
    @operation("One lease", shapes.Lease, problems=(Why.NOT_FOUND,))
    async def get(self, lease_id: str) -> Reply:
        """One's own, or any for an administrator."""
        return await self.reply_of(await actions.lease_for(self, lease_id))

    @operation(
        "Stop the server of a lease",
        {202: shapes.Lease, 200: shapes.Lease},
        body=asked.Body,
        problems=(Why.NOT_FOUND, Why.CHANGED),
    )
    async def delete(self, lease_id: str) -> Reply:
        """As `POST …/stop`."""
        return await self.stop(lease_id)


class StopLease(LeaseHandler):
    @operation(
        "Stop the server of a lease",
        {202: shapes.Lease, 200: shapes.Lease},
        body=asked.Body,
        problems=(Why.NOT_FOUND, Why.CHANGED),
        keyed=True,
    )
    async def post(self, lease_id: str) -> Reply:
        """202: the wish is written down, and the server ends soon. 200: it had ended before."""
        return await self.stop(lease_id)


class RefundLease(LeaseHandler):
    @operation(
        "Refund a lease",
        shapes.Refunded,
        body=asked.NewRefund,
        problems=(Why.NOT_FOUND, Why.NOT_SETTLED, Why.CONFLICT, Why.CHANGED),
        access=Access.ADMIN,
        keyed=True,
    )
    async def post(self, lease_id: str) -> shapes.Refunded:
        """Wholly where no amount is given, never above what was charged, and once: the same again changes nothing. The
        credit is a new grant without an end; debt is paid from it first."""
        body = self.body(asked.NewRefund)
        done = await actions.refund_lease(self, lease_id, body.amount, body.note)
        return shapes.Refunded(lease_id=lease_id, refunded_micro_credits=done)
