"""What was open when a server was stopped is offered by the next one, and comes back: kernels of the same documents, in
the same folders, with their variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.harness.notebook import NotebookServer, Service, Tab, listening, serving
from tests.harness.waiting import until

LAYOUT = {
    "data": {
        "layout-restorer:data": {"main": {"dock": {"widgets": ["editor:notes.txt", "notebook:train.ipynb"]}}},
        "notebook:train.ipynb": {"data": {"path": "train.ipynb", "factory": "Notebook"}},
        "editor:notes.txt": {"data": {"path": "notes.txt", "factory": "Editor"}},
    },
    "metadata": {"id": "default"},
}


@pytest.fixture
def service() -> Iterator[Service]:
    with listening() as made:
        yield made


def snapshots(home: Path) -> Path:
    return home / ".local/share/berth/snapshots"


def executed(server: NotebookServer, kernel: str, code: str) -> str:
    """What some code prints."""
    with Tab(server, kernel) as tab:
        request = tab.run("c0", code + "\nprint('.', flush=True)")
        return str(tab.until_seen(request, "stream")["text"])


def saved(server: NotebookServer, service: Service, seconds: float = 20) -> dict[str, Any]:
    """Its server is told to stop; the final report."""
    until(lambda: service.streams, 30, "the kit listens")
    at = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    service.say("stopping", {"reason": "idle", "detail": "", "stop_after": at, "save_until": at})
    until(lambda: service.done, 60, "the kit says that it is done")
    assert service.done is not None
    return service.done


def offered(server: NotebookServer) -> dict[str, Any]:
    """Event `resume` of the browser's stream."""
    return until(lambda: server.event("resume"), 20, "an offer")


def at_work(server: NotebookServer) -> None:
    """Documents open, a kernel that is idle, one that has no document, and one that never ends."""
    (server.home / "data").mkdir()
    (server.home / "notes.txt").write_text("n")
    workspaces = server.home / ".jupyter/lab/workspaces"
    workspaces.mkdir(parents=True)
    (workspaces / "default-37a8.jupyterlab-workspace").write_text(json.dumps(LAYOUT))
    server.save("train.ipynb", "1")
    server.save("busy.ipynb", "1")
    code = "import os, threading, numpy as np\nos.chdir('data')\nw = np.arange(5)\nlock = threading.Lock()"
    executed(server, server.session("train.ipynb"), code)
    executed(server, server.ask("POST", "api/kernels", json={"name": "python3"}).json()["id"], "answer = 42")
    with Tab(server, server.session("busy.ipynb")) as tab:
        loop = tab.run("c0", "import time\nstep = 7\nprint('on', flush=True)\nwhile True: time.sleep(0.05)")
        tab.until_seen(loop, "stream")


def test_kernels_folders_variables_and_tabs_come_back(tmp_path: Path, service: Service) -> None:
    home = tmp_path / "home"
    with serving(home, service) as server:
        at_work(server)
        report = saved(server, service, 30)
    variables = {row["what"]: row["count"] for row in report["saved"] if row["kind"] == "variables"}
    assert variables["train.ipynb"] >= 2 and variables["busy.ipynb"] >= 1 and len(variables) == 3, report
    assert [(row["what"], row["code"]) for row in report["lost"] if row["kind"] == "variable"] == [("lock", "lock")]
    with serving(home, service) as server:
        offer = offered(server)
        assert (offer["token"], offer["reason"], offer["kernels"]) == (report["resume"], "idle", 3)
        assert offer["tabs"] == ["train.ipynb", "busy.ipynb", "notes.txt"]
        assert offer["variables"] == sum(variables.values()) and len(offer["lost"]) == 1
        body = {"token": offer["token"], "action": "restore"}
        found = server.ask("POST", "berth/resume", json=body).json()
        assert found["lost"] == [] and found["variables"] == offer["variables"], found
        assert server.ask("POST", "berth/resume", json=body).status_code == 404, "once"
        assert server.event("resume") is None
        came_back(server, {row["path"]: row["id"] for row in found["kernels"]})


def came_back(server: NotebookServer, kernels: dict[str, str]) -> None:
    sessions = {each["path"]: each["kernel"]["id"] for each in server.ask("GET", "api/sessions").json()}
    assert sessions == {path: kernel for path, kernel in kernels.items() if path}
    code = "print(w.sum(), np.__name__, os.path.basename(os.getcwd()))"
    assert executed(server, kernels["train.ipynb"], code).startswith("10 numpy data")
    assert executed(server, kernels["busy.ipynb"], "print(step)").startswith("7")
    assert executed(server, kernels[""], "print(answer)").startswith("42")


def made(home: Path, token: str = "20260102T030405Z-0123abcd", **changes: Any) -> Path:
    """A snapshot of one kernel without variables, as a farewell leaves it."""
    entry = {"kernel": "python3", "language": "python", "path": "gone.ipynb", "type": "notebook", "name": ""}
    value = {
        "format": 1,
        "token": token,
        "lease": "l0",
        "owner": {"user": "alice", "server": ""},
        "reason": "idle",
        "at": datetime.now(UTC).isoformat(),
        "kernels": [entry | {"cwd": None, "folder": None, "variables": 0}],
        "tabs": [],
        "lost": [],
        "used_at": None,
    }
    folder = snapshots(home) / token
    folder.mkdir(parents=True, mode=0o700)
    (folder / "manifest.json").write_text(json.dumps(value | changes))
    return folder


def test_a_file_that_is_gone_is_told_and_an_offer_that_is_dismissed_comes_no_more(
    tmp_path: Path, service: Service
) -> None:
    home = tmp_path / "home"
    made(home)
    with serving(home, service) as server:
        offer = offered(server)
        body = {"token": offer["token"], "action": "restore"}
        (lost,) = server.ask("POST", "berth/resume", json=body).json()["lost"]
        assert lost["code"] == "missing" and "no longer there" in lost["why"]
    newer = made(home, "20260103T030405Z-0123abcd")
    with serving(home, service) as server:
        token = offered(server)["token"]
        assert token == newer.name
        assert server.ask("POST", "berth/resume", json={"token": token, "action": "dismiss"}).status_code == 200
    service.streams.clear()
    with serving(home, service) as server:
        until(lambda: service.streams, 30, "the kit works")
        assert server.event("resume") is None


def test_a_snapshot_that_others_can_write_is_refused_in_words(tmp_path: Path, service: Service) -> None:
    home = tmp_path / "home"
    folder = made(home)
    folder.chmod(0o777)
    with serving(home, service) as server:
        notice = until(lambda: server.event("notice"), 20, "the person hears of it")
        assert "others may write to it" in notice["words"] and folder.name in notice["words"]
        assert server.event("resume") is None
        answer = server.ask("POST", "berth/resume", json={"token": folder.name, "action": "restore"})
        assert answer.status_code == 404


def test_a_server_offers_what_a_server_of_its_own_name_saved(tmp_path: Path, service: Service) -> None:
    home = tmp_path / "home"
    made(home)
    made(home, "20260109T030405Z-0123abcd", owner={"user": "alice", "server": "other"})
    made(home, "20260110T030405Z-0123abcd", owner={"user": "mallory", "server": ""})
    with serving(home, service) as server:
        assert offered(server)["token"] == "20260102T030405Z-0123abcd"
        for token in ("20260109T030405Z-0123abcd", "20260110T030405Z-0123abcd"):
            answer = server.ask("POST", "berth/resume", json={"token": token, "action": "restore"})
            assert answer.status_code == 404
    service.streams.clear()
    with serving(home, service, JUPYTERHUB_SERVER_NAME="other") as server:
        assert offered(server)["token"] == "20260109T030405Z-0123abcd"


def test_save_now_keeps_variables_while_all_goes_on_and_a_crash_loses_no_more_than_since(
    tmp_path: Path, service: Service
) -> None:
    home = tmp_path / "home"
    with serving(home, service) as server:
        at_work(server)
        until(lambda: any(k["busy"] for s in service.signals[-1:] for k in s["kernels"]), 30, "one is seen to be busy")
        first = server.ask("POST", "berth/save-now", json={}).json()
        assert [(row["what"], row["code"]) for row in first["lost"] if row["kind"] == "kernel"] == [
            ("busy.ipynb", "busy-now")
        ]
        assert {row["what"] for row in first["saved"] if row["kind"] == "variables"} >= {"train.ipynb"}
        assert service.reports == [] and server.event("saving") is None, "nobody is told of a stop"
        kernels = {each["path"]: each["kernel"]["id"] for each in server.ask("GET", "api/sessions").json()}
        assert server.kernel_state(kernels["busy.ipynb"]) == "busy", "it was not interrupted"
        assert "berth" not in server.on_disk("train.ipynb")["metadata"], "no stamp of a stop"
        executed(
            server, kernels["train.ipynb"], "w = w + 1\nfor n in range(40): globals()[f'lock{n}'] = threading.Lock()"
        )
        server.ask("DELETE", f"api/kernels/{kernels['busy.ipynb']}")
        reports = [server.ask("POST", "berth/save-now", json={}).json() for _ in range(3)]
        assert len(reports[0]["lost"]) == 20 and reports[0]["lost"][-1]["why"] == "And 22 more that are not listed."
        tokens = [report["resume"] for report in reports]
        assert {path.name for path in snapshots(home).iterdir()} == {first["resume"], tokens[-1]}, "the older two went"
        server.process.kill()
        server.process.wait(30)
    with serving(home, service) as server:
        offer = offered(server)
        assert (offer["token"], offer["reason"]) == (tokens[-1], "asked")
        found = server.ask("POST", "berth/resume", json={"token": offer["token"], "action": "restore"}).json()
        kernels = {row["path"]: row["id"] for row in found["kernels"]}
        assert executed(server, kernels["train.ipynb"], "print(w.sum())").startswith("15")
