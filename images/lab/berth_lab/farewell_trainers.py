"""Training programs in a farewell: they are asked for a checkpoint first of all, and have the whole time for it. What
they wrote, and what did not come, are rows of the report."""

from __future__ import annotations

import logging
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from berth_lab import checkpoint_files as files
from berth_lab.farewell_kernels import WHY

log = logging.getLogger("berth_lab")


class Trainers:
    """Those of one farewell. All calls read files, and block no longer than that."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._request: files.Request | None = None
        self._asked: dict[int, files.Trainer] = {}

    def ask(self, reason: str, until: datetime) -> None:
        """Ask those that are registered now, if there are any."""
        self._asked = {each.pid: each for each in files.trainers()}
        if not self._asked:
            return
        try:
            self._request = files.ask(reason, until)
        except (OSError, files.Untrusted) as error:
            log.warning("programs could not be asked for checkpoints: %s", error)

    def waiting(self) -> bool:
        """Whether one that was asked lives and has not answered."""
        return self._request is not None and any(each.pid in self._asked for each in files.waiting(self._request))

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What is saved, and what is not."""
        request = self._request
        if request is None:
            return [], [_lost(each, "no-checkpoint") for each in self._asked.values()]
        answers = {each.pid: each for each in files.answered(request)}
        there = {each.pid: each for each in files.trainers()}
        saved, lost = [], []
        for pid, asked in self._asked.items():
            answer = answers.get(pid)
            if answer is not None and answer.state == "saved":
                saved.append(self._saved(answer))
            elif answer is not None:
                lost.append(_lost(answer, "checkpoint-failed"))
            else:
                lost.append(_lost(there.get(pid, asked), "no-checkpoint" if pid in there else "ended"))
        return saved, lost

    def _saved(self, trainer: files.Trainer) -> dict[str, Any]:
        path = trainer.path or ""
        where = os.path.relpath(path, self._home) if path.startswith(f"{self._home}{os.sep}") else path
        row = {"kind": "checkpoint", "path": where, "what": trainer.what, "count": trainer.step}
        return row | {"bytes": _size(path)}


def _lost(trainer: files.Trainer, code: str) -> dict[str, Any]:
    row = {"kind": "checkpoint", "what": trainer.what, "where": trainer.cwd}
    return row | {"why": trainer.why or WHY[code] if code == "checkpoint-failed" else WHY[code], "code": code}


def _size(path: str) -> int | None:
    """Bytes of a checkpoint that is one file; of others it is not known."""
    try:
        return os.stat(path).st_size if os.path.isfile(path) else None
    except OSError:
        return None
