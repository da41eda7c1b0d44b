"""Runs one local server and outlives whoever asked for it: `python -I -S runner.py RUN_DIR`.

Standard library only, and started without site packages, so that it is up in some 30 ms whatever the environment says.

It leaves its caller (own session, child of init), becomes the *subreaper* of everything the server starts, and holds a
lock on RUN_DIR/lock while it lives. In RUN_DIR it reads `spec.json` (argv, env, cwd, log, grace_seconds) and writes,
each atomically and durably,

* `start.json` before the server exists: pid, start_time, boot_id of the runner, started_at_us;
* `server.json`: the same of the server, without the time;
* `exit.json` when the server *and all its descendants* have ended: ended_at_us (when the server did), code, signal.

A pid alone may be used again by another process, so records pair it with the kernel's start time (field 22 of
/proc/PID/stat, proc(5)) and the machine's boot id. Where `exit.json`, `start.json` or `removed` exists, nothing starts.

SIGTERM, or `stop.json` (grace_seconds) appearing, asks the server to end: SIGTERM, and SIGKILL after the grace. The
earliest of several deadlines holds. What the server leaves behind, `nohup` and `setsid` included, is killed.

Exit codes: 0 the server ran and its end is on record; 1 it was not started (the reason is on standard error); 2 usage.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import stat
import sys
import time
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36
#: How often `stop.json` and the size of the log are looked at; signals are seen at once.
TICK_SECONDS = 1.0
#: A log above the limit is cut to its last part, which goes to LOG.1; bytes.
LOG_LIMIT = 16 << 20
LOG_KEPT = 2 << 20
#: A record has some hundred bytes, a spec its environment; bytes.
LARGEST_RECORD = 4 << 20
#: How long a full disk may keep the end from going on record; then the last observation has to do.
RECORD_PATIENCE_SECONDS = 60.0

WAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


#: What opening a link, a folder (to write), a socket, or what was taken away or never there ends with.
NO_PLAIN_FILE = {errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.ENOTDIR}


class NotStarted(Exception):
    """This runner must not start the server."""


# ---- records ---------------------------------------------------------------------------------------------------


def write_record(run_dir: str, name: str, record: dict[str, object]) -> None:
    path = os.path.join(run_dir, name)
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"  # nobody can have put something else there
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, json.dumps(record).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_plain(path: str, flags: int) -> int | None:
    """A descriptor of a plain file; None where something else is there, or nothing. Raises `OSError` where the disk
    fails.

    A user's process may reach where records and logs are: a link, a pipe (whose reader would wait for ever), a folder
    or a device in a file's place must cost no other server anything.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NO_PLAIN_FILE:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def read_record(run_dir: str, name: str) -> dict[str, object] | None:
    """A record; None where there is none, or what is there no runner wrote. Raises `OSError` where the disk fails."""
    fd = open_plain(os.path.join(run_dir, name), os.O_RDONLY)
    if fd is None:
        return None
    with open(fd, "rb") as file:
        raw = file.read(LARGEST_RECORD + 1)
    if len(raw) > LARGEST_RECORD:
        return None
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on; the second, a name, may contain anything."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().decode("utf-8", "replace").rpartition(")")[2].split()


def identity(pid: int) -> dict[str, object]:
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot_id = file.read().strip()
    return {"pid": pid, "start_time": int(stat_fields(pid)[19]), "boot_id": boot_id}


def wall_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - a process of its own, without our packages


# ---- becoming a runner -----------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        os.write(2, b"usage: python -I -S runner.py RUN_DIR\n")
        return 2
    run_dir = os.path.abspath(argv[1])
    umask = os.umask(0o077)
    answer, tell = os.pipe()
    if os.fork():
        os.close(tell)
        return await_daemon(answer)
    os.close(answer)
    try:
        spec = become_runner(run_dir)
        os.write(tell, b"ok")
    except Exception as error:
        os.write(tell, f"{type(error).__name__}: {error}\n".encode())
        return 1
    finally:
        os.close(tell)
    serve(run_dir, spec, umask)
    return 0


def await_daemon(answer: int) -> int:
    said = os.read(answer, 65536)
    if said == b"ok":
        return 0
    os.write(2, said or b"the runner died at its start\n")
    return 1


def become_runner(run_dir: str) -> dict[str, object]:
    """Detach, take the lock, refuse what must not run, leave the start record. Returns the spec."""
    os.setsid()
    os.chdir("/")
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)  # an ignored SIGCHLD would swallow the server's exit status
            except (OSError, ValueError):
                continue  # the C library's own signals
    signal.pthread_sigmask(signal.SIG_SETMASK, WAITED)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    lock = os.open(os.path.join(run_dir, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held as long as this process lives
    except BlockingIOError:
        raise NotStarted("another runner has this run directory, or it is being removed") from None
    for name in ("removed", "exit.json", "start.json"):
        if os.path.exists(os.path.join(run_dir, name)):
            raise NotStarted(f"{name} exists: a lease is started once")
    spec = read_record(run_dir, "spec.json")
    if spec is None:
        raise NotStarted("there is no readable spec.json")
    write_record(run_dir, "start.json", {**identity(os.getpid()), "started_at_us": wall_us()})
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return spec


# ---- the server ------------------------------------------------------------------------------------------------


def serve(run_dir: str, spec: dict[str, object], umask: int) -> None:
    if os.path.exists(os.path.join(run_dir, "stop.json")):  # it was stopped before it began
        leave_record(run_dir, {"ended_at_us": wall_us(), "code": None, "signal": None})
        return
    server = os.fork()
    if server == 0:
        become_server(spec, umask)
    with suppress(OSError):  # a full disk; the server is found by the marks in its environment then
        write_record(run_dir, "server.json", identity(server))
    status, ended_at_us = supervise(run_dir, spec, server)
    end_descendants()
    code = os.waitstatus_to_exitcode(status)
    exited = {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}
    leave_record(run_dir, {"ended_at_us": ended_at_us, **exited})


def become_server(spec: dict[str, object], umask: int) -> None:
    """Never returns. Only `exec` and what must come before it: a group of its own, its log, its place."""
    try:
        os.setpgid(0, 0)
        os.umask(umask)
        log = os.open(str(spec["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.chdir(str(spec["cwd"]))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        argv, env = spec["argv"], spec["env"]
        os.execvpe(argv[0], argv, env)  # type: ignore[index,arg-type]
    except BaseException as error:
        os.write(2, f"berth: the server could not be started: {error}\n".encode())
    finally:
        os._exit(127)


def supervise(run_dir: str, spec: dict[str, object], server: int) -> tuple[int, int]:
    """Wait until the server ends. Returns its wait status and when that was seen, microseconds since the epoch."""
    deadline: float | None = None
    last_ask: object = None
    next_cut = time.monotonic() + TICK_SECONDS
    while True:
        wait = TICK_SECONDS if deadline is None else max(0.0, min(TICK_SECONDS, deadline - time.monotonic()))
        caught = signal.sigtimedwait(WAITED, wait)
        status = reap(server)
        if status is not None:
            return status, wall_us()
        ask = stop_mark(run_dir)
        if (caught is not None and caught.si_signo == signal.SIGTERM) or ask != last_ask:
            last_ask = ask
            if deadline is None:
                os.kill(server, signal.SIGTERM)
            wanted = time.monotonic() + grace_of(run_dir, spec)
            deadline = wanted if deadline is None else min(deadline, wanted)
        if deadline is not None and time.monotonic() >= deadline:
            os.kill(server, signal.SIGKILL)
        if time.monotonic() >= next_cut:  # by the clock: children that end all the time must not keep it from happening
            bound_log(str(spec["log"]))
            next_cut = time.monotonic() + TICK_SECONDS


def stop_mark(run_dir: str) -> object:
    """Changes whenever `stop.json` is written anew; None while there is none."""
    try:
        found = os.stat(os.path.join(run_dir, "stop.json"))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def grace_of(run_dir: str, spec: dict[str, object]) -> float:
    asked = read_record(run_dir, "stop.json") or spec
    return max(0.0, float(str(asked.get("grace_seconds", 10.0))))


def reap(server: int) -> int | None:
    """Collect all that ended, adopted strays too; the server's wait status when it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == server:
            found = status


def end_descendants() -> None:
    """Kill until no descendant is left.

    Only direct children are signalled: nobody else can collect them, so their pids cannot have been used again. Their
    own children fall to us, the subreaper, when they die.
    """
    while True:
        for pid in children():
            with suppress(PermissionError, ProcessLookupError):  # set-user-id programs are not ours to kill
                os.kill(pid, signal.SIGKILL)
        reap(0)
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)


def children() -> list[int]:
    me = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if int(stat_fields(int(name))[1]) == me:
                    found.append(int(name))
            except (OSError, IndexError):
                continue
    return found


def bound_log(path: str) -> None:
    """Keep the log from filling the disk: past the limit its last part moves to LOG.1. Writers append, so may go on.

    A link in the log's place must not have another file cut.
    """
    with suppress(OSError):  # no room for a copy is no reason to end a server
        log = open_plain(path, os.O_RDWR)
        if log is None:
            return
        with open(log, "r+b") as file:
            found = os.fstat(log)
            if found.st_nlink != 1 or found.st_size <= LOG_LIMIT:
                return
            with suppress(FileNotFoundError):
                os.unlink(f"{path}.1")
            kept = os.open(f"{path}.1", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(kept, "wb") as rest:
                file.seek(-LOG_KEPT, os.SEEK_END)
                rest.write(file.read(LOG_KEPT))
            file.truncate(0)


def leave_record(run_dir: str, record: dict[str, object]) -> None:
    give_up = time.monotonic() + RECORD_PATIENCE_SECONDS
    while True:
        try:
            return write_record(run_dir, "exit.json", record)
        except FileNotFoundError:
            return  # the run directory has been removed: nobody waits for the record
        except OSError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
