"""The delivery worker: takes what is due out of the outbox and sends it, each channel in a thread of its own, so that a
mail server that hangs holds up no chat, and nothing of this ever holds up a decision."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final, Protocol

from quota import i18n
from quota.alerts import Alerts
from quota.i18n import N_, _
from quota.inbox import Inbox
from quota.notices import NOTICES_LINK, TO_ADMINS, URGENT, Notice, NoticeKind, alert
from quota.outbox import ENDS_OF_TRIES, Claim, Deliveries, Outbox
from quota.ports import Clock
from quota.routing import Preference
from quota.told import retold

log = logging.getLogger("berth.notices")

LOOK_SECONDS: Final = 2.0
#: What has been due so long and is not sent makes an alert.
STUCK: Final = timedelta(minutes=15)
ALERT_KIND: Final = "notices"

TITLES: Final[dict[str, str]] = {
    NoticeKind.IDLE_WARNING: N_("Your server will be stopped soon: it is idle"),
    NoticeKind.IDLE_STOP: N_("Your server is being stopped: it was idle"),
    NoticeKind.CREDIT_LOW: N_("Your credits are running out"),
    NoticeKind.CREDIT_STOP: N_("Your server will be stopped: no credits are left"),
    NoticeKind.SHUTDOWN_WARNING: N_("Your server will be stopped soon, as you asked"),
    NoticeKind.SHUTDOWN_STOP: N_("Your server is being stopped, as you asked"),
    NoticeKind.MAX_AGE_WARNING: N_("Your server will be stopped soon: it has run as long as it may"),
    NoticeKind.MAX_AGE_STOP: N_("Your server is being stopped: it has run as long as it may"),
    NoticeKind.OVER_SHARE: N_("Your server uses more than its share of the GPU"),
    NoticeKind.STOPPED: N_("Your server has ended"),
    NoticeKind.OWN_STOP: N_("Your server has ended, as you asked"),
    NoticeKind.APPEAL_MADE: N_("Somebody says that a stop was wrong"),
    NoticeKind.APPEAL_DECIDED: N_("What became of your appeal"),
    NoticeKind.START_DONE: N_("Your server was started as scheduled"),
    NoticeKind.START_FAILED: N_("Your scheduled start failed"),
    NoticeKind.ALERT: N_("Something needs a look"),
    NoticeKind.TEST: N_("A test message"),
}


class Undelivered(Exception):
    """It did not go out. `final`: it never will this way; else it may later."""

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def _begun() -> None:
    """Nobody needs to know."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one send says: whole and in its reader's language. `key` stays the same when it is tried again. `begin` is
    called right before what cannot be taken back: should the process die after that, it is not sent again. It raises
    `Undelivered` where somebody else is sending it by now."""

    user: str
    to: Preference
    title: str
    words: str
    link: str
    key: str
    at: datetime
    notices: tuple[Notice, ...]
    begin: Callable[[], None] = _begun


class Channel(Protocol):
    """One way to people. `shared`: its failures are the site's (a mail server), not one address's. `joins`: several
    notices that waited for the same reader go out as one."""

    name: ClassVar[str]
    idempotent: ClassVar[bool]
    shared: ClassVar[bool]
    joins: ClassVar[bool]

    def send(self, message: Message) -> None:
        """Send it, within `quota.outbox.CLAIMED`, and call `message.begin`. Raises `Undelivered`; whatever else is
        taken for that, not final."""
        ...


class Worker:
    """Delivers until it is stopped. `url` is the site's address, before the links; `also` is what is called as often,
    each in a thread of its own. `owner` names this process and `alive` says of such a name whether it still runs."""

    def __init__(
        self,
        outbox: Outbox,
        deliveries: Deliveries,
        inbox: Inbox,
        alerts: Alerts,
        clock: Clock,
        channels: Sequence[Channel],
        url: str,
        site: str = "Berth",
        also: Sequence[Callable[[], object]] = (),
        owner: str = "",
        alive: Callable[[str], bool] = lambda owner: True,
    ) -> None:
        self._outbox, self._deliveries, self._inbox, self._alerts = outbox, deliveries, inbox, alerts
        self._clock, self._channels, self._url, self._site = clock, tuple(channels), url.rstrip("/"), site
        self._owner, self._alive = owner or f"worker-{secrets.token_hex(8)}", alive
        self._also, self._stopped = tuple(also), threading.Event()

    def start(self, every: float = LOOK_SECONDS) -> Callable[[], None]:
        """Run in threads until the returned function is called, which waits a moment for what is under way."""
        looks = [
            self._watch,
            *self._also,
            *((lambda channel=channel: self.look(channel)) for channel in self._channels),
        ]
        threads = [threading.Thread(target=self._run, args=(look, every), daemon=True) for look in looks]
        for thread in threads:
            thread.start()

        def stop() -> None:
            self._stopped.set()
            for thread in threads:
                thread.join(2 / len(threads))

        return stop

    def _run(self, look: Callable[[], object], every: float) -> None:
        while not self._stopped.is_set():
            try:
                look()
            except Exception:
                log.exception("Notices could not be delivered", extra={"event": "delivery-failed"})
            self._stopped.wait(every)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """What became of tries since the process began, by channel and one of `quota.outbox.ENDS_OF_TRIES`; 0 for what
        never happened on a channel that is open."""
        zero = {(channel.name, end): 0 for channel in self._channels for end in ENDS_OF_TRIES}
        return {**zero, **self._deliveries.counts()}

    def look(self, channel: Channel) -> int:
        """Send what is due on a channel now. How many notices went out."""
        lost = self._deliveries.recover(channel.name, channel.idempotent, self._alive)
        if lost and not channel.idempotent:
            log.warning("%s notices by %s may not have been sent: their sender died", lost, channel.name)
        sent = 0
        for claims in _letters(self._deliveries.claim(channel.name, self._owner), channel.joins):
            sent += self._send(channel, claims)
        return sent

    def _send(self, channel: Channel, claims: Sequence[Claim]) -> int:
        chosen = self._inbox.preference(claims[0].notice.user)
        try:
            with i18n.speaking(chosen.language if chosen.language in i18n.LANGUAGES else None):
                message = self._message(claims, chosen)
                channel.send(message)
        except Exception as error:
            final = isinstance(error, Undelivered) and error.final
            words = str(error) if isinstance(error, Undelivered) else f"{type(error).__name__}: {error}"
            self._not_sent(channel, claims, words[:500], final)
            return 0
        for claim in claims:
            if not self._deliveries.sent(claim):
                log.warning("The notice %s was sent by %s after its claim had run out", claim.id, channel.name)
        if channel.shared or claims[0].notice.user == TO_ADMINS:
            self._alerts.clear(f"{ALERT_KIND}:{channel.name}")
        return len(claims)

    def _not_sent(self, channel: Channel, claims: Sequence[Claim], why: str, final: bool) -> None:
        for claim in claims:
            given_up = final or not self._deliveries.again(claim, why)
            if final:
                self._deliveries.failed(claim, why)
            told = {"event": "notice-not-sent", "user": claim.notice.user, "notice": claim.notice.kind.value}
            log.warning("A notice was not sent by %s: %s", channel.name, why, extra=told)
            if given_up and not final and (channel.shared or claim.notice.user == TO_ADMINS):
                self._raise(channel.name, f"A notice was given up: {why}")

    def _raise(self, channel: str, what: str) -> None:
        words = f"Notices do not go out by {channel}. {what}. See logs/berth.log and docs/how-to/notices.md."
        self._alerts.put(f"{ALERT_KIND}:{channel}", ALERT_KIND, words)

    def _message(self, claims: Sequence[Claim], chosen: Preference) -> Message:
        """In the language that is spoken."""
        notices = tuple(claim.notice for claim in claims)
        first = notices[0]
        title = _(TITLES[first.kind])
        if len(notices) > 1:
            title = _("%(number)s messages from %(site)s", number=len(notices), site=self._site)
        words = "\n\n".join(retold(notice.words) for notice in notices)
        link = first.link if len(notices) == 1 else NOTICES_LINK
        key = f"{first.key}:{len(notices)}"

        def begin() -> None:
            if not self._deliveries.begin(claims):
                raise Undelivered("its claim has run out")

        return Message(first.user, chosen, title, words, self._url + link, key, first.when, notices, begin)

    def _watch(self) -> None:
        """Alerts become notices to administrators, once; and an outbox that does not empty becomes an alert."""
        now = self._clock.now()
        for each in self._alerts.open():
            if each.kind != ALERT_KIND:
                self._outbox.put(alert(each.key, each.words, each.since, now))
        for channel, waiting in self._deliveries.waiting().items():
            if now - waiting.oldest_due > STUCK and self._is_shared(channel):
                self._raise(channel, f"{waiting.count} wait, the oldest since {waiting.oldest_due:%Y-%m-%d %H:%M} UTC")

    def _is_shared(self, name: str) -> bool:
        return any(channel.shared for channel in self._channels if channel.name == name)


def _letters(claims: Sequence[Claim], joins: bool) -> list[list[Claim]]:
    """What goes out together: what is not urgent and waited for the same reader."""
    found: list[list[Claim]] = []
    together: dict[str, list[Claim]] = {}
    for claim in claims:
        if not joins or claim.notice.kind in URGENT:
            found.append([claim])
        elif claim.notice.user in together:
            together[claim.notice.user].append(claim)
        else:
            together[claim.notice.user] = [claim]
    return [*found, *together.values()]
