"""Scheduled starts over HTTP: the page without script, REST, who may what, and what is refused with which words."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from quota.dispatch import Dispatcher, StartForbidden, StartRefused
from quota.groups import Group
from quota.notices import Notice
from quota.schedules import StartState
from quota.web.hub import HubClient
from quota.web.parts import HubUnavailable
from tests.contract.service_reading import FORM, post, problem, words
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service

LATER = "2026-03-03T08:00:00Z"
NEW = {"at": LATER, "profile": "gpu-1-4"}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk, most_starts=3, zone="Asia/Shanghai", groups=[Group("lab", pays=True)]) as found:
            found.hub.groups["lab"] = ["alice"]
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def alice(service: Service) -> str:
    return service.hub.add_user("alice")


def dispatcher(service: Service, notices: list[Notice]) -> Dispatcher:
    parts = service.parts
    return Dispatcher(
        parts.schedules, parts.book, parts.hub, parts.alerts, parts.clock, notices.append, lambda user: "en"
    )


def press(page: httpx.Response) -> dict[str, str]:
    """The hidden fields of the first start's forms."""
    found = re.search(r'name="id" value="(s[0-9a-f]{16})"', page.text)
    assert found is not None, page.text
    return {"id": found[1]}


async def test_a_start_is_scheduled_moved_and_cancelled_by_the_page(service: Service, alice: str, desk: Desk) -> None:
    browser = service.browser("alice")
    page = await browser.get("starts")
    assert "No start is waiting." in words(page) and "time zone Asia/Shanghai" in words(page)
    assert "gpu-1-4, 0.25 credits per hour" in words(page) and "Group lab" in words(page)
    fields = {"at": "2026-03-03T08:00", "profile": "gpu-1-4", "image": "env", "payer": "group:lab"}
    page = await post(browser, "starts", "starts/add", **fields)
    assert "It will be started at 3 Mar 2026, 08:00:00." in words(page)
    assert "Default server · gpu-1-4 · env · paid by: Group lab" in words(page)
    (start,) = service.parts.schedules.of("alice")
    assert start.start_at.isoformat() == "2026-03-03T00:00:00+00:00", "the site's clock, not UTC"
    assert start.options == {"profile": "gpu-1-4", "image": "env", "payer": "group:lab"}
    page = await post(browser, "starts", "starts/move", at="2026-03-04T09:30", **press(page))
    assert "It will be started at 4 Mar 2026, 09:30:00 instead." in words(page)
    page = await post(browser, "starts", "starts/cancel", **press(page))
    assert "It is cancelled; nothing will be started." in words(page)
    assert service.parts.schedules.of("alice")[0].state is StartState.CANCELLED
    desk.clock.advance(7 * 86400)
    assert service.parts.schedules.due(timedelta(0)) == []


async def test_a_server_that_one_had_lately_is_offered(service: Service, alice: str, desk: Desk) -> None:
    browser = service.browser("alice")
    assert 'id="start-server"' not in (await browser.get("starts")).text
    desk.run(server="night")
    page = await browser.get("starts")
    assert '<option value="">Default server</option><option value="night">night</option>' in " ".join(
        page.text.split()
    ).replace("> <", "><")
    await post(browser, "starts", "starts/add", at="2026-03-03T08:00", profile="cpu", server="night")
    assert [each.server for each in service.parts.schedules.of("alice")] == ["night"]


async def test_what_is_wrong_with_a_form_is_said_on_the_page(service: Service, alice: str) -> None:
    browser = service.browser("alice")
    for fields, told in (
        ({"at": "", "profile": "cpu"}, "a day and a time of the site's clock are needed"),
        ({"at": "2026-03-01T08:00", "profile": "cpu"}, "The time must be one that is still to come."),
        ({"at": "2027-03-01T08:00", "profile": "cpu"}, "for up to 90 days ahead"),
        (
            {"at": "2026-03-03T08:00", "profile": "gpu-9"},
            "no such profile is open to you; there are: cpu, gpu-1-4, test",
        ),
        ({"at": "2026-03-03T08:00", "profile": "cpu", "image": "x"}, "this profile does not run it; it runs: env"),
        ({"at": "2026-03-03T08:00", "profile": "cpu", "payer": "bob"}, "you can charge: alice, group:lab"),
        ({"at": "2026-03-03T08:00", "profile": "cpu", "server": "a/b"}, "this is no name of a server"),
    ):
        page = await post(browser, "starts", "starts/add", **fields)
        assert "Nothing was changed." in words(page) and told in words(page), fields
    page = await post(browser, "starts", "starts/cancel", id="s0")
    assert "There is no such scheduled start." in words(page)
    assert service.parts.schedules.of("alice") == []


async def test_rest_lists_makes_changes_and_cancels(service: Service, alice: str) -> None:
    client = service.api(alice)
    made = await client.post("scheduled-starts", json=NEW, headers={"Idempotency-Key": "once"})
    assert made.status_code == 201
    start = made.json()
    again = await client.post("scheduled-starts", json=NEW, headers={"Idempotency-Key": "once"})
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (start, "true")
    assert start == {
        "id": start["id"],
        "server": "",
        "profile": "gpu-1-4",
        "image": "env",
        "payer": "alice",
        "start_at": LATER,
        "created_at": "2026-03-02T09:00:00Z",
        "state": "waiting",
        "tried_at": None,
        "outcome": "",
    }
    assert (await client.get("scheduled-starts")).json() == {"items": [start], "next": None, "most": 3}
    at = f"scheduled-starts/{start['id']}"
    changed = await client.put(at, json={**NEW, "profile": "cpu", "at": "2026-03-03T09:00:00+01:00"})
    assert changed.status_code == 200
    assert changed.json() == {**start, "profile": "cpu"}, "the same moment in another zone is no second one"
    problem(await client.put(at, json={**NEW, "server": "two"}), 400, "field-invalid")
    assert (await client.delete(at)).json()["state"] == "cancelled"
    assert (await client.delete(at)).json()["state"] == "cancelled"
    problem(await client.put(at, json=NEW), 409, "start-not-waiting")


async def test_rest_refusals(service: Service, alice: str) -> None:
    client = service.api(alice)
    for body, status, reason in (
        ({**NEW, "at": "2026-03-01T08:00:00Z"}, 409, "time-too-soon"),
        ({**NEW, "at": "2027-03-01T08:00:00Z"}, 409, "time-too-late"),
        ({**NEW, "at": "tomorrow"}, 400, "date-invalid"),
        ({**NEW, "profile": "gpu-9"}, 400, "field-invalid"),
        ({**NEW, "server": "a/b"}, 400, "field-invalid"),
        ({"at": LATER}, 400, "field-invalid"),
    ):
        problem(await client.post("scheduled-starts", json=body), status, reason)
    for hour in (8, 9, 10):
        answer = await client.post("scheduled-starts", json={**NEW, "at": f"2026-03-03T{hour:02}:00:00Z"})
        assert answer.status_code == 201
    problem(await client.post("scheduled-starts", json={**NEW, "at": LATER}), 409, "start-exists")
    full = await client.post("scheduled-starts", json={**NEW, "at": "2026-03-03T11:00:00Z"})
    assert "3 starts" in problem(full, 409, "starts-full")["detail"]
    page = words(await service.browser("alice").get("starts"))
    assert "You have 3 starts waiting" in page


async def test_a_site_may_schedule_none(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        async with open_service(desk, most_starts=0) as service:
            client = service.api(service.hub.add_user("alice"))
            problem(await client.post("scheduled-starts", json=NEW), 409, "starts-off")
            assert "This site schedules no starts." in words(await service.browser("alice").get("starts"))


async def test_nobody_elses_start_is_seen_or_touched(service: Service, alice: str) -> None:
    start = (await service.api(alice).post("scheduled-starts", json=NEW)).json()
    boss = service.api(service.hub.add_user("boss", admin=True))
    at = f"scheduled-starts/{start['id']}"
    for answer in (await boss.get(at), await boss.put(at, json=NEW), await boss.delete(at)):
        problem(answer, 404, "not-found")
    browser = service.browser("boss")
    page = await post(browser, "starts", "starts/cancel", id=start["id"])
    assert "There is no such scheduled start." in words(page)
    forged = await service.browser("alice").post("starts/cancel", data={"id": start["id"]}, headers=FORM)
    assert forged.status_code == 403
    assert service.parts.schedules.one(start["id"]).state is StartState.WAITING


async def test_only_what_is_open_to_the_user_can_be_scheduled(tmp_path: Path) -> None:
    def offered(user: str, groups: frozenset[str]) -> set[str]:
        return {"cpu", "test"} if "lab" in groups else {"cpu"}

    with open_desk(tmp_path) as desk:
        async with open_service(desk, offered=offered) as service:
            client = service.api(service.hub.add_user("alice"))
            problem(await client.post("scheduled-starts", json={**NEW, "profile": "test"}), 400, "field-invalid")
            service.hub.groups["lab"] = ["alice"]
            assert (await client.post("scheduled-starts", json={**NEW, "profile": "test"})).status_code == 201


async def test_the_hub_is_asked_as_the_user_chose_and_its_refusal_is_kept(
    service: Service, alice: str, desk: Desk
) -> None:
    client, notices = service.api(alice), list[Notice]()
    start = (await client.post("scheduled-starts", json=NEW)).json()
    desk.clock.advance(23 * 3600)
    service.hub.refusals = [(403, "Refused: you are no longer in a group that may start servers.")]
    await dispatcher(service, notices).look()
    found = (await client.get(f"scheduled-starts/{start['id']}")).json()
    assert (found["state"], found["tried_at"]) == ("waiting", LATER)
    assert found["outcome"] == "Refused: you are no longer in a group that may start servers."
    assert "In its way so far: Refused: you are no longer in a group" in words(
        await service.browser("alice").get("starts")
    )
    desk.clock.advance(60)
    await dispatcher(service, notices).look()
    assert service.hub.started == [("alice", "", {"profile": "gpu-1-4", "image": "env", "payer": "alice"})]
    desk.run("alice")
    desk.clock.advance(60)
    await dispatcher(service, notices).look()
    assert (await client.get(f"scheduled-starts/{start['id']}")).json()["state"] == "started"
    assert [each.kind.value for each in notices] == ["start-done"]


async def test_the_hubs_client(service: Service, alice: str) -> None:
    hub = HubClient(f"{service.url}/hub/api", service.hub.service_token)
    assert await hub.made_at("alice") == datetime(2026, 1, 1, tzinfo=UTC)
    assert await hub.made_at("nobody") is None
    with pytest.raises(StartRefused, match="404"):
        service.hub.refusals = [(404, "404: no such user")]
        await hub.start_server("alice", "", {})
    service.hub.refusals = [(403, "Refused: your group was closed.")]
    with pytest.raises(StartRefused, match="your group was closed"):
        await hub.start_server("alice", "", {})
    service.hub.service_scopes.discard("start:servers")
    with pytest.raises(StartForbidden):
        await hub.start_server("alice", "", {})
    service.hub.down = True
    with pytest.raises(HubUnavailable):
        await hub.start_server("alice", "", {})
