"""The supervisor of MPS daemons with a program that behaves like NVIDIA's, started, killed and ended for real."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spawner import mps_daemon
from spawner.mps import MpsPlan
from spawner.mps_daemon import FIRST_BACK_OFF, Daemon, MpsError
from spawner.processes import process
from tests.harness.waiting import until

STAND_IN = Path(__file__).parents[1] / "harness" / "mps_control.py"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Modes:
    calls: list[str] = field(default_factory=list)
    refuses: str = ""

    def exclusive(self, uuid: str) -> None:
        self.calls.append(f"exclusive {uuid}")
        if self.refuses:
            raise OSError(self.refuses)

    def default(self, uuid: str) -> None:
        self.calls.append(f"default {uuid}")


class Folders:
    """Shared memory of tests that are not root."""

    def mount(self, folder: str, size_bytes: int) -> None:
        assert os.path.isdir(folder) and size_bytes > 0

    def unmount(self, folder: str) -> None:
        pass


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modes = Modes()
        program = folder / "nvidia-cuda-mps-control"
        program.write_text(f"#!{sys.executable}\n" + STAND_IN.read_text())
        program.chmod(0o755)
        self.program = str(program)
        self.home = folder / "GPU-1"
        names = {name: str(self.home / name) for name in ("pipes", "logs", "shm")}
        self.plan = MpsPlan("GPU-1", **names, memory_mib=12288, threads=50, shm_bytes=1 << 20)
        self.made: list[Daemon] = []

    def daemon(self) -> Daemon:
        self.made.append(Daemon(self.plan, self.modes, Folders(), program=self.program))
        return self.made[-1]

    def misbehave(self, how: str) -> None:
        (self.folder / "misbehave").write_text(how)

    def told(self) -> list[str]:
        return (self.home / "logs" / "told").read_text().splitlines()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    short = Path("/tmp") / f"berth-mps-{os.getpid()}"  # a socket's path may have 107 characters
    shutil.rmtree(short, ignore_errors=True)
    short.mkdir(mode=0o700)
    made = World(short)
    yield made
    made.misbehave("")
    for daemon in made.made:
        daemon.stop()
    shutil.rmtree(short)


def test_it_starts_with_its_limits_in_exclusive_mode_and_leaves_nothing_behind(world: World) -> None:
    daemon = world.daemon()
    assert not daemon.ready
    daemon.tend(NOW)
    assert (daemon.ready, daemon.why) == (True, "")
    assert world.told() == list(world.plan.commands)
    pid = daemon.pid
    assert pid is not None
    daemon.stop()
    assert process(pid) is None and not world.home.exists()
    assert world.modes.calls == ["exclusive GPU-1", "default GPU-1"]
    assert not daemon.ready


def test_one_that_dies_is_seen_and_started_anew_after_a_while(world: World) -> None:
    daemon = world.daemon()
    daemon.tend(NOW)
    first = daemon.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: daemon.pid is None)
    daemon.tend(NOW)
    assert not daemon.ready and "ended by itself (signal 9)" in daemon.why
    daemon.tend(NOW + FIRST_BACK_OFF / 2)
    assert daemon.pid is None, "not before the back-off is over"
    daemon.tend(NOW + FIRST_BACK_OFF)
    assert daemon.ready and daemon.pid not in (None, first)


def test_the_wait_grows_while_it_does_not_stay(world: World) -> None:
    world.misbehave("die")
    daemon, now, waits = world.daemon(), NOW, []
    for _ in range(3):
        daemon.tend(now)
        assert "ended at once (exit code 1): An instance of this daemon is already running" in daemon.why
        began = now
        world.modes.calls.clear()
        while not world.modes.calls:
            now += timedelta(seconds=1)
            daemon.tend(now)
        waits.append((now - began).total_seconds())
    assert waits[0] == FIRST_BACK_OFF.total_seconds() and waits == sorted(waits) and waits[-1] > waits[0]
    assert not world.home.exists()


def test_pipes_of_one_that_died_with_its_agent_are_no_obstacle(world: World) -> None:
    world.home.joinpath("pipes").mkdir(parents=True)
    world.home.joinpath("pipes", "control").touch()
    daemon = world.daemon()
    daemon.tend(NOW)
    assert daemon.ready, daemon.why


def test_one_that_outlived_its_agent_is_kept_with_its_clients(world: World) -> None:
    earlier = world.daemon()
    earlier.tend(NOW)
    daemon = world.daemon()
    daemon.tend(NOW)
    assert daemon.ready and daemon.pid == earlier.pid
    assert world.told() == [*world.plan.commands, *world.plan.commands], "limits as they are set now"
    assert daemon.pid is not None
    os.kill(daemon.pid, signal.SIGKILL)
    until(lambda: earlier.pid is None)
    daemon.tend(NOW)
    assert "ended by itself (nobody knows how)" in daemon.why


def test_one_that_outlived_its_agent_and_does_not_answer_is_replaced(world: World) -> None:
    earlier = world.daemon()
    earlier.tend(NOW)
    pid = earlier.pid
    world.home.joinpath("pipes", "control").unlink()
    daemon = world.daemon()
    daemon.tend(NOW)
    assert daemon.ready and daemon.pid not in (None, pid)
    assert until(lambda: earlier.pid is None)


def test_another_process_of_that_pid_is_left_alone(world: World) -> None:
    world.home.mkdir()
    mine = process(os.getpid())
    assert mine is not None
    (world.home / "daemon.json").write_text(
        f'{{"pid": {mine.pid}, "start_time": {mine.start_time}, "boot_id": "{mps_daemon.boot_id()}"}}'
    )
    daemon = world.daemon()
    daemon.tend(NOW)  # this process is not NVIDIA's program, and lives on to see it
    assert daemon.ready


def test_recycling_gives_a_new_one(world: World) -> None:
    daemon = world.daemon()
    daemon.tend(NOW)
    first = daemon.pid
    daemon.recycle(NOW)
    assert daemon.ready and daemon.pid not in (None, first)


def test_one_that_does_not_quit_is_killed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = world.daemon()
    daemon.tend(NOW)
    pid = daemon.pid
    assert pid is not None
    world.misbehave("stay")
    monkeypatch.setattr(mps_daemon, "PATIENCE_S", 0.5)
    daemon.stop()
    assert process(pid) is None


def test_one_that_never_listens_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.misbehave("mute")
    monkeypatch.setattr(mps_daemon, "PATIENCE_S", 0.5)
    daemon = world.daemon()
    daemon.tend(NOW)
    assert "it does not listen after 0.5 s" in daemon.why
    assert daemon.pid is None and not world.home.exists()


def test_a_driver_that_refuses_the_mode_keeps_it_from_starting(world: World) -> None:
    world.modes.refuses = "Insufficient Permissions"
    daemon = world.daemon()
    daemon.tend(NOW)
    assert daemon.why == "its MPS daemon cannot run: Insufficient Permissions"
    assert daemon.pid is None


def test_a_command_that_is_refused_is_told(world: World) -> None:
    daemon = world.daemon()
    daemon.tend(NOW)
    with pytest.raises(MpsError, match="refused 'set_nonsense 1'"):
        daemon.say("set_nonsense 1")
