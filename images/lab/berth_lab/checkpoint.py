"""Checkpoints before a stop: a training program hears that its server is to end, and says where its checkpoint is.

    from berth_lab import checkpoint

    with checkpoint.register(save) as point:        # save() writes a checkpoint and returns its path
        for step in range(first, steps):
            train(step)
            if point(step):                         # asked for: the checkpoint is written, the server will end
                break

Lightning, Hugging Face and Keras have callbacks (`LightningCallback`, `TrainerCallback`, `KerasCallback`). A program
that was started from a terminal hears by SIGUSR1, which `register` and `install` take care of; one in a notebook looks
at a file, too. How program and kit speak is written down in `checkpoint_files` (protocol 1).

It never imports a framework, and what goes wrong with telling the kit never ends a training.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from berth_lab import checkpoint_files as files
from berth_lab.checkpoint_callbacks import KerasCallback, LightningCallback, TrainerCallback

__all__ = [
    "KerasCallback",
    "LightningCallback",
    "Point",
    "TrainerCallback",
    "install",
    "register",
    "requested",
    "requested_anywhere",
    "uninstall",
    "written",
]

#: A function that writes a checkpoint and returns where it is.
Save = Callable[[], "str | os.PathLike[str] | None"]


class _Program:
    """This process, as it is registered."""

    def __init__(self) -> None:
        self.trainer: files.Trainer | None = None
        self.signalled = False
        self.before: Any = None
        self.told = False

    def write(self, **changes: Any) -> None:
        """Change the registration; a failure is told once, and ends nothing."""
        if self.trainer is None or self.trainer.pid != os.getpid():  # a forked worker is not the trainer
            return
        self.trainer = replace(self.trainer, **changes)
        try:
            files.register(self.trainer)
        except (OSError, files.Untrusted) as error:
            if not self.told:
                self.told = True
                print(f"berth_lab: the kit cannot be told of this program's checkpoints: {error}", file=sys.stderr)


_program = _Program()


def install(what: str | None = None) -> None:
    """Register this program and, from its main thread, take SIGUSR1 (a handler that was there is called, too). A
    second call changes nothing."""
    if _program.trainer is not None and _program.trainer.pid == os.getpid():
        return
    caught = _take_signal()
    try:
        _program.trainer = files.myself(what or _own_name(), "SIGUSR1" if caught else None)
    except OSError as error:
        print(f"berth_lab: {error}", file=sys.stderr)
        return
    _program.write()
    atexit.register(uninstall)


def _own_name() -> str:
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"


def _take_signal() -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    before = signal.getsignal(signal.SIGUSR1)
    if before is None:  # a handler that is not Python's, which could not be called from ours
        return False
    if before is not _heard:
        _program.before = signal.signal(signal.SIGUSR1, _heard)
    return True


def _heard(number: int, frame: FrameType | None) -> None:
    _program.signalled = True
    if callable(_program.before):
        _program.before(number, frame)


def uninstall() -> None:
    """Take the registration back, and the signal's handler."""
    trainer, _program.trainer = _program.trainer, None
    if trainer is None or trainer.pid != os.getpid():
        return
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGUSR1) is _heard:
        # Never back to the default, which would end the program if the signal is on its way.
        before = _program.before
        signal.signal(signal.SIGUSR1, signal.SIG_IGN if before in (None, signal.SIG_DFL) else before)
    _program.before, _program.signalled = None, False
    files.unregister(trainer.pid)


def requested() -> bool:
    """Whether a checkpoint is asked for and has not been written since. Cheap: call it after every step."""
    request = files.requested()
    trainer = _program.trainer
    if request is not None:
        return trainer is None or not trainer.settled(request)
    return _program.signalled


def requested_anywhere() -> bool:
    """As `requested`, the same answer in every process of a `torch.distributed` group: all must call it together."""
    return agreed(requested())


def agreed(flag: bool) -> bool:
    """Whether any process of the group says so; the flag itself where there is no group."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return flag
    if distributed.get_world_size() < 2:
        return flag
    answers: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(answers, flag)
    return any(answers)


def written(path: str | os.PathLike[str] | None, step: int | None = None) -> None:
    """Say that a checkpoint is written: now the server may end. Registers the program if need be."""
    install()
    request = files.requested()
    _program.signalled = False
    _program.write(
        state="saved",
        path=None if path is None else os.path.abspath(path),
        step=step,
        saved_at=files.now(),
        answers=None if request is None else request.id,
        why=None,
    )


def failed(error: BaseException, step: int | None = None) -> None:
    """Say that the checkpoint could not be written."""
    request = files.requested()
    why = f"{type(error).__name__}: {error}"
    _program.write(state="failed", step=step, answers=None if request is None else request.id, why=why)


class Point:
    """A place of a loop where a checkpoint may be written. Call it with the number of steps that are done."""

    def __init__(self, save: Save | None, path: str | None) -> None:
        self._save, self._path = save, path

    def __call__(self, step: int | None = None) -> bool:
        """Write the checkpoint if it is asked for; whether the program should end now. What `save` raises is told to
        the kit, and raised."""
        if not requested():
            return False
        if self._save is None:
            return self._by_itself(step)
        _program.write(state="saving", step=step)
        try:
            path = self._save()
        except BaseException as error:
            failed(error, step)
            raise
        written(path if path is not None else self._path, step)
        return True

    def _by_itself(self, step: int | None) -> bool:
        """The program writes its checkpoint on its own; it is confirmed once the file is newer than the request."""
        try:
            saved = os.stat(self._path or "").st_mtime_ns
            asked = os.stat(files.stopping_file()).st_mtime_ns
        except OSError:
            return True
        if saved >= asked:
            written(self._path, step)
        return True

    def __enter__(self) -> Point:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        uninstall()


def register(save: Save | str | os.PathLike[str], what: str | None = None) -> Point:
    """Register this program with a function that writes a checkpoint and returns its path, or with the path of the
    checkpoint that the program writes by itself when `requested()` says so. The answer is called in the loop; as a
    context it takes the registration back at its end."""
    install(what)
    if callable(save):
        return Point(save, None)
    path = os.path.abspath(save)
    _program.write(path=path)
    return Point(None, path)
