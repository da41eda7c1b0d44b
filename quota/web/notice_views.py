"""Notices and choices as the pages show them. Blocks where it reads the book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from quota.delivery import TITLES
from quota.i18n import LANGUAGES, N_, _
from quota.inbox import MOST_COUNTED, Letter
from quota.notices import URGENT, NoticeKind
from quota.outbox import Deliveries
from quota.routing import CHAT, MAIL, SITE, Preference
from quota.told import retold
from quota.web.notice_actions import CHOSEN_KINDS, channels_of, reachable
from quota.web.parts import ServiceParts, Viewer

PAGE: Final = 30

KIND_WORDS: Final[Mapping[NoticeKind, str]] = {
    NoticeKind.IDLE_WARNING: N_("A server is idle and will be stopped"),
    NoticeKind.IDLE_STOP: N_("An idle server is being stopped"),
    NoticeKind.CREDIT_LOW: N_("Credits are running out"),
    NoticeKind.CREDIT_STOP: N_("A server will be stopped because no credits are left"),
    NoticeKind.SHUTDOWN_WARNING: N_("A server comes to the end that you set"),
    NoticeKind.SHUTDOWN_STOP: N_("A server is being stopped at the end that you set"),
    NoticeKind.MAX_AGE_WARNING: N_("A server reaches the longest time it may run"),
    NoticeKind.MAX_AGE_STOP: N_("A server is being stopped as it has run as long as it may"),
    NoticeKind.OVER_SHARE: N_("A server uses more than its share of a GPU"),
    NoticeKind.STOPPED: N_("A server has ended: why, what was saved, what it cost"),
    NoticeKind.OWN_STOP: N_("A server has ended that you stopped yourself"),
    NoticeKind.APPEAL_DECIDED: N_("What you said of a stop was decided"),
    NoticeKind.START_DONE: N_("A server was started as scheduled"),
    NoticeKind.START_FAILED: N_("A scheduled start failed"),
}
CHANNEL_WORDS: Final[Mapping[str, str]] = {
    MAIL: N_("Mail"),
    CHAT: N_("Chat"),
    SITE: N_("The site's own way"),
}
STATE_WORDS: Final[Mapping[str, str]] = {
    "waiting": N_("waits to be sent"),
    "sending": N_("is being sent"),
    "sent": N_("was sent"),
    "failed": N_("could not be sent"),
    "dropped": N_("was dropped"),
}
DIGEST_WORDS: Final[Mapping[str, str]] = {
    "": N_("each at once"),
    "hourly": N_("together, once an hour"),
    "daily": N_("together, each morning at 8:00"),
}


@dataclass(frozen=True, slots=True)
class LetterView:
    """One notice in words; `lines` are whole sentences, `link` a path below the site's address."""

    id: int
    lease: str
    title: str
    lines: tuple[str, ...]
    at: datetime
    link: str
    read: bool
    urgent: bool
    over: bool


@dataclass(frozen=True, slots=True)
class GlanceView:
    """What every page shows: how many are unread ("" for none), and urgent ones for its banner."""

    unread: str = ""
    urgent: tuple[LetterView, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a notice by one channel."""

    name: str
    channel: str
    state: str
    words: str
    why: str


@dataclass(frozen=True, slots=True)
class TestView:
    at: datetime
    under_way: bool
    ways: tuple[Delivered, ...]


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """One kind and the channels of it that are ticked."""

    kind: str
    words: str
    urgent: bool
    ticked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChoicesView:
    """How somebody is told. `channels` are those of the site that a person chooses, with their names; `mail_to` is
    where mails go now, `chat_host` where a chat is set."""

    channels: tuple[tuple[str, str], ...]
    email: str
    own_addresses: bool
    mail_to: str
    chat_host: str
    rows: tuple[ChoiceRow, ...]
    quiet: tuple[str, str]
    digest: str
    digests: tuple[tuple[str, str], ...]
    language: str
    languages: tuple[tuple[str, str], ...]
    can_test: bool
    test: TestView | None


@dataclass(frozen=True, slots=True)
class NoticesView:
    """`older` is the id before which the next page begins, None at the end; `newest`: this is the first page."""

    unread: tuple[LetterView, ...]
    more_unread: bool
    read: tuple[LetterView, ...]
    older: int | None
    newest: bool
    choices: ChoicesView


def glance(parts: ServiceParts, viewer: Viewer) -> GlanceView:
    found = parts.inbox.glance(viewer.name, viewer.admin)
    now = parts.clock.now()
    return GlanceView(count_words(found.unread), tuple(letter_view(each, now) for each in found.urgent))


def count_words(count: int) -> str:
    """ "" for none, "99+" for what is not counted to its end."""
    return f"{MOST_COUNTED - 1}+" if count >= MOST_COUNTED else str(count or "")


def letter_view(letter: Letter, now: datetime) -> LetterView:
    return LetterView(
        id=letter.id,
        lease=letter.lease_id or "",
        title=_(TITLES[letter.kind]) if letter.kind in TITLES else letter.kind,
        lines=tuple(line for line in retold(letter.words).split("\n") if line),
        at=letter.at,
        link=letter.link if letter.link.startswith("/") else "",
        read=letter.read_at is not None,
        urgent=letter.kind in URGENT,
        over=letter.kind in URGENT and letter.expires_at is not None and letter.expires_at <= now,
    )


def notices(parts: ServiceParts, viewer: Viewer, before: int | None) -> NoticesView:
    """The page: what is unread on top, then what was read, and the choices."""
    inbox, now = parts.inbox, parts.clock.now()
    unread = inbox.of(viewer.name, viewer.admin, limit=PAGE + 1, read=False) if before is None else []
    read = inbox.of(viewer.name, viewer.admin, before, PAGE + 1, read=True)
    return NoticesView(
        unread=tuple(letter_view(each, now) for each in unread[:PAGE]),
        more_unread=len(unread) > PAGE,
        read=tuple(letter_view(each, now) for each in read[:PAGE]),
        older=read[PAGE - 1].id if len(read) > PAGE else None,
        newest=before is None,
        choices=choices(parts, viewer),
    )


def choices(parts: ServiceParts, viewer: Viewer) -> ChoicesView:
    telling, chosen = parts.telling, parts.inbox.preference(viewer.name)
    return ChoicesView(
        channels=tuple((name, _(CHANNEL_WORDS[name])) for name in (MAIL, CHAT) if name in telling.channels),
        email=chosen.email,
        own_addresses=telling.own_addresses,
        mail_to=telling.mail_to(viewer.name, chosen) if MAIL in telling.channels else "",
        chat_host=host_of(parts, chosen),
        rows=tuple(
            ChoiceRow(kind.value, _(KIND_WORDS[kind]), kind in URGENT, channels_of(chosen, kind))
            for kind in CHOSEN_KINDS
        ),
        quiet=tuple(f"{each:%H:%M}" for each in chosen.quiet) if chosen.quiet else ("", ""),  # type: ignore[arg-type]
        digest=chosen.digest,
        digests=tuple((name, _(words)) for name, words in DIGEST_WORDS.items()),
        language=chosen.language,
        languages=(("", _("the site's")), *LANGUAGES.items()),
        can_test=bool(reachable(telling, chosen, viewer.name)),
        test=_test(parts, viewer),
    )


def host_of(parts: ServiceParts, chosen: Preference) -> str:
    """The host of somebody's chat, whose whole address nobody is shown again; "" for none."""
    if not chosen.chat or CHAT not in parts.telling.channels:
        return ""
    return urlsplit(parts.telling.opened(chosen.chat)).hostname or _("an address that cannot be read any more")


def _test(parts: ServiceParts, viewer: Viewer) -> TestView | None:
    """What became of the last test message, for as long as anybody would look for it."""
    letter = parts.inbox.last_test(viewer.name)
    if letter is None or letter.expires_at is None or letter.expires_at <= parts.clock.now():
        return None
    ways = deliveries(parts, letter.id)
    return TestView(letter.at, any(way.state in ("waiting", "sending") for way in ways), ways)


def deliveries(parts: ServiceParts, number: int) -> tuple[Delivered, ...]:
    """What became of one notice, by channel."""
    found = Deliveries(parts.book.store, parts.clock).of(number)
    return tuple(
        Delivered(name, _(CHANNEL_WORDS.get(name, name)), state, _(STATE_WORDS[state]), retold(why))
        for name, (state, why) in sorted(found.items())
    )
