"""Scheduled starts as pages and REST both ask for them: what one may choose, and why one is refused, in words.

What is checked here spares a disappointment later. Whether the start is granted is for the Hub and the book to say when
its time has come, by what is so then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from quota.errors import NotFound
from quota.groups import group_of, payers_of
from quota.i18n import _, _n
from quota.leases import HolderKind
from quota.schedules import LATEST, ScheduleRefused, Start
from quota.web.base import Handler
from quota.web.fields import wrong
from quota.web.parts import ProfileView
from quota.web.problem import STATUS, Problem, Why

#: Among so many newest leases are the servers that one is offered.
LATELY = 50

_REASONS = {
    "off": Why.STARTS_OFF,
    "too-soon": Why.TIME_TOO_SOON,
    "too-far": Why.TIME_TOO_LATE,
    "too-many": Why.STARTS_FULL,
    "twice": Why.START_EXISTS,
    "under-way": Why.START_NOT_WAITING,
    "over": Why.START_NOT_WAITING,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants started, and when. `image` and `payer` are "" for the default; so is `server`."""

    at: datetime
    profile: str
    image: str = ""
    payer: str = ""
    server: str = ""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the viewer may choose from at this moment: profiles, the accounts that may pay, their own first, and the
    servers that they had lately, the default one ("") first."""

    profiles: tuple[ProfileView, ...]
    payers: tuple[str, ...]
    servers: tuple[str, ...] = ("",)


async def choices(handler: Handler) -> Choices:
    """Raises `HubUnavailable`, `Refused(RULE_FAILED)`."""
    parts, name = handler.parts, handler.viewer.name
    groups = await parts.hub.groups_of(name)
    profiles = await handler.in_thread(parts.profiles)
    if parts.offered is not None:
        open_now = await handler.in_thread(parts.offered, name, groups)
        profiles = [each for each in profiles if each.name in open_now]
    had = await handler.in_thread(parts.book.leases, user=name, limit=LATELY)
    servers = ("", *sorted({each.holder.server for each in had if each.holder.kind is HolderKind.SERVER} - {""}))
    return Choices(tuple(profiles), (name, *payers_of(parts.groups, groups)), servers)


async def mine(handler: Handler, start_id: str) -> Start:
    """A start of the viewer's own. Raises `Problem`: that of somebody else is told like one that there is not."""
    try:
        start = await handler.in_thread(handler.parts.schedules.one, start_id)
    except NotFound:
        start = None
    if start is None or start.user != handler.viewer.name:
        raise Problem(404, Why.NOT_FOUND, _("There is no such scheduled start."))
    return start


async def add(handler: Handler, asked: Asked) -> Start:
    """Raises `Problem`."""
    if "/" in asked.server or not asked.server.isprintable():
        raise wrong("server", _("this is no name of a server"))
    options = checked(await choices(handler), asked)
    name = handler.viewer.name
    await handler.in_thread(handler.parts.bank.ensure_account, name)
    return await _told(handler, handler.parts.schedules.add, name, asked.server, options, asked.at, name)


async def change(handler: Handler, start_id: str, asked: Asked) -> Start:
    """One that waits is made like this instead; for the same server. Raises `Problem`."""
    start = await mine(handler, start_id)
    if asked.server != start.server:
        raise wrong("server", _("the server of a scheduled start stays; cancel it and schedule another"))
    options = checked(await choices(handler), asked)
    return await _told(handler, handler.parts.schedules.change, start_id, options, asked.at)


async def move(handler: Handler, start_id: str, at: datetime) -> Start:
    """One that waits is made at another time. Raises `Problem`."""
    start = await mine(handler, start_id)
    return await _told(handler, handler.parts.schedules.change, start_id, start.options, at)


async def cancel(handler: Handler, start_id: str) -> Start:
    """One that is over stays as it is. Raises `Problem`."""
    await mine(handler, start_id)
    return await _told(handler, handler.parts.schedules.cancel, start_id)


def checked(found: Choices, asked: Asked) -> Mapping[str, str]:
    """The options of the start, complete. Raises `Problem`."""
    names = ", ".join(each.name for each in found.profiles) or _("none")
    profile = next((each for each in found.profiles if each.name == asked.profile), None)
    if profile is None:
        raise wrong("profile", _("no such profile is open to you; there are: %(names)s", names=names))
    image = asked.image or next(iter(profile.images), "")
    if image not in profile.images:
        known = ", ".join(profile.images) or _("none")
        raise wrong("image", _("this profile does not run it; it runs: %(names)s", names=known))
    payer = asked.payer or found.payers[0]
    if payer not in found.payers:
        raise wrong(
            "payer", _("you cannot charge this account; you can charge: %(names)s", names=", ".join(found.payers))
        )
    return {"profile": profile.name, "image": image, "payer": payer}


async def _told(handler: Handler, write: Callable[..., Start], *args: object) -> Start:
    try:
        return await handler.in_thread(write, *args)
    except ScheduleRefused as error:
        reason = _REASONS[error.code]
        raise Problem(STATUS[reason], reason, _words(error)) from None


def _words(error: ScheduleRefused) -> str:
    if error.code == "off":
        return _("This site schedules no starts.")
    if error.code == "too-soon":
        return _("The time must be one that is still to come.")
    if error.code == "too-far":
        return _("A start can be scheduled for up to %(days)s days ahead.", days=LATEST.days)
    if error.code == "too-many":
        return _n(
            "You have %(n)s start waiting, which is as many as one may have. Cancel it first.",
            "You have %(n)s starts waiting, which is as many as one may have. Cancel one of them first.",
            error.most,
        )
    if error.code == "twice":
        return _("You have a start of this server at that very time already.")
    if error.code == "under-way":
        return _("It is being made at this moment. Look again in a moment.")
    return _("It is over, so there is nothing to change. Schedule a new one.")


def payer_words(account: str, user: str) -> str:
    """Who pays, for a list to choose from."""
    if account == user:
        return _("Yourself")
    return _("Group %(group)s", group=group_of(account) or account)
