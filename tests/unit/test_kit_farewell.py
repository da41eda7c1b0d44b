"""A farewell and its time: who is asked first, what hangs, what is told of it, and a stop that changes its mind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from berth_lab.broadcast import Broadcast
from berth_lab.farewell import WRITE_SECONDS, Farewell, interrupt_after, told
from berth_lab.farewell_kernels import Seat
from berth_lab.farewell_report import LONGEST, MOST_BYTES, MOST_ROWS, bounded, listed, shortened
from berth_lab.leaving import Leaving
from berth_lab.notebooks import Stamp, Written
from quota.reported import clamped
from tests.harness.waiting import PATIENCE

SEAT = Seat("k1", "python3", "python", "a.ipynb", "notebook", "a.ipynb", None)
BUSY = Seat("k2", "python3", "python", "b.ipynb", "notebook", "b.ipynb", None)


def now() -> datetime:
    return datetime.now(UTC)


class World:
    """A server of two kernels, one of which may be busy; what is named in `hangs` never ends."""

    def __init__(self, hangs: str = "", busy: bool = False, trainers: int = 0) -> None:
        self.hangs, self.is_busy, self.trainers = hangs, busy, trainers
        self.calls: list[str] = []
        self.reports: list[tuple[datetime, dict[str, Any]]] = []
        self.takes = True
        self.asked: tuple[str, datetime] | None = None

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.hangs:
            await asyncio.Event().wait()

    def now(self) -> datetime:
        return now()

    async def seats(self) -> list[Seat]:
        await self._call("seats")
        return [SEAT, BUSY]

    async def tabs(self) -> list[str]:
        await self._call("tabs")
        return ["a.ipynb"]

    def busy(self, kernel_id: str) -> bool | None:
        return self.is_busy and kernel_id == "k2"

    async def interrupt(self, kernel_id: str) -> None:
        await self._call("interrupt")
        self.is_busy = False

    async def save_variables(self, seat: Seat, folder: Path, seconds: float) -> dict[str, Any]:
        await self._call("variables")
        return {"saved": ["x", "y"], "bytes": 10, "lost": []}

    async def write_outputs(self, stamp: Stamp | None) -> list[Written]:
        await self._call("outputs" if stamp is None else "notebooks")
        return [] if stamp is None else [Written("a.ipynb", ("c0",), 100)]

    async def ask_browsers_to_save(self, seconds: float) -> bool:
        await self._call("browsers")
        return True

    def busy_terminals(self) -> int:
        return 0

    async def ask_trainers(self, reason: str, until: datetime) -> None:
        await self._call("trainers")
        self.asked = (reason, until)

    async def trainers_save(self) -> bool:
        self.trainers -= 1
        return self.trainers >= 0

    async def checkpoints(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        await self._call("checkpoints")
        return [{"kind": "checkpoint", "path": "last.pt", "what": "train.py", "count": 7, "bytes": 1}], []

    async def tell(self, report: dict[str, Any]) -> bool:
        self.reports.append((now(), report))
        return self.takes


def farewell(world: World, home: Path, seconds: float = 60.0, reason: str = "idle") -> Farewell:
    return Farewell(world, "l1", reason, now() + timedelta(seconds=seconds), home / "snapshots", home)


def kinds(report: dict[str, Any], name: str) -> list[str]:
    return [row["kind"] for row in report[name]]


async def test_trainers_are_asked_before_all_else_and_waited_for_last(tmp_path: Path) -> None:
    world = World(trainers=3)
    saying = farewell(world, tmp_path)
    report = await saying.run()
    assert world.calls[:3] == ["trainers", "browsers", "outputs"] and world.asked == ("idle", saying.until)
    assert world.trainers == -1, "it was looked at until none was waited for"
    assert world.calls.index("checkpoints") > world.calls.index("variables")
    assert kinds(report, "saved") == ["tabs", "variables", "variables", "checkpoint", "notebook"]
    assert report["lost"] == [] and saying.acknowledged


@pytest.mark.parametrize("step", ["trainers", "browsers", "outputs", "seats", "tabs", "variables", "checkpoints"])
async def test_a_step_that_hangs_ends_in_time_and_all_else_is_told(tmp_path: Path, step: str) -> None:
    world = World(hangs=step)
    saying = farewell(world, tmp_path, 5.0)
    report = await saying.run()
    (at, last) = world.reports[-1]
    assert last is report and at < saying.until + timedelta(seconds=2), "a slow machine, not a step that hangs"
    assert report["state"] == "done"
    if step == "variables":
        assert {row["code"] for row in report["lost"]} == {"time"} and "notebook" in kinds(report, "saved")
        assert at < saying.until, "there was time left for the notebooks"


async def test_a_time_that_becomes_shorter_is_heeded_in_the_middle_of_a_step(tmp_path: Path) -> None:
    world = World(hangs="variables")
    saying = farewell(world, tmp_path, 3600.0)
    running = asyncio.create_task(saying.run())
    await eventually(lambda: "variables" in world.calls)
    saying.until = now() + timedelta(seconds=WRITE_SECONDS + 1)
    report = await asyncio.wait_for(running, 60)
    assert report["state"] == "done" and "notebook" in kinds(report, "saved")


@pytest.mark.parametrize(("seconds", "after"), [(120, 90), (60, 30), (40, 20), (15, 7.5), (8, 2), (5, 0), (0, 0)])
def test_busy_kernels_are_interrupted_early_enough_to_end(seconds: float, after: float) -> None:
    assert interrupt_after(seconds) == after


async def test_a_kernel_that_runs_is_interrupted_and_saved(tmp_path: Path) -> None:
    world = World(busy=True)
    saying = farewell(world, tmp_path, 8.0)
    report = await saying.run()
    assert world.calls.count("variables") == 2 and report["lost"] == []
    assert world.calls.index("interrupt") < world.calls.index("notebooks")


async def test_keeping_stops_nothing_and_tells_nobody(tmp_path: Path) -> None:
    world = World(busy=True, trainers=1)
    report = await farewell(world, tmp_path, reason="asked").keep()
    assert world.calls == ["browsers", "outputs", "seats", "tabs", "variables"] and world.reports == []
    assert [(row["kind"], row["code"]) for row in report["lost"]] == [("kernel", "busy-now")]
    assert kinds(report, "saved") == ["tabs", "variables"] and report["resume"]


# ---- the report within bounds ----------------------------------------------------------------------------------


def variable(number: int, why: str = "It is open.") -> dict[str, Any]:
    return {"kind": "variable", "what": f"v{number}", "where": "a.ipynb", "why": why, "code": "file"}


def test_what_matters_is_in_a_report_that_is_cut_and_the_rest_is_counted() -> None:
    lost = [variable(n) for n in range(5000)]
    lost += [{"kind": "notebook", "what": "b.ipynb", "where": "b.ipynb", "why": "no", "code": "unwritable"}]
    lost += [{"kind": "checkpoint", "what": "train.py", "where": "/", "why": "no", "code": "ended"}]
    report = {"state": "done", "reason": "idle", "saved": [], "lost": lost, "resume": None, "seconds": 1.0}
    sent = json.loads(bounded(report))
    assert [row["kind"] for row in sent["lost"][:3]] == ["notebook", "checkpoint", "variable"]
    kept = clamped(sent)
    assert len(kept["lost"]) + kept["lost_left_out"] == len(lost) and kept["saved_left_out"] == 0
    assert listed(lost)[-1]["why"] == f"And {len(lost) - MOST_ROWS + 1} more that are not listed."
    assert len(listed(lost)) == MOST_ROWS and listed(lost[:3]) == lost[:3]


def test_a_report_of_long_texts_in_any_writing_fits_what_the_service_takes() -> None:
    rows = [variable(n, "网" * 5000) | {"what": "名" * 5000, "where": "处" * 5000} for n in range(1000)]
    report = {"state": "done", "reason": "idle", "saved": rows, "lost": rows, "resume": None, "seconds": 1.0}
    text = bounded(report)
    assert len(text.encode()) <= MOST_BYTES
    sent = json.loads(text)
    assert len(sent["lost"]) >= 20 and len(sent["lost"]) + sent["lost_left_out"] == 1000
    assert {len(row["why"]) for row in sent["lost"]} == {LONGEST}
    assert shortened({"saved": None})["lost_left_out"] == 0


class Refused(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


ERRORS: list[tuple[Exception, bool]] = [
    (OSError("away"), False),
    (Refused(503), False),
    (Refused(429), False),
    (Refused(599), False),
    (Refused(409), True),
    (Refused(404), True),
]


@pytest.mark.parametrize(("error", "spoke"), ERRORS)
async def test_a_report_that_was_not_taken_is_kept_and_sent_again_unless_refused_for_good(
    tmp_path: Path, error: Exception, spoke: bool
) -> None:
    async def post(report: dict[str, Any]) -> None:
        raise error

    path = tmp_path / "s" / "report.json"
    assert await told(post, {"state": "done", "n": 1}, path) is spoke
    assert json.loads(path.read_text()) == {"state": "done", "n": 1}


# ---- from the stop to the end, or back -------------------------------------------------------------------------


class Site:
    """A `Leaving` with farewells of `World`s, and a service that may take a stop back."""

    def __init__(self, home: Path, make: Callable[[], World]) -> None:
        self.home, self.make = home, make
        self.worlds: list[World] = []
        self.keeps, self.used = True, 0
        self.browsers = Broadcast()
        self.leaving = Leaving(self.browsers, self._farewell, self._used)

    def _farewell(self, reason: str, until: datetime) -> Farewell:
        self.worlds.append(self.make())
        return Farewell(self.worlds[-1], "l1", reason, until, self.home / "snapshots", self.home)

    async def _used(self) -> bool:
        self.used += 1
        return self.keeps

    def stop(self, reason: str = "idle", seconds: float = 60.0) -> None:
        self.leaving.stopping(reason, now() + timedelta(seconds=seconds))

    def done(self) -> int:
        return sum(report["state"] == "done" for world in self.worlds for _, report in world.reports)


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE * 30):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def test_the_result_is_told_again_until_the_service_has_taken_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth_lab.leaving.AGAIN_SECONDS", 0.05)

    def away() -> World:
        world = World()
        world.takes = False
        return world

    site = Site(tmp_path, away)
    site.stop()
    await eventually(lambda: site.done() >= 3)
    site.worlds[0].takes = True
    told_before = site.done()
    await eventually(lambda: site.leaving._saving is not None and site.leaving._saving.done())
    assert site.done() == told_before + 1 and len(site.worlds) == 1


async def test_who_runs_code_in_an_idle_server_ends_its_saving_at_once(tmp_path: Path) -> None:
    site = Site(tmp_path, lambda: World(hangs="variables"))
    site.browsers.publish("stopping", {})
    site.leaving.asked()
    assert site.used == 0, "nobody is to stop"
    site.stop()
    await eventually(lambda: "variables" in site.worlds[0].calls)
    site.leaving.asked()
    site.leaving.asked()
    await eventually(lambda: not site.leaving.begun)
    assert site.used == 1, "once in a while is enough"
    assert site.browsers.last("stopping") is None and site.done() == 0


@pytest.mark.parametrize(("reason", "keeps"), [("quota", True), ("idle", False)])
async def test_other_stops_and_stops_that_are_too_late_go_on(tmp_path: Path, reason: str, keeps: bool) -> None:
    site = Site(tmp_path, lambda: World(trainers=20))
    site.keeps = keeps
    site.stop(reason)
    site.leaving.asked()
    await eventually(lambda: site.done() == 1)
    assert site.leaving.begun and site.used == (reason == "idle")


async def test_a_stop_that_is_said_again_is_one_and_a_later_one_after_it_another(tmp_path: Path) -> None:
    site = Site(tmp_path, World)
    site.stop(seconds=600)
    site.stop(seconds=60)
    await eventually(lambda: site.done() == 1)
    site.stop(seconds=50)
    assert len(site.worlds) == 1
    site.stop("quota", seconds=600)
    await eventually(lambda: site.done() == 2)
    assert len(site.worlds) == 2
    site.leaving.runs_on()
    site.leaving.runs_on()
    assert not site.leaving.begun
