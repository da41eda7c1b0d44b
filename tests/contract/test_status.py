"""`berth status` on data folders in every state: down, half dead, locked, broken, somebody else's."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hub_config import status_facts
from hub_config.cli import main
from hub_config.compose import Parts, parts
from hub_config.datafolder import DataFolder
from hub_config.processes import starts_of, write_pid
from hub_config.status import status
from hub_config.status_text import as_text, size, span
from quota.leases import Device, DeviceState, Holder, LeaseRequest
from quota.units import MilliGpu
from quota.vitals import Vitals, to_note
from spawner.placement import best_fit
from tests.harness.waiting import PATIENCE

HOST = "h1"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Parts]:
    """A data folder with a book, as a `berth up` that has ended leaves it."""
    data = DataFolder(tmp_path / "data")
    data.make()
    made = parts(data.root)
    made.store.migrate()
    yield made
    made.store.close()


def gpu(number: int, state: DeviceState = DeviceState.OK, why: str = "") -> Device:
    return Device(HOST, f"SIM-{number}", number, "simulated GPU", 24576, "time-slice", True, state, why)


def fill(made: Parts, leases: int) -> None:
    made.rows.put_devices(HOST, [gpu(number) for number in range(-(-leases // 8))])
    made.rows.beat("hub-1", "hub", HOST)
    for number in range(leases):
        request = LeaseRequest(
            Holder(f"user{number}", ""), f"user{number}", "gpu-1-8", "env", MilliGpu(125), 1, "hub-1", f"user{number}"
        )
        lease = made.book.reserve(request, best_fit)
        lease = made.book.mark_starting(lease, made.clock.now() + timedelta(minutes=1))
        made.book.mark_running(lease, "hub-1", made.clock.now())


class Healthy(BaseHTTPRequestHandler):
    """Hub and proxy, as far as `berth status` asks them."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/hub/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Running:
    """What a living `berth up` has: its lock, its file, pids of processes that live, an address that answers, or
    (`hangs`) only takes connections."""

    def __init__(self, data: DataFolder, *, hangs: bool = False) -> None:
        self.lock = data.lock_file.open("a+")
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.site = ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
        self.thread = threading.Thread(target=self.site.serve_forever, kwargs={"poll_interval": 0.02})
        if not hangs:
            self.thread.start()
        self.url = f"http://127.0.0.1:{self.site.server_port}"
        info = {"pid": os.getpid(), "url": self.url, "since": "2026-01-01T00:00:00+00:00"}
        data.up_file.write_text(json.dumps(info), encoding="utf-8")
        for name in status_facts.PROCESSES:
            write_pid(data.pids, name)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.close()
        if self.thread.is_alive():
            self.site.shutdown()
            self.thread.join()
        self.site.server_close()


def beat(made: Parts, role: str, vitals: Vitals | None = None) -> None:
    made.rows.beat(f"{role}-1", role, HOST, to_note(vitals) if vitals else "")


def test_a_healthy_site_has_no_findings(made: Parts) -> None:
    fill(made, 9)
    beat(made, "agent", Vitals("fine", made.clock.now(), {"cycles": 5, "errors": 0}))
    beat(made, "idle-culler", Vitals("ok; last successful cycle: now", made.clock.now(), {"cycles": 2}))
    with Running(made.data) as running:
        found = status(made.data)
    assert found["findings"] == []
    assert found["healthy"] is True
    assert (found["up"], found["url"], found["since"]) == (True, running.url, "2026-01-01T00:00:00+00:00")
    assert found["proxy"]["answers"] is True
    agent = found["processes"]["agent"]
    assert (agent["pid"], agent["restarts"], agent["cycles"], agent["cycle_errors"]) == (os.getpid(), 0, 5, 0)
    assert agent["rss_bytes"] > 10**6
    assert agent["uptime_s"] > 0
    assert agent["note"] == "fine"
    assert found["processes"]["hub"]["last_cycle_at"] is None
    book = found["book"]
    assert (book["kind"], book["readable"]) == ("sqlite", True)
    assert book["rows"]["leases"] == 9
    assert book["bytes"] > 0
    assert book["last_audit"] is None
    assert len(found["leases"]) == 9
    assert found["leases"][0]["burn_micro_credits_per_hour"] == 125_000
    text = as_text(found)
    assert "Leases (9), 1.12 credits per hour in all" in text
    assert "No findings." in text


def test_every_finding_names_what_to_do(made: Parts) -> None:
    bad = [gpu(0, DeviceState.LOST, "off the bus"), gpu(1, DeviceState.OK)]
    made.rows.put_devices(HOST, bad)
    beat(made, "idle-culler", Vitals("unhealthy: the Hub's token lacks the scope read:servers; last …"))
    made.alerts.put("audit", "audit", "The ledger does not add up. Run: berth audit")
    with Running(made.data):
        (made.data.pids / "agent.pid").unlink()
        found = status(made.data)
    assert found["healthy"] is False
    findings = "\n".join(found["findings"])
    for expected in (
        "The agent is not running; `berth up` starts it again",
        "lacks the scope read:servers",
        "The ledger does not add up. Run: berth audit",
        "SIM-0) is lost: off the bus. Nothing new is placed on it",
    ):
        assert expected in findings
    assert [alert["key"] for alert in found["alerts"]] == ["audit"]
    assert "logs" in findings


def test_a_site_that_hangs_is_not_healthy(made: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process has its pid, and nobody can reach anything."""
    monkeypatch.setattr(status_facts, "ANSWER_SECONDS", 0.3)
    with Running(made.data, hangs=True) as running:
        found = status(made.data)
    assert found["healthy"] is False
    assert found["proxy"]["answers"] is False
    (finding,) = found["findings"]
    assert f"{running.url} does not answer, though hub and proxy run" in finding
    assert "the site does not answer" in as_text(found)


def test_it_is_down_and_everything_else_is_shown(made: Parts, capsys: pytest.CaptureFixture[str]) -> None:
    fill(made, 1)
    assert main(["status", "--data", str(made.data.root)]) == 1
    text = capsys.readouterr().out
    assert "is not running" in text
    assert "berth up" in text
    assert "user0" in text


def test_a_book_that_is_locked_is_a_line_and_quick(made: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_facts, "BOOK_SECONDS", 0.5)
    fill(made, 1)
    made.store.close()
    with closing(sqlite3.connect(made.data.book_file, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        found = status(made.data)
        assert time.monotonic() - began < PATIENCE * 10
        assert main(["status", "--data", str(made.data.root)]) == 1
    assert found["book"]["readable"] is False
    assert found["leases"] == []
    (words,) = [finding for finding in found["findings"] if "book" in finding]
    assert "\n" not in words
    assert "locking it" in words or "locked" in words
    text = as_text(found)
    assert "cannot be read" in text
    assert "unknown" in text


@pytest.mark.parametrize("what", ["no file", "garbage", "a folder", "older"])
def test_a_book_that_cannot_be_read_is_a_line(made: Parts, what: str) -> None:
    path = made.data.book_file
    made.store.close()
    if what == "older":
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '0001'")
    else:
        for file in path.parent.glob("book.sqlite*"):
            file.unlink()
        if what == "garbage":
            path.write_bytes(b"this is no database" * 500)
        elif what == "a folder":
            path.mkdir()
    found = status(made.data)
    assert found["book"]["readable"] is False
    assert len(found["findings"]) == 2
    assert "\n" not in found["findings"][1]
    assert ("migrate" in found["findings"][1]) or what != "older"
    assert as_text(found)


def test_a_folder_that_may_only_be_read(made: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written by looking, not even a lock: whoever may read may look."""
    fill(made, 1)
    before = {path: path.stat().st_mtime_ns for path in made.data.root.rglob("*") if "book.sqlite" not in path.name}
    real = Path.open

    def read_only(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if set(mode) & set("wa+x"):
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", read_only)
    assert status(made.data)["leases"]
    monkeypatch.undo()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_full_disk_is_told_before_it_is_full(made: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_facts, "_disk", lambda _root: (5 * 2**30, 100 * 2**30))
    found = status(made.data)
    assert any("Only 5 % of the disk" in finding and "(5.0 GiB)" in finding for finding in found["findings"])
    monkeypatch.setattr(status_facts, "_disk", lambda _root: (11 * 2**30, 100 * 2**30))
    assert not any("disk" in finding for finding in status(made.data)["findings"])


def test_errors_of_the_last_hour_are_hinted_at(made: Parts) -> None:
    def line(level: str, minutes: float, message: str) -> str:
        ts = (made.clock.now() - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
        return json.dumps({"ts": ts, "level": level, "event": "e", "message": message}) + "\n"

    hub = line("error", 90, "long ago") + line("error", 30, "first") + "no JSON\n" + line("critical", 5, "second")
    (made.data.logs / "hub.log").write_text(hub + line("info", 1, "fine"), encoding="utf-8")
    (made.data.logs / "agent.log").write_text(line("error", 90, "long ago"), encoding="utf-8")
    found = status(made.data)
    assert [(each["log"], each["message"], each["count"]) for each in found["errors"]] == [("hub.log", "second", 2)]
    assert "second (and 1 more)" in as_text(found)


def test_a_hundred_leases_are_looked_at_within_a_second(made: Parts) -> None:
    fill(made, 100)
    status(made.data)
    took = []
    for _ in range(3):
        began = time.monotonic()
        found = status(made.data)
        took.append(time.monotonic() - began)
    assert len(found["leases"]) == 100
    assert min(took) < 1.0


def test_starts_are_counted_once_each(tmp_path: Path) -> None:
    assert starts_of(tmp_path, "agent") is None
    for pid in (10, 10, 11):
        write_pid(tmp_path, "agent", pid)
    assert starts_of(tmp_path, "agent") == 2


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "-"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_spans(seconds: float | None, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"), [(None, "-"), (0, "0 B"), (1536, "2 KiB"), (100 * 2**20, "100 MiB"), (3 * 2**30, "3.0 GiB")]
)
def test_sizes(number: int | None, words: str) -> None:
    assert size(number) == words


def test_a_backup_is_remembered(made: Parts, tmp_path: Path) -> None:
    assert status(made.data)["book"]["last_backup"] is None
    assert main(["backup", str(tmp_path / "saved.tar"), "--data", str(made.data.root)]) == 0
    done = status(made.data)["book"]["last_backup"]
    assert done is not None
    assert done["at"].endswith("Z")
    assert "last backup 20" in as_text(status(made.data))


@pytest.mark.parametrize("as_json", [True, False])
def test_watching_shows_it_again_until_ctrl_c(
    made: Parts, as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("hub_config.status._pause", nap)
    fill(made, 1)
    beat(made, "agent", Vitals("fine", made.clock.now()))
    with Running(made.data):
        words = ["status", "--watch", "--data", str(made.data.root), *(["--json"] if as_json else [])]
        assert main(words) == 0
    out = capsys.readouterr().out
    assert naps == [2.0, 2.0]
    if as_json:
        assert [json.loads(line)["healthy"] for line in out.splitlines() if line] == [True, True]
    else:
        assert out.count("No findings.") == 2
        assert "\x1b" not in out, "no terminal, no control characters"
