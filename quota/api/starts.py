"""Starts that one asks for at a time: what waits, what became of those before, and new ones."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from quota.api.asked import Body, Paged, moment_of, text_field
from quota.api.base import ApiHandler, Reply, operation
from quota.api.paging import Key, cut, newest_first
from quota.api.shapes import Instant, Page, Shape
from quota.errors import Reason
from quota.schedules import Start
from quota.web import start_actions
from quota.web.problem import Why
from quota.web.start_actions import Asked

_AT = {"type": "string", "format": "date-time", "maxLength": 64}
_SERVER = {"type": "string", "maxLength": 255, "pattern": r"^[^\u0000-\u001f\u007f/]*$"}


class NewStart(Body):
    """What is to be started, and when. `image` and `payer` are the profile's first and oneself where they are left out;
    `server` is the default one."""

    at: Annotated[Instant, BeforeValidator(moment_of), WithJsonSchema(_AT)]
    profile: Annotated[str, *text_field("profile", 255)]
    image: Annotated[str, *text_field("image", 255)] = ""
    payer: Annotated[str, *text_field("payer", 255)] = ""
    server: Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f/]*$"), WithJsonSchema(_SERVER)] = ""

    def asked(self) -> Asked:
        return Asked(self.at, self.profile, self.image, self.payer, self.server)


class ScheduledStart(Shape):
    """One start. `state` is waiting, starting, started, failed, missed or cancelled; `outcome` says in words what stood
    in its way."""

    id: str
    server: str
    profile: str
    image: str
    payer: str
    start_at: Instant
    created_at: Instant
    state: str
    tried_at: Instant | None
    outcome: str


class ScheduledStarts(Page):
    """Starts, those that were asked for last first. `most` may wait at a time."""

    items: list[ScheduledStart]
    most: int


def shape(start: Start) -> ScheduledStart:
    options = start.options
    return ScheduledStart(
        id=start.id,
        server=start.server,
        profile=start.profile,
        image=options.get("image", ""),
        payer=options.get("payer", start.user),
        start_at=start.start_at,
        created_at=start.created_at,
        state=start.state.value,
        tried_at=start.tried_at,
        outcome=start.outcome,
    )


#: Why a start is not taken as it was asked for.
_REFUSALS = (
    Why.STARTS_OFF,
    Why.START_EXISTS,
    Why.TIME_TOO_SOON,
    Why.TIME_TOO_LATE,
    Why.DATE_INVALID,
    Reason.RULE_FAILED,
)


class Starts(ApiHandler):
    @operation("One's scheduled starts", ScheduledStarts, query=Paged)
    async def get(self) -> Reply:
        """One's own only, whoever asks: those that wait and the last ones that are over."""
        cursors, after = self.cursors()
        found = await self.in_thread(self.parts.schedules.of, self.viewer.name)
        page, last = cut(found, _key, after, self.query(Paged).limit)
        items = [shape(each) for each in page]
        return self.page(ScheduledStarts(items=items, next=last and cursors.write(last), most=self.parts.most_starts))

    @operation(
        "Schedule a start",
        {201: ScheduledStart},
        body=NewStart,
        problems=(*_REFUSALS, Why.STARTS_FULL),
        keyed=True,
    )
    async def post(self) -> Reply:
        """Of one's own server. Nothing is held for it until its time; then it is granted or refused like any other
        start, and tried again for a while where it was refused."""
        start = await start_actions.add(self, self.body(NewStart).asked())
        return Reply(shape(start), 201)


class OneStart(ApiHandler):
    @operation("A scheduled start", ScheduledStart, problems=(Why.NOT_FOUND,))
    async def get(self, start_id: str) -> ScheduledStart:
        """One's own; that of somebody else is not found."""
        return shape(await start_actions.mine(self, start_id))

    @operation(
        "Change a scheduled start",
        ScheduledStart,
        body=NewStart,
        problems=(Why.NOT_FOUND, *_REFUSALS, Why.START_NOT_WAITING),
    )
    async def put(self, start_id: str) -> ScheduledStart:
        """One that waits is made like this instead; the server stays the same."""
        return shape(await start_actions.change(self, start_id, self.body(NewStart).asked()))

    @operation("Cancel a scheduled start", ScheduledStart, body=Body, problems=(Why.NOT_FOUND, Why.START_NOT_WAITING))
    async def delete(self, start_id: str) -> ScheduledStart:
        """Refused while it is being made. One that is over stays as it is."""
        return shape(await start_actions.cancel(self, start_id))


def _key(start: Start) -> Key:
    """Neither ever changes, whatever becomes of the start."""
    return (*newest_first(start.created_at), start.id)
