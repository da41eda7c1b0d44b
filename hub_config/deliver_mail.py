"""Notices as mail, over SMTP. `smtplib` tells at which step a mail failed, and so whether it may have gone out."""

from __future__ import annotations

import hashlib
import logging
import smtplib
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from typing import ClassVar, Final

from hub_config.settings_notices import MailTable
from quota.delivery import Message, Undelivered
from quota.notices import TO_ADMINS
from quota.outbox import UNKNOWN
from quota.routing import MAIL, Preference, is_email
from quota.told import booked

log = logging.getLogger("berth.notices")

STEP_SECONDS: Final = 15.0
WHOLE_SECONDS: Final = 60.0

NO_ADDRESS = booked("No mail address is known for this user")


@dataclass(frozen=True)
class MailChannel:
    """A `quota.delivery.Channel`. `password` is never told."""

    table: MailTable
    password: str
    step_seconds: float = STEP_SECONDS
    whole_seconds: float = WHOLE_SECONDS
    name: ClassVar[str] = MAIL
    idempotent: ClassVar[bool] = False
    shared: ClassVar[bool] = True
    joins: ClassVar[bool] = True

    def send(self, message: Message) -> None:
        """Raises `Undelivered`."""
        to = self.addresses(message)
        if not to:
            raise Undelivered(NO_ADDRESS, final=True)
        mail = self.mail(message, to)
        try:
            server = self._connect()
        except (OSError, smtplib.SMTPException) as error:
            raise Undelivered(_words(error)) from None
        guard = threading.Timer(self.whole_seconds, server.close)  # a server that trickles holds nobody for ever
        guard.start()
        try:
            self._hand_over(server, mail, to, message.begin)
        finally:
            guard.cancel()
            server.close()

    def addresses(self, message: Message) -> tuple[str, ...]:
        """Where it goes: the address that its reader named where that is allowed, else by the site's rule."""
        if message.user == TO_ADMINS:
            return self.table.admins
        address = address_of(self.table, message.user, message.to)
        return (address,) if address else ()

    def mail(self, message: Message, to: tuple[str, ...]) -> EmailMessage:
        mail = EmailMessage()
        mail["From"] = self.table.sender
        mail["To"] = ", ".join(to)
        mail["Subject"] = message.title
        mail["Date"] = format_datetime(message.at)
        mark = hashlib.sha256(f"{message.key}\0{message.user}".encode()).hexdigest()[:32]
        mail["Message-ID"] = f"<{mark}@{self.table.sender.rpartition('@')[2]}>"  # the same when it is tried again
        mail["Auto-Submitted"] = "auto-generated"  # so that nobody's holiday answers it
        mail.set_content(f"{message.words}\n\n{message.link}\n")
        return mail

    def _connect(self) -> smtplib.SMTP:
        table, context = self.table, ssl.create_default_context()
        if table.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(table.host, table.port, timeout=self.step_seconds, context=context)
        else:
            server = smtplib.SMTP(table.host, table.port, timeout=self.step_seconds)
        try:
            if table.security == "starttls":
                server.starttls(context=context)
            server.ehlo_or_helo_if_needed()
            if table.user:
                server.login(table.user, self.password)
        except BaseException:
            server.close()
            raise
        return server

    def _hand_over(
        self, server: smtplib.SMTP, mail: EmailMessage, to: tuple[str, ...], begin: Callable[[], None]
    ) -> None:
        try:
            _need(server.mail(self.table.sender))
            for address in to:
                _need(server.rcpt(address))
        except (OSError, smtplib.SMTPException) as error:
            raise Undelivered(_words(error)) from None
        begin()  # until here nobody could have got it
        try:
            _need(server.data(mail.as_bytes()))
        except smtplib.SMTPDataError as error:
            raise Undelivered(_words(error), final=error.smtp_code >= 500) from None
        except (OSError, smtplib.SMTPException):
            raise Undelivered(UNKNOWN, final=True) from None


def address_of(table: MailTable, user: str, chosen: Preference) -> str:
    """Where mails to a user go: the address they named where that is allowed, else by the site's rule; "" where neither
    gives one."""
    own = chosen.email if table.own_addresses else ""
    address = own or (user if "@" in user else f"{user}@{table.domain}")
    return address if is_email(address) else ""


def _need(answer: tuple[int, bytes]) -> None:
    """Raises `Undelivered` for an answer that is no yes."""
    code, words = answer
    if not 200 <= code < 300:
        raise Undelivered(f"{code} {words.decode('utf-8', 'replace')}"[:300], final=code >= 500)


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
