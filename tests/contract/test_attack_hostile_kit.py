"""A hostile kit beside a culler that judges it: the real service, the real book, the real culler, a Hub over loopback.

Whatever a server says of itself, it is stopped at its longest age; what it sends at others, or in floods, or as
rubbish, gains nothing, is kept in bounds, and leaves everybody else as they were. That REST refuses single wrong
reports is `test_attack_kit`, that HTTP is guarded `test_attack_bodies`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa

from idle_culler.decide import Policy
from quota import schema
from quota.leases import Lease, StopReason, Target
from quota.leaving import Graces
from quota.rows import Rows
from quota.way_out import WayOut
from quota.web.throttle import BURST
from quota.wishes import Wishes
from tests.contract.culled_worlds import World, open_world
from tests.contract.service_attacks import everything
from tests.fakes.service import PREFIX, Service, open_service

HOUR = timedelta(hours=1)
LIFE = 4 * HOUR
POLICY = Policy(idle_gpu=1800, idle_cpu=7200, notice=600, max_age=LIFE.total_seconds())
GRACES = Graces(timedelta(minutes=2), timedelta(seconds=15))
QUIET: dict[str, Any] = {"kernels": [], "terminals": 0}
SIGNALS, FAREWELL, USED, STREAM = "kit/signals", "kit/farewell", "kit/used", "kit/stream"


@dataclass
class Site:
    """One book, its service and its culler, on one clock."""

    world: World
    service: Service

    @property
    def desk(self) -> Any:
        return self.world.desk

    def server(self, user: str) -> Lease:
        self.service.hub.add_user(user)
        return self.world.server(user)

    def kit(self, user: str) -> httpx.AsyncClient:
        return self.service.api(self.service.hub.server_token(user))

    def own(self, user: str) -> httpx.AsyncClient:
        """REST with a token of all rights of that user."""
        return self.service.api(self.service.hub.add_user(user))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_world(tmp_path) as world:
        desk = world.desk
        rows = WayOut(desk.book, desk.rows, farewells := _farewells(world), desk.clock, GRACES)
        async with open_service(desk, longest=lambda lease: LIFE, way_out=rows) as service:
            world.policy = POLICY
            world.culler = world.new_culler(
                wishes=Wishes(desk.store, desk.clock), alerts=desk.alerts, graces=GRACES, farewells=farewells
            )
            yield Site(world, service)


def _farewells(world: World) -> Any:
    from quota.farewells import Farewells

    return Farewells(world.desk.store, world.desk.clock)


def report(now: Any, **more: Any) -> dict[str, Any]:
    """A cell that runs for ever, in a future that has no end."""
    cell = {"id": "k", "busy": True, "last_execute_at": "9999-12-31T00:00:00Z", "busy_since": now.isoformat()}
    return {"kernels": [cell], "terminals": 9, "children": 9, "background": 9, "saved_at": now.isoformat(), **more}


# ---- forged ------------------------------------------------------------------------------------------------------


async def lie(site: Site, lease: Lease, kit: httpx.AsyncClient, own: httpx.AsyncClient) -> None:
    """All that a user has: the kit's three addresses, and the wishes for the end of their own server."""
    now = site.desk.now
    await kit.post(SIGNALS, json=report(now))
    await kit.post(USED, json={})
    await kit.post(FAREWELL, json={"state": "saving", "reason": "idle", "saved": [], "lost": []})
    await own.put(f"leases/{lease.id}/keep", json={"seconds": 3 * 3600})
    await own.put(f"leases/{lease.id}/shutdown", json={"at": (now + timedelta(seconds=61)).isoformat()})


async def test_i14_no_lie_outlives_the_longest_age_and_no_neighbour_notices(site: Site) -> None:
    liar, honest = site.server("mallory"), site.server("alice")
    site.desk.bank.grant("mallory", 100_000_000, "boss")
    kit, own, began = site.kit("mallory"), site.own("mallory"), site.desk.now
    await site.world.look(0)
    while site.world.lease(liar).stop_reason is not StopReason.MAX_AGE:
        assert site.desk.now - began < LIFE + HOUR, site.world.kind(liar)
        site.desk.clock.advance(60)
        for lease in (liar, honest):
            host = site.world.signals(lease)[1 if lease is liar else 0 :]
            for row in host:
                site.desk.rows.put_signal(**row)
        await lie(site, liar, kit, own)
        await site.world.culler.cycle()
    assert timedelta(0) <= site.desk.now - began - LIFE <= timedelta(minutes=2)
    assert site.world.lease(honest).stop_reason is StopReason.IDLE
    assert "4 h after their start (idle.max_age)" in site.world.lease(liar).stop_detail
    for _ in range(3):  # nothing takes this stop back, and no saving outlasts its grace
        site.desk.clock.advance(60)
        assert (await kit.post(USED, json={})).status_code == 409
        await lie(site, liar, kit, own)
        await site.world.culler.cycle()
    assert ("mallory", "") in site.world.hub.stopped
    assert site.world.lease(liar).target is Target.STOP


async def test_i14_the_evidence_marks_what_the_server_says_of_itself(site: Site) -> None:
    liar = site.server("mallory")
    site.desk.clock.advance(5)
    site.desk.rows.put_signal(**site.world.signals(liar)[1])
    await site.kit("mallory").post(SIGNALS, json=report(site.desk.now))
    await site.world.culler.cycle()
    verdict = site.desk.rows.verdict(liar.id)
    assert verdict.rule == "busy-kernel"
    told = {"kernels", "busy_kernels", "terminals", "children", "background", "saved_at"}
    assert told <= set(verdict.evidence["forgeable"]) and verdict.evidence["children"] == 9
    assert not {"cpu_percent", "io", "gpu_util", "processes"} & set(verdict.evidence["forgeable"])


# ---- somebody else's ---------------------------------------------------------------------------------------------


def aimed(lease: Lease) -> dict[str, dict[str, Any]]:
    """Ways to name another's server in a request."""
    return {
        "by query": {"params": {"lease_id": lease.id, "user": lease.holder.user, "server": lease.holder.server}},
        "by header": {"headers": {"X-Berth-Lease": lease.id, "X-Forwarded-User": lease.holder.user}},
        "by a cookie": {"headers": {"Cookie": f"fake-hub-user={lease.holder.user}; berth={lease.id}"}},
        "by a host": {"headers": {"Host": f"{lease.holder.user}.example.org"}},
        "by a prefix": {"headers": {"X-Forwarded-Prefix": f"/user/{lease.holder.user}", "Forwarded": "for=127.0.0.1"}},
    }


@pytest.mark.parametrize("way", ["by query", "by header", "by a cookie", "by a host", "by a prefix"])
async def test_a_foreign_server_is_reached_by_none_of_the_kits_addresses(site: Site, way: str) -> None:
    theirs = site.server("alice")
    site.server("mallory")
    site.desk.book.request_stop(theirs.id, StopReason.IDLE, stop_after=site.desk.now + timedelta(minutes=9))
    kit = site.kit("mallory")
    before = of_lease(site, theirs)
    named = {"lease_id": theirs.id, "lease": theirs.id, "user": "alice", "server": "", "holder": "alice/"}
    bodies: dict[str, dict[str, Any]] = {
        SIGNALS: report(site.desk.now),
        FAREWELL: {"state": "done", "reason": "idle", "saved": [], "lost": []},
        USED: {},
    }
    for path, body in bodies.items():
        for sent in (body, {**body, **named}):
            answer = await kit.post(path, json=sent, **aimed(theirs)[way])
            assert answer.status_code in (200, 400, 409), (path, answer.text)
            assert theirs.id not in answer.text
    assert of_lease(site, theirs) == before
    assert site.world.lease(theirs).target is Target.STOP, "nobody took it back"


def of_lease(site: Site, lease: Lease) -> list[str]:
    """All that the book says of one lease."""
    return [f"{name}: {row}" for name, rows in everything(site.desk).items() for row in rows if lease.id in row]


# ---- floods ------------------------------------------------------------------------------------------------------


class Counting(Rows):
    """Rows that count what is written of kits."""

    written: int = 0

    def put_signal(self, lease_id: str, source: str, payload: Any, at: Any) -> None:
        self.written += source == "kit"
        super().put_signal(lease_id, source, payload, at)


async def test_a_flood_costs_the_book_a_few_writes_and_one_row(site: Site) -> None:
    """2,000 reports in one second of the service's clock, by 20 connections at once."""
    liar, honest = site.server("mallory"), site.server("alice")
    counting = Counting(site.desk.store, site.desk.clock)
    object.__setattr__(site.service.parts, "rows", counting)
    token, codes = site.service.hub.server_token("mallory"), list[int]()

    async def send() -> None:
        client = site.service.api(token)
        for _ in range(100):
            codes.append((await client.post(SIGNALS, json=report(site.desk.now))).status_code)

    events = len(site.desk.rows.events(liar.id))
    flood = [asyncio.create_task(send()) for _ in range(20)]
    others = site.kit("alice")
    answered = 0
    while not all(task.done() for task in flood):
        if answered < BURST - 5:
            async with asyncio.timeout(10):
                assert (await others.post(SIGNALS, json=QUIET)).status_code == 200
            answered += 1
        await asyncio.sleep(0.01)
    await asyncio.gather(*flood)
    assert (codes.count(200), codes.count(429)) == (BURST, 2000 - BURST)
    assert answered >= 5, "the neighbour was heard meanwhile"
    assert counting.written == BURST + answered
    assert set(site.desk.rows.signals(liar.id)) == {"kit"} and set(site.desk.rows.signals(honest.id)) == {"kit"}
    assert rows_of_signals(site) == 2 and len(site.desk.rows.events(liar.id)) == events


def rows_of_signals(site: Site) -> int:
    with site.desk.store.read() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(schema.signal)) or 0)


async def test_a_flood_of_farewells_and_second_thoughts_is_one_story(site: Site) -> None:
    """A stop is taken back once, and told once, however often that is asked."""
    liar = site.server("mallory")
    kit = site.kit("mallory")
    site.desk.book.request_stop(liar.id, StopReason.IDLE, stop_after=site.desk.now + timedelta(minutes=2))
    saving = {"state": "saving", "reason": "idle", "saved": [{"kind": "notebook", "path": "x" * 4_000}] * 100}
    codes = [(await kit.post(FAREWELL, json=saving)).status_code for _ in range(60)]
    assert 200 in codes and codes[-1] == 429
    site.desk.clock.advance(20)
    codes = [(await kit.post(USED, json={})).status_code for _ in range(60)]
    assert codes[0] == 200 and codes[-1] == 429
    kinds = [event.kind for event in site.desk.rows.events(liar.id)]
    assert (kinds.count("farewell-begun"), kinds.count("stop-cancelled")) == (1, 1)


async def test_a_flood_of_tokens_that_nobody_gave_out_is_forgotten(site: Site) -> None:
    """The Hub's word about a token is kept for a while: not for longer, though each of them is another one."""
    auth = site.service.parts.hub_auth
    assert auth is not None
    auth.cache_max_age = 1
    auth.cache.max_age = auth.cache.purge_interval = 1
    client = site.service.api()
    for _ in range(300):
        answer = await client.post(SIGNALS, json=QUIET, headers={"Authorization": f"token {secrets.token_hex(16)}"})
        assert answer.status_code == 401
    site.server("alice")
    for _ in range(40):
        if len(auth.cache) < 10:
            break
        await asyncio.sleep(0.1)
        assert (await site.kit("alice").post(SIGNALS, json=QUIET)).status_code in (200, 429)
    assert len(auth.cache) < 60


async def test_many_streams_of_one_server_are_one_and_the_neighbours_goes_on(site: Site) -> None:
    site.server("mallory")
    theirs = site.server("alice")
    async with site.kit("alice").stream("GET", STREAM) as neighbour:
        lines = neighbour.aiter_lines()
        token = site.service.hub.server_token("mallory")
        answers = []
        for _ in range(40):
            client = site.service.api(token)
            answers.append(await client.send(client.build_request("GET", STREAM), stream=True))
        taken = [answer for answer in answers if answer.status_code == 200]
        assert {answer.status_code for answer in answers} == {200, 429} and len(taken) > 1
        for older in taken[:-1]:
            async with asyncio.timeout(20):
                await older.aread()  # it ends: only the newest goes on
        site.desk.book.request_stop(theirs.id, StopReason.USER)
        async with asyncio.timeout(20):
            async for line in lines:
                if line == "event: stopping":
                    break
        for answer in answers:
            await answer.aclose()


# ---- rubbish -----------------------------------------------------------------------------------------------------


async def test_rubbish_behind_an_open_stream_stays_in_the_socket(site: Site) -> None:
    """Whoever sends on where only to listen is left to do fills their own buffers: the service does not read it."""
    users = [f"u{number}" for number in range(4)]
    for user in users:
        site.server(user)
    process, at = psutil.Process(), httpx.URL(site.service.url)
    before = process.memory_info().rss
    sent = await asyncio.gather(*(rubbish(site, at, user) for user in users))
    assert process.memory_info().rss - before < 60 * 2**20
    assert max(sent) < 30 * 2**20, "of 64 MiB each that were there to be sent"
    assert (await site.kit("u0").post(SIGNALS, json=QUIET)).status_code == 200


async def rubbish(site: Site, at: httpx.URL, user: str) -> int:
    """Bytes that were taken of a kit that talks into its stream, until nobody takes any for two seconds."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    token, taken = site.service.hub.server_token(user), 0
    head = f"GET {PREFIX}api/v1/{STREAM} HTTP/1.1\r\nHost: x\r\nAuthorization: token {token}\r\n\r\n"
    writer.write(head.encode())
    assert b"200" in await asyncio.wait_for(reader.readline(), 20)
    try:
        while taken < 64 * 2**20:
            writer.write(secrets.token_bytes(1024) * 64)
            async with asyncio.timeout(2):
                await writer.drain()
            taken += 65536
    except (TimeoutError, ConnectionError):
        pass
    writer.transport.abort()
    return taken


def deep(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


FAREWELLS: dict[str, Any] = {
    "lists in lists": {"saved": [deep(900)], "lost": deep(900)},
    "rows that are none": {"saved": [None, 1, "x", [], True], "lost": [{}]},
    "names of a megabyte": {"saved": [{"kind": "notebook", "path": "p" * 200_000, "what": "w" * 200_000}]},
    "200,000 rows": {"saved": [1] * 150_000},
    "numbers beyond all": {"saved": [{"kind": "x", "count": 10**30, "bytes": -1}], "seconds": 1e308},
    "signs that steer": {"lost": [{"kind": "variable", "what": "\x1b[2J\u202e<script>", "why": "\r\nX: y\0"}]},
    "a key of Python's": {"__class__": "x", "model_config": {}, "saved": [{"__class__": 1, "__init__": {}}]},
    "a resume that goes up": {"resume": "../../../etc/passwd"},
}


@pytest.mark.parametrize("what", FAREWELLS)
async def test_a_farewell_of_rubbish_is_put_into_bounds_or_refused(site: Site, what: str) -> None:
    liar = site.server("mallory")
    site.desk.book.request_stop(liar.id, StopReason.IDLE, stop_after=site.desk.now + timedelta(minutes=2))
    body = json.dumps({"state": "saving", "reason": "idle", "saved": [], "lost": [], **FAREWELLS[what]})
    kit = site.kit("mallory")
    answer = await kit.post(FAREWELL, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 400, 413), answer.text
    kept = site.service.parts.farewells.of(liar.id)
    if kept is not None:
        text = json.dumps(dict(kept.report))
        assert len(text) < 400_000
        assert not {sign for sign in "\x1b\u202e\r\n\0" if json.dumps(sign)[1:-1] in text}
    assert site.world.lease(liar).stop_after == site.desk.now + timedelta(minutes=2), "and moves no moment"
    assert (await kit.post(FAREWELL, json={"state": "done", "reason": "idle"})).status_code == 200
