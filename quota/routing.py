"""Which notice goes by which channel, and when: what its user chose, quiet hours and digests. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, Final

from quota.notices import STOPS, TO_ADMINS, URGENT, Notice, NoticeKind

#: Channels that a person chooses for each kind, and the site's own function, which gets all.
MAIL: Final = "mail"
CHAT: Final = "chat"
SITE: Final = "site"
CHANNELS: Final = (MAIL, CHAT)

#: What nobody is written about unless they ask for it: pages say it, or another notice follows.
QUIET_KINDS: Final = frozenset({*STOPS.values(), NoticeKind.OWN_STOP, NoticeKind.START_DONE})

#: What counts as read from the beginning: its reader did it.
NO_NEWS: Final = frozenset({NoticeKind.OWN_STOP})

DIGESTS: Final = ("", "hourly", "daily")
#: When a daily digest is sent, on the site's clock.
DIGEST_AT: Final = time(8, 0)

_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,8}", re.ASCII)
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Preference:
    """How somebody wants to be told. `kinds` names the channels of a kind where that differs from the default; `quiet`
    is a stretch of each day on the site's clock, over midnight where its end is before its beginning; `language` ""
    is the site's; `chat` is the address of a chat, sealed."""

    email: str = ""
    language: str = ""
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quiet: tuple[time, time] | None = None
    digest: str = ""
    chat: str = ""

    def channels(self, kind: NoticeKind) -> frozenset[str]:
        """By what channels that kind is told, where they can be used."""
        default = () if kind in QUIET_KINDS else CHANNELS
        return frozenset(self.kinds.get(kind.value, default))


NO_PREFERENCE: Final = Preference()


def route(
    notice: Notice, chosen: Preference, usable: Collection[str], now: datetime, zone: tzinfo
) -> dict[str, datetime]:
    """The channels of a notice and when each is due. A warning that would come after its deadline goes by none: pages
    show it."""
    due = {}
    for channel in usable:
        if channel == SITE:
            if notice.user != TO_ADMINS:
                due[channel] = now
            continue
        if channel == CHAT and not chosen.chat and notice.user != TO_ADMINS:
            continue
        if notice.kind is not NoticeKind.TEST and channel not in chosen.channels(notice.kind):
            continue
        at = now if notice.kind is NoticeKind.TEST else due_at(notice.kind, chosen, now, zone)
        if notice.expires_at is None or at < notice.expires_at:
            due[channel] = at
    return due


def due_at(kind: NoticeKind, chosen: Preference, now: datetime, zone: tzinfo) -> datetime:
    """Now; with a digest, what is not urgent waits for the next; nothing comes in quiet hours."""
    at = now if kind in URGENT else _digest(chosen.digest, now, zone)
    return _awake(chosen.quiet, at, zone)


def _digest(digest: str, now: datetime, zone: tzinfo) -> datetime:
    local = now.astimezone(zone)
    if digest == "hourly":
        return (now.astimezone(UTC) + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
    if digest == "daily":
        return _next(local, DIGEST_AT)
    return now


def _awake(quiet: tuple[time, time] | None, at: datetime, zone: tzinfo) -> datetime:
    if quiet is None:
        return at
    begin, end = quiet
    local = at.astimezone(zone)
    clock = local.time()
    inside = begin <= clock < end if begin < end else clock >= begin or clock < end
    return _next(local, end) if inside else at


def _next(local: datetime, clock: time) -> datetime:
    """The next moment at which the clock on the wall shows that, in UTC."""
    day = local.date() if local.time() < clock else local.date() + timedelta(days=1)
    return datetime.combine(day, clock, local.tzinfo).astimezone(UTC)


# ---- as it stands in the book ------------------------------------------------------------------------------------


def to_choices(chosen: Preference) -> dict[str, Any]:
    quiet = [f"{each:%H:%M}" for each in chosen.quiet] if chosen.quiet else None
    kinds = {kind: list(channels) for kind, channels in chosen.kinds.items()}
    return {"language": chosen.language, "kinds": kinds, "quiet": quiet, "digest": chosen.digest}


def from_choices(email: str, choices: Mapping[str, Any], chat: str) -> Preference:
    """What a row says; what a newer Berth may have written is left out."""
    kinds = choices.get("kinds") or {}
    known = {kind.value for kind in NoticeKind}
    clocks = [clock_of(each) for each in choices.get("quiet") or ()]
    quiet = (clocks[0], clocks[1]) if len(clocks) == 2 and clocks[0] and clocks[1] else None
    return Preference(
        email=email,
        language=str(choices.get("language") or ""),
        kinds={
            kind: tuple(name for name in names if name in CHANNELS) for kind, names in kinds.items() if kind in known
        },
        quiet=quiet,
        digest=digest if (digest := choices.get("digest")) in DIGESTS else "",
        chat=chat,
    )


def clock_of(text: str) -> time | None:
    """ "22:00" as a time of day; None for what is none."""
    found = _CLOCK.fullmatch(text)
    return time(int(found[1]), int(found[2])) if found else None


def is_email(text: str) -> bool:
    """Whether it is one plain address: nothing that could be read as two, or as a line of a mail's head."""
    return len(text) <= 254 and _EMAIL.fullmatch(text) is not None
