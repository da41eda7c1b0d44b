"""A server that is to stop saves first, whatever the reason: notebooks with the outputs so far, busy kernels too."""

from __future__ import annotations

import json
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
    assert server.answers()


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
