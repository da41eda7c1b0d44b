"""A hostile kit: what a user's server may say to service `berth`, and what it can never reach by saying it.

A user can forge the reports of their own server: all that it may gain is that an idle server of theirs counts as used,
and is paid for, up to the longest life that a site sets (`test_attack_hostile_kit`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from idle_culler.decide import Keep, Policy, Rule, decide
from idle_culler.signals import NOTHING, read
from quota.leases import Lease
from quota.web.throttle import BURST
from tests.contract.service_attacks import everything
from tests.contract.service_reading import problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service

QUIET: dict[str, Any] = {"kernels": [], "terminals": 0}
KEPT = {"kernels", "terminals", "children", "background", "saved_at", "unsaved"}
PATH = "kit/signals"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            for name in ("alice", "mallory"):
                found.hub.add_user(name)
            found.hub.add_user("boss", admin=True)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def theirs(desk: Desk) -> Lease:
    return desk.run("alice", profile="test")


@pytest.fixture
def mine(desk: Desk) -> Lease:
    return desk.run("mallory", profile="test")


def kernel(**more: Any) -> dict[str, Any]:
    return {"id": "k", "busy": False, "last_execute_at": None, "busy_since": None, **more}


FOREIGN: dict[str, dict[str, Any]] = {
    "a lease": {"lease_id": "{lease}"},
    "a lease under another name": {"lease": "{lease}", "id": "{lease}"},
    "a holder": {"holder": {"user": "alice", "server": ""}, "user": "alice", "server": ""},
    "a name": {"name": "alice", "account": "alice"},
    "a source": {"source": "host", "signal": "gpu"},
    "a verdict": {"verdict": "keep", "idle": {"kind": "keep"}, "target": "RUN", "stop_after": None},
    "a time": {"at": "2099-01-01T00:00:00Z", "now": "2099-01-01T00:00:00Z"},
    "a prototype": {"__proto__": {"lease_id": "{lease}"}, "constructor": {}},
}


@pytest.mark.parametrize("more", FOREIGN.values(), ids=FOREIGN)
async def test_a_report_reaches_the_tokens_own_server_alone(
    service: Service, desk: Desk, theirs: Lease, mine: Lease, more: dict[str, Any]
) -> None:
    token = service.hub.server_token("mallory")
    body = json.loads(json.dumps({**QUIET, **more}).replace("{lease}", theirs.id))
    answer = await service.api(token, **{"X-Lease": theirs.id}).post(PATH, json=body)
    assert answer.status_code in (200, 400)
    for query in (f"lease_id={theirs.id}", "user=alice&server="):
        assert (await service.api(token).post(f"{PATH}?{query}", json=QUIET)).status_code in (200, 400)
    assert desk.rows.signals(theirs.id) == {}
    assert set(desk.rows.signals(mine.id)) <= {"kit"}
    found = desk.rows.signals(mine.id).get("kit")
    assert found is None or (found[0] == desk.now and set(found[1]) == KEPT)


SCOPES: dict[str, tuple[str, ...]] = {
    "none": (),
    "of all servers": ("custom:berth:kit",),
    "of one's own user": ("custom:berth:kit!user=mallory",),
    "of another user": ("custom:berth:kit!server=alice/",),
    "of two servers": ("custom:berth:kit!server=mallory/", "custom:berth:kit!server=alice/"),
    "with a way up": ("custom:berth:kit!server=mallory/../alice/",),
    "with an encoded slash": ("custom:berth:kit!server=mallory%2F..%2Falice/",),
    "with a line end": ("custom:berth:kit!server=mallory/\n", "custom:berth:kit!server=alice/"),
    "of something alike": ("custom:berth:kitten!server=mallory/",),
    "with something before": ("x-custom:berth:kit!server=mallory/",),
    "of the Hub's own": ("access:servers!server=mallory/", "users:activity!user=mallory"),
    "of an administrator": ("admin:users", "admin:servers", "servers", "tokens"),
}


@pytest.mark.parametrize("scopes", SCOPES.values(), ids=SCOPES)
async def test_only_the_one_scope_of_one_server_reports(
    service: Service, desk: Desk, theirs: Lease, mine: Lease, scopes: tuple[str, ...]
) -> None:
    token = service.hub.add_token("mallory", scopes)
    answer = await service.api(token).post(PATH, json=QUIET)
    assert answer.status_code in (403, 404), answer.text
    assert desk.rows.signals(theirs.id) == {} == desk.rows.signals(mine.id)


async def test_a_token_of_a_kit_does_nothing_but_report(service: Service, desk: Desk, mine: Lease) -> None:
    """DESIGN 2: it cannot see pages, extend, resize, stop or spend."""
    client, before = service.api(service.hub.server_token("mallory")), everything(desk)
    asked = [("GET", path) for path in ("me", "me/usage", "leases", "fleet", "prices", "accounts", "profiles")]
    asked += [("GET", f"leases/{mine.id}"), ("GET", "accounts/mallory"), ("GET", "accounts/mallory/grants")]
    asked += [("POST", f"leases/{mine.id}/{verb}") for verb in ("stop", "refund", "extend", "resize")]
    asked += [("DELETE", f"leases/{mine.id}"), ("POST", "accounts/mallory/grants"), ("PUT", "prices")]
    asked += [("GET", PATH), ("PUT", PATH), ("DELETE", PATH)]
    for method, path in asked:
        body = None if method == "GET" else {"credits": "5"}
        answer = await client.request(method, path, json=body)
        assert answer.status_code in (401, 403, 404, 405), (method, path, answer.text)
        assert "mallory" not in answer.text, (method, path)
    for page in ("", "usage", "board", "admin", f"lease/{mine.id}", f"lease/{mine.id}/stop", "usage.csv"):
        answer = await client.get(service.url + "/services/berth/" + page)
        assert answer.status_code in (302, 403), page
    assert everything(desk) == before
    assert service.hub.stopped == []


WRONG: dict[str, Any] = {
    "a million kernels": {"kernels": [1] * 30_000, "terminals": 0},
    "too many kernels": {"kernels": [kernel()] * 501, "terminals": 0},
    "kernels that are none": {"kernels": ["x", 5, None, []], "terminals": 0},
    "kernels as an object": {"kernels": {"0": kernel()}, "terminals": 0},
    "an id of 10,000 signs": {"kernels": [kernel(id="x" * 10_000)], "terminals": 0},
    "an id that steers a terminal": {"kernels": [kernel(id="\x1b[2J")], "terminals": 0},
    "an id that is a number": {"kernels": [kernel(id=5)], "terminals": 0},
    "busy in words": {"kernels": [kernel(busy="true")], "terminals": 0},
    "busy as a number": {"kernels": [kernel(busy=1)], "terminals": 0},
    "a time of no zone": {"kernels": [kernel(last_execute_at="2026-03-02T09:00:00")], "terminals": 0},
    "a time as a number": {"kernels": [kernel(busy_since=1_700_000_000)], "terminals": 0},
    "a time of no year": {"kernels": [kernel(busy_since="10000-01-01T00:00:00Z")], "terminals": 0},
    "minus one terminal": {"kernels": [], "terminals": -1},
    "half a terminal": {"kernels": [], "terminals": 0.5},
    "terminals beyond counting": {"kernels": [], "terminals": 10**30},
    "a terminal that is true": {"kernels": [], "terminals": True},
    "nothing": {},
}


async def test_a_wrong_report_leaves_the_last_good_one(service: Service, desk: Desk, mine: Lease) -> None:
    client = service.api(service.hub.server_token("mallory"))
    good = {"kernels": [kernel(busy=True)], "terminals": 2}
    assert (await client.post(PATH, json=good)).status_code == 200
    before = desk.rows.signals(mine.id)["kit"]
    for what, body in WRONG.items():
        desk.clock.advance(10)
        answer = await client.post(PATH, json=body)
        assert answer.status_code in (400, 413), (what, answer.text)
        assert len(answer.content) < 1_000
        assert desk.rows.signals(mine.id)["kit"] == before, what


async def test_times_of_a_report_lie_between_the_epoch_and_now(service: Service, desk: Desk, mine: Lease) -> None:
    client = service.api(service.hub.server_token("mallory"))
    for told in (
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ):
        answer = await client.post(
            PATH, json={"kernels": [kernel(busy=True, last_execute_at=told, busy_since=told)], "terminals": 0}
        )
        if answer.status_code == 400:
            continue
        (found,) = desk.rows.signals(mine.id)["kit"][1]["kernels"]
        for name in ("last_execute_at", "busy_since"):
            assert "2000-01-01T00:00:00Z" <= found[name] <= "2026-03-02T09:00:00Z", told


async def test_a_forged_busy_kernel_keeps_its_own_server_and_says_by_whose_word(
    service: Service, desk: Desk, mine: Lease
) -> None:
    """Busy for ever, by the kit's word alone: the server is kept, the verdict names that rule, and it is paid for."""
    client = service.api(service.hub.server_token("mallory"))
    held = desk.bank.account("mallory").available
    for _ in range(24):
        desk.clock.advance(1800)
        desk.book.meter(desk.book.lease(mine.id), desk.now)
        assert (await client.post(PATH, json={"kernels": [kernel(busy=True)], "terminals": 0})).status_code == 200
    verdict = decide(read(mine, desk.rows.signals(mine.id), NOTHING, desk.now), Policy(), desk.now)
    assert isinstance(verdict, Keep) and verdict.evidence.rule is Rule.BUSY_KERNEL
    assert "a kernel" in verdict.evidence.words
    assert desk.book.lease(mine.id).charged > 0 and desk.bank.account("mallory").available < held


async def test_a_flood_is_refused_with_a_time_to_come_back_and_others_are_heard(
    service: Service, desk: Desk, theirs: Lease, mine: Lease
) -> None:
    client = service.api(service.hub.server_token("mallory"))
    codes = [(await client.post(PATH, json=QUIET)).status_code for _ in range(BURST + 20)]
    assert codes[:BURST] == [200] * BURST and set(codes[BURST:]) == {429}
    refused = await client.post(PATH, json=QUIET)
    problem(refused, 429, "too-often")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    for name in ("alice",):
        others = service.api(service.hub.server_token(name))
        assert (await others.post(PATH, json=QUIET)).status_code == 200
    again = service.api(service.hub.server_token("mallory"))
    assert (await again.post(PATH, json=QUIET)).status_code == 429, "another token of the same server is no way out"
    desk.clock.advance(int(refused.headers["Retry-After"]))
    assert (await client.post(PATH, json=QUIET)).status_code == 200


async def test_a_report_for_a_lease_that_has_ended_is_not_taken(service: Service, desk: Desk, mine: Lease) -> None:
    client = service.api(service.hub.server_token("mallory"))
    assert (await client.post(PATH, json=QUIET)).status_code == 200
    desk.clock.advance(60)
    ended = desk.end(desk.book.lease(mine.id))
    before = everything(desk)
    for _ in range(3):
        problem(await client.post(PATH, json={"kernels": [kernel(busy=True)], "terminals": 9}), 404, "no-lease")
    assert everything(desk) == before
    following = desk.run("mallory", profile="test")
    assert desk.rows.signals(following.id) == {}, "nothing of the old one speaks for the new one"
    assert ended.id != following.id


async def test_a_replayed_report_says_what_it_said_and_no_more(service: Service, desk: Desk, mine: Lease) -> None:
    """An old report sent again: the times in it stay old, so it does not make the server look used."""
    client = service.api(service.hub.server_token("mallory"))
    moment = desk.now.isoformat()
    report = {"kernels": [kernel(last_execute_at=moment)], "terminals": 0}
    for _ in range(10):
        assert (await client.post(PATH, json=report)).status_code == 200
        desk.clock.advance(3600)
    (found,) = desk.rows.signals(mine.id)["kit"][1]["kernels"]
    assert found["last_execute_at"] == "2026-03-02T09:00:00Z"
    assert desk.now - mine.requested_at >= timedelta(hours=10)
