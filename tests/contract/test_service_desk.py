"""The admin's page over HTTP, and errors in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.service_reading import CREDIT, FORM, post, words, xsrf
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import PREFIX, Service, open_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk, image_titles={"env": "This environment"}) as found:
            found.hub.add_user("alice")
            found.hub.add_user("boss", admin=True)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


async def test_the_admin_page_is_for_administrators(service: Service) -> None:
    client = service.browser("alice")
    for path in ("admin", "admin/grant"):
        assert (await client.get(path)).status_code == 403
    answer = await client.get("")
    assert "Admin · Berth" not in answer.text
    token = {"_xsrf": answer.cookies.get("_xsrf") or client.cookies.get("_xsrf", path=PREFIX)}
    grant = await client.post("admin/grant", data={**token, "account": "alice", "credits": "5"}, headers=FORM)
    assert grant.status_code == 403


async def test_c_admin_grants_limits_prices_and_sees_it(service: Service, desk: Desk) -> None:
    desk.run(profile="test")
    desk.beat()
    desk.rows.beat("agent-1", "agent", "h1")
    client = service.browser("boss")
    granted = await post(client, "admin", "admin/grant", account="alice", credits="12.5", note="course", key="k1")
    assert "Granted 12.50 credits to alice." in words(granted)
    assert str(granted.url).endswith("admin?account=alice")
    await post(client, "admin", "admin/grant", account="alice", credits="12.5", note="course", key="k1")  # sent twice
    view = desk.bank.account("alice")
    assert view.available + view.held == 112_500_000
    limited = await post(client, "admin", "admin/limits", account="alice", max_servers="1", max_gpus="0.5")
    assert "1 server 1/2 GPU" in words(limited)
    assert desk.bank.limits("alice").max_gpu_milli == 500
    await post(client, "admin", "admin/limits", account="alice", max_servers="none", max_gpus="default")
    assert (desk.bank.limits("alice").max_servers, desk.bank.limits("alice").max_gpu_milli) == (None, 2000)
    await post(client, "admin", "admin/limits", account="*", monthly_credits="40", profiles="cpu, test")
    assert (desk.bank.limits("*").monthly_micro, desk.bank.limits("*").profiles) == (40 * CREDIT, {"cpu", "test"})
    await post(client, "admin", "admin/prices", gpu_hour="2.5", cpu_hour="0.01")
    assert (desk.bank.price().gpu_hour, desk.bank.price().cpu_hour) == (2_500_000, 10_000)
    given = await post(client, "admin", "admin/monthly", account="*", credits="7.5")
    assert "given 7.50 credits a month" in words(given)
    assert (desk.bank.monthly_grant("*"), desk.bank.monthly_grant("alice")) == (7_500_000, 7_500_000)
    said = words(await client.get("admin"))
    assert "Agent on h1: 0 s ago" in said and "Hub: 0 s ago" in said
    assert "alice default server · running" in said and "boss admin has not used Berth yet" in said


BAD_FIELDS = (
    ("admin/grant", {"account": "nobody", "credits": "5"}, "There is no user or account called 'nobody'"),
    ("admin/grant", {"account": "alice", "credits": "-5"}, "an amount above zero is needed"),
    ("admin/grant", {"account": "alice", "credits": "1e3"}, "a plain number of credits"),
    ("admin/grant", {"account": "", "credits": "5"}, "There is no user"),
    ("admin/limits", {"account": "alice"}, "fill in at least one field"),
    ("admin/limits", {"account": "alice", "max_gpus": "x"}, "GPUs at once"),
    ("admin/limits", {"account": "alice", "max_gpus": "-1"}, "GPUs at once"),
    ("admin/limits", {"account": "alice", "profiles": "cpu,nothing"}, "'nothing' is no profile"),
    ("admin/limits", {"account": "*", "max_servers": "default"}, "have no default"),
    ("admin/monthly", {"account": "*", "credits": "-1"}, "cannot be below zero"),
    ("admin/monthly", {"account": "nobody", "credits": "1"}, "There is no user or account"),
    ("admin/prices", {"gpu_hour": "-1", "cpu_hour": "0"}, "cannot be below zero"),
    ("admin/prices", {"gpu_hour": "", "cpu_hour": "0"}, "gpu_hour"),
)


async def test_bad_fields_come_back_in_words(service: Service, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    client = service.browser("boss")
    for path, fields, says in BAD_FIELDS:
        answer = await post(client, "admin", path, **fields)
        assert answer.status_code == 200, fields
        assert "Nothing was changed." in words(answer) and says in words(answer), fields
    assert desk.bank.account("alice").available == 100 * CREDIT
    assert desk.bank.price().plan_id == 1


async def test_a_silent_agent_and_an_unseen_server_are_alarms(service: Service, desk: Desk) -> None:
    desk.rows.beat("agent-1", "agent", "h1")
    desk.run(profile="test")
    desk.clock.advance(90)
    said = words(await service.browser("boss").get("admin"))
    assert "Agent on h1 silent for 90 s" in said
    assert "1 running server not seen for more than 60 s: alice." in said


async def test_what_stands_is_shown_to_administrators_with_words_and_since(service: Service, desk: Desk) -> None:
    client = service.browser("boss")
    assert "data-alert" not in (await client.get("admin")).text
    desk.alerts.put("audit", "audit", "The audit of the book found a difference: <b>x</b> is 1, not 2")
    desk.rows.beat("agent-1", "agent", "h1")
    desk.clock.advance(90)
    desk.alerts.put("agent-silent:h1", "agent-silent", "The agent of h1 is silent")
    answer = await client.get("admin")
    assert answer.text.count("data-alert=") == 1, "a silent agent is told once"
    said = words(answer)
    assert "The audit of the book found a difference: <b>x</b> is 1, not 2. Since" in said
    assert "Agent on h1 silent for 90 s" in said
    desk.alerts.clear("audit")
    assert "found a difference" not in words(await client.get("admin"))


async def test_the_admin_page_works_without_the_hub(service: Service, desk: Desk) -> None:
    client = service.browser("boss")
    await client.get("admin")
    desk.bank.ensure_account("alice")
    service.hub.down = True
    said = words(await client.get("admin"))
    assert "The Hub did not answer" in said and "alice" in said


async def test_many_users_page_by_page_and_filtered(service: Service) -> None:
    service.hub.page_size = 50
    for number in range(230):
        service.hub.add_user(f"user{number:03d}")
    client = service.browser("boss")
    assert "Page 1 of 5, 232 in all" in words(await client.get("admin"))
    page = (await client.get("admin?q=user22")).text
    assert page.count('data-account="user22') == 10


async def test_an_unknown_page_says_so(service: Service) -> None:
    client = service.browser("alice")
    for path in ("nothing", "lease/", "lease/a/b", "board/x", "admin/x"):
        answer = await client.get(path)
        assert answer.status_code == 404
        assert "There is no page at this address." in words(answer)


async def test_a_large_form_is_refused_in_words(service: Service) -> None:
    client = service.browser("boss")
    token = xsrf(await client.get("admin"))
    answer = await client.post("admin/grant", data={"_xsrf": token, "note": "x" * 70_000}, headers=FORM)
    assert answer.status_code == 413
    assert "65536 bytes at most" in words(answer)


async def test_a_fault_of_ours_tells_nothing_but_that_it_happened(
    service: Service, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(desk.book, "holdings", broken)
    answer = await service.browser("alice").get("board")
    assert answer.status_code == 500
    assert "Something went wrong in Berth" in words(answer) and "secret inside" not in answer.text
