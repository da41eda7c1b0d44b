"""Registered programs: who is asked, who is believed, and what an answer is."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from berth_lab import checkpoint
from berth_lab import checkpoint_files as files
from berth_lab.farewell_trainers import Trainers


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERTH_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("BERTH_LEASE", "l1")
    monkeypatch.delenv("BERTH_FAREWELL_FILE", raising=False)
    return tmp_path / "run" / "l1"


def test_a_program_is_asked_saves_and_is_believed(runtime: Path, tmp_path: Path) -> None:
    saved: list[int] = []

    def save() -> Path:
        saved.append(1)
        (tmp_path / "last").write_text("42")
        return tmp_path / "last"

    with checkpoint.register(save, "train.py") as point:
        assert not point(1)
        [trainer] = files.trainers()
        assert (trainer.pid, trainer.what, trainer.state, trainer.signal) == (
            os.getpid(),
            "train.py",
            "running",
            "SIGUSR1",
        )
        request = files.ask("idle")
        assert [each.pid for each in files.waiting(request)] == [os.getpid()]
        assert point(2) and saved == [1]
        assert files.waiting(request) == []
        [trainer] = files.trainers()
        assert (trainer.state, trainer.path, trainer.step) == ("saved", str(tmp_path / "last"), 2)
        assert not point(3), "one request, one checkpoint"
        files.withdraw()
        request = files.ask("quota")
        assert files.waiting(request) and point(4), "another request is another checkpoint"
    assert files.trainers() == [] and files.waiting(request) == []
    assert [(each.pid, each.step) for each in files.answered(request)] == [(os.getpid(), 4)], "its answer stays"
    files.withdraw()
    assert files.trainers() == [] and list(runtime.glob("[0-9]*")) == []


def test_a_program_that_goes_before_it_is_asked_leaves_nothing(runtime: Path) -> None:
    with checkpoint.register(lambda: None):
        assert len(files.trainers()) == 1
    assert list(runtime.glob("[0-9]*")) == []
    with checkpoint.register(lambda: None):
        files.ask("idle")
    assert list(runtime.glob("[0-9]*")) == [], "it was asked, and did not answer"


def test_a_checkpoint_that_fails_is_told_and_raised() -> None:
    def save() -> str:
        raise OSError("No space left on device")

    with checkpoint.register(save) as point:
        request = files.ask("idle")
        with pytest.raises(OSError, match="No space left"):
            point(7)
        [trainer] = files.trainers()
        assert (trainer.state, trainer.step, trainer.settled(request)) == ("failed", 7, True)
        assert trainer.why == "OSError: No space left on device"


def test_a_program_that_writes_by_itself_is_believed_once_the_file_is_new(tmp_path: Path) -> None:
    path = tmp_path / "last.npz"
    path.write_text("old")
    os.utime(path, (1, 1))
    with checkpoint.register(path) as point:
        request = files.ask("idle")
        assert point(1) and files.waiting(request)
        path.write_text("new")
        stamp = os.stat(files.stopping_file()).st_mtime_ns + 1
        os.utime(path, ns=(stamp, stamp))
        assert point(2) and not files.waiting(request)


def test_who_does_not_catch_the_signal_is_not_sent_it() -> None:
    """It would end that program: one that was replaced by exec, or took its handler back."""
    with checkpoint.register(lambda: None):
        assert files.catches(os.getpid())
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        assert not files.catches(os.getpid())
        files.ask("idle")  # this process lives on
    assert not files.catches(os.getpid())


def test_a_handler_that_was_there_is_called_and_comes_back() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with checkpoint.register(lambda: None):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert checkpoint.requested() and heard == [signal.SIGUSR1]
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(heard) == 2
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"format": 2}',
        '{"format": 1, "pid": true, "started": 1}',
        '{"format": 1, "pid": "1", "started": 1}',
        '{"format": 1, "pid": -1, "started": 1}',
        '{"format": 1, "pid": 1, "started": null}',
        "[" * 5000,
    ],
)
def test_a_file_that_is_no_registration_is_nobody(runtime: Path, text: str) -> None:
    files.private(runtime)
    (runtime / "1.json").write_text(text)
    assert files.trainers() == [] and not (runtime / "1.json").exists()


def test_a_reused_process_id_is_not_the_program(runtime: Path) -> None:
    files.private(runtime)
    ours = files.started(os.getpid())
    assert ours is not None
    value = {"format": 1, "pid": os.getpid(), "started": ours + 1, "signal": "SIGUSR1"}
    (runtime / f"{os.getpid()}.json").write_text(json.dumps(value))
    assert files.trainers() == []
    (runtime / "77.json").write_text(json.dumps(value | {"started": ours}))
    assert files.trainers() == [], "a file speaks for its own process alone"


def test_texts_are_bounded_and_kinds_are_known() -> None:
    value = {"pid": 1, "started": 2, "what": "x" * 9000, "state": "rm -rf", "signal": "SIGKILL", "step": "1", "path": 5}
    trainer = files.trainer_of(value)
    assert trainer == files.Trainer(1, 2, "x" * files.MOST_TEXT)


def test_a_folder_of_another_kind_is_refused(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.private(runtime)
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    runtime.chmod(0o755)
    with pytest.raises(files.Untrusted, match="0700"):
        files.private(runtime)
    assert files.trainers() == []
    with checkpoint.register(lambda: None) as point:
        assert not point(1), "the training goes on"
    assert capsys.readouterr().err.count("cannot be told") == 1


def test_a_link_in_place_of_the_folder_is_refused(runtime: Path, tmp_path: Path) -> None:
    runtime.parent.mkdir(mode=0o700)
    (tmp_path / "theirs").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "theirs")
    with pytest.raises(files.Untrusted):
        files.private(runtime)


def test_the_kits_request_may_be_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_FAREWELL_FILE", str(tmp_path / "run" / "elsewhere" / "stop.json"))
    assert not checkpoint.requested()
    request = files.ask("idle")
    assert checkpoint.requested() and files.requested() == request
    files.withdraw()
    assert not checkpoint.requested()


# ---- in a farewell ---------------------------------------------------------------------------------------------

PROGRAM = """
import sys, time
from berth_lab import checkpoint
way, path = sys.argv[1:]
def save():
    if way == "fails":
        raise OSError("No space left on device")
    open(path, "w").write("42")
    return path
with checkpoint.register(save, way) as point:
    print("registered", flush=True)
    step = 0
    while way != "deaf":
        step += 1
        time.sleep(0.02)
        if way == "goes" and checkpoint.requested():
            break
        try:
            if point(step):
                break
        except OSError:
            break
    time.sleep(600 if way == "deaf" else 0)
"""


def test_a_farewell_tells_what_each_program_saved_and_what_did_not_come(runtime: Path, tmp_path: Path) -> None:
    ways = ("saves", "fails", "goes", "deaf")
    with ExitStack() as ending:
        programs = {}
        for way in ways:
            command = [sys.executable, "-c", PROGRAM, way, str(tmp_path / f"{way}.pt")]
            programs[way] = ending.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            ending.callback(programs[way].kill)
            out = programs[way].stdout
            assert out is not None and out.readline() == "registered\n"
        asked = Trainers(tmp_path)
        asked.ask("idle", datetime(2026, 1, 1, tzinfo=UTC))
        assert files.requested() is not None
        for way in ways[:3]:
            assert programs[way].wait(60) == 0
        assert asked.waiting(), "one of them is deaf"
        saved, lost = asked.rows()
    assert [(row["kind"], row["what"], row["path"], row["bytes"]) for row in saved] == [
        ("checkpoint", "saves", "saves.pt", 2)
    ]
    assert saved[0]["count"] >= 1
    assert sorted((row["what"], row["code"]) for row in lost) == [
        ("deaf", "no-checkpoint"),
        ("fails", "checkpoint-failed"),
        ("goes", "ended"),
    ]
    assert next(row["why"] for row in lost if row["what"] == "fails") == "OSError: No space left on device"


def test_a_farewell_without_programs_asks_nobody(runtime: Path, tmp_path: Path) -> None:
    asked = Trainers(tmp_path)
    asked.ask("idle", datetime(2026, 1, 1, tzinfo=UTC))
    assert files.requested() is None and not asked.waiting() and asked.rows() == ([], [])
