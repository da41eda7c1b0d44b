"""A server that is to stop saves first, whatever the reason: notebooks with the outputs so far, busy kernels too."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.harness.notebook import NotebookServer, Service, Tab, listening, serving, text_of
from tests.harness.waiting import until

REASONS = ["idle", "user"]


@pytest.fixture(params=REASONS)
def reason(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service() -> Iterator[Service]:
    with listening() as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, service: Service) -> Iterator[NotebookServer]:
    with serving(tmp_path / "home", service) as made:
        yield made


def stopping(service: Service, reason: str, seconds: float) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    service.say("stopping", {"reason": reason, "detail": "", "stop_after": at, "save_until": at})


def final(service: Service) -> dict[str, Any]:
    until(lambda: service.done, 60, "the kit says that it is done")
    assert service.done is not None
    return service.done


def test_a_busy_kernel_is_interrupted_then_saved_and_the_notebook_is_stamped(
    server: NotebookServer, service: Service, reason: str
) -> None:
    code = "import time\nprint('so far', flush=True)\nwhile True: time.sleep(0.1)"
    server.save("train.ipynb", code)
    kernel = server.session("train.ipynb")
    with Tab(server, kernel) as tab:
        tab.until_seen(tab.run("c0", code), "stream", "so far")
    until(lambda: service.streams, 30, "the kit listens")
    stopping(service, reason, 10)
    report = final(service)
    notebook = server.on_disk("train.ipynb")
    assert text_of(notebook, "c0") == "so far\n"
    assert notebook["cells"][0]["outputs"][-1]["ename"] == "KeyboardInterrupt"
    stamp = notebook["metadata"]["berth"]
    assert (stamp["lease"], stamp["reason"]) == ("l1", reason)
    assert datetime.fromisoformat(stamp["at"]).utcoffset() == timedelta(0)
    assert {"notebook", "tabs"} <= {row["kind"] for row in report["saved"]} and report["reason"] == reason
    assert service.reports[0]["state"] == "saving"
    manifest = server.home / ".local/share/berth/snapshots" / report["resume"] / "manifest.json"
    assert manifest.stat().st_mode & 0o077 == 0
    (seat,) = json.loads(manifest.read_text())["kernels"]
    assert (seat["path"], seat["kernel"], seat["cwd"]) == ("train.ipynb", "python3", str(server.home))


def test_a_service_that_is_away_finds_the_report_in_the_users_folder(server: NotebookServer, service: Service) -> None:
    server.save("a.ipynb", "1")
    server.session("a.ipynb")
    until(lambda: service.streams, 30)
    stopping(service, "idle", 20)
    until(lambda: service.reports, 30, "it begins")
    service.refuses = True
    folder = server.home / ".local/share/berth/snapshots"
    until(lambda: list(folder.glob("*/report.json")), 60, "the report is kept")
    assert json.loads(next(folder.glob("*/report.json")).read_text())["state"] == "done"
    assert server.answers() and service.done is None
    service.refuses = False
    assert final(service)["state"] == "done", "it is told again until the service takes it"


def test_a_stop_that_is_taken_back_ends_the_saving(server: NotebookServer, service: Service) -> None:
    code = "import time\nwhile True: time.sleep(0.1)"
    server.save("a.ipynb", code)
    kernel = server.session("a.ipynb")
    with Tab(server, kernel) as tab:
        tab.until_seen(tab.run("c0", code), "status", '"busy"')
    until(lambda: any(k["busy"] for s in service.signals[-1:] for k in s["kernels"]), 30)
    stopping(service, "idle", 600)
    until(lambda: service.reports, 30, "it begins, and lets the kernel go on")
    service.say("state", {"target": "RUN"})
    stopping(service, "quota", 6)
    assert final(service)["reason"] == "quota", "the next stop is saved anew"


TRAINER = """
import sys, time
from berth_lab import checkpoint
def save():
    open("last.pt", "w").write("weights")
    return "last.pt"
with checkpoint.register(save, "train.py") as point:
    print("registered", flush=True)
    step = 0
    while not point(step):
        step += 1
        time.sleep(0.05)
"""


def test_training_programs_are_asked_and_their_checkpoints_are_listed(
    server: NotebookServer, service: Service, reason: str
) -> None:
    """One in a kernel, one that a kernel began and left, one that never looks."""
    server.save("train.ipynb", TRAINER)
    (server.home / "deaf.py").write_text(TRAINER.replace("train.py", "deaf.py").replace("point(step)", "False"))
    kernel = server.session("train.ipynb")
    start = f"import subprocess\nsubprocess.Popen([{sys.executable!r}, 'deaf.py'], stdout=1)\n"
    with Tab(server, kernel) as tab:
        tab.until_seen(tab.run("c0", start + TRAINER), "stream", "registered")
        until(lambda: len(list(server.home.glob("run/l1/[0-9]*.json"))) == 2, 30, "both are registered")
        until(lambda: service.streams, 30, "the kit listens")
        stopping(service, reason, 12)
        report = final(service)
    (saved,) = [row for row in report["saved"] if row["kind"] == "checkpoint"]
    assert (saved["path"], saved["what"], saved["bytes"]) == ("last.pt", "train.py", 7) and saved["count"] > 0
    assert (server.home / "last.pt").read_text() == "weights"
    (lost,) = [row for row in report["lost"] if row["kind"] == "checkpoint"]
    assert (lost["what"], lost["code"]) == ("deaf.py", "no-checkpoint")
    assert {"variables", "notebook"} <= {row["kind"] for row in report["saved"]}, "the kernel was free again, and saved"


@pytest.mark.parametrize("keeps", [True, False])
def test_code_that_a_person_runs_takes_an_idle_stop_back_if_the_service_agrees(
    server: NotebookServer, service: Service, keeps: bool
) -> None:
    busy = "import time\nwhile True: time.sleep(0.1)"
    server.save("a.ipynb", busy)
    server.save("b.ipynb", "1")
    with Tab(server, server.session("a.ipynb")) as tab, Tab(server, server.session("b.ipynb")) as other:
        tab.until_seen(tab.run("c0", busy), "status", '"busy"')
        until(lambda: any(k["busy"] for s in service.signals[-1:] for k in s["kernels"]), 30)
        service.keeps = keeps
        until(lambda: service.streams, 30)
        stopping(service, "idle", 600 if keeps else 9)
        until(lambda: service.reports, 30, "it begins, and lets the kernel go on")
        assert service.used == [], "what runs since before takes nothing back"
        other.finish(other.run("c0", "1"))
        until(lambda: service.used, 30, "the service is told")
        if keeps:
            until(lambda: server.event("saving") is None, 30, "the saving has ended")
            assert service.done is None
            stopping(service, "quota", 6)
        assert final(service)["reason"] == ("quota" if keeps else "idle")
    assert server.on_disk("a.ipynb")["cells"][0]["outputs"][-1]["ename"] == "KeyboardInterrupt"
