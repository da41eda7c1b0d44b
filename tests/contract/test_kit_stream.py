"""What the service tells the kit in a server while it runs: its own lease and nothing else, soon after each change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from quota import catalogues, schema_stops, told
from quota.api import kit_stream
from quota.leases import Lease, StopReason
from quota.rows import Sample
from quota.web import streams
from tests.contract.service_reading import problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service

PATH = "kit/stream"
_GPU_IDLE = {"span": "20 min", "key": "idle.gpu_idle"}
SOON = 5.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AGAIN", 0.5)
    monkeypatch.setattr(kit_stream, "CHECK", 0.1)
    monkeypatch.setattr(kit_stream, "KEEP_ALIVE", 0.3)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            for name in ("alice", "mallory"):
                found.hub.add_user(name)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def lease(desk: Desk) -> Lease:
    return desk.run("alice", profile="test")


class Listener:
    """The kit's end of one stream."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.comments = 0

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next event. Raises `StopAsyncIteration` at the end, `TimeoutError`."""
        name = ""
        async with asyncio.timeout(SOON):
            while True:
                line = await anext(self._lines)
                if line.startswith(":"):
                    self.comments += 1
                elif line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return name, json.loads(line.removeprefix("data: "))

    async def until(self, name: str, **facts: Any) -> dict[str, Any]:
        """The first event of this name with these facts."""
        while True:
            found, data = await self.next()
            if found == name and facts.items() <= data.items():
                return data

    async def end(self) -> list[str]:
        """What still comes until the stream ends."""
        names = []
        try:
            while True:
                names.append((await self.next())[0])
        except StopAsyncIteration:
            return names


@asynccontextmanager
async def listening(service: Service, user: str = "alice", token: str = "") -> AsyncIterator[Listener]:
    client = service.api(token or service.hub.server_token(user))
    async with client.stream("GET", PATH) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Listener(answer.aiter_lines())


async def test_the_state_of_its_own_lease_comes_first(service: Service, desk: Desk, lease: Lease) -> None:
    desk.clock.advance(1800)
    desk.rows.put_sample(lease.id, Sample(desk.now, gpu_util=37, gpu_memory_mib=900))
    async with listening(service) as kit:
        name, state = await kit.next()
    assert name == "state"
    expected = {
        "lease_id": lease.id,
        "profile": "test",
        "share_milli": 500,
        "count": 1,
        "simulated": True,
        "gpu_util": 37,
        "gpu_memory_mib": 900,
        "gpu_memory_total_mib": 24576 // 2,
        "rate_micro_per_hour": 500_000,
        "payer": "alice",
        "charged_micro": 250_000,
        "started_at": "2026-03-02T09:00:00Z",
        "max_age_ends_at": None,
        "verdict": None,
        "wish": {"keep_until": None, "shutdown_at": None, "when_done": False},
        "target": "RUN",
        "stop": None,
        "now": "2026-03-02T09:30:00Z",
    }
    assert expected.items() <= state.items()
    # 100 credits were granted; half an hour at half a credit is spent but not yet booked.
    ends = state["credit_ends_at"]
    assert ends is not None and "2026-03-10" < ends < "2026-03-12"
    assert state["balance_micro"] == desk.bank.account("alice").available


async def test_changes_are_told_soon_and_only_once(service: Service, desk: Desk, lease: Lease) -> None:
    async with listening(service) as kit:
        await kit.until("state")
        desk.rows.put_verdict(lease.id, desk.now, "warn", "idle", "Not used since 9:00.", {}, desk.now)
        assert (await kit.until("state"))["verdict"] is not None
        with desk.store.write() as connection:
            values = {"lease_id": lease.id, "when_done": True, "at": desk.now, "by": "alice"}
            connection.execute(sa.insert(schema_stops.wish).values(**values))
        assert (await kit.until("state", wish={"keep_until": None, "shutdown_at": None, "when_done": True}))["target"]
        after = desk.now + timedelta(minutes=2)
        desk.book.request_stop(lease.id, StopReason.IDLE, detail="Not used.", by="idle-culler", stop_after=after)
        stop = {"reason": "idle", "detail": "Not used.", "stop_after": "2026-03-02T09:02:00Z"}
        assert (await kit.until("state", target="STOP"))["stop"] == stop
        last = {"detail_in": {"zh-CN": "Not used."}, "save_until": "2026-03-02T09:02:00Z"}  # no words of the book
        assert await kit.until("stopping") == {**stop, **last}
        desk.book.cancel_stop(lease.id, "alice")
        assert (await kit.until("state", target="RUN"))["stop"] is None
        desk.book.request_stop(lease.id, StopReason.USER, by="alice", stop_after=desk.now)
        assert (await kit.until("stopping"))["reason"] == "user"
        desk.end(desk.book.lease(lease.id))
        assert await kit.until("gone") == {"lease_id": lease.id, "reason": "user"}
        assert await kit.end() == []
    problem(await service.api(service.hub.server_token("alice")).get(PATH), 404, "no-lease")


async def test_who_comes_again_is_told_of_the_stop_again(service: Service, desk: Desk, lease: Lease) -> None:
    desk.book.request_stop(lease.id, StopReason.QUOTA, stop_after=desk.now + timedelta(minutes=1))
    for _ in range(2):
        async with listening(service) as kit:
            assert (await kit.next())[0] == "state"
            assert await kit.next() == (
                "stopping",
                {
                    "reason": "quota",
                    "detail": "",
                    "detail_in": {"zh-CN": ""},
                    "stop_after": "2026-03-02T09:01:00Z",
                    "save_until": "2026-03-02T09:01:00Z",
                },
            )


def tell(desk: Desk, number: int, lease: Lease, **more: Any) -> None:
    values = {
        "id": number,
        "key": f"k{number}",
        "user": lease.holder.user,
        "kind": "idle-warning",
        "lease_id": lease.id,
        "at": desk.now,
        "expires_at": desk.now + timedelta(minutes=10),
        "words": f"Words {number}",
        "link": "/services/berth/lease/x",
        "data": {},
    }
    with desk.store.write() as connection:
        connection.execute(sa.insert(schema_stops.notice).values(**(values | more)))


async def test_notices_of_this_user_and_lease_are_told_once(service: Service, desk: Desk, lease: Lease) -> None:
    other = desk.run("mallory", profile="test")
    tell(desk, 1, lease, expires_at=desk.now - timedelta(seconds=1))
    tell(desk, 2, lease)
    async with listening(service) as kit:
        first = await kit.until("notice")
        assert (first["id"], first["words"]) == (2, "Words 2")
        assert first["actions"] == ["keep-1h", "keep-3h", "save", "stop"]
        tell(desk, 5, lease, kind="stopped")
        assert (await kit.until("notice"))["id"] == 5
        tell(desk, 6, other)
        tell(desk, 7, lease, user="mallory")
        tell(desk, 4, lease)  # written in a transaction that ended later than that of 5
        assert (await kit.until("notice"))["id"] == 4
        tell(desk, 8, lease, words="last")
        assert (await kit.until("notice"))["id"] == 8


async def test_words_of_the_book_are_told_in_each_language(service: Service, desk: Desk, lease: Lease) -> None:
    catalogues.load("en")
    why = told.GPU_NOT_USED % {"time": "09:00", "span": "20 min", "rule": told.RULE_GPU_IDLE % _GPU_IDLE}
    desk.rows.put_verdict(lease.id, desk.now, "warn", "gpu-idle", why, {}, desk.now)
    tell(desk, 1, lease, words=told.WILL_SHUT_DOWN % {"profile": "test", "deadline": "2026-03-02 09:10 UTC"})
    async with listening(service) as kit:
        verdict = (await kit.until("state"))["verdict"]
        notice = await kit.until("notice")
    assert verdict["words"] == why and "20 分钟" in verdict["words_in"]["zh-CN"]
    assert notice["words"].startswith("Your server") and "2026-03-02 09:10" in notice["words_in"]["zh-CN"]
    assert not re.search("[a-z]{4}", notice["words_in"]["zh-CN"].replace("test", ""))


async def test_the_newer_stream_of_a_server_wins(service: Service, desk: Desk, lease: Lease) -> None:
    async with listening(service) as first:
        await first.until("state")
        async with listening(service) as second:
            await second.until("state")
            assert "gone" not in await first.end()
            desk.book.request_stop(lease.id, StopReason.USER)
            await second.until("stopping")


async def test_a_quiet_stream_is_kept_open_and_told_again(service: Service, desk: Desk, lease: Lease) -> None:
    async with listening(service) as kit:
        states = [await kit.until("state") for _ in range(3)]
    assert kit.comments >= 1
    assert {state["lease_id"] for state in states} == {lease.id}


async def test_a_revoked_token_ends_its_stream_and_a_silent_hub_does_not(
    service: Service, desk: Desk, lease: Lease
) -> None:
    assert service.parts.hub_auth is not None
    service.parts.hub_auth.cache_max_age = 1
    service.parts.hub_auth.cache.max_age = 1
    token = service.hub.server_token("alice")
    async with listening(service, token=token) as kit:
        await kit.until("state")
        service.hub.down = True
        for _ in range(4):  # for longer than the Hub's word is kept
            await kit.until("state")
        service.hub.down = False
        del service.hub.tokens[token]
        assert (await kit.until("gone"))["reason"] == "token"
        assert await kit.end() == []


@pytest.mark.parametrize(
    "scopes", [(), ("custom:berth:kit!user=mallory",), ("custom:berth:kit!server=alice/",), ("self",)]
)
async def test_only_a_servers_own_token_listens(service: Service, lease: Lease, scopes: tuple[str, ...]) -> None:
    answer = await service.api(service.hub.add_token("mallory", scopes)).get(PATH)
    problem(answer, 403, "forbidden")
    problem(await service.api().get(PATH), 401, "not-signed-in")


async def test_nothing_of_anybody_else_is_told(service: Service, desk: Desk, lease: Lease) -> None:
    mine = desk.run("mallory", profile="test")
    tell(desk, 1, lease, words="secret")
    desk.rows.put_verdict(lease.id, desk.now, "keep", "busy", "secret", {}, None)
    async with listening(service, "mallory") as kit:
        for _ in range(3):
            name, data = await kit.next()
            assert (name, data["lease_id"]) == ("state", mine.id)
            assert "secret" not in json.dumps(data) and "alice" not in json.dumps(data)


async def test_many_openings_are_slowed_down(service: Service, desk: Desk, lease: Lease) -> None:
    token, codes = service.hub.server_token("alice"), []
    for _ in range(25):
        async with service.api(token).stream("GET", PATH) as answer:
            codes.append(answer.status_code)
    assert codes == [200] * 20 + [429] * 5


async def test_who_takes_nothing_is_dropped(
    service: Service, desk: Desk, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is never read: when its buffers are full its stream ends, and the others go on."""
    monkeypatch.setattr(kit_stream, "SLOW", 0.3)
    other = desk.run("mallory", profile="test")
    url = httpx.URL(service.url)
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    path, token = f"/services/berth/api/v1/{PATH}", service.hub.server_token("alice")
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: token {token}\r\n\r\n".encode())
    async with listening(service, "mallory") as kit:
        await kit.until("state")
        for number in range(1, 40):
            tell(desk, number, lease, words="x" * 400_000)
            if number % 8 == 0:
                await kit.until("state", lease_id=other.id)
    assert (await asyncio.wait_for(drained(reader), SOON)) < 39 * 400_000
    writer.close()


async def drained(reader: asyncio.StreamReader) -> int:
    """Bytes until the end, however it comes."""
    size = 0
    try:
        while block := await reader.read(65536):
            size += len(block)
    except ConnectionError:
        pass
    return size
