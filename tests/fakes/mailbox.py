"""A mail server on this machine that keeps what it is sent."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Self

from aiosmtpd.controller import Controller

from tests.harness.stack import free_port


class MailBox:
    """`mails` as they came; each envelope is held against its mail's head. Use it as a context."""

    def __init__(self) -> None:
        self.port = free_port()
        self.mails: list[EmailMessage] = []
        self._controller = Controller(self, "127.0.0.1", self.port)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """What aiosmtpd calls for each mail."""
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert [mail["From"], mail["To"]] == [envelope.mail_from, *envelope.rcpt_tos]
        self.mails.append(mail)
        return "250 OK"
