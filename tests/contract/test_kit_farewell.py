"""What the kit says it saved: into the book, in bounds, for its own lease and only while that is being stopped."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from quota.book import TooLate
from quota.errors import NotFound
from quota.farewells import NotStopping
from quota.leases import Lease, StopReason, Target
from quota.reported import LONGEST_NAME, MOST_ROWS
from quota.web.throttle import BURST
from tests.contract.service_reading import problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import Service, open_service

PATH = "kit/farewell"
ROW = {"kind": "notebook", "path": "work/train.ipynb", "what": "train.ipynb", "count": 12, "bytes": 1234}
LOST = {"kind": "variable", "what": "sock", "where": "train.ipynb", "why": "A socket cannot be kept.", "code": "socket"}


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
def kit(service: Service) -> httpx.AsyncClient:
    return service.api(service.hub.server_token("alice"))


@pytest.fixture
def lease(desk: Desk) -> Lease:
    return desk.run("alice", profile="test")


def saying(state: str = "saving", **more: Any) -> dict[str, Any]:
    return {"state": state, "reason": "idle", "saved": [ROW], "lost": [LOST], "resume": "t1", "seconds": 3.25, **more}


async def test_a_farewell_begins_with_the_first_word_and_is_done_once(
    service: Service, desk: Desk, kit: httpx.AsyncClient, lease: Lease
) -> None:
    began = desk.now
    desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now)
    answer = await kit.post(PATH, json=saying(saved=[]))
    assert answer.status_code == 200 and answer.json()["done_at"] is None
    desk.clock.advance(3)
    done_at = desk.now
    assert (await kit.post(PATH, json=saying("done"))).status_code == 200
    desk.clock.advance(3)
    assert (await kit.post(PATH, json=saying("done", lost=[]))).json()["done_at"] == "2026-03-02T09:00:03Z"
    found = service.parts.farewells.of(lease.id)
    assert found is not None and (found.began_at, found.done_at, found.heard_at) == (began, done_at, desk.now)
    assert found.report["saved"] == [ROW] and found.report["lost"] == []
    told = [event for event in desk.rows.events(lease.id) if event.kind.startswith("farewell-")]
    assert [event.kind for event in reversed(told)] == ["farewell-begun", "farewell-done"]
    assert told[0].detail == {"saved": 1, "lost": 1, "seconds": 3.0} | {
        name: value for name, value in told[0].detail.items() if name == "request_id"
    }


async def test_nobody_says_farewell_whose_server_is_to_run_or_is_gone(
    service: Service, desk: Desk, kit: httpx.AsyncClient, lease: Lease
) -> None:
    problem(await kit.post(PATH, json=saying("done")), 409, "not-stopping")
    assert service.parts.farewells.of(lease.id) is None
    desk.end(lease)
    problem(await kit.post(PATH, json=saying("done")), 404, "no-lease")
    with pytest.raises(NotStopping):
        service.parts.farewells.begin(lease.id)
    with pytest.raises(NotFound):
        service.parts.farewells.begin("l0000000000000000")


async def test_what_is_too_long_is_cut_and_counted(
    service: Service, desk: Desk, kit: httpx.AsyncClient, lease: Lease
) -> None:
    desk.book.request_stop(lease.id, StopReason.IDLE)
    many = [{**LOST, "what": f"v{number}"} for number in range(3_000)]
    wild = {"kind": "<b>", "what": "\x1b[2J<script>\u202e" + "x" * 9_000, "path": 5, "count": -1, "bytes": True}
    answer = await kit.post(PATH, json=saying("done", saved=[wild, 7, None, [1]], lost=many, seconds=-1))
    assert answer.status_code == 200, answer.text
    found = service.parts.farewells.of(lease.id)
    assert found is not None
    (row,) = found.report["saved"]
    assert (row["kind"], row["path"], row["count"], row["bytes"]) == ("other", "", None, None)
    assert row["what"].startswith("[2J<script> xx") and len(row["what"]) == LONGEST_NAME
    assert len(found.report["lost"]) == MOST_ROWS and found.report["lost_left_out"] == 3_000 - MOST_ROWS
    assert found.report["seconds"] is None


@pytest.mark.parametrize(("said", "kept"), [(7, 7), (-1, 0), ("many", 0), (2**70, 0), (True, 0), (None, 0)])
async def test_how_many_rows_a_kit_left_out_is_kept_if_it_is_a_number(
    service: Service, desk: Desk, kit: httpx.AsyncClient, lease: Lease, said: Any, kept: int
) -> None:
    desk.book.request_stop(lease.id, StopReason.IDLE)
    answer = await kit.post(PATH, json=saying("done", lost_left_out=said, saved_left_out=said))
    assert answer.status_code == 200, answer.text
    found = service.parts.farewells.of(lease.id)
    assert found is not None
    assert (found.report["lost_left_out"], found.report["saved_left_out"]) == (kept, kept)


WRONG: dict[str, tuple[Any, int]] = {
    "no state": ({"saved": []}, 400),
    "another state": (saying("gone"), 400),
    "rows that are an object": (saying(saved={"0": ROW}), 400),
    "a list": ([], 400),
    "a body of 700 KB": (saying(lost=["x" * 700_000]), 413),
}


@pytest.mark.parametrize("body,status", WRONG.values(), ids=WRONG)
async def test_what_is_no_report_is_refused(
    service: Service, desk: Desk, kit: httpx.AsyncClient, lease: Lease, body: Any, status: int
) -> None:
    desk.book.request_stop(lease.id, StopReason.IDLE)
    answer = await kit.post(PATH, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == status and len(answer.content) < 1_000
    assert service.parts.farewells.of(lease.id) is None


async def test_a_flood_is_refused_and_signals_are_still_heard(desk: Desk, kit: httpx.AsyncClient, lease: Lease) -> None:
    desk.book.request_stop(lease.id, StopReason.IDLE)
    codes = [(await kit.post(PATH, json=saying())).status_code for _ in range(BURST + 5)]
    assert codes == [200] * BURST + [429] * 5
    assert (await kit.post("kit/signals", json={"kernels": [], "terminals": 0})).status_code == 200


async def test_a_farewell_reaches_its_own_lease_alone(service: Service, desk: Desk, lease: Lease) -> None:
    mine = desk.run("mallory", profile="test")
    desk.book.request_stop(lease.id, StopReason.IDLE)
    mallory = service.api(service.hub.server_token("mallory"))
    body = saying("done", lease_id=lease.id, holder={"user": "alice", "server": ""})
    problem(await mallory.post(PATH, json=body), 409, "not-stopping")
    desk.book.request_stop(mine.id, StopReason.IDLE)
    assert (await mallory.post(f"{PATH}", json=body)).json()["lease_id"] == mine.id
    assert service.parts.farewells.of(lease.id) is None
    everywhere = service.hub.add_token("mallory", ("custom:berth:kit!user=mallory",))
    problem(await service.api(everywhere).post(PATH, json=body), 403, "forbidden")


# ---- taken back ------------------------------------------------------------------------------------------------


async def test_who_uses_an_idle_server_in_its_grace_keeps_it(
    service: Service, desk: Desk, kit: httpx.AsyncClient, lease: Lease
) -> None:
    after = desk.now + timedelta(minutes=2)
    assert (await kit.post("kit/used", json={})).json() == {"lease_id": lease.id, "target": "RUN"}
    desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=after)
    await kit.post(PATH, json=saying())
    assert (await kit.post("kit/used", json={})).json()["target"] == "RUN"
    assert desk.book.lease(lease.id).stop_reason is None
    assert service.parts.farewells.of(lease.id) is None, "the next stop begins anew"
    problem(await kit.post(PATH, json=saying("done")), 409, "not-stopping")


@pytest.mark.parametrize("reason", [StopReason.MAX_AGE, StopReason.QUOTA, StopReason.ADMIN, StopReason.DRAIN])
async def test_other_stops_are_not_taken_back(desk: Desk, kit: httpx.AsyncClient, lease: Lease, reason: Any) -> None:
    desk.book.request_stop(lease.id, reason, stop_after=desk.now + timedelta(minutes=2))
    problem(await kit.post("kit/used", json={}), 409, "changed-meanwhile")
    assert desk.book.lease(lease.id).target is Target.STOP


async def test_a_stop_is_not_taken_back_once_its_kit_is_done(desk: Desk, kit: httpx.AsyncClient, lease: Lease) -> None:
    """Whoever has read that it is done may be ending the server already."""
    desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + timedelta(minutes=2))
    await kit.post(PATH, json=saying("done"))
    problem(await kit.post("kit/used", json={}), 409, "changed-meanwhile")
    with pytest.raises(TooLate):
        desk.book.cancel_stop(lease.id, "admin")
    assert desk.book.lease(lease.id).target is Target.STOP
