"""What is wanted of the end of a server: kept though unused, stopped at a time, stopped when its work is done.

The pages' cookie is good for these with its XSRF token, as for all that writes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from quota.api.asked import Body, moment_of, whole_between
from quota.api.base import ApiHandler, operation
from quota.api.shapes import Instant, Shape
from quota.web import wish_actions
from quota.web.problem import Why
from quota.wishing import Wished

#: What is longer than any policy would allow says nothing.
LONGEST_KEEP = 366 * 86400


class Keep(Body):
    """For how long from now."""

    seconds: Annotated[int, *whole_between(60, LONGEST_KEEP)] = Field(examples=[3600])


_AT = {"type": "string", "format": "date-time", "maxLength": 64}


class Shutdown(Body):
    """When it is to be stopped."""

    at: Annotated[Instant, BeforeValidator(moment_of), WithJsonSchema(_AT)]


class Wish(Shape):
    """What is wanted of the end of this server, as it stands now. It is not stopped for want of use before
    `keep_until`, stopped at `shutdown_at` whatever it does, and with `when_done` once nothing runs. `bounded_by` says
    what cut `keep_until` short: the longest time that it may run, or the end that was set. `held_micro_credits` is all
    that is held for it; `keep_most_seconds` how far ahead one may keep it, null where nobody may."""

    lease_id: str
    keep_until: Instant | None
    shutdown_at: Instant | None
    when_done: bool
    bounded_by: str | None = Field(examples=["max-age", "shutdown"])
    held_micro_credits: int
    keep_most_seconds: int | None


class WishHandler(ApiHandler):
    def shape(self, lease_id: str, wished: Wished) -> Wish:
        most = self.parts.keep_most
        return Wish(
            lease_id=lease_id,
            keep_until=wished.wish.keep_until,
            shutdown_at=wished.wish.shutdown_at,
            when_done=wished.wish.when_done,
            bounded_by=wished.bounded or None,
            held_micro_credits=wished.held,
            keep_most_seconds=None if most is None else int(most.total_seconds()),
        )


class WishOf(WishHandler):
    @operation("What is wanted of a server's end", Wish, problems=(Why.NOT_FOUND,))
    async def get(self, lease_id: str) -> Wish:
        """For its user, a lead of the group that pays for it, and administrators."""
        lease = await wish_actions.wish_lease(self, lease_id)
        found = await self.in_thread(self.parts.wishes.of, [lease_id])
        return self.shape(lease_id, Wished(found[lease_id], held=lease.held))


class KeepIt(WishHandler):
    @operation(
        "Keep an unused server for a while",
        Wish,
        body=Keep,
        problems=(
            Why.NOT_FOUND,
            Why.NOT_RUNNING,
            Why.KEEP_OFF,
            Why.KEEP_TOO_LONG,
            Why.KEEP_NO_CREDIT,
            Why.CHANGED,
        ),
    )
    async def put(self, lease_id: str) -> Wish:
        """What that costs is held at once; an earlier such wish is replaced. A refusal carries `offer_seconds` where a
        shorter time would be granted."""
        span = timedelta(seconds=self.body(Keep).seconds)
        return self.shape(lease_id, await wish_actions.keep(self, lease_id, span))

    @operation("No longer keep a server", Wish, body=Body, problems=(Why.NOT_FOUND, Why.NOT_RUNNING, Why.CHANGED))
    async def delete(self, lease_id: str) -> Wish:
        """What was held for it goes back. Nothing changes where it was not kept."""
        return self.shape(lease_id, await wish_actions.no_keep(self, lease_id))


class ShutDown(WishHandler):
    @operation(
        "Set when a server is stopped",
        Wish,
        body=Shutdown,
        problems=(
            Why.NOT_FOUND,
            Why.NOT_RUNNING,
            Why.TIME_TOO_SOON,
            Why.TIME_TOO_LATE,
            Why.DATE_INVALID,
            Why.CHANGED,
        ),
    )
    async def put(self, lease_id: str) -> Wish:
        """At least a minute ahead, and not beyond the longest time that it may run. It is announced as any end is."""
        return self.shape(lease_id, await wish_actions.shut_down(self, lease_id, self.body(Shutdown).at))

    @operation(
        "No longer stop a server at a set time",
        Wish,
        body=Body,
        problems=(Why.NOT_FOUND, Why.NOT_RUNNING, Why.CHANGED),
    )
    async def delete(self, lease_id: str) -> Wish:
        """Nothing changes where none was set."""
        return self.shape(lease_id, await wish_actions.shut_down(self, lease_id, None))


class WhenDone(WishHandler):
    @operation(
        "Stop a server when its work is done",
        Wish,
        body=Body,
        problems=(Why.NOT_FOUND, Why.NOT_RUNNING, Why.CHANGED),
    )
    async def put(self, lease_id: str) -> Wish:
        """Once no kernel runs code, no program lives, and all has been quiet for a minute."""
        return self.shape(lease_id, await wish_actions.when_done(self, lease_id, True))

    @operation(
        "No longer stop a server when its work is done",
        Wish,
        body=Body,
        problems=(Why.NOT_FOUND, Why.NOT_RUNNING, Why.CHANGED),
    )
    async def delete(self, lease_id: str) -> Wish:
        """Nothing changes where that was not wished."""
        return self.shape(lease_id, await wish_actions.when_done(self, lease_id, False))
