"""`berth up` says no in one clear line: file, key or address, and the remedy."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness import Stack, free_port, until
from tests.harness.stack import berth_command, clean_environment

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("up") / "data") as stack:
        yield stack


def up(data: Path, *more: str) -> tuple[int, str]:
    """Exit code and the one line of a `berth up` that must not start."""
    argv = [*berth_command(), "up", "--data", str(data), *more]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=clean_environment(), cwd=data.parent)
    assert done.returncode in (1, 2)
    assert done.stderr.strip().count("\n") == 0, done.stderr
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[hub]\nport = 1\n", ["hub.port", "unknown key"]),
        ("[hbu]\n", ["hbu", "did you mean 'hub'"]),
        ('[gpus]\nsimulated = "two"\n', ["gpus.simulated", "whole number"]),
        ('[[profiles]]\nname = "x"\nshare = "1/0"\n', ["profiles[1].share", "1/4"]),
        ('[[profiles]]\nname = "x"\nshare = -1\n', ["profiles[1].share"]),
        ('[idle]\nnotice = "soon"\n', ["idle.notice", "duration"]),
        ("[gpus\n", ["TOML"]),
    ],
    ids=["unknown key", "unknown table", "wrong type", "bad share", "negative share", "bad duration", "bad TOML"],
)
def test_a_broken_settings_file_gives_file_key_and_remedy(tmp_path: Path, toml: str, words: list[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "berth.toml").write_text(toml, encoding="utf-8")
    code, line = up(data)
    assert code == 2
    assert str(data / "berth.toml") in line
    assert all(word in line for word in words), line


def test_another_host_is_refused_with_the_reason(tmp_path: Path) -> None:
    code, line = up(tmp_path / "data", "--host", "0.0.0.0")
    assert code == 2
    assert "loopback" in line


def test_a_taken_port_names_another(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, line = up(tmp_path / "data", "--port", str(port))
    assert str(port) in line
    assert "--port" in line


def test_a_second_up_on_the_same_folder_is_refused_and_the_first_lives_on(stack: Stack) -> None:
    _, line = up(stack.data, "--port", str(free_port()))
    assert "up already" in line
    assert stack.url in line
    assert stack.answers()


def test_two_instances_run_side_by_side(stack: Stack, tmp_path: Path) -> None:
    with Stack(tmp_path / "other") as other:
        assert other.researcher.read("/me")
        assert stack.researcher.read("/me")
        assert {d["uuid"] for d in other.status()["devices"]}.isdisjoint(d["uuid"] for d in stack.status()["devices"])


def test_the_screen_tells_everything_once(stack: Stack) -> None:
    text = stack.screen.read_text(encoding="utf-8")
    logins = stack.passwords()
    wanted = [stack.url, logins["admin"]["password"], logins["researcher"]["password"], str(stack.data), "Ctrl-C"]
    assert all(text.count(word) >= 1 for word in wanted), text
    assert text.lower().count("simulated") >= 2
    assert "nothing isolates" in " ".join(text.split())
    assert len(text.splitlines()) < 40, "one screen"


def test_secrets_are_private(stack: Stack) -> None:
    for path in (stack.data / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((stack.data / "secrets").stat().st_mode) == 0o700
    assert stat.S_IMODE((stack.data / "book.sqlite").stat().st_mode) == 0o600


def test_status_names_every_process_and_device(stack: Stack) -> None:
    found = stack.status()
    assert found["up"] is True
    assert found["url"] == stack.url
    assert found["backend"] == "local"
    assert all(found["processes"][name]["pid"] for name in ("up", "hub", "agent", "berth", "idle-culler", "proxy"))
    assert [device["simulated"] for device in found["devices"]] == [True, True]
    assert found["leases"] == []


def test_a_grant_from_the_command_line_is_seen_at_once(stack: Stack) -> None:
    before = stack.researcher.available()
    stack.run("grant", "researcher", "12.5", "--note", "by hand")
    assert stack.researcher.available() == before + 12_500_000
    assert stack.run("grant", "nobody-here", "1", code=1) == ""
    assert stack.run("grant", "researcher", "-1", code=2) == ""


@pytest.mark.parametrize("seconds", [1.0, 2.5, 4.0])
def test_ctrl_c_in_the_middle_of_the_start_leaves_nothing(tmp_path: Path, seconds: float) -> None:
    """Whatever is just loading then: the services of a hub that has ended must end too."""
    stack = Stack(tmp_path / "data")
    stack.launch()
    with suppress(AssertionError):
        until(stack.answers, seconds)
    assert stack.interrupt() in (0, 130, -signal.SIGINT), "0 once there was something to end"
    until(lambda: not stack.leftovers(), 20, "what was still loading ends as well")


def test_a_closed_terminal_ends_everything_in_order(tmp_path: Path) -> None:
    """As Ctrl-C does, although the terminal hangs up and nobody reads what is said any more (`up | tee log`)."""
    stack = Stack(tmp_path / "data")
    argv = [*berth_command(), "up", "--data", str(stack.data), "--port", str(stack.port)]
    environment = clean_environment()
    with subprocess.Popen(
        argv,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # even where the tests run under nohup
    ) as up:
        try:
            until(stack.answers, 60, "it is up")
            until(lambda: (stack.data / "up.json").exists(), 10)
            stack.researcher.start("cpu")
            assert up.stdout is not None
            up.stdout.close()
            up.send_signal(signal.SIGHUP)
            assert up.wait(40) == 0
            assert not stack.leftovers()
            assert stack.status()["leases"] == []
        finally:
            stack.end_hard()
