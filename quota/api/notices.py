"""What one was told, marking it as read, how one wants to be told, and a test message. One's own only, whoever asks;
those to all administrators are each administrator's own."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

from quota.api.asked import Body, Paged, text_field, whole_between
from quota.api.base import ApiHandler, Reply, operation
from quota.api.shapes import Instant, Page, Shape
from quota.i18n import LANGUAGES
from quota.inbox import Letter
from quota.routing import CHANNELS, DIGESTS, Preference
from quota.web import notice_actions, notice_views
from quota.web.notice_actions import CHOSEN_KINDS, LONGEST_CHAT, LONGEST_EMAIL, Wanted
from quota.web.problem import Why

#: A notice's id: what 18 digits hold.
LARGEST = 10**18 - 1
_CLOCK = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"

Clock = Annotated[str, Field(pattern=_CLOCK, examples=["22:00"])]
DigestName = Literal["", "hourly", "daily"]
Language = Literal["", "en", "zh-CN"]
ChannelName = Literal["mail", "chat"]
assert (get_args(DigestName), get_args(Language), get_args(ChannelName)) == (DIGESTS, ("", *LANGUAGES), CHANNELS)

_KINDS: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"enum": [kind.value for kind in CHOSEN_KINDS]},
    "additionalProperties": {"type": "array", "items": {"enum": list(CHANNELS)}},
    "examples": [{"stopped": ["mail"]}],
}


class Delivery(Shape):
    """What became of a notice by one channel: `mail`, `chat`, or `site`, the site's own way. `state` is waiting,
    sending, sent, failed or dropped; `why` says in words why it is not sent."""

    channel: str
    state: str
    why: str


class Notice(Shape):
    """One notice in the language of who asks; `words` are whole sentences. `data` repeats the facts for programs;
    after `expires_at` nobody need be told. `urgent`: something can still be done."""

    id: int
    kind: str
    lease_id: str | None
    at: Instant
    expires_at: Instant | None
    title: str
    words: str
    link: str
    data: dict[str, Any]
    read_at: Instant | None
    urgent: bool
    to_administrators: bool


class OneNotice(Notice):
    """A notice and its deliveries."""

    deliveries: list[Delivery]


class Notices(Page):
    """The newest first. `unread` counts all that are unread, up to 100."""

    items: list[Notice]
    unread: int


class Marked(Shape):
    """How many were unread and are read now."""

    marked: int


class QuietHours(Body):
    """A stretch of each day on the site's clock, over midnight where it ends before it begins."""

    from_: Clock = Field(alias="from")
    to: Clock


class Preferences(Shape):
    """How one is told. `channels` are those that this site opens; `mail_to` is where mails go now, `chat_host` the host
    of one's webhook, which is not shown again: both are null where there is none. `kinds` names the channels of each
    kind of notice, `digest` how what is not urgent is put together, `language` "" is the site's."""

    channels: list[str]
    email: str
    own_addresses: bool
    mail_to: str | None
    chat_host: str | None
    kinds: dict[str, list[str]]
    quiet: dict[str, str] | None = Field(examples=[{"from": "22:00", "to": "07:00"}])
    digest: str
    language: str
    time_zone: str


class NewPreferences(Body):
    """What is to change; what is absent stays. An empty `email` or `chat` takes it off, a `quiet` of null ends quiet
    hours, and kinds that are not named keep their channels."""

    email: Annotated[str, *text_field("email", LONGEST_EMAIL)] | None = None
    chat: Annotated[str, *text_field("chat", LONGEST_CHAT)] | None = Field(None, description="A chat's webhook.")
    kinds: Annotated[dict[str, list[str]], WithJsonSchema(_KINDS)] | None = None
    quiet: QuietHours | None = None
    digest: DigestName | None = None
    language: Language | None = None

    def wanted(self) -> Wanted:
        quiet = None
        if "quiet" in self.model_fields_set:
            quiet = (self.quiet.from_, self.quiet.to) if self.quiet else ("", "")
        return Wanted(self.email, self.chat, self.kinds, quiet, self.digest, self.language)


def _flag(value: object) -> object:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


class AskedNotices(Paged):
    read: Annotated[bool | None, BeforeValidator(_flag)] = Field(
        None, strict=True, description="`true`: only those that are read; `false`: only those that are not."
    )


class AllRead(Body):
    """`up_to`: only this notice and older ones, so that what has come since stays unread."""

    up_to: Annotated[int, *whole_between(1, LARGEST)] | None = None


class NoticeHandler(ApiHandler):
    def shape(self, letter: Letter) -> Notice:
        return Notice(**self.values(letter))

    def values(self, letter: Letter) -> dict[str, Any]:
        view = notice_views.letter_view(letter, self.parts.clock.now())
        return {
            "id": letter.id,
            "kind": letter.kind,
            "lease_id": letter.lease_id,
            "at": letter.at,
            "expires_at": letter.expires_at,
            "title": view.title,
            "words": "\n".join(view.lines),
            "link": view.link,
            "data": dict(letter.data),
            "read_at": letter.read_at,
            "urgent": view.urgent and not view.over,
            "to_administrators": not letter.user,
        }

    async def whole(self, letter: Letter) -> OneNotice:
        ways = await self.in_thread(notice_views.deliveries, self.parts, letter.id)
        found = [Delivery(channel=way.name, state=way.state, why=way.why) for way in ways]
        return OneNotice(**self.values(letter), deliveries=found)


class MyNotices(NoticeHandler):
    @operation("What I was told", Notices, query=AskedNotices)
    async def get(self) -> Reply:
        """One's own, and for administrators those to all of them."""
        query, viewer = self.query(AskedNotices), self.viewer
        cursors, after = self.cursors(read=query.read)
        before = None if after is None else int(after[0])
        inbox = self.parts.inbox
        found = await self.in_thread(inbox.of, viewer.name, viewer.admin, before, query.limit + 1, query.read)
        unread = await self.in_thread(inbox.unread, viewer.name, viewer.admin)
        page = found[: query.limit]
        following = cursors.write((page[-1].id,)) if len(found) > len(page) else None
        return self.page(Notices(items=[self.shape(each) for each in page], next=following, unread=unread))


class MyNotice(NoticeHandler):
    @operation("One notice, and how it was sent", OneNotice, problems=(Why.NOT_FOUND,))
    async def get(self, notice_id: str) -> OneNotice:
        """That of somebody else is not found."""
        return await self.whole(await notice_actions.mine(self, int(notice_id)))


class ReadNotice(NoticeHandler):
    @operation("Mark a notice as read", OneNotice, body=Body, problems=(Why.NOT_FOUND,))
    async def put(self, notice_id: str) -> OneNotice:
        """Once more changes nothing."""
        return await self.whole(await notice_actions.read(self, int(notice_id)))


class ReadAll(NoticeHandler):
    @operation("Mark all notices as read", Marked, body=AllRead)
    async def put(self) -> Marked:
        """All of one's own, or those up to one that was seen. Once more changes nothing."""
        return Marked(marked=await notice_actions.read_all(self, self.body(AllRead).up_to))


class HowToTell(NoticeHandler):
    @operation("How I am told", Preferences)
    async def get(self) -> Preferences:
        """What was chosen, and what this site opens to be chosen. A chat's webhook is never told again."""
        return await self.in_thread(self._shape, await self.in_thread(self.parts.inbox.preference, self.viewer.name))

    @operation("Change how I am told", Preferences, body=NewPreferences, problems=())
    async def put(self) -> Preferences:
        """All of it or, where one field is wrong, none. A webhook must be one that this site would call."""
        chosen = await notice_actions.choose(self, self.body(NewPreferences).wanted())
        return await self.in_thread(self._shape, chosen)

    def _shape(self, chosen: Preference) -> Preferences:
        found = notice_views.choices(self.parts, self.viewer)
        return Preferences(
            channels=[name for name, _ in found.channels],
            email=chosen.email,
            own_addresses=found.own_addresses,
            mail_to=found.mail_to or None,
            chat_host=found.chat_host or None,
            kinds={row.kind: list(row.ticked) for row in found.rows},
            quiet={"from": found.quiet[0], "to": found.quiet[1]} if chosen.quiet else None,
            digest=chosen.digest,
            language=chosen.language,
            time_zone=self.parts.zone,
        )


class TestNotice(NoticeHandler):
    @operation(
        "Send me a test message",
        {201: OneNotice},
        body=Body,
        problems=(Why.NO_CHANNEL, Why.TOO_OFTEN, Why.CHANGED),
        keyed=True,
    )
    async def post(self) -> Reply:
        """By every channel that one has, at once, in quiet hours too. What became of it is told by the notice."""
        number = await notice_actions.test(self)
        found = await self.in_thread(self.parts.inbox.one, self.viewer.name, False, number)
        if found is None:
            raise notice_actions.changed_meanwhile()
        return Reply(await self.whole(found), 201)
