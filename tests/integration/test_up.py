"""`berth up` as a supervisor: what a killed part, a killed `up`, and secrets in process lists come to."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness import Stack, until

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("up")) as running:
        yield running


def test_a_log_in_leads_home_or_to_the_server_that_runs(stack: Stack) -> None:
    me = stack.researcher
    assert me.browser.get("/hub/").url.path == "/hub/home"
    with httpx.Client(base_url=stack.url, follow_redirects=True) as nobody:
        assert nobody.get("/").url.path == "/hub/login"
    me.start("cpu")
    assert me.browser.get("/hub/").url.path.startswith("/user/researcher/")
    me.stop()


def test_secrets_stand_in_no_command_line_and_no_log(stack: Stack) -> None:
    logins = stack.passwords()
    secrets = [logins[role]["password"] for role in ("admin", "researcher")]
    secrets.append((stack.data / "secrets" / "proxy").read_text().strip())
    stack.researcher.start("cpu")
    logs = {path.name: path.read_text() for path in (stack.data / "logs").rglob("*.log")}
    lines = {pid: line for pid in os.listdir("/proc") if pid.isdigit() and (line := command_line(pid))}
    found = [place for place, text in {**logs, **lines}.items() if any(secret in text for secret in secrets)]
    assert not found
    stack.researcher.stop()


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_a_killed_proxy_comes_back_and_nobody_is_logged_out(stack: Stack) -> None:
    stack.researcher.model()
    old = stack.kill("proxy")
    until(stack.answers, 10, "the proxy is back")
    assert stack.pid("proxy") != old
    assert stack.researcher.browser.get("/hub/home").url.path == "/hub/home"


def test_a_killed_up_takes_its_processes_along_and_notebooks_live_on(tmp_path: Path) -> None:
    with Stack(tmp_path / "data") as stack:
        stack.researcher.start("cpu")
        first = stack.researcher.lease()
        servers = {process.pid for process in stack.server_processes()}
        assert stack.process is not None and servers
        stack.process.send_signal(signal.SIGKILL)
        stack.process.wait(10)
        stack.process = None
        stack.forget_people()
        stack.up()
        assert {process.pid for process in stack.server_processes()} == servers
        assert stack.researcher.lease(first["id"])["state"] == "RUNNING"
        assert stack.researcher.notebook("GET", "api/status").status_code == 200
