"""The example of docs/extend/notifier.md against a mail server."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType

import pytest

from hub_config.notifying import SiteChannel
from quota.delivery import Message, Undelivered
from quota.notices import Notice, NoticeKind
from quota.routing import Preference
from tests.fakes.mailbox import MailBox
from tests.harness.stack import free_port

MAIL = Path(__file__).parents[2] / "examples" / "site" / "site_mail.py"
NOTICE = Notice(
    "ada",
    NoticeKind.IDLE_WARNING,
    "您的服务器将被停止。 Your server will be stopped.",
    datetime(2026, 3, 2, 9, 0, tzinfo=UTC),
    "/services/berth/lease/l1",
)
MESSAGE = Message("ada", Preference(), "", NOTICE.words, "", "k", NOTICE.when, (NOTICE,))


@pytest.fixture
def box() -> Iterator[MailBox]:
    with MailBox() as opened:
        yield opened


def notify_to(port: int) -> FunctionType:
    function: FunctionType = runpy.run_path(str(MAIL))["notify"]
    function.__globals__["SERVER"] = ("127.0.0.1", port)
    return function


def test_the_example_sends_one_mail_a_notice(box: MailBox) -> None:
    SiteChannel(notify_to(box.port)).send(MESSAGE)
    (mail,) = box.mails
    assert (mail["From"], mail["To"]) == ("berth@example.org", "ada@example.org")
    assert mail["Subject"] == "Your server will be stopped soon: it is idle"
    assert mail["Date"].datetime == NOTICE.when
    text = mail.get_content()
    assert NOTICE.words in text and "https://berth.example.org/services/berth/lease/l1" in text


@pytest.mark.parametrize("kind", NoticeKind)
def test_every_kind_has_a_subject(kind: NoticeKind) -> None:
    assert kind in runpy.run_path(str(MAIL))["SUBJECTS"]


def test_a_mail_server_that_is_away_costs_the_notice_and_nothing_else() -> None:
    with pytest.raises(Undelivered) as failed:
        SiteChannel(notify_to(free_port())).send(MESSAGE)
    assert failed.value.final  # only the function knows whether something went out
