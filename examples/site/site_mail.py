"""An example of a site's own notifier: notices as mail, with what Python brings. See docs/extend/notifier.md."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from email.utils import format_datetime

from quota.notices import Notice, NoticeKind

SERVER = ("localhost", 25)
SENDER = "berth@example.org"
#: A user's mail address is their name there, unless the name is one already.
DOMAIN = "example.org"
#: Where the site is reached; a notice's link is a path below it.
SITE = "https://berth.example.org"

SUBJECTS = {
    NoticeKind.IDLE_WARNING: "Your server will be stopped soon: it is idle",
    NoticeKind.IDLE_STOP: "Your server was stopped: it was idle",
    NoticeKind.CREDIT_LOW: "Your credits are running out",
    NoticeKind.CREDIT_STOP: "Your server will be stopped: no credits are left",
    NoticeKind.SHUTDOWN_WARNING: "Your server will be stopped soon, as you asked",
    NoticeKind.SHUTDOWN_STOP: "Your server was stopped, as you asked",
    NoticeKind.MAX_AGE_WARNING: "Your server will be stopped soon: it has run as long as it may",
    NoticeKind.MAX_AGE_STOP: "Your server was stopped: it had run as long as it may",
    NoticeKind.OVER_SHARE: "Your server uses more than its share of the GPU",
    NoticeKind.STOPPED: "Your server has ended",
    NoticeKind.OWN_STOP: "Your server has ended, as you asked",
    NoticeKind.APPEAL_MADE: "Somebody says that a stop was wrong",
    NoticeKind.APPEAL_DECIDED: "What became of your appeal",
    NoticeKind.START_DONE: "Your server was started",
    NoticeKind.START_FAILED: "Your server could not be started",
    NoticeKind.ALERT: "Something needs a look",
    NoticeKind.TEST: "A test message",
}


def message(notice: Notice) -> EmailMessage:
    """The mail that says it."""
    mail = EmailMessage()
    mail["From"] = SENDER
    mail["To"] = notice.user if "@" in notice.user else f"{notice.user}@{DOMAIN}"
    mail["Subject"] = SUBJECTS.get(notice.kind, "About your server")
    mail["Date"] = format_datetime(notice.when)
    mail["Auto-Submitted"] = "auto-generated"  # so that nobody's holiday answers it
    mail.set_content(f"{notice.words}\n\n{SITE}{notice.link}\n")
    return mail


def notify(notice: Notice) -> None:
    """One mail for each notice. What fails here is logged and counted by Berth."""
    with smtplib.SMTP(*SERVER, timeout=10) as server:
        server.send_message(message(notice))
