"""Composes what writes notices into the outbox, and what sends them: channels by the settings."""

from __future__ import annotations

import json
import os
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

import psutil

from quota.cards import Cards
from quota.delivery import Channel, Message, Worker
from quota.inbox import Inbox
from quota.outbox import Deliveries, Outbox, Tidy
from quota.outgoing import NotReached, Policy, Unsafe
from quota.routing import CHAT, MAIL, SITE
from quota.sealed import Sealer
from quota.telling import NotUsable, Telling

if TYPE_CHECKING:
    from hub_config.compose import Parts

#: The name of the key in the data folder with which users' secrets in the book are sealed.
KEY = "notices_key"


def outbox_of(made: Parts) -> Outbox:
    """What takes notices, in any process."""
    settings, users = made.settings, users_channels(made)
    admins = [MAIL] if settings.mail.host and settings.mail.admins else []
    admins += [CHAT] if settings.chat.admin_file else []
    return Outbox(made.store, made.clock, users, settings.site.time_zone, admins)


def users_channels(made: Parts) -> list[str]:
    """The channels that the settings open to users."""
    settings = made.settings
    users = [MAIL] if settings.mail.host else []
    users += [CHAT] if settings.chat.users else []
    return users + ([SITE] if settings.extensions.notify else [])


def policy_of(made: Parts) -> Policy:
    """Which webhooks are called."""
    chat = made.settings.chat
    return Policy(("https", "http") if chat.plain_http else ("https",), chat.hosts)


def sealer_of(made: Parts) -> Sealer:
    return Sealer(made.data.secret(KEY))


def telling_of(made: Parts) -> Telling:
    """What users may choose of how they are told."""
    from hub_config.deliver_mail import address_of

    settings, outbox, sealer = made.settings, outbox_of(made), sealer_of(made)

    def check(url: str) -> None:
        from hub_config.deliver_chat import hook_of

        try:
            policy_of(made).check(url)
            hook_of(url)
        except (Unsafe, NotReached) as error:
            raise NotUsable(str(error)) from None

    return Telling(
        channels=frozenset(users_channels(made)),
        own_addresses=bool(settings.mail.host) and settings.mail.own_addresses,
        mail_to=lambda user, chosen: address_of(settings.mail, user, chosen),
        check=check,
        seal=sealer.seal,
        opened=lambda text: sealer.open(text) or "",
        put=outbox.put,
    )


class LateChat:
    """Chats, whose library is loaded with the first message: a site that uses none need not carry it."""

    name: ClassVar[str] = CHAT
    idempotent: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    joins: ClassVar[bool] = True

    def __init__(self, made: Parts, admin: str) -> None:
        self._made, self._admin = made, admin

    @cached_property
    def _chats(self) -> Channel:
        from hub_config.deliver_chat import ChatChannel

        made = self._made
        return ChatChannel(policy_of(made), sealer_of(made), self._admin, made.settings.chat.users)

    def send(self, message: Message) -> None:
        """Raises `Undelivered`."""
        self._chats.send(message)


def channels_of(made: Parts) -> list[Channel]:
    """The ways to people that the settings open. Raises `SettingsError`."""
    from hub_config.compose import notify_of
    from hub_config.deliver_mail import MailChannel
    from hub_config.notifying import SiteChannel

    settings, found = made.settings, list[Channel]()
    if settings.mail.host:
        found.append(MailChannel(settings.mail, made.data.mail_password(settings)))
    if settings.chat.users or settings.chat.admin_file:
        found.append(LateChat(made, made.data.admin_chat(settings)))
    own = notify_of(made)
    if own is not None:
        found.append(SiteChannel(own, made.alerts))
    return found


def worker_of(made: Parts) -> Worker:
    """What sends notices, in service `berth`. Raises `SettingsError`."""
    outbox, deliveries = outbox_of(made), Deliveries(made.store, made.clock)
    return Worker(
        outbox,
        deliveries,
        Inbox(made.store, made.clock),
        made.alerts,
        made.clock,
        channels_of(made),
        site_url(made),
        made.settings.site.name,
        also=[
            Cards(made.store, made.clock, outbox.put).look,
            Tidy(deliveries, made.clock, made.settings.notices.keep).look,
        ],
        owner=owner_here(made.host),
        alive=partial(is_alive, made.host),
    )


def owner_here(host: str) -> str:
    """What names this process in its claims: no other has it, now or later."""
    return f"{host} {os.getpid()} {psutil.Process().create_time()}"


def is_alive(here: str, owner: str) -> bool:
    """Whether the process still runs that named itself like this; True for those of other hosts, of which this one
    knows nothing: their claims run out by themselves."""
    host, _, rest = owner.partition(" ")
    pid, _, began = rest.partition(" ")
    if host != here or not pid.isdigit():
        return True
    try:
        process = psutil.Process(int(pid))
        return str(process.create_time()) == began and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def site_url(made: Parts) -> str:
    """Where browsers reach the site: as its settings say, else as `berth up` does."""
    if made.settings.auth.url:
        return made.settings.auth.url
    try:
        return str(json.loads(made.data.up_file.read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
