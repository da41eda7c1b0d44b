"""Lists of REST in pages: nothing twice, nothing lost, whatever is added meanwhile; no cursor but our own."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from quota.api.paging import Cursors, cut
from quota.web.problem import Problem
from tests.contract.service_reading import CREDIT, problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(5)
        async with open_service(desk) as found:
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def alice(service: Service) -> str:
    return service.hub.add_user("alice")


@pytest.fixture
def boss(service: Service) -> str:
    return service.hub.add_user("boss", admin=True)


async def walk(
    client: httpx.AsyncClient, path: str, limit: int, between: Callable[[], object] = lambda: None, **more: str
) -> list[dict[str, Any]]:
    """All items, page by page as the Link header says; `between` happens after each page."""
    found: list[dict[str, Any]] = []
    answer = await client.get(path, params={"limit": str(limit), **more})
    for _ in range(100):
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["items"]) <= limit
        found += page["items"]
        link = answer.links.get("next")
        assert (link is None) == (page["next"] is None)
        if link is None:
            return found
        assert len(page["items"]) == limit
        between()
        answer = await client.get(str(client.base_url.join(link["url"])))
    raise AssertionError("the pages do not end")


async def test_leases_page_by_page_while_others_start(service: Service, boss: str, desk: Desk) -> None:
    made = [desk.session(1, user=f"u{number % 3}", profile="test").id for number in range(7)]
    wanted = list(reversed(made))
    found = await walk(service.api(boss), "leases", 2, lambda: desk.session(1, user="late", profile="test"))
    assert [lease["id"] for lease in found] == wanted


async def test_x11_leases_of_one_moment_and_a_clock_that_goes_back(service: Service, boss: str, desk: Desk) -> None:
    """Six leases of the same microsecond; then the clock jumps back, so that new ones would stand below old ones."""
    made = {desk.reserve(f"u{number}", profile="test").id for number in range(6)}
    client = service.api(boss)
    found = await walk(client, "leases", 1, lambda: desk.clock.jump(-1200))
    assert [lease["id"] for lease in found] == sorted(made, reverse=True)
    assert await walk(client, "leases", 4) == found


async def test_before_still_begins_a_page(service: Service, alice: str, desk: Desk) -> None:
    made = [desk.session(10, profile="test") for _ in range(4)]
    client = service.api(alice)
    first = (await client.get("leases", params={"before": made[3].id, "limit": "2"})).json()
    assert [lease["id"] for lease in first["items"]] == [made[2].id, made[1].id]
    assert [lease["id"] for lease in await walk(client, "leases", 1, before=made[2].id)] == [made[1].id, made[0].id]
    both = await client.get("leases", params={"before": made[3].id, "limit": "2", "cursor": first["next"]})
    problem(both, 400, "field-invalid")


async def test_accounts_page_by_page_and_by_search(service: Service, boss: str, desk: Desk) -> None:
    names = sorted(f"user-{number:02d}" for number in range(9))
    for name in names:
        desk.bank.ensure_account(name)
    client = service.api(boss)

    def another() -> None:
        desk.bank.ensure_account("aaa")  # before all pages that are still to come
        desk.bank.ensure_account("zzz-100%_sure")

    found = [account["name"] for account in await walk(client, "accounts", 4, another)]
    assert [name for name in found if name.startswith("user-")] == names
    assert len(found) == len(set(found))
    assert "zzz-100%_sure" in found and "aaa" not in found
    searched = await walk(client, "accounts", 1, search="SER-0")
    assert [account["name"] for account in searched] == [name for name in names if "ser-0" in name]
    for text, count in (("%", 1), ("_", 1), ("100%_", 1), ("\\", 0), ("' OR 1=1", 0)):
        assert len(await walk(client, "accounts", 5, search=text)) == count, text


async def test_a_page_of_accounts_brings_its_month(service: Service, boss: str, desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.bank.ensure_account(name)
    desk.clock.advance(timedelta(days=40).total_seconds())
    first = (await service.api(boss).get("accounts?limit=2")).json()
    assert [account["available_micro_credits"] for account in first["items"]] == [100 * CREDIT] * 2
    assert [account["month_charged_micro_credits"] for account in first["items"]] == [0, 0]


async def test_grants_page_by_page_while_they_are_spent(service: Service, alice: str, boss: str, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    for number in range(5):
        until = None if number % 2 else desk.now + timedelta(days=9 - number)
        desk.bank.grant("alice", 1000 + number, by="boss", expires_at=until)
    whole = (await service.api(boss).get("accounts/alice/grants")).json()["items"]
    assert len(whole) == 6
    ends = [grant["expires_at"] or "never" for grant in whole]
    assert ends == sorted(ends)  # digits sort before "never"
    found = await walk(service.api(alice), "accounts/alice/grants", 1, lambda: desk.session(1, profile="test"))
    assert [grant["id"] for grant in found] == [grant["id"] for grant in whole]


async def test_usage_page_by_page_with_the_sums_of_all(service: Service, alice: str, desk: Desk) -> None:
    for _ in range(5):
        desk.session(100, profile="test")
    client = service.api(alice)
    whole = (await client.get("me/usage")).json()
    first = (await client.get("me/usage?limit=2")).json()
    assert first["charged_micro_credits"] == whole["charged_micro_credits"]
    assert sum(item["charged_micro_credits"] for item in whole["items"]) == whole["charged_micro_credits"]
    assert first["items"] == whole["items"][:2]
    stretch = {"from": "2026-03-01", "to": "2026-04-01"}
    found = await walk(client, "me/usage", 2, lambda: desk.session(10, profile="test"), **stretch)
    assert found == whole["items"]


async def test_fleet_and_menu_page_by_page(service: Service, alice: str, desk: Desk) -> None:
    client = service.api(alice)
    for path, key in (("fleet", "uuid"), ("profiles", "name")):
        whole = [item[key] for item in (await client.get(path)).json()["items"]]
        assert len(whole) > 2
        assert [item[key] for item in await walk(client, path, 1)] == whole
        assert [item[key] for item in await walk(client, path, len(whole))] == whole


def forged(cursor: str) -> list[str]:
    raw = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    raw[-3] ^= 1
    changed = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    other = Cursors(b"another secret", "leases").write(("l0123456789abcdef",))
    return [
        changed,
        cursor[:-1],
        cursor + "A",
        cursor.swapcase(),
        cursor + "=",
        "x",
        "é",
        "A" * 1000,
        other,
        "e30",
        "…",
    ]


async def test_cursors_that_are_not_ours(service: Service, alice: str, boss: str, desk: Desk) -> None:
    for user in ("alice", "bob", "alice"):
        desk.session(1, user=user, profile="test")
    mine, all_ = service.api(alice), service.api(boss)
    cursor = (await all_.get("leases?limit=1")).json()["next"]
    for bad in forged(cursor):
        problem(await all_.get("leases", params={"cursor": bad}), 400, "cursor-invalid")
    for bad in ("", "A" * 1001):
        problem(await all_.get("leases", params={"cursor": bad}), 400, "field-invalid")
    # Another list, another filter, another person's view of the list.
    problem(await all_.get("accounts", params={"cursor": cursor}), 400, "cursor-invalid")
    problem(await all_.get("leases", params={"cursor": cursor, "user": "alice"}), 400, "cursor-invalid")
    problem(await mine.get("leases", params={"cursor": cursor}), 400, "cursor-invalid")
    assert (await all_.get("leases", params={"cursor": cursor, "limit": "2"})).status_code == 200  # the size may change


async def test_me_tells_an_old_server_whatever_ended_since(
    service: Service, alice: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is asked for as such, not looked for among the newest leases."""
    old = desk.run(server="old", profile="test")
    for _ in range(3):
        desk.session(1, server="short", profile="test")
    monkeypatch.setattr(desk.book, "leases", lambda *_, **__: [])
    me = (await service.api(alice).get("me")).json()
    assert [lease["id"] for lease in me["leases"]] == [old.id]


def test_a_cut_goes_on_after_a_key_that_is_gone() -> None:
    page, last = cut([1, 2, 3, 4, 5], lambda number: (number,), None, 2)
    assert (list(page), last) == ([1, 2], (2,))
    page, last = cut([1, 3, 4, 5], lambda number: (number,), last, 2)
    assert (list(page), last) == ([3, 4], (4,))
    page, last = cut([1, 3, 5], lambda number: (number,), last, 2)
    assert (list(page), last) == ([5], None)
    assert cut([], lambda number: (number,), None, 2) == ([], None)


def test_a_cursor_reads_back_and_belongs_to_its_scope() -> None:
    one, two = Cursors(b"s", "leases"), Cursors(b"s", "accounts")
    key = (-5, "l0 'quoted' 用户")
    assert one.read(one.write(key)) == key
    for cursors in (two, Cursors(b"t", "leases")):
        with pytest.raises(Problem, match="cursor-invalid"):
            cursors.read(one.write(key))
