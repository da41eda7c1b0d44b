"""What only real processes can prove: runners and servers that are killed, strays, marks, records."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spawner import local_runtime, processes, runner
from spawner.local_runtime import LocalRuntime
from spawner.ports import Seen, ServerSpec, Unreachable
from tests.contract.runtime_worlds import SERVER, LocalWorld, seen_in, until

#: Starts a child the way `nohup setsid job &` does, in a session of its own and with nobody above it.
NOHUP = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("stray.tmp", "w").write(str(os.getpid()))
        os.rename("stray.tmp", "stray")
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists("stray"): time.sleep(0.01)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    local = LocalWorld(tmp_path)
    yield local
    local.clean()


def look(world: LocalWorld, lease_id: str = "l1") -> Seen | None:
    return seen_in(world.runtime.look(), lease_id)


def until_ended(world: LocalWorld) -> Seen:
    until(lambda: look(world) is not None and not look(world).running, "the end is seen")  # type: ignore[union-attr]
    seen = look(world)
    assert seen is not None
    return seen


def alive(pid: int) -> bool:
    found = processes.process(pid)
    return found is not None and found.alive


def with_stray(world: LocalWorld) -> int:
    world.start("l1", code=NOHUP + SERVER)
    return int((world.home("l1") / "stray").read_text())


# ---- who is killed, and what is seen then ----------------------------------------------------------------------


def test_x29_a_runner_killed_under_a_living_server_frees_nothing(world: LocalWorld) -> None:
    world.start("l1")
    world.kill("l1", "start.json")
    until(lambda: not alive(world.pid("l1", "start.json")))
    for runtime in (world.runtime, world.again()):
        seen = seen_in(runtime.look(), "l1")
        assert seen is not None and seen.running and seen.started_at is not None
    server = world.pid("l1")
    world.runtime.remove("l1")
    assert not alive(server) and look(world) is None


def test_x29_runner_and_server_killed_leave_an_end_without_a_time(world: LocalWorld) -> None:
    world.start("l1")
    world.kill("l1", "start.json")
    world.kill("l1")
    seen = until_ended(world)
    assert seen.ended_at is None and seen.exit_code is None


def test_x29_a_marked_stray_holds_the_lease_when_runner_and_server_are_dead(world: LocalWorld) -> None:
    stray = with_stray(world)
    server = world.pid("l1")
    world.kill("l1", "start.json")
    world.kill("l1")
    until(lambda: not alive(server))
    assert alive(stray)
    for runtime in (world.runtime, world.again()):
        assert seen_in(runtime.look(), "l1").running  # type: ignore[union-attr]
    world.runtime.remove("l1")
    assert not alive(stray) and look(world) is None


@pytest.mark.parametrize("way", ["stop", "kill", "exit"])
def test_a_nohup_setsid_child_ends_with_its_server(world: LocalWorld, way: str) -> None:
    stray = with_stray(world)
    assert alive(stray)
    if way == "stop":
        world.runtime.stop("l1", 30)
    elif way == "kill":
        world.kill("l1")
    else:
        world.finish("l1", 0)
    seen = until_ended(world)
    assert seen.ended_at is not None
    assert not alive(stray), "the end went on record before the last descendant was gone"


def test_remove_ends_a_nohup_setsid_child(world: LocalWorld) -> None:
    stray = with_stray(world)
    world.runtime.remove("l1")
    assert not alive(stray)


def test_a_vanished_run_directory_hides_no_living_server(world: LocalWorld) -> None:
    world.start("l1")
    assert look(world) is not None
    server, gone = world.pid("l1"), world.folder / "moved-away"
    (world.root / "l1").rename(gone)
    for runtime in (world.runtime, world.again()):
        assert seen_in(runtime.look(), "l1").running  # type: ignore[union-attr]
    world.runtime.remove("l1")
    assert not alive(server) and look(world) is None


def test_two_deployments_do_not_touch_each_other(world: LocalWorld, tmp_path: Path) -> None:
    world.start("l1")
    other = LocalRuntime(tmp_path / "other" / "runs", "another-deployment")
    assert other.look() == {}
    other.remove("l1")
    assert look(world).running  # type: ignore[union-attr]


# ---- records ---------------------------------------------------------------------------------------------------


def test_records_of_another_boot_or_of_a_reused_pid_are_dead(world: LocalWorld) -> None:
    for lease_id, change in (("l1", {"boot_id": "an-earlier-boot"}), ("l2", {"start_time": 1})):
        folder = world.root / lease_id
        folder.mkdir()
        for name in ("start.json", "server.json"):
            (folder / name).write_text(json.dumps({**runner.identity(os.getpid()), "started_at_us": 5, **change}))
        seen = look(world, lease_id)
        assert seen is not None and not seen.running and seen.ended_at is None
        world.runtime.remove(lease_id)  # and this process, whose pid is on record, lives on


def test_an_exit_on_record_is_never_started_again(world: LocalWorld) -> None:
    world.start("l1")
    world.finish("l1", 0)
    until_ended(world)
    done = subprocess.run(
        [sys.executable, "-I", "-S", runner.__file__, str(world.root / "l1")], capture_output=True, text=True
    )
    assert done.returncode == 1 and "started once" in done.stderr


def test_a_removal_under_way_keeps_a_late_runner_from_starting(world: LocalWorld) -> None:
    folder = world.root / "l1"
    folder.mkdir()
    runner.write_record(str(folder), "spec.json", {"argv": ["true"], "env": {}, "cwd": "/", "log": os.devnull})
    runner.write_record(str(folder), "removed", {})
    done = subprocess.run([sys.executable, "-I", "-S", runner.__file__, str(folder)], capture_output=True, text=True)
    assert done.returncode == 1 and "removed" in done.stderr
    assert not (folder / "start.json").exists()


def test_a_stop_that_came_before_the_start_holds(world: LocalWorld) -> None:
    folder = world.root / "l1"
    folder.mkdir()
    spec: dict[str, object] = {"argv": ["touch", str(world.folder / "ran")], "env": {}, "cwd": "/", "log": os.devnull}
    runner.write_record(str(folder), "spec.json", spec)
    world.runtime.stop("l1", 10)
    subprocess.run([sys.executable, "-I", "-S", runner.__file__, str(folder)], check=True)
    seen = until_ended(world)
    assert seen.ended_at is not None and seen.exit_code is None
    assert not (world.folder / "ran").exists()


def test_the_run_directory_is_for_its_owner_alone_and_durable_before_the_process(world: LocalWorld) -> None:
    world.start("l1")
    assert stat.S_IMODE((world.root / "l1").stat().st_mode) == 0o700
    assert stat.S_IMODE((world.root / "l1" / "spec.json").stat().st_mode) == 0o600


def test_an_unreadable_record_is_no_record(world: LocalWorld) -> None:
    (world.root / "l1").mkdir()
    (world.root / "l1" / "start.json").write_text('{"pid": 12')
    assert look(world) == Seen("l1", False)


def test_a_removed_server_leaves_its_log(world: LocalWorld) -> None:
    world.start("l1")
    world.runtime.remove("l1")
    assert world.runtime.log_tail("l1", 1) == ("the server is up",)
    assert not (world.root / "l1").exists()


@pytest.mark.parametrize("name", ["", "../l1", "a/b", ".gone-l1", "x" * 65])
def test_only_lease_ids_name_run_directories(world: LocalWorld, name: str) -> None:
    with pytest.raises(RuntimeError, match="not a lease id"):
        world.runtime.remove(name)


# ---- the start -------------------------------------------------------------------------------------------------


def test_the_server_gets_its_own_group_session_and_default_signals(world: LocalWorld) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        world.start("l1")
    finally:
        signal.signal(signal.SIGINT, before)
    pid = world.pid("l1")
    status = Path(f"/proc/{pid}/status").read_text()
    assert "SigBlk:\t0000000000000000" in status
    ignored = int(status.split("SigIgn:\t")[1].split()[0], 16)
    assert not ignored & 1 << (signal.SIGINT - 1)
    assert os.getpgid(pid) == pid and os.getsid(pid) == world.pid("l1", "start.json") != os.getsid(0)


def test_the_server_has_the_environment_of_its_spec_and_the_marks(world: LocalWorld) -> None:
    world.start("l1")
    env = processes.environ(world.pid("l1"))
    assert env == {
        b"PATH": os.environb[b"PATH"],
        b"BERTH_LEASE": b"l1",
        b"BERTH_DEPLOYMENT": world.deployment.encode(),
    }


def test_a_broken_python_environment_does_not_reach_the_runner(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    world.start("l1")
    assert look(world).running  # type: ignore[union-attr]


def test_a_program_that_is_not_there_is_an_end_with_words_in_the_log(world: LocalWorld) -> None:
    world.runtime.start(ServerSpec("l1", ("/no/such/program",), {}, "/"))
    assert until_ended(world).exit_code == 127
    assert "/no/such/program" in world.runtime.log_tail("l1", 1)[0]


def test_a_runner_that_cannot_begin_is_an_error_with_words(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_runtime, "RUNNER", world.folder / "no-such-runner.py")
    with pytest.raises(RuntimeError, match="no-such-runner"):
        world.runtime.start(world.spec("l1"))
    seen = look(world)
    assert seen is not None and not seen.running
    world.runtime.remove("l1")


def test_an_unreadable_root_is_unreachable(world: LocalWorld) -> None:
    world.lose()
    assert isinstance(world.runtime.look(), Unreachable)
    world.root.write_text("not a folder")
    assert isinstance(world.runtime.look(), Unreachable)
    world.root.unlink()


# ---- the stop --------------------------------------------------------------------------------------------------


def test_s12_the_grace_outlives_whoever_asked(world: LocalWorld) -> None:
    world.start("l1", deaf=True)
    ask = (
        "import os, signal, sys; from pathlib import Path; from spawner.local_runtime import LocalRuntime\n"
        "LocalRuntime(Path(sys.argv[1]), sys.argv[2]).stop('l1', 0.5)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", ask, str(world.root), world.deployment])
    assert done.returncode == -9
    assert until_ended(world).exit_code == -9


def test_s12_with_its_runner_dead_a_deaf_server_is_forced_by_a_later_call(world: LocalWorld) -> None:
    world.start("l1", deaf=True)
    world.kill("l1", "start.json")
    until(lambda: not alive(world.pid("l1", "start.json")))
    world.runtime.stop("l1", 0.3)
    world.again().stop("l1", 0.3)
    assert look(world).running  # type: ignore[union-attr]

    def asked_again_it_is_gone() -> bool:
        world.again().stop("l1", 60)
        return not look(world).running  # type: ignore[union-attr]

    until(asked_again_it_is_gone)


def test_a_stop_file_alone_is_enough(world: LocalWorld) -> None:
    world.start("l1")
    runner.write_record(str(world.root / "l1"), "stop.json", {"grace_seconds": 30})
    assert until_ended(world).exit_code == -15


def test_a_frozen_runner_does_not_hold_up_a_removal(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_runtime, "RUNNER_PATIENCE_S", 0.1)
    world.start("l1")
    server, runner_pid = world.pid("l1"), world.pid("l1", "start.json")
    os.kill(runner_pid, signal.SIGSTOP)
    world.runtime.remove("l1")
    assert not alive(server) and not alive(runner_pid)


# ---- load, log -------------------------------------------------------------------------------------------------

BURN = """
import os, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
burn(0.3)                                  # the server's own: not counted
if os.fork() == 0:                         # a kernel whose child burns and ends
    if os.fork() == 0:
        burn(0.2)
        os._exit(0)
    os.wait()
    burn(0.1)
    open("burnt", "w").close()
    while not os.path.exists("kernel-ends"): time.sleep(0.01)
    os._exit(0)
open("ready", "w").close()
os.wait()
open("collected", "w").close()
time.sleep(600)
"""


def test_cpu_time_counts_descendants_and_never_falls(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_runtime, "TABLE_AGE_S", 0.0)
    world.start("l1", code=BURN)
    told: list[float] = []

    def tell() -> bool:
        seconds = world.runtime.load("l1").cpu_seconds
        assert seconds is not None
        told.append(seconds)
        return True

    until(lambda: tell() and (world.home("l1") / "burnt").exists())
    tell()
    assert 0.25 <= told[-1] <= 0.45
    (world.home("l1") / "kernel-ends").touch()
    until(lambda: tell() and (world.home("l1") / "collected").exists())
    tell()
    assert 0.25 <= told[-1] <= 0.45
    world.kill("l1", "start.json")
    until(lambda: not alive(world.pid("l1", "start.json")))
    tell()
    assert told == sorted(told)


def test_the_log_is_bounded_while_its_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LOG_LIMIT", 1000)
    monkeypatch.setattr(runner, "LOG_KEPT", 100)
    path = tmp_path / "server.log"
    with open(path, "ab", buffering=0) as writer:
        writer.write(b"a" * 900)
        runner.bound_log(str(path))
        assert path.stat().st_size == 900
        writer.write(b"b" * 200)
        runner.bound_log(str(path))
        writer.write(b"after")
    assert path.read_bytes() == b"after"
    assert (tmp_path / "server.log.1").read_bytes() == b"b" * 100


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen(["true"])
    try:
        until(lambda: not alive(child.pid))
        assert processes.process(child.pid) is not None, "it is there, and dead"
        record = runner.identity(child.pid)
        assert processes.living(processes.Identity.of_record(record), processes.boot_id()) is None
    finally:
        child.wait()
