"""Training programs in processes of their own: asked, they write a checkpoint and go; started again, they go on."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from berth_lab import checkpoint_files as files
from tests.contract.trainer_programs import (
    BEGIN,
    BY_ITSELF,
    NUMPY,
    OWN_LOOP,
    PAGE,
    TORCH,
    done,
    ended,
    program,
    started,
)
from tests.harness.own_kernel import own_kernel
from tests.harness.waiting import until

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install torch)")
PARTS = pytest.mark.parametrize("parts", [NUMPY, pytest.param(TORCH, marks=needs_torch)], ids=["numpy", "torch"])
STEPS = 400


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a lease, as the kit and its programs have it."""
    monkeypatch.setenv("BERTH_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("BERTH_LEASE", "l1")
    monkeypatch.delenv("BERTH_FAREWELL_FILE", raising=False)
    return tmp_path / "run" / "l1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def running(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that are ended with the test, if they live."""
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for each in programs:
        each.kill()
        each.communicate()


def at_work(folder: Path, code: str, running: list[subprocess.Popen[str]], least: int = 20) -> subprocess.Popen[str]:
    """A program that is registered and has done so many steps."""
    before = len(done(folder))
    running.append(started(folder, code, STEPS * 100))
    until(lambda: len(done(folder)) >= before + least or running[-1].poll() is not None, 120, "it trains")
    assert running[-1].poll() is None, running[-1].communicate()
    assert [each.pid for each in files.trainers()] == [running[-1].pid]
    return running[-1]


def uninterrupted(folder: Path, code: str) -> str:
    """What the program prints that nobody stops."""
    (folder / "alone").mkdir()
    return ended(started(folder / "alone", code, STEPS, 0))


def saved_step(folder: Path) -> int:
    """Of the numpy program's last checkpoint."""
    return int(pickle.loads((folder / "last.pt").read_bytes())["step"])


@PARTS
def test_the_signal_has_it_write_and_end_and_it_goes_on_without_a_step_lost(
    folder: Path, running: list[subprocess.Popen[str]], parts: str
) -> None:
    code = program(parts, OWN_LOOP)
    for _ in range(2):
        process = at_work(folder, code, running)
        os.kill(process.pid, signal.SIGUSR1)
        ended(process)
        assert files.trainers() == []
    assert ended(started(folder, code, STEPS, 0)) == uninterrupted(folder, code)
    assert done(folder) == list(range(STEPS)), "each step once"


@PARTS
def test_asked_by_the_kit_it_answers_in_time_and_may_be_killed(
    folder: Path, running: list[subprocess.Popen[str]], parts: str
) -> None:
    code = program(parts, OWN_LOOP)
    process = at_work(folder, code, running)
    request = files.ask("idle", datetime.now(UTC) + timedelta(seconds=30))
    until(lambda: not files.waiting(request), 30, "it has answered")
    process.kill()
    process.wait()
    files.withdraw()
    assert ended(started(folder, code, STEPS, 0)) == uninterrupted(folder, code)
    assert done(folder) == list(range(STEPS))


def test_one_that_writes_by_itself_is_believed_and_goes_on(folder: Path, running: list[subprocess.Popen[str]]) -> None:
    code = program(NUMPY, BY_ITSELF)
    process = at_work(folder, code, running)
    request = files.ask("idle")
    until(lambda: not files.waiting(request), 30, "it has answered")
    ended(process)
    files.withdraw()
    assert ended(started(folder, code, STEPS, 0)) == uninterrupted(folder, code)
    assert done(folder) == list(range(STEPS))


def test_killed_unasked_it_loses_the_steps_since_its_last_checkpoint_and_no_more(
    folder: Path, running: list[subprocess.Popen[str]]
) -> None:
    every = 50
    code = program(NUMPY, BY_ITSELF.replace("1000", str(every)))
    assert f"% {every} == 0" in code
    process = at_work(folder, code, running, every + every // 2)
    process.kill()
    process.wait()
    before = done(folder)
    saved = saved_step(folder)
    assert before[-1] - saved <= every
    assert ended(started(folder, code, STEPS, 0)) == uninterrupted(folder, code)
    assert done(folder) == before + list(range(saved + 1, STEPS)), "from its last checkpoint on"


def test_killed_while_it_writes_the_checkpoint_before_is_whole(
    folder: Path, running: list[subprocess.Popen[str]]
) -> None:
    """The grace was too short: the file is written beside the last one, and put in its place when it is whole."""
    code = program(NUMPY, OWN_LOOP)
    process = at_work(folder, code, running)
    os.kill(process.pid, signal.SIGUSR1)
    ended(process)
    whole = (folder / "last.pt").read_bytes()
    slow = "def slow(*names): open('mark', 'w').close(); time.sleep(600)\n"
    process = at_work(folder, program(NUMPY + slow, OWN_LOOP.replace("os.replace(", "slow(")), running)
    files.ask("idle")
    until((folder / "mark").exists, 30, "it writes")
    process.kill()
    process.wait()
    assert (folder / "last.pt").read_bytes() == whole


#: One process of a group: all must save at the same step, or they wait for each other for ever.
GROUP = """
import sys, time
import torch
from berth_lab import checkpoint
rank, meeting = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
checkpoint.install()
for step in range(100_000):
    if checkpoint.requested_anywhere():
        break
    time.sleep(0.01)
print(step)
"""


@needs_torch
def test_processes_of_a_group_agree_when_one_of_them_has_heard(
    folder: Path, running: list[subprocess.Popen[str]]
) -> None:
    for rank in ("0", "1"):
        words = [sys.executable, "-c", GROUP, rank, str(folder / "meeting")]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    until(lambda: len(files.trainers()) == 2, 150, "both are registered")
    os.kill(running[1].pid, signal.SIGUSR1)
    steps = {ended(each, 100) for each in running}
    assert len(steps) == 1, "at the same step"


def test_a_loop_in_a_cell_is_asked_as_well(folder: Path) -> None:
    with own_kernel(folder) as kernel:
        kernel.run(NUMPY + BEGIN.replace("sys.argv[1]", "100_000").replace("sys.argv[2]", "0.005"))
        kernel.client.execute(OWN_LOOP)
        until(lambda: len(done(folder)) > 10 and files.trainers(), 60, "the training is under way")
        request = files.ask("idle")
        until(lambda: not files.waiting(request), 30, "it has answered")
        assert int(kernel.value("step")) == done(folder)[-1] == saved_step(folder)


#: A program that is not Python, by the page's last chapter.
SHELL = """
run=$BERTH_RUNTIME_DIR/$BERTH_LEASE
started=$(cut -d')' -f2- /proc/$$/stat | cut -d' ' -f21)
tell() {
    printf '{"format": 1, "pid": %d, "started": %d, "what": "sh", "cwd": "%s", "signal": null, "state": "%s"%s}' \\
        $$ "$started" "$PWD" "$1" "$2" >"$run/.mine"
    mv "$run/.mine" "$run/$$.json"
}
mkdir -p -m 700 "$BERTH_RUNTIME_DIR" "$run"
tell running
until [ -e "$run/stopping.json" ]; do sleep 0.05; done
id=$(sed 's/.*"id": "\\([0-9a-f]*\\)".*/\\1/' "$run/stopping.json")
echo 7 >checkpoint
tell saved ", \\"path\\": \\"$PWD/checkpoint\\", \\"step\\": 7, \\"answers\\": \\"$id\\""
sleep 60
"""


def test_a_program_that_is_not_python_registers_and_answers_by_files(
    folder: Path, running: list[subprocess.Popen[str]]
) -> None:
    running.append(subprocess.Popen(["sh", "-c", SHELL], cwd=folder, text=True))
    [found] = until(files.trainers, 20, "it is registered")
    assert (found.pid, found.what, found.cwd, found.signal) == (running[0].pid, "sh", str(folder), None)
    request = files.ask("idle", datetime.now(UTC) + timedelta(seconds=30))
    until(lambda: not files.waiting(request), 20, "it has answered")
    [found] = files.trainers()
    assert (found.state, found.path, found.step) == ("saved", str(folder / "checkpoint"), 7)


def test_the_page_tells_the_files_as_they_are() -> None:
    """Its two objects are read as what they say, with its placeholders filled in."""
    text = PAGE.read_text(encoding="utf-8")
    shown = text[text.index('`{"format": 1, "pid"') + 1 : text.index("`, where `started`")]
    value = json.loads(shown.replace("\n", " ").replace("PID", "5").replace("TICKS", "6"))
    assert files.trainer_of(value) == files.Trainer(5, 6, "train", "/home/me", "SIGUSR1", "running")
