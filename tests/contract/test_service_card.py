"""The card of a server that has ended, and doubts about its end: receipt, admin's desk and REST."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth_lab.serialize_refusals import WHY
from quota import catalogues
from quota.farewells import Farewells
from quota.leases import Lease, StopReason
from quota.verdicts import Verdict
from quota.web.card import SHOWN
from quota.web.home import home_view
from tests.contract.service_reading import CREDIT, problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service

EVIL = '<script>alert("x")</script>'


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            found.hub.add_user("alice")
            found.hub.add_user("boss", admin=True)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


def reclaimed(desk: Desk, report: dict[str, Any] | None = None, server: str = "") -> Lease:
    """An idle server that was reclaimed after two hours, the last half of one unused, and what its kit said."""
    lease = desk.run(share=1000, server=server)
    desk.clock.advance(7200)
    evidence = {"idle_since": (desk.now - timedelta(minutes=30)).isoformat(), "limit_s": 1800, "busy_kernels": 0}
    desk.rows.put_verdicts([Verdict(lease.id, desk.now, "reclaim", "idle", "Not used", evidence)])
    desk.book.request_stop(lease.id, StopReason.IDLE, detail="no code ran", stop_after=desk.now + timedelta(minutes=2))
    if report is not None:
        Farewells(desk.store, desk.clock).heard(lease.id, report, done=True)
    return desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))


def report(count: int = 1) -> dict[str, Any]:
    saved = [{"kind": "notebook", "path": "train.ipynb", "what": f"{EVIL}.ipynb", "bytes": 5_000_000}]
    lost = [
        {
            "kind": "variable",
            "what": f"x{n}",
            "where": "train.ipynb",
            "why": "a thread cannot be saved",
            "code": "thread",
        }
        for n in range(count)
    ]
    return {"state": "done", "reason": "idle", "saved": saved, "lost": lost, "resume": "t", "seconds": 3}


async def send(browser: httpx.AsyncClient, page: str, path: str, **fields: str) -> str:
    token = re.search(r'name="_xsrf" value="([^"]+)"', (await browser.get(page)).text)
    assert token is not None
    answer = await browser.post(path, data={"_xsrf": token[1], **fields})
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_the_receipt_tells_why_what_was_seen_and_what_was_saved(service: Service, desk: Desk) -> None:
    lease = reclaimed(desk, report(SHOWN + 3), server="my lab")
    page = (await service.browser("alice").get(f"lease/{lease.id}")).text
    assert "Reclaimed because it was idle: no code ran." in page
    assert "Not used since" in page and "It cost 2.00 credits." in page
    assert "The server&#39;s own kit says what it saved, and what it could not." in page
    assert EVIL not in page and "&lt;script&gt;" in page
    assert "x0 in train.ipynb" in page and "A thread cannot be saved." in page and "3 more" in page
    assert 'href="/hub/spawn/alice/my%20lab#profile=test&amp;image=env&amp;payer=alice"' in page
    assert "This was wrong" in page


async def test_the_receipt_tells_in_chinese_what_was_not_saved_and_how_much_more_there_is(
    service: Service, desk: Desk
) -> None:
    """Rows that the kit itself left out count with those that are not shown."""
    catalogues.load("en")
    told = report(SHOWN + 3) | {"lost_left_out": 40}
    for row in told["lost"]:
        row["why"] = WHY["thread"]
    lease = reclaimed(desk, told)
    browser = service.browser("alice")
    browser.headers["Accept-Language"] = "zh"
    page = (await browser.get(f"lease/{lease.id}")).text
    assert "它是或包含一个正在运行的线程，线程会随内核结束。" in page and WHY["thread"] not in page
    assert "43" in re.sub(r"<[^>]*>", " ", page.partition('id="card-lost"')[2]), "3 are not shown, 40 were never told"


async def test_a_kit_that_said_nothing_is_not_spoken_for(service: Service, desk: Desk) -> None:
    page = (await service.browser("alice").get(f"lease/{reclaimed(desk).id}")).text
    assert "own kit" not in page and 'id="card-saved"' not in page and "Resume the same" in page


async def test_home_has_the_newest_as_a_card(service: Service, desk: Desk) -> None:
    reclaimed(desk)
    lease = reclaimed(desk, report())
    newest, before = home_view(desk.book, desk.bank, desk.rows, "alice", desk.now).ended
    assert (newest.lease, before.card) == (lease.id, None)
    assert newest.card is not None
    assert [row.name for row in newest.card.lost] == ["x0 in train.ipynb"]
    assert (newest.card.resume, newest.card.may_appeal) == ("spawn/alice#profile=test&image=env&payer=alice", True)
    assert dict(newest.card.evidence)["Limit"] == "30 min"


async def test_n6_a_doubted_stop_is_granted_on_the_desk_with_one_click(service: Service, desk: Desk) -> None:
    lease = reclaimed(desk)
    alice, boss = service.browser("alice"), service.browser("boss")
    page = await send(alice, f"lease/{lease.id}", f"lease/{lease.id}/appeal", words=f"It was training. {EVIL}")
    assert "An administrator is told and decides" in page and "not decided yet" in page
    desk_page = (await boss.get("admin")).text
    assert "Doubted stops" in desk_page and EVIL not in desk_page and "It was training." in desk_page
    assert 'value="0.500000"' in desk_page  # the half hour that it was not used
    before = desk.bank.account("alice").available
    page = await send(boss, "admin", "admin/appeal", lease=lease.id, credits="0.5", answer="Sorry.", do="grant")
    assert "Granted: 0.500000 credits were given back." in page and "Doubted stops" not in page
    assert desk.bank.account("alice").available == before + CREDIT // 2
    page = (await alice.get(f"lease/{lease.id}")).text
    assert "Granted by boss: 0.50 credits were given back. Sorry." in page
    assert desk.bank.audit() == []


async def test_letting_it_stand_needs_words(service: Service, desk: Desk) -> None:
    lease = reclaimed(desk)
    await send(service.browser("alice"), f"lease/{lease.id}", f"lease/{lease.id}/appeal", words="No.")
    boss = service.browser("boss")
    page = await send(boss, "admin", "admin/appeal", lease=lease.id, answer="", do="deny")
    assert "Nothing was changed. A sentence is needed." in page and "Doubted stops" in page
    page = await send(boss, "admin", "admin/appeal", lease=lease.id, answer="It slept.", do="deny")
    assert "It stands; its user is told why." in page
    assert "Not granted by boss." in (await service.browser("alice").get(f"lease/{lease.id}")).text


async def test_appeals_over_rest(service: Service, desk: Desk) -> None:
    lease, own = reclaimed(desk), desk.session(10)
    alice, boss = service.api(service.hub.add_user("alice")), service.api(service.hub.add_user("boss", admin=True))
    mallory = service.api(service.hub.add_user("mallory"))
    path = f"leases/{lease.id}/appeal"
    problem(await alice.get(path), 404, "not-found")
    problem(await mallory.post(path, json={"words": "x"}), 403, "forbidden")
    problem(await boss.post(path, json={"words": "x"}), 403, "forbidden")
    problem(await alice.post(path, json={"words": " "}), 409, "words-needed")
    problem(await alice.post(path, json={}), 400, "field-invalid")
    problem(await alice.post(f"leases/{own.id}/appeal", json={"words": "x"}), 409, "appeal-impossible")
    made = (await alice.post(path, json={"words": "It was training."})).json()
    assert (made["user"], made["granted"]) == ("alice", None)
    problem(await alice.post(path, json={"words": "x"}), 409, "appeal-made")
    problem(await alice.post(f"{path}/decision", json={"granted": True}), 403, "forbidden")
    problem(await alice.get("appeals"), 403, "forbidden")
    assert [each["lease_id"] for each in (await boss.get("appeals")).json()["items"]] == [lease.id]
    problem(await boss.post(f"{path}/decision", json={"granted": False}), 409, "words-needed")
    for _ in range(2):
        decided = (await boss.post(f"{path}/decision", json={"granted": True, "credits": "1.5"})).json()
        assert (decided["granted"], decided["refunded_micro_credits"]) == (True, 3 * CREDIT // 2)
    problem(await boss.post(f"{path}/decision", json={"granted": False, "note": "x"}), 409, "appeal-made")
    assert (await alice.get(path)).json() == decided
    assert (await boss.get("appeals")).json()["items"] == []
    assert desk.bank.audit() == []
