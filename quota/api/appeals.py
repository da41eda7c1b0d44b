"""Stops that were doubted: said by users, decided by administrators."""

from __future__ import annotations

from typing import Annotated

from quota.api.asked import Body, NewRefund, Paged, text_field
from quota.api.base import ApiHandler, Reply, operation
from quota.api.operation import Access
from quota.api.paging import Key, cut
from quota.api.shapes import Instant, Page, Shape
from quota.appeals import LONGEST
from quota.appeals import Appeal as Value
from quota.errors import NotFound
from quota.web import actions, appeal_actions
from quota.web.problem import Why

#: With more than this undecided nobody looks at the list any more.
MOST_OPEN = 10_000


class NewAppeal(Body):
    """Why it was wrong."""

    words: Annotated[str, *text_field("words", LONGEST)]


class Decision(NewRefund):
    """Granted with so much given back (nothing where no amount is said; never above what was charged), or not. `note`
    is the answer that the user is told; without a grant it is needed."""

    granted: bool


class Appeal(Shape):
    """What a user said of a stop; `granted` is null until an administrator has decided."""

    lease_id: str
    user: str
    words: str
    at: Instant
    decided_at: Instant | None
    decided_by: str
    granted: bool | None
    answer: str
    refunded_micro_credits: int


class Appeals(Page):
    """Doubted stops."""

    items: list[Appeal]


def shape(value: Value) -> Appeal:
    return Appeal(
        lease_id=value.lease_id,
        user=value.user,
        words=value.words,
        at=value.at,
        decided_at=value.decided_at,
        decided_by=value.decided_by,
        granted=value.granted,
        answer=value.answer,
        refunded_micro_credits=value.refund,
    )


class AppealOf(ApiHandler):
    @operation("What was said of a stop", Appeal, problems=(Why.NOT_FOUND,))
    async def get(self, lease_id: str) -> Appeal:
        """Of one's own lease, or of any for an administrator."""
        await actions.lease_for(self, lease_id)
        found = await self.in_thread(self.parts.appeals.of, [lease_id])
        if lease_id not in found:
            raise NotFound(lease_id)
        return shape(found[lease_id])

    @operation(
        "Say that a stop was wrong",
        Appeal,
        body=NewAppeal,
        problems=(Why.NOT_FOUND, Why.APPEAL_IMPOSSIBLE, Why.APPEAL_MADE, Why.WORDS_NEEDED, Why.CHANGED),
        keyed=True,
    )
    async def post(self, lease_id: str) -> Appeal:
        """Once a lease, by its user, within thirty days after an end that the site's rules or an administrator made."""
        return shape(await appeal_actions.make(self, lease_id, self.body(NewAppeal).words))


class DecideAppeal(ApiHandler):
    @operation(
        "Decide on a stop that was doubted",
        Appeal,
        body=Decision,
        problems=(Why.NOT_FOUND, Why.NOT_SETTLED, Why.APPEAL_MADE, Why.WORDS_NEEDED, Why.CONFLICT, Why.CHANGED),
        access=Access.ADMIN,
        keyed=True,
    )
    async def post(self, lease_id: str) -> Appeal:
        """The refund is the lease's only one: the same again changes nothing."""
        body = self.body(Decision)
        amount = (body.amount or 0) if body.granted else None
        return shape(await appeal_actions.decide(self, lease_id, amount, body.note))


class OpenAppeals(ApiHandler):
    @operation("Stops that are doubted", Appeals, query=Paged, access=Access.ADMIN)
    async def get(self) -> Reply:
        """Those that nobody has decided, the oldest first."""
        cursors, after = self.cursors()
        found = await self.in_thread(self.parts.appeals.open, MOST_OPEN)
        page, last = cut(found, _key, after, self.query(Paged).limit)
        return self.page(Appeals(items=[shape(each) for each in page], next=last and cursors.write(last)))


def _key(value: Value) -> Key:
    return (value.at.isoformat(), value.lease_id)
