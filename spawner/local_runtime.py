"""Runs servers as local processes, each under a runner of its own (`spawner.runner`). Isolates nothing.

ROOT/LEASE is the run directory of one server; what is in it is described in the runner. Several processes of one
deployment (the hub, the agent) use one root at the same time, each with an object of its own.

Every process of a server carries two marks in its environment, `BERTH_LEASE` and `BERTH_DEPLOYMENT`. By them strays are
found whose runner was killed; a process that wiped its environment *and* left its parents after that cannot be found.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeGuard

from spawner import processes
from spawner.local_load import LoadMeter
from spawner.ports import Load, Look, Seen, ServerSpec, Unreachable
from spawner.processes import Identity, Process
from spawner.runner import NO_PLAIN_FILE, open_plain, read_record, write_record

LEASE_MARK = "BERTH_LEASE"
DEPLOYMENT_MARK = "BERTH_DEPLOYMENT"
RUNNER = Path(__file__).with_name("runner.py")

#: Seconds that a runner may take to be up, that a removal may take, and that a runner is given to tidy up by itself.
START_PATIENCE_S = 15.0
REMOVE_PATIENCE_S = 5.0
RUNNER_PATIENCE_S = 1.0

#: Bytes of a log's end that are read for its last lines.
TAIL_BYTES = 64 << 10
#: Seconds for which a view of all processes serves the loads of several servers.
TABLE_AGE_S = 0.5

_LEASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_US = 2**53  # the year 2255
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class LocalRuntime:
    """`spawner.ports.Runtime` with local processes.

    `root` is made if it is not there. `deployment` marks the processes and must differ between data folders. Logs are
    LOGS/LEASE.log (default: ROOT/../logs/servers) and outlive the run directory. Methods may be called from any thread.
    """

    def __init__(self, root: Path, deployment: str, logs: Path | None = None) -> None:
        self._root = root.resolve()
        self._logs = (logs or root.parent / "logs" / "servers").resolve()
        self._deployment = deployment
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._boot = processes.boot_id()
        self._lock = threading.Lock()
        self._records: dict[tuple[str, str], dict[str, object]] = {}  # a record never changes once it is written
        self._known: set[str] | None = None  # what the last look saw
        self._meter = LoadMeter()
        self._table: tuple[float, Mapping[int, Process]] = (float("-inf"), {})

    # ---- start -------------------------------------------------------------------------------------------------

    def start(self, spec: ServerSpec) -> None:
        """Run one server; its run directory and spec are durable before any process is made.

        Raises `RuntimeError` for a lease that was started before, and where the runner does not come up.
        """
        folder = self._folder(spec.lease_id)
        try:
            folder.mkdir(mode=0o700)
            _sync(self._root)
            write_record(str(folder), "spec.json", self._spec_record(spec))
            self._run_runner(spec.lease_id)
        except FileExistsError:
            raise RuntimeError(f"lease {spec.lease_id} was started before") from None
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"lease {spec.lease_id} could not be started: {error}") from error

    def _spec_record(self, spec: ServerSpec) -> dict[str, object]:
        return {
            "lease": spec.lease_id,
            "argv": list(spec.argv),
            "env": {**spec.env, **self._marks(spec.lease_id)},
            "cwd": spec.cwd,
            "log": str(self._log(spec.lease_id)),
        }

    def _run_runner(self, lease_id: str) -> None:
        # The marks let a runner be found that was killed before it left its first record. A Python that is not the
        # system's own may need its libraries' path.
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(RUNNER), str(self._folder(lease_id))],
            env={**kept, **self._marks(lease_id)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_PATIENCE_S,
            check=False,
        )
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
            raise RuntimeError(f"the runner of lease {lease_id} did not start: {words}")

    # ---- look --------------------------------------------------------------------------------------------------

    def look(self) -> Look:
        """Every server by lease id. `exit_code` is negative where a signal ended it."""
        with self._lock:
            try:
                return self._look()
            except OSError as error:
                return Unreachable(f"the run directories cannot be read: {error}")

    def _look(self) -> Look:
        with os.scandir(self._root) as entries:
            names = {
                entry.name
                for entry in entries
                if _LEASE_ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            }
        seen = {name: self._seen(name) for name in names}
        # A look at every environment is dear, so it is taken only where the records do not tell: at the first look,
        # where a runner and its server are dead without a record, and where a run directory has vanished.
        doubtful = [name for name, each in seen.items() if not each.running and each.ended_at is None]
        if self._known is None or doubtful or self._known - names:
            for name in self._marked():
                known = seen.get(name)
                if known is None or (not known.running and known.ended_at is None):
                    seen[name] = Seen(name, True, known.started_at if known else None)
        self._known = set(seen)
        for key in list(self._records):
            if key[0] not in seen:
                self._records.pop(key, None)
        return seen

    def _seen(self, lease_id: str) -> Seen:
        start = self._record(lease_id, "start.json")
        started_at = _time(start, "started_at_us")
        if self._alive(lease_id):
            return Seen(lease_id, True, started_at)
        exited = self._record(lease_id, "exit.json")
        if exited is None:
            return Seen(lease_id, False, started_at)
        code, number = exited.get("code"), exited.get("signal")
        exit_code = code if _is_small(code) else -number if _is_small(number) else None
        return Seen(lease_id, False, started_at, _time(exited, "ended_at_us"), exit_code)

    # ---- stop, remove ------------------------------------------------------------------------------------------

    def stop(self, lease_id: str, grace_seconds: float) -> None:
        """Ask a server to end. Its runner forces it after the grace, whatever becomes of the caller.

        Where the runner was killed, a later call forces it when the grace has passed.
        """
        folder = self._folder(lease_id)
        if not folder.is_dir() or self._exited(lease_id) is not None:
            return
        runner = self._runner(lease_id)
        now = time.clock_gettime(time.CLOCK_BOOTTIME)  # the same for every process of this machine
        due, earlier = now + grace_seconds, self._stop_due(folder)
        if runner is None and earlier is not None and now >= earlier:
            self._end_all(lease_id, signal.SIGKILL)
            return
        if earlier is None or due < earlier - 0.1:
            with suppress(
                FileNotFoundError, IsADirectoryError
            ):  # removed meanwhile, or a user's own folder stands there
                record = {"grace_seconds": grace_seconds, "due_boottime": due, "boot_id": self._boot}
                write_record(str(folder), "stop.json", record)
        if runner is not None:
            processes.end(runner, signal.SIGTERM)
        elif (server := self._server(lease_id)) is not None:
            processes.end(server, signal.SIGTERM)
        else:
            self._end_all(lease_id, signal.SIGTERM)

    def _stop_due(self, folder: Path) -> float | None:
        """When a stop asked for earlier is to be forced, seconds since boot; None where none was asked for."""
        asked = read_record(str(folder), "stop.json")
        if asked is None:
            return None
        due = asked.get("due_boottime")
        return due if isinstance(due, float) and asked.get("boot_id") == self._boot else 0.0

    def remove(self, lease_id: str) -> None:
        """End a server by force with everything it started, then delete its run directory; the log stays.

        Raises `RuntimeError` when something survives; then all is as it was and the next call tries again.
        """
        folder = self._folder(lease_id)
        if not folder.is_symlink():
            with suppress(OSError):  # gone already; or a user's own folder stands there, which does as well
                folder.chmod(0o700)
                write_record(str(folder), "removed", {})  # a runner that is on its way here finds it and gives up
        deadline = time.monotonic() + REMOVE_PATIENCE_S
        patience = time.monotonic() + RUNNER_PATIENCE_S
        while True:
            runner = self._runner(lease_id)
            left = self._end_all(lease_id, signal.SIGKILL)
            if runner is None and not left:
                with self._runner_locked_out(folder) as locked_out:
                    if locked_out:
                        self._forget(lease_id)
                        return
            if runner is not None and time.monotonic() >= patience:
                processes.end(runner)  # it had the time to tidy up by itself
            if time.monotonic() >= deadline:
                survivors = sorted({*left, *([runner.pid] if runner else [])})
                raise RuntimeError(f"lease {lease_id}: processes {survivors} survive SIGKILL")
            time.sleep(0.02)

    def _end_all(self, lease_id: str, number: signal.Signals) -> set[int]:
        """Signal everything of this lease but its runner; the pids that were alive."""
        table = processes.processes()
        members = [table[pid] for pid in self._members(lease_id, table, strays=True) if table[pid].alive]
        for each in members:
            processes.end(each, number)
        return {each.pid for each in members}

    @contextmanager
    def _runner_locked_out(self, folder: Path) -> Iterator[bool]:
        """Holds the runner's lock, so that none can begin; False where one lives that has left no record yet."""
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno not in NO_PLAIN_FILE:
                raise
            yield True  # no run directory; or no file that a runner could hold
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            locked = False
        try:
            yield locked
        finally:
            os.close(lock)

    def _forget(self, lease_id: str) -> None:
        """The run directory goes in one step; leftovers of an earlier crash go with it."""
        with suppress(FileNotFoundError):
            os.rename(self._folder(lease_id), self._root / f".gone-{lease_id}-{os.urandom(4).hex()}")
            _sync(self._root)
        for leftover in self._root.glob(".gone-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for key in list(self._records):
            if key[0] == lease_id:
                self._records.pop(key, None)
        with self._lock:
            self._meter.forget(lease_id)
            if self._known is not None:
                self._known.discard(lease_id)

    # ---- load, log ---------------------------------------------------------------------------------------------

    def load(self, lease_id: str) -> Load:
        """CPU time and bytes are cumulative and never fall; all is None where no server runs.

        The kernel adds a child's time to its parent's when the parent waits for it, so the sum over all living
        descendants with what they, the server and the runner waited for is all that was ever used.
        """
        with self._lock:
            if self._exited(lease_id) is not None:
                return Load(None, None)
            table = self._recent_table()
            runner, server = (self._in_table(table, lease_id, name) for name in ("start.json", "server.json"))
            members = self._members(lease_id, table, strays=runner is None)
            if server is None and not members:
                return Load(None, None)
            return self._meter.load(lease_id, table, members, server, runner.pid if runner else None)

    def _recent_table(self) -> Mapping[int, Process]:
        taken, table = self._table
        if time.monotonic() - taken > TABLE_AGE_S:
            table = processes.processes()
            self._table = (time.monotonic(), table)
        return table

    def _in_table(self, table: Mapping[int, Process], lease_id: str, name: str) -> Process | None:
        """The process on record as that moment had it: numbers of two moments would count a child twice."""
        on_record = Identity.of_record(self._record(lease_id, name))
        if on_record is None or on_record.boot_id != self._boot:
            return None
        found = table.get(on_record.pid)
        return found if found is not None and found.start_time == on_record.start_time else None

    def log_tail(self, lease_id: str, lines: int) -> tuple[str, ...]:
        """The last lines of what the server wrote; empty where it wrote nothing."""
        try:
            fd = open_plain(str(self._log(lease_id)), os.O_RDONLY)
            if fd is None:
                return ()
            with open(fd, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL_BYTES))
                text = file.read(TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return ()
        return tuple(plain(line) for line in text.splitlines()[-lines:]) if lines > 0 else ()

    # ---- who belongs to a lease --------------------------------------------------------------------------------

    def _members(self, lease_id: str, table: Mapping[int, Process], *, strays: bool) -> set[int]:
        """Pids of the server and all that it started, zombies included, without the runner and this process.

        `strays` looks at every environment too, for what left its parents after the runner was killed.
        """
        server, runner = self._server(lease_id), self._runner(lease_id)
        roots = {each.pid for each in (server, runner) if each is not None}
        if strays:
            roots |= self._marked(table).get(lease_id, set())
        members = roots | processes.descendants(table, roots)
        return {pid for pid in members if pid in table} - {os.getpid(), runner.pid if runner else -1}

    def _marked(self, table: Mapping[int, Process] | None = None) -> dict[str, set[int]]:
        """Living processes of this deployment by the lease they are marked with."""
        found: dict[str, set[int]] = {}
        deployment = self._deployment.encode()
        for each in (processes.processes() if table is None else table).values():
            env = processes.environ(each.pid) if each.alive and each.pid != os.getpid() else {}
            if env.get(DEPLOYMENT_MARK.encode()) == deployment:
                name = env.get(LEASE_MARK.encode(), b"").decode("ascii", "replace")
                if _LEASE_ID.fullmatch(name):
                    found.setdefault(name, set()).add(each.pid)
        return found

    def _runner(self, lease_id: str) -> Process | None:
        return processes.living(Identity.of_record(self._record(lease_id, "start.json")), self._boot)

    def _server(self, lease_id: str) -> Process | None:
        return processes.living(Identity.of_record(self._record(lease_id, "server.json")), self._boot)

    # ---- files -------------------------------------------------------------------------------------------------

    def _alive(self, lease_id: str) -> bool:
        return self._runner(lease_id) is not None or self._server(lease_id) is not None

    def _exited(self, lease_id: str) -> dict[str, object] | None:
        """The record of a server's end. Its runner writes it as the last thing it does, so one that is there while
        runner or server live is somebody else's, and tells nothing."""
        return None if self._alive(lease_id) else self._record(lease_id, "exit.json")

    def _record(self, lease_id: str, name: str) -> dict[str, object] | None:
        key = (lease_id, name)
        if key not in self._records:
            record = read_record(str(self._folder(lease_id)), name)
            if record is None:
                return None
            self._records[key] = record
        return self._records.get(key)

    def _marks(self, lease_id: str) -> dict[str, str]:
        return {LEASE_MARK: lease_id, DEPLOYMENT_MARK: self._deployment}

    def _folder(self, lease_id: str) -> Path:
        if not _LEASE_ID.fullmatch(lease_id):
            raise RuntimeError(f"{lease_id!r} is not a lease id")
        return self._root / lease_id

    def _log(self, lease_id: str) -> Path:
        return self._logs / f"{lease_id}.log"


def plain(line: str) -> str:
    """A line of a log without colours and without what would steer the terminal of whoever reads it."""
    return "".join(sign if sign.isprintable() or sign == "\t" else "?" for sign in _COLOURS.sub("", line))


def _is_small(value: object) -> TypeGuard[int]:
    return type(value) is int and abs(value) < 2**31


def _time(record: Mapping[str, object] | None, name: str) -> datetime | None:
    """A moment on record; None where there is none, or one that no clock showed."""
    value = record.get(name) if record else None
    return _EPOCH + timedelta(microseconds=value) if type(value) is int and 0 <= value < _LATEST_US else None


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
