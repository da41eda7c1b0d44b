"""The page of notices: what one was told, what one has read, how one wants to be told, and a test message."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from quota import catalogues
from quota.leases import StopReason
from quota.notices import TO_ADMINS, Notice, NoticeKind, idle_warning, stopped
from quota.outbox import Deliveries, Outbox
from quota.routing import CHAT, MAIL, Preference
from quota.sealed import Sealer
from quota.telling import MOST_TESTS, NotUsable, Telling
from quota.web.notice_views import PAGE
from quota.wishing import Bounds, Wishing
from tests.contract.service_reading import FORM, post, words, xsrf
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import START
from tests.fakes.service import PREFIX, Service, open_service

EVIL = '<script>alert("x")</script>'
HOOK = "https://hooks.example.org/services/T/secret"
SEALER = Sealer("a secret of this test")
ENDED = Notice("alice", NoticeKind.STOPPED, "It ended.", START, "/services/berth/lease/x", key="stopped:x")


def check(url: str) -> None:
    if url != HOOK:
        raise NotUsable("it is none")


def outbox(desk: Desk) -> Outbox:
    return Outbox(desk.store, desk.clock, {MAIL, CHAT}, "UTC", {MAIL})


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        telling = Telling(
            channels=frozenset({MAIL, CHAT}),
            own_addresses=True,
            mail_to=lambda user, chosen: chosen.email or f"{user}@example.org",
            check=check,
            seal=SEALER.seal,
            opened=lambda text: SEALER.open(text) or "",
            put=outbox(desk).put,
        )
        async with open_service(desk, telling=telling) as found:
            for name in ("alice", "mallory"):
                found.hub.add_user(name)
            found.hub.add_user("boss", admin=True)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


def chosen(service: Service, user: str = "alice") -> Preference:
    return service.parts.inbox.preference(user)


async def save(browser: httpx.AsyncClient, **fields: str | list[str]) -> str:
    """The form of choices as the page has it, with these fields otherwise."""
    values: dict[str, str | list[str]] = {"kinds": "yes", "quiet_from": "", "quiet_to": ""}
    values |= {"digest": "", "language": ""}
    return words(await post(browser, "notices", "notices/preferences", **(values | fields)))


async def test_each_sees_their_own_and_administrators_those_to_all_of_them(service: Service, desk: Desk) -> None:
    put = outbox(desk).put
    put(replace(ENDED, words=f"Ended by {EVIL}."))
    put(replace(ENDED, user=TO_ADMINS, kind=NoticeKind.ALERT, words="Needs a look: a disk", key="alert"))
    alice, boss = service.browser("alice"), service.browser("boss")
    answer = await alice.get("notices")
    assert "Your server has ended" in words(answer) and "a disk" not in words(answer)
    assert EVIL not in answer.text and "&lt;script&gt;" in answer.text
    assert 'id="berth-unread">1<' in (await alice.get("board")).text  # on every page
    assert "a disk" in words(await boss.get("notices")) and "Ended by" not in words(await boss.get("notices"))
    assert 'id="berth-unread"' not in (await service.browser("mallory").get("notices")).text


async def test_what_is_read_is_counted_no_more_and_stays_to_be_seen(service: Service, desk: Desk) -> None:
    for number in range(3):
        outbox(desk).put(replace(ENDED, key=str(number), words=f"Number {number}."))
    alice = service.browser("alice")
    first = service.parts.inbox.of("alice", False)[0]
    page = words(await post(alice, "notices", "notices/read", id=str(first.id)))
    assert "It is marked as read." in page and "2 unread" in page
    page = words(await post(alice, "notices", "notices/read"))
    assert "2 notices are marked as read." in page and "Nothing is unread." in page and "Number 0." in page


async def test_nobody_marks_what_is_another_s(service: Service, desk: Desk) -> None:
    number = outbox(desk).put(ENDED)
    page = words(await post(service.browser("mallory"), "notices", "notices/read", id=str(number)))
    assert "There is no such notice." in page
    assert service.parts.inbox.unread("alice", False) == 1
    page = words(await post(service.browser("alice"), "notices", "notices/read", id="1; DROP"))
    assert "a whole number is needed" in page and service.parts.inbox.unread("alice", False) == 1


async def test_all_that_was_read_is_reached_page_by_page(service: Service, desk: Desk) -> None:
    for number in range(2 * PAGE + 1):
        outbox(desk).put(replace(ENDED, key=str(number), words=f"Number {number}."))
    service.parts.inbox.mark_read("alice", False)
    alice, address, seen = service.browser("alice"), "notices", []
    for _ in range(3):
        text = (await alice.get(address)).text
        seen += re.findall(r"Number (\d+)\.", text)
        more = re.search(r'href="([^"]+before=\d+)#read"', text)
        address = more[1].removeprefix(PREFIX) if more else ""
    assert seen == [str(number) for number in range(2 * PAGE, -1, -1)] and not address


async def test_a_warning_is_on_every_page_until_it_is_read_or_over(service: Service, desk: Desk) -> None:
    lease = desk.run("alice", profile="test")
    deadline = desk.now + timedelta(minutes=10)
    number = outbox(desk).put(idle_warning(lease, "Not used since 9:00", deadline, desk.now))
    alice = service.browser("alice")
    text = (await alice.get("board")).text
    assert f'data-notice="{number}"' in text and "berth-urgent" in text
    assert text.count(f'data-notice="{number}"') == 1 == (await alice.get("notices")).text.count("data-notice=")
    desk.clock.advance(600)
    assert "berth-urgent" not in (await alice.get("board")).text
    assert "urgent" not in re.findall(r'<h3 class="h6 mb-1">.*', (await alice.get("notices")).text)[0]


async def test_a_warning_that_was_withdrawn_or_whose_server_ended_is_no_banner(service: Service, desk: Desk) -> None:
    lease, deadline = desk.run("alice", profile="test"), desk.now + timedelta(minutes=10)
    alice, put = service.browser("alice"), outbox(desk).put

    async def banners() -> int:
        return (await alice.get("board")).text.count("berth-urgent")

    put(idle_warning(lease, "Not used", deadline, desk.now))
    desk.rows.put_verdict(lease.id, desk.now, "warn", "idle", "Not used", {}, deadline)
    assert await banners() == 1
    wishing = Wishing(desk.bank, Bounds(timedelta(hours=3), lambda _: None))
    wishing.keep(lease.id, timedelta(hours=1), "alice")
    assert await banners() == 0
    wishing.no_keep(lease.id, "alice")
    desk.rows.put_verdict(lease.id, desk.now, "keep", "busy-kernel", "In use", {})
    assert await banners() == 0
    desk.rows.put_verdict(lease.id, desk.now, "warn", "idle", "Not used", {}, deadline)
    assert await banners() == 1
    put(stopped(desk.end(lease, StopReason.ADMIN), desk.now))
    assert await banners() == 0
    assert service.parts.inbox.unread("alice", False) == 1  # the card alone: the warning says nothing more


async def test_how_one_is_told_is_kept_field_by_field(service: Service) -> None:
    alice = service.browser("alice")
    ticked: dict[str, str | list[str]] = {"kind:stopped": ["mail"], "kind:idle-stop": ["mail", "chat"]}
    page = await save(
        alice, email="a@home.example", chat=HOOK, quiet_from="22:00", quiet_to="07:00", digest="daily", **ticked
    )
    assert "From now on you are told like this." in page and "Mails go to a@home.example now." in page
    assert "One at hooks.example.org is set" in page and "secret" not in page
    found = chosen(service)
    assert (found.email, found.digest, SEALER.open(found.chat)) == ("a@home.example", "daily", HOOK)
    assert found.quiet is not None and [f"{each:%H:%M}" for each in found.quiet] == ["22:00", "07:00"]
    assert found.channels(NoticeKind.STOPPED) == {MAIL} and found.channels(NoticeKind.CREDIT_LOW) == frozenset()
    assert HOOK not in (await alice.get("notices")).text
    await save(alice, email="a@home.example", chat="")
    assert SEALER.open(chosen(service).chat) == HOOK  # left empty it stays
    await save(alice, email="", forget_chat="yes")
    assert (chosen(service).chat, chosen(service).email, chosen(service).quiet) == ("", "", None)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("email", "a@home.example, b@home.example", "a mail address such as ada@example.org is needed"),
        ("email", "no address", "a mail address such as ada@example.org is needed"),
        ("chat", "http://169.254.169.254/", "it is none"),
        ("quiet_from", "25:00", "two different times of day"),
        ("digest", "never", "is none; known: "),
        ("language", "tlh", "is none; known: "),
        ("kind:stopped", "pigeon", "is none; known: "),
    ],
)
async def test_what_is_wrong_is_named_and_changes_nothing(service: Service, field: str, value: str, said: str) -> None:
    alice = service.browser("alice")
    await save(alice, email="a@home.example", digest="hourly")
    before = chosen(service)
    page = await save(alice, **({"email": "other@home.example"} | {field: value}))
    assert "Nothing was changed." in page and said in page
    assert chosen(service) == before


async def test_a_site_without_channels_says_so_and_keeps_the_rest(service: Service, desk: Desk) -> None:
    async with open_service(desk) as bare:
        bare.hub.add_user("alice")
        alice = bare.browser("alice")
        page = words(await alice.get("notices"))
        assert "This site sends neither mail nor chat messages to its users." in page and "Send me a test" not in page
        page = words(await post(alice, "notices", "notices/test"))
        assert "There is no mail address and no chat that a message could go to." in page
        refused = await post(alice, "notices", "notices/preferences", chat=HOOK, digest="", language="")
        assert "this site sends users nothing by chat" in words(refused)
        await save(alice, language="zh-CN")
        assert chosen(bare).language == "zh-CN"


async def test_a_test_message_goes_out_and_what_became_of_it_is_told(service: Service, desk: Desk) -> None:
    alice = service.browser("alice")
    page = words(await post(alice, "notices", "notices/test"))
    assert "A test message is on its way." in page and "Mail: waits to be sent" in page
    deliveries = Deliveries(desk.store, desk.clock)
    (claim,) = deliveries.claim("mail", "w")
    deliveries.failed(claim, "550 no such user")
    assert "Mail: could not be sent (550 no such user)" in words(await alice.get("notices"))
    for _ in range(MOST_TESTS - 1):
        desk.clock.advance(1)
        await post(alice, "notices", "notices/test")
    desk.clock.advance(1)
    page = words(await post(alice, "notices", "notices/test"))
    assert f"{MOST_TESTS} test messages an hour are enough." in page
    assert len(deliveries.claim("mail", "w")) == MOST_TESTS - 1


async def test_the_page_speaks_its_reader_s_language(service: Service, desk: Desk) -> None:
    catalogues.load()
    outbox(desk).put(replace(ENDED, words="Your server with the profile gpu ended at noon. Stopped by its user."))
    alice = service.browser("alice")
    await alice.get("notices")
    page = words(await alice.get("notices", headers={"Accept-Language": "zh-CN"}))
    assert "通知" in page and "Your server" not in page and "How I am told" not in page


async def test_a_form_without_its_token_is_refused(service: Service) -> None:
    alice = service.browser("alice")
    assert xsrf(await alice.get("notices"))
    answer = await alice.post("notices/read", data={}, headers=FORM)
    assert answer.status_code == 403
