"""`berth up`: what it prints, refuses, supervises, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Stack, until
from tests.harness.stack import berth_command, clean_environment

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("up")) as running:
        yield running


def berth(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*berth_command(), *words], capture_output=True, text=True, env=clean_environment(), timeout=60
    )


def test_one_screen_tells_all(stack: Stack) -> None:
    screen = until(lambda: stack.screen.read_text() if "Ctrl-C" in stack.screen.read_text() else "", 10)
    logins = stack.passwords()
    for part in (
        stack.url,
        logins["admin"]["password"],
        logins["researcher"]["password"],
        "simulated",
        "nothing isolates",
        str(stack.data),
        str(stack.data / "logs"),
        "berth.toml",
    ):
        assert part in screen
    assert len(screen.splitlines()) <= 40


def test_passwords_are_for_their_owner_alone(stack: Stack) -> None:
    mode = stat.S_IMODE((stack.data / "secrets" / "passwords.json").stat().st_mode)
    assert mode == 0o600
    assert stack.passwords()["url"] == stack.url


def test_secrets_stand_in_no_command_line_and_no_log(stack: Stack) -> None:
    logins = stack.passwords()
    secrets = [login["password"] for login in (logins["admin"], logins["researcher"])]
    secrets += [(stack.data / "secrets" / "proxy").read_text().strip()]
    found = [path for path in (stack.data / "logs").rglob("*.log") if any(s in path.read_text() for s in secrets)]
    assert not found
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in os.listdir("/proc") if pid.isdigit() and alive(pid)]
    assert not [line for line in lines if any(s in line for s in secrets)]


def alive(pid: str) -> bool:
    return os.access(f"/proc/{pid}/cmdline", os.R_OK) and Path(f"/proc/{pid}").exists()


def test_a_second_up_is_refused_while_the_first_lives(stack: Stack) -> None:
    done = berth("up", "--data", str(stack.data), "--port", str(stack.port + 1))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert stack.url in done.stderr and "--data" in done.stderr
    assert stack.answers()


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = berth("up", "--data", str(tmp_path / "data"), "--port", str(port))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert str(port) in done.stderr and f"--port {port + 1}" in done.stderr


@pytest.mark.parametrize("name", ["agent", "hub", "berth", "idle-culler"])
def test_what_is_killed_comes_back(stack: Stack, name: str) -> None:
    until(lambda: stack.pid(name), 20, f"{name} runs")
    old = stack.kill(name)
    stack.wait_for_new(name, old, 60)
    assert until(lambda: stack.status()["healthy"], 30, "healthy again")


def test_a_killed_proxy_is_back_in_two_seconds_and_nobody_is_logged_out(stack: Stack) -> None:
    stack.researcher.model()
    old = stack.kill("proxy")
    began = time.monotonic()
    until(lambda: stack.answers(), 10, "the proxy is back")
    took = time.monotonic() - began
    assert stack.pid("proxy") != old
    assert stack.researcher.browser.get("/hub/home").url.path == "/hub/home"
    assert took < 5, f"took {took:.1f} s"  # the figure itself is measured in benchmarks, this only guards


def test_ctrl_c_ends_all_with_reason_platform_and_up_carries_on(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data")
    with stack:
        lease = stack.researcher.start("gpu-1-4")
        lease = stack.researcher.lease()
        assert stack.server_processes()
        assert stack.interrupt() == 0
        assert not stack.leftovers()
        stack.process = None
        stack.forget_people()
        stack.up()
        after = stack.researcher.lease(lease["id"])
        assert (after["state"], after["stop_reason"]) == ("SETTLED", "platform")
        assert after["charged_micro_credits"] > 0
        assert until(lambda: stack.researcher.gone(), 30)
        stack.researcher.start("gpu-1-4")
        assert stack.researcher.lease()["id"] != lease["id"]


def test_a_killed_up_takes_its_processes_along_and_the_next_one_starts(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data")
    with stack:
        stack.researcher.start("cpu")
        first = stack.researcher.lease()
        servers = {process.pid for process in stack.server_processes()}
        assert stack.process is not None
        stack.process.send_signal(signal.SIGKILL)
        stack.process.wait(10)
        stack.process = None
        stack.forget_people()
        stack.up()
        assert {process.pid for process in stack.server_processes()} == servers  # notebooks did not notice
        again = until(lambda: stack.researcher.lease(first["id"]), 10)
        assert again["state"] == "RUNNING"
