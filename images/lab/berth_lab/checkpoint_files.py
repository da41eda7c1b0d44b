"""How a training program and the kit speak with each other: files in a private folder, and SIGUSR1. Protocol 1.

The folder is `folder()`: `$BERTH_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/berth`, else `berth-UID` in the folder for
temporary files; in it, one folder for each lease (`$BERTH_LEASE`, or `none`). It belongs to the user, mode 0700; one of
another owner, one that others may enter, or a link is refused.

- `<pid>.json`, written by the program (`berth_lab.checkpoint`), whole or not at all:
  {"format": 1, "pid": 123, "started": 4567 (field 22 of /proc/PID/stat), "what": "train.py", "cwd": "its folder",
   "signal": "SIGUSR1" | null (it only looks), "state": "running" | "saving" | "saved" | "failed",
   "path": "of the checkpoint" | null, "step": 1200 | null, "at": RFC 3339 of the last change,
   "saved_at": RFC 3339 of the last checkpoint | null, "answers": "the id of the request it answers" | null,
   "why": a sentence | null}
- `stopping.json`, written by the kit once the server is to stop (`ask`), removed when it is not (`withdraw`):
  {"format": 1, "id": "…", "reason": "idle", "until": RFC 3339 | null}. `$BERTH_FAREWELL_FILE` names another place.

The kit: `ask(reason, until)` writes the request, then sends SIGUSR1 to each registered program that lives (same pid and
same start) *and* catches that signal by what /proc says; it then looks with `waiting(request)` until that is empty or
its time is over. A program has answered when its state is `saved` or `failed` and `answers` is the request's id; that
file stays when the program ends or takes its registration back ("left": true), for as long as the request does
(`answered` reads it).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
import tempfile
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FORMAT = 1
STOPPING = "stopping.json"
#: A registration is smaller; more is not read.
MOST_BYTES = 16_384
#: Programs that are looked at.
MOST_PROGRAMS = 256
MOST_TEXT = 500
STATES = ("running", "saving", "saved", "failed")


class Untrusted(Exception):
    """The folder is not the user's alone."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One registered program. Times are RFC 3339 in UTC, `started` in clock ticks since the machine's start."""

    pid: int
    started: int
    what: str = ""
    cwd: str = ""
    signal: str | None = None
    state: str = "running"
    path: str | None = None
    step: int | None = None
    at: str | None = None
    saved_at: str | None = None
    answers: str | None = None
    why: str | None = None
    left: bool = False  # it has taken its registration back; what it answered stays

    def settled(self, request: Request) -> bool:
        """Whether it has answered the request."""
        return self.answers == request.id and self.state in ("saved", "failed")


@dataclass(frozen=True, slots=True)
class Request:
    """The kit asks for a checkpoint."""

    id: str
    reason: str
    until: str | None


def now() -> str:
    """RFC 3339 in UTC."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")  # noqa: TID251 - in a user's program there is no Clock


def folder() -> Path:
    """Where this lease's registrations are. Nothing is made."""
    lease = "".join(c if c.isalnum() or c in "-_" else "_" for c in os.environ.get("BERTH_LEASE", "")) or "none"
    if own := os.environ.get("BERTH_RUNTIME_DIR"):
        return Path(own) / lease
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "berth" / lease
    return Path(tempfile.gettempdir()) / f"berth-{os.getuid()}" / lease


def stopping_file() -> Path:
    """The request's place."""
    named = os.environ.get("BERTH_FAREWELL_FILE")
    return Path(named) if named else folder() / STOPPING


def private(path: Path) -> Path:
    """The folder and the one above it, made if need be. Raises `Untrusted`, `OSError`."""
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (path.parent, path):
        each.mkdir(mode=0o700, exist_ok=True)
        about = each.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise Untrusted(f"{each} must be a folder that is yours alone (mode 0700): remove it, or set its mode.")
    return path


def write(path: Path, value: dict[str, Any]) -> None:
    """JSON, whole or not at all. Raises `OSError`, `Untrusted`."""
    private(path.parent)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def read(path: Path) -> dict[str, Any] | None:
    """What a file says; None for none, a link, another's, or what is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_size > MOST_BYTES:
                return None
            value: Any = json.loads(file.read(MOST_BYTES + 1))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("format") == FORMAT else None


def started(pid: int, proc: Path = Path("/proc")) -> int | None:
    """When a process started, in clock ticks; None for one that is gone or dead."""
    try:
        words = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return None if words[0] in {"Z", "X"} else int(words[19])
    except (OSError, ValueError, IndexError):
        return None


def catches(pid: int, number: int = signal.SIGUSR1, proc: Path = Path("/proc")) -> bool:
    """Whether a process has a handler for the signal: without one, it would end it."""
    try:
        status = (proc / str(pid) / "status").read_text()
        mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(mask, 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError, StopIteration):
        return False


def trainer_of(value: dict[str, Any] | None) -> Trainer | None:
    """A registration, read without trust; None for what is none."""
    if value is None or not _whole(value.get("pid")) or not _whole(value.get("started")):
        return None
    texts = ("what", "cwd", "path", "at", "saved_at", "answers", "why")
    kept: dict[str, Any] = {name: value[name][:MOST_TEXT] for name in texts if isinstance(value.get(name), str)}
    kept["step"] = value["step"] if _whole(value.get("step")) else None
    kept["signal"] = "SIGUSR1" if value.get("signal") == "SIGUSR1" else None
    kept["left"] = value.get("left") is True
    kept["state"] = value["state"] if value.get("state") in STATES else "running"
    return Trainer(value["pid"], value["started"], **kept)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def trainers() -> list[Trainer]:
    """The registered programs that live, oldest first. Files of those that do not are removed, but for answers."""
    found: list[Trainer] = []
    request = requested()
    for path, trainer in _registered():
        if trainer is not None and not trainer.left and started(trainer.pid) == trainer.started:
            found.append(trainer)
        elif trainer is None or request is None or not trainer.settled(request):
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda each: each.started)


def answered(request: Request) -> list[Trainer]:
    """The programs that have answered, also those that ended upon it."""
    return [trainer for _, trainer in _registered() if trainer is not None and trainer.settled(request)]


def _registered() -> list[tuple[Path, Trainer | None]]:
    """The files, and whose they are; None for one that is nobody's."""
    try:
        files = sorted(private(folder()).glob("[0-9]*.json"))[:MOST_PROGRAMS]
    except (OSError, Untrusted):
        return []
    read_ = [(path, trainer_of(read(path))) for path in files]
    return [(path, one if one is not None and path.stem == str(one.pid) else None) for path, one in read_]


def ask(reason: str, until: datetime | None = None) -> Request:
    """Ask every registered program for a checkpoint. Raises `OSError`, `Untrusted` when it cannot be asked."""
    request = Request(secrets.token_hex(8), reason, None if until is None else until.isoformat())
    write(stopping_file(), {"format": FORMAT, **asdict(request)})
    for trainer in trainers():
        if trainer.signal is not None and catches(trainer.pid):
            try:
                os.kill(trainer.pid, signal.SIGUSR1)
            except (ProcessLookupError, PermissionError):
                continue
    return request


def waiting(request: Request) -> list[Trainer]:
    """The programs that live and have not answered yet."""
    return [trainer for trainer in trainers() if not trainer.settled(request)]


def withdraw() -> None:
    """The server is not to stop after all. Never raises."""
    try:
        stopping_file().unlink(missing_ok=True)
    except OSError:
        return


def requested() -> Request | None:
    """What the kit asks, if it does."""
    value = read(stopping_file())
    if value is None or not isinstance(value.get("id"), str):
        return None
    until = value.get("until")
    return Request(value["id"], str(value.get("reason", "")), until if isinstance(until, str) else None)


def register(trainer: Trainer) -> None:
    """Write down a program's state. Raises `OSError`, `Untrusted`."""
    bounded = {f.name: _bounded(getattr(trainer, f.name)) for f in fields(trainer)}
    write(folder() / f"{trainer.pid}.json", {"format": FORMAT, **bounded, "at": now()})


def _bounded(value: Any) -> Any:
    return value[:MOST_TEXT] if isinstance(value, str) else value


def myself(what: str, signal_name: str | None) -> Trainer:
    """This process. Raises `OSError` where /proc does not tell its start."""
    ticks = started(os.getpid())
    if ticks is None:
        raise OSError("/proc does not tell when this process started, so it cannot be asked for a checkpoint.")
    return Trainer(os.getpid(), ticks, what, os.getcwd(), signal_name)


def unregister(pid: int) -> None:
    """Take the registration back; an answer to a request stays for the kit to read. Never raises."""
    path, request = folder() / f"{pid}.json", requested()
    try:
        trainer = None if request is None else trainer_of(read(path))
        if request is not None and trainer is not None and trainer.settled(request):
            register(replace(trainer, left=True))
        else:
            path.unlink(missing_ok=True)
    except (OSError, Untrusted):
        return
