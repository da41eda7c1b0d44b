"""Notices by REST: the list page by page, marking as read, choices, and a test message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from quota.notices import TO_ADMINS, Notice, NoticeKind
from quota.outbox import Deliveries, Outbox
from quota.routing import CHAT, MAIL
from quota.telling import MOST_TESTS, NotUsable, Telling
from tests.contract.service_reading import problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import START
from tests.fakes.service import Service, open_service

HOOK = "https://hooks.example.org/services/T/secret"
ENDED = Notice(
    "alice", NoticeKind.STOPPED, "It ended.", START, "/services/berth/lease/x", {"cost_micro_credits": 5}, "stopped:x"
)


def check(url: str) -> None:
    if url != HOOK:
        raise NotUsable("it is none")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        telling = Telling(
            channels=frozenset({MAIL, CHAT}),
            own_addresses=True,
            mail_to=lambda user, chosen: chosen.email or f"{user}@example.org",
            check=check,
            seal=lambda text: f"sealed:{text}",
            opened=lambda text: text.removeprefix("sealed:"),
            put=Outbox(desk.store, desk.clock, {MAIL, CHAT}).put,
        )
        async with open_service(desk, telling=telling) as found:
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


def somebody(service: Service, name: str = "alice", admin: bool = False) -> httpx.AsyncClient:
    return service.api(service.hub.add_user(name, admin=admin))


def put(desk: Desk, notice: Notice = ENDED) -> int:
    number = Outbox(desk.store, desk.clock, {MAIL}, "UTC", {MAIL}).put(notice)
    assert number is not None
    return number


async def ok(answer: httpx.Response, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_list_goes_on_page_by_page_and_tells_all_of_a_notice(service: Service, desk: Desk) -> None:
    numbers = [put(desk, replace(ENDED, key=str(number))) for number in range(5)]
    alice, seen, following = somebody(service), list[int](), ""
    for _ in range(3):
        page = await ok(await alice.get(f"notices?limit=2{following}"))
        seen += [item["id"] for item in page["items"]]
        following = f"&cursor={page['next']}"
    assert seen == numbers[::-1] and page["next"] is None and page["unread"] == 5
    assert page["items"][-1] == {
        "id": numbers[0],
        "kind": "stopped",
        "lease_id": None,
        "at": "2026-03-02T09:00:00Z",
        "expires_at": None,
        "title": "Your server has ended",
        "words": "It ended.",
        "link": "/services/berth/lease/x",
        "data": {"cost_micro_credits": 5},
        "read_at": None,
        "urgent": False,
        "to_administrators": False,
    }


async def test_what_is_read_is_left_out_on_request_and_what_came_since_stays_unread(
    service: Service, desk: Desk
) -> None:
    alice = somebody(service)
    first, second, third = (put(desk, replace(ENDED, key=str(number))) for number in range(3))
    for _ in range(2):
        assert (await ok(await alice.put(f"notices/{first}/read")))["read_at"] == "2026-03-02T09:00:00Z"
        desk.clock.advance(60)
    assert [item["id"] for item in (await ok(await alice.get("notices?read=true")))["items"]] == [first]
    assert await ok(await alice.put("notices/read", json={"up_to": second})) == {"marked": 1}
    unread = await ok(await alice.get("notices?read=false"))
    assert ([item["id"] for item in unread["items"]], unread["unread"]) == ([third], 1)
    assert await ok(await alice.put("notices/read")) == {"marked": 1}
    problem(await alice.get("notices?read=perhaps"), 400, "field-invalid")


async def test_each_has_their_own_and_administrators_those_to_them_all(service: Service, desk: Desk) -> None:
    number = put(desk)
    alert = put(desk, replace(ENDED, user=TO_ADMINS, kind=NoticeKind.ALERT, key="alert"))
    alice, mallory, boss = somebody(service), somebody(service, "mallory"), somebody(service, "boss", admin=True)
    (seen,) = (await ok(await boss.get("notices")))["items"]
    assert (seen["id"], seen["to_administrators"]) == (alert, True)
    for other, found in ((mallory, number), (boss, number), (alice, alert)):
        problem(await other.get(f"notices/{found}"), 404, "not-found")
        problem(await other.put(f"notices/{found}/read"), 404, "not-found")
    assert (await ok(await mallory.put("notices/read"))) == {"marked": 0}
    assert (await ok(await alice.get(f"notices/{number}")))["deliveries"] == [
        {"channel": "mail", "state": "waiting", "why": ""}
    ]


async def test_choices_change_field_by_field_and_a_webhook_is_never_told_again(service: Service) -> None:
    alice = somebody(service)
    before = await ok(await alice.get("notices/preferences"))
    assert before["channels"] == ["mail", "chat"] and before["mail_to"] == "alice@example.org"
    assert (before["chat_host"], before["quiet"], before["digest"]) == (None, None, "")
    wanted = {
        "email": "a@home.example",
        "chat": HOOK,
        "kinds": {"stopped": ["chat"]},
        "quiet": {"from": "22:00", "to": "07:00"},
        "digest": "hourly",
        "language": "zh-CN",
    }
    answer = await alice.put("notices/preferences", json=wanted)
    assert "secret" not in answer.text
    found = await ok(answer)
    assert found["kinds"] == before["kinds"] | {"stopped": ["chat"]}
    assert {name: found[name] for name in ("email", "quiet", "digest", "language")} == {
        name: wanted[name] for name in ("email", "quiet", "digest", "language")
    }
    assert (found["chat_host"], found["mail_to"]) == ("hooks.example.org", "a@home.example")
    assert await ok(await alice.put("notices/preferences")) == found  # nothing named, nothing changed
    taken_off = await ok(await alice.put("notices/preferences", json={"quiet": None, "chat": "", "email": ""}))
    assert (taken_off["quiet"], taken_off["chat_host"], taken_off["mail_to"]) == (None, None, "alice@example.org")
    assert taken_off["digest"] == "hourly"


@pytest.mark.parametrize(
    "body",
    [
        {"email": "no address"},
        {"chat": "http://169.254.169.254/"},
        {"kinds": {"test": ["mail"]}},
        {"kinds": {"stopped": ["pigeon"]}},
        {"kinds": {"stopped": "mail"}},
        {"quiet": {"from": "22:00", "to": "22:00"}},
        {"quiet": {"from": "24:00", "to": "07:00"}},
        {"digest": "never"},
        {"language": "tlh"},
    ],
)
async def test_what_is_wrong_is_refused_whole(service: Service, body: dict[str, Any]) -> None:
    alice = somebody(service)
    before = await ok(await alice.get("notices/preferences"))
    problem(await alice.put("notices/preferences", json={"digest": "hourly", **body}), 400, "field-invalid")
    assert await ok(await alice.get("notices/preferences")) == before


async def test_a_test_message_is_one_for_its_key_and_tells_what_became_of_it(service: Service, desk: Desk) -> None:
    alice = somebody(service)
    key = {"Idempotency-Key": "one"}
    first = await ok(await alice.post("notices/test", headers=key), 201)
    desk.clock.advance(1)
    assert (await ok(await alice.post("notices/test", headers=key), 201))["id"] == first["id"]
    deliveries = Deliveries(desk.store, desk.clock)
    (claim,) = deliveries.claim("mail", "w")
    deliveries.failed(claim, "550 no such user")
    told = (await ok(await alice.get(f"notices/{first['id']}")))["deliveries"]
    assert told == [{"channel": "mail", "state": "failed", "why": "550 no such user"}]
    for _ in range(MOST_TESTS - 1):
        desk.clock.advance(1)
        await ok(await alice.post("notices/test"), 201)
    desk.clock.advance(1)
    refused = await alice.post("notices/test")
    problem(refused, 429, "too-often")
    assert int(refused.headers["Retry-After"]) > 0


async def test_where_no_channel_is_open_a_test_message_is_refused(service: Service, desk: Desk) -> None:
    async with open_service(desk) as bare:
        refused = problem(await somebody(bare).post("notices/test"), 409, "no-channel")
        assert "no mail address" in refused["detail"]
