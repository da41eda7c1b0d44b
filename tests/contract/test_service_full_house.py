"""Pages where there are more devices, servers and people than a page holds."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quota.bank import Defaults
from quota.web import board, desk, hub
from tests.fakes.book import asking, open_desk, place
from tests.fakes.service import PREFIX, Service, open_service


@pytest.fixture
async def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """Twelve devices, thirty servers, forty people, and pages that hold few of them."""
    for module, name, size in ((board, "ROWS", 10), (board, "CARDS", 4), (desk, "ACCOUNTS", 15), (desk, "RUNNING", 5)):
        monkeypatch.setattr(module, name, size)
    with open_desk(tmp_path, defaults=Defaults(max_servers=None, max_gpu_milli=None)) as book:
        book.devices(12)
        for number in range(30):
            book.book.reserve(asking(f"user{number:02}", share=250), place)
        book.bank.ensure_account("group:a", "group")
        async with open_service(book) as service:
            service.hub.add_user("boss", admin=True)
            for number in range(40):
                service.hub.add_user(f"user{number:02}")
            yield service


def rows(text: str, attribute: str) -> list[str]:
    return re.findall(rf'data-{attribute}="([^"]+)"', text)


async def test_the_board_pages_through_all_servers_once(service: Service) -> None:
    browser, found, path = service.browser("boss"), [], "board"
    while path:
        text = (await browser.get(path)).text
        assert len(rows(text, "user")) == 10
        found += rows(text, "user")
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = following[1].replace("&amp;", "&").removeprefix(PREFIX) if following else ""
    assert sorted(found) == [f"user{number:02}" for number in range(30)]


async def test_the_filter_of_the_board_finds_beyond_the_page(service: Service) -> None:
    text = (await service.browser("boss").get("board", params={"q": "user29"})).text
    (lease,) = service.desk.book.live("user29")
    assert rows(text, "user") == ["user29"]
    assert rows(text, "device") == [lease.slots[0].device]
    text = (await service.browser("boss").get("board", params={"q": "user"})).text
    assert len(rows(text, "user")) == 10
    assert "page=2&amp;q=user" in text


async def test_devices_beyond_the_page_are_told_and_found(service: Service) -> None:
    browser = service.browser("boss")
    text = (await browser.get("board")).text
    assert rows(text, "device") == [f"SIM-h1-{number}" for number in range(4)]
    assert "8 more devices" in text
    assert rows((await browser.get("board", params={"q": "sim-h1-11"})).text, "device") == ["SIM-h1-11"]
    assert "No device matches" in (await browser.get("board", params={"q": "nowhere"})).text


async def test_the_admin_page_pages_through_everybody_once(service: Service) -> None:
    browser, found, path = service.browser("boss"), [], "admin"
    while path:
        text = (await browser.get(path)).text
        found += rows(text, "account")
        assert len(rows(text, "lease")) == 5
        assert "25 more" in text
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = following[1].replace("&amp;", "&").removeprefix(PREFIX) if following else ""
    assert found == ["boss", "group:a", *(f"user{number:02}" for number in range(40))]


async def test_the_search_of_the_admin_page_finds_beyond_the_page(service: Service) -> None:
    browser = service.browser("boss")
    assert rows((await browser.get("admin", params={"q": "USER39"})).text, "account") == ["user39"]
    text = (await browser.get("admin", params={"q": "user", "page": "3"})).text
    assert rows(text, "account") == [f"user{number}" for number in range(30, 40)]
    assert rows((await browser.get("admin", params={"page": "999"})).text, "account")[-1] == "user39"


async def test_who_was_added_or_removed_in_the_hub_is_seen_at_once(service: Service) -> None:
    browser = service.browser("boss")
    assert "zoe" not in rows((await browser.get("admin?q=z")).text, "account")
    service.hub.add_user("zoe")
    assert rows((await browser.get("admin?q=z")).text, "account") == ["zoe"]
    del service.hub.users["zoe"]
    assert rows((await browser.get("admin?q=z")).text, "account") == []
    service.hub.users["yann"] = service.hub.users.pop("user39")  # one goes, one comes
    assert rows((await browser.get("admin?q=y")).text, "account") == ["yann"]


async def test_the_list_of_users_is_not_asked_for_again_while_nothing_changed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.hub.page_size = 10
    asked: list[str] = []
    ask = hub.HubClient._ask

    async def counted(self: hub.HubClient, method: str, path: str, *more: object, **named: object) -> object:
        asked.append(path)
        return await ask(self, method, path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(hub.HubClient, "_ask", counted)
    everybody = await service.parts.hub.users()
    assert len(everybody) == 41
    assert len(asked) == 1 + 5
    asked.clear()
    assert await service.parts.hub.users() == everybody
    assert len(asked) == 1
    # What no count tells, who is an administrator, is read again behind an answer.
    service.hub.users["user01"] = True
    monkeypatch.setattr(hub, "KEEP_SECONDS", 0.0)
    assert await service.parts.hub.users() == everybody
    reading = service.parts.hub._reading  # type: ignore[attr-defined]
    await reading
    assert hub.HubUser("user01", True) in await service.parts.hub.users()
    service.hub.down = True
    with pytest.raises(hub.HubUnavailable):
        await service.parts.hub.users()
