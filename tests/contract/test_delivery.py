"""The delivery worker against a mail server and web servers: forms, retries, no doubles, no waiting."""

from __future__ import annotations

import asyncio
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import apprise.plugins.dingtalk as dingtalk
import apprise.plugins.feishu as feishu
import apprise.plugins.lark as lark
import apprise.plugins.slack as slack
import pytest

from hub_config.deliver_chat import ChatChannel, hook_of
from hub_config.deliver_mail import MailChannel
from hub_config.settings_notices import MailTable
from quota.delivery import Channel, Message, Undelivered, Worker
from quota.inbox import Inbox
from quota.notices import FRESH, Notice, NoticeKind
from quota.outbox import UNKNOWN, Deliveries, Outbox
from quota.outgoing import Calls, Policy, Unsafe
from quota.routing import Preference
from quota.sealed import Sealer
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import START
from tests.fakes.mailbox import MailBox
from tests.harness.stack import free_port
from tests.harness.waiting import PATIENCE

SEALER = Sealer("a secret of this test")
NOTICE = Notice("ada", NoticeKind.STOPPED, "It ended.", START, "/x", {}, key="stopped:l1", expires_at=START + FRESH)


def mail_to(port: int, **more: Any) -> MailChannel:
    table = MailTable(host="127.0.0.1", port=port, security="none", sender="berth@example.org", domain="example.org")
    return MailChannel(table, "", **more)


def worker(desk: Desk, *channels: Channel) -> tuple[Outbox, Worker]:
    names = [channel.name for channel in channels]
    out = Outbox(desk.store, desk.clock, names, admins=names)
    deliveries, inbox = Deliveries(desk.store, desk.clock), Inbox(desk.store, desk.clock)
    return out, Worker(out, deliveries, inbox, desk.alerts, desk.clock, channels, "https://berth.example.org")


def state(desk: Desk, number: int | None, channel: str = "mail") -> tuple[str, str]:
    assert number is not None
    return Deliveries(desk.store, desk.clock).of(number)[channel]


def test_a_mail_goes_out_once_to_whom_it_is_for_in_their_language(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk, MailBox() as box:
        Inbox(desk.store, desk.clock).set_preference("ada", Preference(email="ada@home.example"))
        channel = mail_to(box.port)
        out, work = worker(desk, channel)
        number = out.put(NOTICE)
        out.put(replace(NOTICE, user="bob", key="b"))
        assert [work.look(channel) for _ in range(3)] == [2, 0, 0]
        assert [mail["To"] for mail in box.mails] == ["ada@home.example", "bob@example.org"]
        assert box.mails[0]["Auto-Submitted"] == "auto-generated"
        assert "It ended.\n\nhttps://berth.example.org/x" in box.mails[0].get_content()
        assert state(desk, number) == ("sent", "")


def test_what_waited_for_the_same_reader_goes_out_as_one_mail(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk, MailBox() as box:
        channel = mail_to(box.port)
        out, work = worker(desk, channel)
        for number in range(3):
            out.put(replace(NOTICE, key=str(number), words=f"Number {number}."))
        assert work.look(channel) == 3
        (mail,) = box.mails
        assert mail["Subject"] == "3 messages from Berth" and "Number 2." in mail.get_content()


def test_a_mail_server_that_is_away_is_asked_again_and_given_up_with_an_alert(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        channel = mail_to(free_port())
        out, work = worker(desk, channel)
        number = out.put(replace(NOTICE, expires_at=None))
        for _ in range(12):
            assert work.look(channel) == 0
            desk.clock.advance(3600)
        assert state(desk, number)[0] == "failed"
        assert [alert.kind for alert in desk.alerts.open()] == ["notices"]
        with MailBox() as box:
            again = mail_to(box.port)
            out.put(replace(NOTICE, key="next", expires_at=None))
            assert work.look(again) == 1
        assert desk.alerts.open() == []


def test_an_address_that_is_refused_for_good_is_not_tried_again(tmp_path: Path) -> None:
    class Refusing(MailBox):
        async def handle_RCPT(self, *_: Any) -> str:
            return "550 no such user"

    with open_desk(tmp_path) as desk, Refusing() as box:
        channel = mail_to(box.port)
        out, work = worker(desk, channel)
        number = out.put(NOTICE)
        assert work.look(channel) == 0
        assert state(desk, number) == ("failed", "550 no such user")


def test_a_mail_server_that_hangs_costs_a_bounded_time_and_no_decision(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk, socket.create_server(("127.0.0.1", 0)) as silent:
        channel = mail_to(silent.getsockname()[1], step_seconds=0.5)
        out, work = worker(desk, channel)
        number = out.put(NOTICE)
        stop = work.start(every=0.05)
        began = time.monotonic()
        for key in range(50):
            out.deliver(replace(NOTICE, key=f"more {key}"))
        assert time.monotonic() - began < PATIENCE * 1
        deadline = time.monotonic() + 20
        while state(desk, number)[0] != "waiting" or not state(desk, number)[1]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        out.close()
        stop()


def test_an_answer_that_is_lost_after_the_mail_was_handed_over_is_not_sent_again(tmp_path: Path) -> None:
    class Gone(MailBox):
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            await super().handle_DATA(server, session, envelope)
            server.transport.abort()
            return "250 OK"

    with open_desk(tmp_path) as desk, Gone() as box:
        channel = mail_to(box.port)
        out, work = worker(desk, channel)
        number = out.put(NOTICE)
        for _ in range(3):
            work.look(channel)
            desk.clock.advance(3600)
        assert len(box.mails) == 1
        assert state(desk, number) == ("failed", UNKNOWN)


def test_a_sender_that_dies_before_it_hands_over_loses_no_mail_and_after_that_doubles_none(tmp_path: Path) -> None:
    class Dying(MailBox):
        """Hears of the mail's reader and hangs up there; says nothing of a mail that it has."""

        at = "RCPT"

        async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
            if self.at == "RCPT":
                raise_in_sender.set()
                await asyncio.sleep(5)
            envelope.rcpt_tos.append(address)
            return "250 OK"

    raise_in_sender = threading.Event()
    with open_desk(tmp_path) as desk, Dying() as box:
        channel = mail_to(box.port, step_seconds=0.5)
        out, work = worker(desk, channel)
        number = out.put(NOTICE)
        assert work.look(channel) == 0 and raise_in_sender.is_set()
        assert state(desk, number)[0] == "waiting"
        box.at = ""
        desk.clock.advance(3600)
        deliveries = Deliveries(desk.store, desk.clock)
        (claim,) = deliveries.claim("mail", "dead")  # and its owner is killed here
        assert deliveries.recover("mail", False, lambda owner: owner != "dead") == 0
        assert work.look(channel) == 1 and len(box.mails) == 1
        assert not deliveries.begin([claim])


# ---- chats -------------------------------------------------------------------------------------------------------


class Hooks(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, body))  # type: ignore[attr-defined]
        status = self.server.answers.pop(0) if self.server.answers else 200  # type: ignore[attr-defined]
        self.send_response(status)
        self.end_headers()
        slack = "/T1JJ3T3L2/" in self.path
        self.wfile.write(b"ok" if slack else b'{"ok": true, "code": 0, "errcode": 0, "StatusCode": 0}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hooks() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hooks)
    server.got, server.answers = [], []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def chat(url: str, policy: Policy) -> tuple[ChatChannel, Message]:
    channel = ChatChannel(policy, SEALER)
    to = Preference(chat=SEALER.seal(url))
    return channel, Message("ada", to, "Your server", "It ended.", "https://b.example/x", "k", START, (NOTICE,))


HERE = Policy(("http", "https"), ("127.0.0.1", "open.feishu.cn", "open.larksuite.com", "oapi.dingtalk.com"))
TOKEN = "abcd1234-ab12-ab12-ab12-abcdef123456"


@pytest.mark.parametrize("path", ["/hooks/" + "a" * 26, "/any/place?x=1"])
def test_a_hook_of_one_s_own_network_gets_the_words(hooks: Any, path: str) -> None:
    channel, message = chat(f"http://127.0.0.1:{hooks.server_port}{path}", HERE)
    channel.send(message)
    ((where, body),) = hooks.got
    assert where == path
    assert "It ended." in json.dumps(body) and "https://b.example/x" in json.dumps(body)
    assert ("text" in body) == path.startswith("/hooks/")


@pytest.mark.parametrize(
    ("url", "kind", "field", "form"),
    [
        (f"https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}", feishu.NotifyFeishu, "notify_url", "msg_type"),
        (f"https://open.larksuite.com/open-apis/bot/v2/hook/{TOKEN}", lark.NotifyLark, "notify_url", "msg_type"),
        (
            f"https://oapi.dingtalk.com/robot/send?access_token={'a' * 64}",
            dingtalk.NotifyDingTalk,
            "notify_url",
            "msgtype",
        ),
        (
            "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
            slack.NotifySlack,
            "webhook_url",
            "attachments",
        ),
    ],
)
def test_a_hook_of_a_service_gets_its_form(
    hooks: Any, monkeypatch: pytest.MonkeyPatch, url: str, kind: Any, field: str, form: str
) -> None:
    """The services' own addresses are in the library; here they lead to this machine."""
    monkeypatch.setattr(kind, field, f"http://127.0.0.1:{hooks.server_port}/there/")
    ChatChannel(HERE, SEALER)
    hook = hook_of(url)
    assert hook.send(body="It ended.\nhttps://b.example/x", title="Your server")
    ((_, body),) = hooks.got
    assert form in body and "It ended." in json.dumps(body)


TEAMS = "triggers/manual/paths/invoke?api-version={}&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=" + "k" * 43
FLOW = "workflows/643e69f83c8944438d68119179a10a64/"


@pytest.mark.parametrize(
    ("url", "form"),
    [
        (f"https://prod-161.westeurope.logic.azure.com:443/{FLOW}{TEAMS.format('2016-06-01')}", "attachments"),
        (
            "https://default643e69f8.c1.environment.api.powerplatform.com:443/powerautomate/automations/direct/"
            f"{FLOW}{TEAMS.format('1')}",
            "attachments",
        ),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "attachments"),
        (f"https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}", "msg_type"),
        (f"https://open.larksuite.com/open-apis/bot/v2/hook/{TOKEN}", "msg_type"),
        (f"https://oapi.dingtalk.com/robot/send?access_token={'a' * 64}", "msgtype"),
        (f"https://chat.example.org/hooks/{'a' * 26}", "text"),
        ("https://chat.example.org/any/place?x=1", "message"),
    ],
)
def test_a_webhook_is_called_where_it_lies_with_the_whole_message(
    hooks: Any, monkeypatch: pytest.MonkeyPatch, url: str, form: str
) -> None:
    """As a user pastes it, all the way through the channel; the last step alone leads to this machine."""
    asked, request = list[str](), Calls.request

    def here(self: Calls, method: str, where: str, **more: Any) -> Any:
        asked.append(where)
        parts = urlsplit(where)
        local = f"http://127.0.0.1:{hooks.server_port}{parts.path}" + (f"?{parts.query}" if parts.query else "")
        return request(self, method, local, **more)

    monkeypatch.setattr(Calls, "request", here)
    policy = Policy(("http", "https"), ("127.0.0.1",), lambda host, _: [host if host == "127.0.0.1" else "8.8.8.8"])
    channel, message = chat(url, policy)
    begun: list[str] = []
    channel.send(replace(message, begin=lambda: begun.append("")))
    ((path, body),) = hooks.got
    assert begun == [""] and form in body
    wanted, got = urlsplit(url), urlsplit(path)
    assert urlsplit(asked[0]).hostname == wanted.hostname
    assert (got.path.rstrip("/"), parse_qs(got.query)) == (wanted.path, parse_qs(wanted.query))
    told = json.dumps(body)
    assert told.count("Your server") == told.count("It ended.") == 1 and "https://b.example/x" in told


def test_a_chat_that_is_busy_is_asked_again_and_one_that_is_gone_is_not(hooks: Any) -> None:
    channel, message = chat(f"http://127.0.0.1:{hooks.server_port}/x", HERE)
    for status, final in ((500, False), (429, False), (404, True), (302, True)):
        hooks.answers.append(status)
        with pytest.raises(Undelivered) as failed:
            channel.send(message)
        assert failed.value.final is final
    channel, message = chat(f"http://127.0.0.1:{free_port()}/x", HERE)
    with pytest.raises(Undelivered) as failed:
        channel.send(message)
    assert not failed.value.final


def test_a_chat_inside_the_site_that_nobody_allowed_is_not_called(hooks: Any) -> None:
    channel, message = chat(f"http://127.0.0.1:{hooks.server_port}/x", Policy(("http", "https")))
    with pytest.raises(Undelivered) as failed:
        channel.send(message)
    assert failed.value.final and "not a public address" in str(failed.value)
    assert hooks.got == []


@pytest.mark.parametrize("url", ["https://hooks.slack.com/services/x", "https://oapi.dingtalk.com/robot/send"])
def test_a_hook_that_its_service_does_not_give_out_is_refused(url: str) -> None:
    with pytest.raises(Unsafe, match="no webhook of"):
        hook_of(url)


def test_what_is_sealed_opens_with_its_key_alone() -> None:
    assert SEALER.open(SEALER.seal("https://x.example/ä")) == "https://x.example/ä"
    assert Sealer("another").open(SEALER.seal("x")) is None and SEALER.open("no seal") is None


def test_alerts_are_told_to_the_administrators_once(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        _out, work = worker(desk)
        desk.alerts.put("audit", "audit", "a balance differs")
        work._watch()
        work._watch()
        assert [letter.words for letter in Inbox(desk.store, desk.clock).of("root", True)] == [
            "Needs a look: a balance differs"
        ]
        assert Inbox(desk.store, desk.clock).of("ada", False) == []


def test_a_digest_that_comes_due_makes_no_alert_and_a_mail_server_that_stays_away_does(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        channel = mail_to(free_port())
        out, work = worker(desk, channel)
        Inbox(desk.store, desk.clock).set_preference("ada", Preference(digest="daily"))
        out.put(replace(NOTICE, expires_at=None))
        desk.clock.advance(23 * 3600 + 1)
        work._watch()
        assert desk.alerts.open() == []  # due for a second, however long ago it was decided
        work.look(channel)
        desk.clock.advance(16 * 60)
        work._watch()
        (alert,) = desk.alerts.open()
        assert alert.kind == "notices" and "1 wait, the oldest since 2026-03-03 08:00 UTC" in alert.words
        assert work.counts()["mail", "again"] == 1 and work.counts()["mail", "sent"] == 0
