"""Notices on a real site: a mail server that hangs holds up no decision, no stop and no page; and whoever sends may be
killed at any moment without losing a mail or sending one twice."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_config.compose import parts
from quota.inbox import Inbox
from quota.outbox import UNKNOWN, Deliveries
from tests.fakes.mailbox import MailBox
from tests.harness import Person, Stack, until
from tests.harness.waiting import PATIENCE

pytestmark = pytest.mark.hub

TOML = """
[idle]
with_gpu = "20 s"
without_gpu = "20 s"
notice = "8 s"
check_every = "1 s"

[mail]
host = "127.0.0.1"
port = {port}
security = "none"
sender = "berth@example.org"
domain = "example.org"
"""
CARD = "Your server has ended"


class Deaf:
    """A mail server's port at which connections are taken and nothing is ever said. `callers` counts them."""

    def __init__(self, port: int) -> None:
        self.callers = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take, daemon=True)

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self._held.append(self._listener.accept()[0])
                self.callers += 1

    def __enter__(self) -> Deaf:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._held:
            each.close()


class Swallows(MailBox):
    """Takes the mail and, as long as `silent`, never says that it has."""

    silent = threading.Event()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        answer = await super().handle_DATA(server, session, envelope)
        await asyncio.to_thread(until, lambda: not self.silent.is_set(), 120)
        return answer


@contextmanager
def site(folder: Path, port: int) -> Iterator[Stack]:
    with Stack(folder / "data", TOML.format(port=port)) as running:
        yield running


def states(stack: Stack, kind: str = "") -> list[tuple[str, str, str]]:
    """Kind, state and reason of every mail there is, the oldest first."""
    made = parts(stack.data)
    deliveries = Deliveries(made.store, made.clock)
    letters = reversed(inbox(stack).of("researcher", False))
    found = [(letter.kind, *deliveries.of(letter.id)["mail"]) for letter in letters if deliveries.of(letter.id)]
    return [each for each in found if kind in ("", each[0])]


def inbox(stack: Stack) -> Inbox:
    made = parts(stack.data)
    return Inbox(made.store, made.clock)


def reclaimed(me: Person, seconds: float = 60) -> str:
    """A server that is started, left alone and reclaimed; its lease."""
    me.start("cpu")
    lease: str = me.lease()["id"]
    me.settled(lease, seconds)
    return lease


def mails(box: MailBox, subject: str) -> int:
    return sum(str(mail["Subject"]) == subject for mail in box.mails)


def test_a_mail_server_that_hangs_holds_up_nothing_and_gets_all_when_it_is_well(tmp_path: Path) -> None:
    box = MailBox()
    with site(tmp_path, box.port) as stack:
        me = stack.researcher
        with Deaf(box.port) as deaf:
            slowest, done = 0.0, threading.Event()

            def look() -> None:
                nonlocal slowest
                cookies = me.browser.cookies
                with httpx.Client(base_url=me.url, cookies=cookies, timeout=30, follow_redirects=True) as client:
                    while not done.wait(0.2):
                        for path in ("/hub/home", "/services/berth/", "/services/berth/notices"):
                            began = time.monotonic()
                            assert client.get(path).status_code == 200
                            slowest = max(slowest, time.monotonic() - began)

            looker = threading.Thread(target=look)
            looker.start()
            began = time.monotonic()
            lease = reclaimed(me)
            took = time.monotonic() - began
            done.set()
            looker.join()
            until(lambda: deaf.callers, 30, "the mail server was asked")
            assert me.lease(lease)["stop_reason"] == "idle" and took < PATIENCE * 45
            assert slowest < PATIENCE * 10, f"a page took {slowest:.1f} s"
            until(lambda: states(stack, "stopped"), 30, "the card waits")
            assert all(state != "sent" for _, state, _ in states(stack))
            page = me.browser.get("/services/berth/notices").text
            assert "Your server has ended" in page
            token = (stack.data / "secrets/metrics_token").read_text(encoding="ascii").strip()
            headers = {"Authorization": f"Bearer {token}"}
            metrics = httpx.get(f"{stack.url}/services/berth/metrics", headers=headers).text
            assert 'berth_notice_deliveries_waiting{channel="mail"}' in metrics
        with box:
            until(lambda: mails(box, CARD), 150, "what waited goes out")
            assert mails(box, CARD) == 1


def test_whoever_sends_is_killed_and_no_mail_is_lost_and_none_doubled(tmp_path: Path) -> None:
    with Swallows() as box, site(tmp_path, box.port) as stack:
        me = stack.researcher
        box.silent.set()
        reclaimed(me)
        until(lambda: box.mails, 60, "the first mail is handed over, and nothing is said of it")
        until(lambda: len(states(stack)) >= 2, 30, "others wait behind it")
        killed = stack.kill("berth")
        box.silent.clear()
        stack.wait_for_new("berth", killed)
        until(lambda: all(state in ("sent", "failed", "dropped") for _, state, _ in states(stack)), 60, "all is over")
        (first, *rest) = states(stack)
        assert first[1:] == ("failed", UNKNOWN)  # it did arrive: it is not sent again
        assert ("stopped", "sent", "") in rest
        keys = [mail["Message-ID"] for mail in box.mails]
        assert len(keys) == len(set(keys)), "no mail came twice"
        assert mails(box, CARD) == 1
