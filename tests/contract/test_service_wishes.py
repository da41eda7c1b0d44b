"""Wishes about the end of a server over HTTP: pages without script, REST, who may what, and why one is refused."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from quota.bank import Defaults
from quota.leases import StopReason
from quota.units import MicroCredits
from quota.verdicts import Verdict
from quota.wish import NO_WISH, Wish
from quota.wishes import Wishes
from tests.contract.service_reading import CREDIT, problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service

HOUR = timedelta(hours=1)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def alice(service: Service) -> str:
    return service.hub.add_user("alice")


def wish_of(desk: Desk, lease_id: str) -> Wish:
    return Wishes(desk.store, desk.clock).of([lease_id])[lease_id]


async def press(browser: httpx.AsyncClient, lease_id: str, **fields: str) -> str:
    """Press a button of the receipt's form, as a browser without scripts does; the page that follows."""
    page = (await browser.get(f"lease/{lease_id}")).text
    token = re.search(r'name="_xsrf" value="([^"]+)"', page)
    assert token is not None
    answer = await browser.post(f"lease/{lease_id}/wish", data={"_xsrf": token[1], **fields})
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_i15_keep_holds_and_gives_back(service: Service, alice: str, desk: Desk) -> None:
    lease, client = desk.run(share=1000), service.api(alice)
    before = desk.bank.account("alice").available
    kept = (await client.put(f"leases/{lease.id}/keep", json={"seconds": 3 * 3600})).json()
    assert kept["keep_until"] == "2026-03-02T12:00:00Z"
    assert (kept["held_micro_credits"], kept["bounded_by"], kept["keep_most_seconds"]) == (3 * CREDIT, None, 10_800)
    assert kept == (await client.get(f"leases/{lease.id}/wish")).json()
    gone = (await client.delete(f"leases/{lease.id}/keep")).json()
    assert (gone["keep_until"], gone["held_micro_credits"]) == (None, lease.held)
    assert desk.bank.account("alice").available == before
    assert desk.bank.audit() == []


async def test_i15_a_refusal_offers_what_there_is_credit_for(tmp_path: Path) -> None:
    with open_desk(tmp_path, None, Defaults(monthly_grant=MicroCredits(3 * CREDIT // 2))) as desk:
        desk.devices(1)
        lease = desk.run(share=1000)
        async with open_service(desk) as service:
            client = service.api(service.hub.add_user("alice"))
            answer = await client.put(f"leases/{lease.id}/keep", json={"seconds": 3 * 3600})
            assert problem(answer, 409, "keep-no-credit")["offer_seconds"] == 3600
            assert "1 h" in answer.json()["detail"] or "60 min" in answer.json()["detail"]
            again = await client.put(f"leases/{lease.id}/keep", json={"seconds": answer.json()["offer_seconds"]})
            assert again.status_code == 200


async def test_the_policy_is_said(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        lease = desk.run(share=0, count=0)
        async with open_service(desk, keep_most=None) as service:
            client = service.api(service.hub.add_user("alice"))
            problem(await client.put(f"leases/{lease.id}/keep", json={"seconds": 60}), 409, "keep-off")
            page = (await service.browser("alice").get(f"lease/{lease.id}")).text
            assert "Keep it for" not in page and "Stop it when its work is done" in page
        async with open_service(desk, longest=lambda each: 2 * HOUR) as service:
            client = service.api(service.hub.add_user("alice"))
            too_long = await client.put(f"leases/{lease.id}/keep", json={"seconds": 4 * 3600})
            assert problem(too_long, 409, "keep-too-long")["offer_seconds"] == 3 * 3600
            kept = (await client.put(f"leases/{lease.id}/keep", json={"seconds": 3 * 3600})).json()
            assert (kept["keep_until"], kept["bounded_by"]) == ("2026-03-02T11:00:00Z", "max-age")


async def test_an_end_is_set_and_taken_off(service: Service, alice: str, desk: Desk) -> None:
    lease, client = desk.run(), service.api(alice)
    path = f"leases/{lease.id}/shutdown"
    answer = await client.put(path, json={"at": "2026-03-02T18:30:00+08:00"})
    assert answer.json()["shutdown_at"] == "2026-03-02T10:30:00Z"
    assert wish_of(desk, lease.id).shutdown_at == desk.now + 1.5 * HOUR
    problem(await client.put(path, json={"at": "2026-03-02T09:00:30Z"}), 409, "time-too-soon")
    problem(await client.put(path, json={"at": "2026-03-02T10:00:00"}), 400, "date-invalid")
    problem(await client.put(path, json={"at": None}), 400, "date-invalid")
    problem(await client.put(path, json={}), 400, "field-invalid")
    assert (await client.delete(path)).json()["shutdown_at"] is None
    assert wish_of(desk, lease.id) == Wish()
    done = f"leases/{lease.id}/when-done"
    assert (await client.put(done)).json()["when_done"] is True
    assert (await client.delete(done)).json()["when_done"] is False


async def test_only_user_lead_and_administrator_wish(service: Service, alice: str, desk: Desk) -> None:
    lease, mallory = desk.run(), service.api(service.hub.add_user("mallory"))
    for path in ("keep", "shutdown", "when-done"):
        problem(await mallory.delete(f"leases/{lease.id}/{path}"), 403, "forbidden")
    problem(await mallory.put(f"leases/{lease.id}/keep", json={"seconds": 3600}), 403, "forbidden")
    problem(await mallory.get(f"leases/{lease.id}/wish"), 403, "forbidden")
    problem(await mallory.get("leases/l0/wish"), 404, "not-found")
    assert wish_of(desk, lease.id) == NO_WISH
    boss = service.api(service.hub.add_user("boss", admin=True))
    assert (await boss.put(f"leases/{lease.id}/keep", json={"seconds": 3600})).status_code == 200
    kept = [event for event in desk.rows.events(lease_id=lease.id) if event.kind == "kept"]
    assert [event.by for event in kept] == ["boss"]


async def test_the_form_needs_no_script(service: Service, alice: str, desk: Desk) -> None:
    lease, browser = desk.run(), service.browser("alice")
    page = await press(browser, lease.id, do="keep:3600")
    assert "It is kept until 2 Mar 2026, 10:00:00; what that costs is held." in page
    assert "No longer keep it" in page
    page = await press(browser, lease.id, do="shutdown", at="2026-03-02T09:45")
    assert "It is stopped at 2 Mar 2026, 09:45:00, as was set." in page
    assert "It is kept though unused until 2 Mar 2026, 09:45:00." in page
    page = await press(browser, lease.id, do="when-done")
    assert "It is stopped as soon as its work is done." in page
    assert "It is stopped as soon as its work is done." in (await browser.get("board")).text
    for do in ("no-keep", "no-shutdown", "no-when-done"):
        page = await press(browser, lease.id, do=do)
    assert "Until you stop it, or until the rules of this site do." in page
    assert wish_of(desk, lease.id) == Wish()


@pytest.mark.parametrize(
    "fields", [{"do": "keep:x"}, {"do": "keep:1"}, {"do": ""}, {"do": "shutdown", "at": "soon"}, {"do": "shutdown"}]
)
async def test_a_form_that_makes_no_sense_changes_nothing(
    service: Service, alice: str, desk: Desk, fields: dict[str, str]
) -> None:
    lease = desk.run()
    assert "Nothing was changed." in await press(service.browser("alice"), lease.id, **fields)
    assert wish_of(desk, lease.id) == NO_WISH


async def test_a_stop_for_want_of_use_is_taken_back_while_there_is_time(
    service: Service, alice: str, desk: Desk
) -> None:
    lease, client = desk.run(), service.api(alice)
    desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + timedelta(minutes=2))
    assert (await client.put(f"leases/{lease.id}/keep", json={"seconds": 3600})).status_code == 200
    assert desk.book.lease(lease.id).stop_reason is None
    desk.book.request_stop(lease.id, StopReason.QUOTA, stop_after=desk.now + timedelta(minutes=2))
    problem(await client.put(f"leases/{lease.id}/keep", json={"seconds": 3600}), 409, "not-running")


async def test_i20_who_looks_at_a_page_moves_no_deadline(service: Service, alice: str, desk: Desk) -> None:
    lease = desk.run()
    ends: datetime = desk.now + timedelta(minutes=10)
    desk.rows.put_verdicts([Verdict(lease.id, desk.now, "warn", "idle", "Not used", {}, ends)])
    before = (desk.rows.verdict(lease.id), desk.rows.signals(lease.id), desk.book.lease(lease.id))
    browser, client = service.browser("alice"), service.api(alice)
    for path in ("", "board", f"lease/{lease.id}", f"lease/{lease.id}/wish"):
        assert (await browser.get(path)).status_code == 200
    for path in ("me", "leases", f"leases/{lease.id}", f"leases/{lease.id}/wish"):
        assert (await client.get(path)).status_code == 200
    assert before == (desk.rows.verdict(lease.id), desk.rows.signals(lease.id), desk.book.lease(lease.id))
    assert wish_of(desk, lease.id) == NO_WISH
