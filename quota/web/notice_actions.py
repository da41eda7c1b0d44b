"""What somebody does with their notices: reads them, says how they want to be told, asks for a test message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import time
from typing import Final

from quota.i18n import LANGUAGES, _
from quota.inbox import Letter
from quota.notices import NoticeKind, trial
from quota.routing import CHANNELS, CHAT, DIGESTS, QUIET_KINDS, SITE, Preference, clock_of, is_email
from quota.telling import MOST_TESTS, TESTS_WITHIN, NotUsable, Telling
from quota.told import retold
from quota.web.base import Handler
from quota.web.fields import wrong
from quota.web.parts import ServiceParts
from quota.web.problem import Problem, Why

#: What users choose about; the rest goes to administrators as the site's settings say, or was asked for.
CHOSEN_KINDS: Final = tuple(
    kind for kind in NoticeKind if kind not in (NoticeKind.APPEAL_MADE, NoticeKind.ALERT, NoticeKind.TEST)
)
LONGEST_EMAIL, LONGEST_CHAT = 254, 2000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to change of how somebody is told; None stays as it is. `kinds` names channels for all kinds it names,
    `quiet` is two times of day ("22:00"), twice "" for none; an empty `email` or `chat` takes it off."""

    email: str | None = None
    chat: str | None = None
    kinds: Mapping[str, Collection[str]] | None = None
    quiet: tuple[str, str] | None = None
    digest: str | None = None
    language: str | None = None


async def mine(handler: Handler, number: int) -> Letter:
    """One of the viewer's own. Raises `Problem`."""
    viewer = handler.viewer
    found = await handler.in_thread(handler.parts.inbox.one, viewer.name, viewer.admin, number)
    if found is None:
        raise Problem(404, Why.NOT_FOUND, _("There is no such notice."))
    return found


async def read(handler: Handler, number: int) -> Letter:
    """One of the viewer's own is read. Raises `Problem`."""
    inbox, viewer = handler.parts.inbox, handler.viewer
    await handler.in_thread(inbox.mark_read, viewer.name, viewer.admin, number)
    return await mine(handler, number)


async def read_all(handler: Handler, up_to: int | None = None) -> int:
    """All are read, or those up to this id: what came since stays unread. How many were not."""
    inbox, viewer = handler.parts.inbox, handler.viewer
    return await handler.in_thread(inbox.mark_read, viewer.name, viewer.admin, up_to=up_to)


async def choose(handler: Handler, wanted: Wanted) -> Preference:
    """How the viewer is told from now on. Raises `Problem`."""
    return await handler.in_thread(_choose, handler.parts, handler.viewer.name, wanted)


def _choose(parts: ServiceParts, user: str, wanted: Wanted) -> Preference:
    chosen = changed(parts.inbox.preference(user), wanted, parts.telling)
    parts.inbox.set_preference(user, chosen)
    return chosen


async def test(handler: Handler) -> int:
    """Send the viewer a test message by every channel they have; its id. Raises `Problem`."""
    return await handler.in_thread(_test, handler.parts, handler.viewer.name)


def _test(parts: ServiceParts, user: str) -> int:
    if not reachable(parts.telling, parts.inbox.preference(user), user):
        words = _("There is no mail address and no chat that a message could go to.")
        raise Problem(409, Why.NO_CHANNEL, words)
    now = parts.clock.now()
    if parts.inbox.tests_since(user, now - TESTS_WITHIN) >= MOST_TESTS:
        words = _(
            "%(number)s test messages an hour are enough. Look at what became of the last one.", number=MOST_TESTS
        )
        raise Problem(429, Why.TOO_OFTEN, words, {"Retry-After": "600"})
    number = parts.telling.put(trial(user, now))
    if number is None:  # the same user within the same microsecond
        raise changed_meanwhile()
    return number


def changed_meanwhile() -> Problem:
    return Problem(409, Why.CHANGED, _("Somebody else changed this at the same moment. Look again, then retry."))


def reachable(telling: Telling, chosen: Preference, user: str) -> tuple[str, ...]:
    """The channels by which this user can be told."""
    found = [name for name in sorted(telling.channels) if name == SITE]
    if "mail" in telling.channels and telling.mail_to(user, chosen):
        found.append("mail")
    if CHAT in telling.channels and chosen.chat:
        found.append(CHAT)
    return tuple(found)


# ---- what was chosen ---------------------------------------------------------------------------------------------


def changed(before: Preference, wanted: Wanted, telling: Telling) -> Preference:
    """What somebody wants, checked field by field. Raises `Problem` that names the field. Blocks for a chat."""
    found = before
    if wanted.email is not None:
        found = replace(found, email=_email(wanted.email, before, telling))
    if wanted.kinds is not None:
        found = replace(found, kinds={**before.kinds, **_kinds(wanted.kinds)})
    if wanted.quiet is not None:
        found = replace(found, quiet=_quiet(*wanted.quiet))
    if wanted.digest is not None:
        found = replace(found, digest=_one_of("digest", wanted.digest, DIGESTS))
    if wanted.language is not None:
        found = replace(found, language=_one_of("language", wanted.language, ("", *LANGUAGES)))
    if wanted.chat is not None:
        found = replace(found, chat=_chat(wanted.chat, telling))
    return found


def _email(text: str, before: Preference, telling: Telling) -> str:
    if text and not telling.own_addresses and text != before.email:
        raise wrong("email", _("this site does not let users name an address of their own"))
    if text and not is_email(text):
        raise wrong("email", _("a mail address such as ada@example.org is needed"))
    return text


def _kinds(asked: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
    known = {kind.value for kind in CHOSEN_KINDS}
    for kind, channels in asked.items():
        if kind not in known:
            names = ", ".join(sorted(known))
            raise wrong("kinds", _("%(name)s is none; known: %(names)s", name=repr(kind[:40]), names=names))
        for name in channels:
            _one_of("kinds", name, CHANNELS)
    return {kind: tuple(name for name in CHANNELS if name in channels) for kind, channels in asked.items()}


def _quiet(begin: str, end: str) -> tuple[time, time] | None:
    if not begin and not end:
        return None
    first, last = clock_of(begin), clock_of(end)
    if first is None or last is None or first == last:
        raise wrong("quiet", _("two different times of day such as 22:00 and 07:00 are needed, or none"))
    return first, last


def _one_of(name: str, value: str, known: Collection[str]) -> str:
    if value not in known:
        names = ", ".join(repr(each) for each in known)
        raise wrong(name, _("%(name)s is none; known: %(names)s", name=repr(value[:40]), names=names))
    return value


def _chat(url: str, telling: Telling) -> str:
    if not url:
        return ""
    if CHAT not in telling.channels:
        raise wrong("chat", _("this site sends users nothing by chat"))
    try:
        telling.check(url)
    except NotUsable as error:
        raise wrong("chat", retold(str(error))) from None
    return telling.seal(url)


def channels_of(chosen: Preference, kind: NoticeKind) -> tuple[str, ...]:
    """By what somebody is told of this kind, in a fixed order."""
    return tuple(name for name in CHANNELS if name in chosen.channels(kind))


def is_quiet(kind: NoticeKind) -> bool:
    """Whether nobody is written about it unless they ask for it."""
    return kind in QUIET_KINDS
