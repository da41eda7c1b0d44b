"""`berth up`: one machine's whole platform in the foreground. Starts, tells what it started, supervises, ends all."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from hub_config import discovery, logs, screen
from hub_config.book_trouble import bring_up, trouble
from hub_config.compose import Parts, check_extensions, parts
from hub_config.datafolder import AUTH_SECRET, BACKEND, DataFolder, write_private
from hub_config.guards import make_private
from hub_config.last_call import let_save
from hub_config.ports import Ports
from hub_config.processes import alive, die_with_parent, port_taken, read_pid, write_pid
from hub_config.settings import Settings, SettingsError
from hub_config.settings_auth import OAUTH
from quota.errors import Refused
from quota.leases import StopReason
from quota.told import BERTH_STOPS
from spawner.ports import Unreachable

log = logging.getLogger("berth.up")

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
START_SECONDS = 90  # a first start on a slow disk creates two databases
STOP_GRACE_SECONDS = 10
STOP_SECONDS = 40
GIVE_UP_AFTER = 4  # ends in a row before the first answer


class UpError(Exception):
    """One line for a person: what is wrong and what to do."""


# ---- one supervised process ------------------------------------------------------------------------------------


@dataclass
class Child:
    """A process that is started again when it ends, with a growing pause while it keeps ending at once."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    folder: Path
    log: Path
    pid_file: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    quick_ends: int = 0
    started: float = 0.0
    not_before: float = 0.0

    def start(self) -> None:
        logs.cut(self.log)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches `berth up` alone, which ends all in order
                preexec_fn=die_with_parent,
            )
        self.started = time.monotonic()
        write_pid(self.pid_file.parent, self.name, self.process.pid)

    def ended(self) -> bool:
        """Whether it has just been found dead; then it is due again after a pause."""
        if self.process is None or self.process.poll() is None:
            return False
        lived = time.monotonic() - self.started
        self.quick_ends = self.quick_ends + 1 if lived < 20 else 1
        self.not_before = time.monotonic() + min(15.0, 0.2 * 2 ** (self.quick_ends - 1))
        self.code, self.process = self.process.returncode, None
        return True

    code: int | None = field(default=None)

    def due(self) -> bool:
        return self.process is None and time.monotonic() >= self.not_before

    def stop(self, seconds: float) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def children(data: DataFolder, host: str) -> tuple[Child, Child]:
    """The hub (with its proxy and services) and the agent."""
    env = dict(os.environ)
    env["BERTH_DATA"], env["BERTH_HOST"] = str(data.root), host
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"  # traefik, alembic
    config = str(Path(__file__).with_name("jupyterhub_config.py"))

    def child(name: str, *argv: str) -> Child:
        mine = env if name == "hub" else {key: value for key, value in env.items() if key != AUTH_SECRET}
        # What it prints: traefik's words, and why it could not even load. Its events are in NAME.log (hub_config.logs).
        log, pid = data.logs / f"{name}.out.log", data.pids / f"{name}.pid"
        return Child(name, (sys.executable, "-m", *argv), mine, data.hub, log, pid)

    return (
        child("hub", "jupyterhub", "--config", config),
        child("agent", "hub_config", "agent", "--data", str(data.root)),
    )


# ---- before the start ------------------------------------------------------------------------------------------


def check_host(host: str, settings: Settings) -> None:
    """Raises `UpError` for an address of which others could reach what must stay on this machine."""
    if host in LOOPBACK:
        return
    if settings.backend.kind == "docker" and settings.auth.kind == "trial":
        raise UpError(
            f"--host {host}: the trial's two passwords are for this machine alone. Choose how people log in "
            "(auth.kind), or use --host 127.0.0.1 behind a proxy of your own."
        )
    if settings.backend.kind == "local":
        raise UpError(
            f"--host {host}: the local backend runs every notebook as this system user, so it only listens on "
            "loopback. Use --host 127.0.0.1; others reach it through an SSH tunnel of people you trust."
        )


def check_extra_config(data: DataFolder, name: str) -> None:
    """The Hub passes over a file that is not there without a word, and with it all that the site meant to set."""
    if name and not (data.root / name).is_file():
        raise SettingsError(
            f"{data.settings_file}: hub.extra_config: there is no file {str(data.root / name)!r}; "
            "write its path (relative to this file), or remove the line"
        )


def meet_provider(data: DataFolder, settings: Settings) -> None:
    """Whatever can be wrong with the log-in before anybody tries it. Raises `SettingsError`."""
    table = settings.auth
    if table.kind in OAUTH and not data.auth_secret(settings):
        raise SettingsError(
            f"{data.settings_file}: auth.secret_file: Berth's secret at the provider is missing; write it into a file "
            f"(chmod 600) and name that file here, or give it as {AUTH_SECRET}"
        )
    if table.kind == "oidc":
        discovery.refresh(data, table.issuer, screen.say)
    if table.kind == "ldap":
        from hub_config.ldap_directory import meet

        meet(data, settings, screen.say)


@contextmanager
def only_one(data: DataFolder) -> Iterator[None]:
    """Hold the folder's lock. Raises `UpError` while another `berth up` lives."""
    with data.lock_file.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid, url = _running(data)
            raise UpError(
                f"Berth is up already for {data.root}{pid}{url}. End that one first (Ctrl-C there), "
                "or give this one its own --data and --port."
            ) from None
        yield


def _running(data: DataFolder) -> tuple[str, str]:
    try:
        info = json.loads(data.up_file.read_text(encoding="utf-8"))
        return f" (pid {info['pid']})", f" at {info['url']}"
    except (OSError, ValueError, KeyError):
        return "", ""


def clear_leftovers(data: DataFolder) -> None:
    """Wait for, then end, the hub and agent of a `berth up` that was killed: they hold our ports and our book."""
    deadline = time.monotonic() + 10
    for name in ("hub", "agent", "proxy", "berth", "idle-culler"):
        pid = read_pid(data.pids, name)
        if pid is None or not _ours(pid, data):
            continue
        screen.say(f"Waiting for the {name} of the last run (pid {pid}) to end …")
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    for name in ("hub", "agent", "proxy", "berth", "idle-culler"):
        (data.pids / f"{name}.pid").unlink(missing_ok=True)
        (data.pids / f"{name}.starts").unlink(missing_ok=True)


def _ours(pid: int, data: DataFolder) -> bool:
    """A pid may have been given to a stranger since: ours carry the data folder in their environment."""
    try:
        return f"BERTH_DATA={data.root}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


# ---- the platform ----------------------------------------------------------------------------------------------


@dataclass
class Platform:
    made: Parts
    url: str
    hub: Child
    agent: Child
    stop_wanted: threading.Event
    hurry: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start both and wait for the first answer. Raises `UpError` with the end of the log."""
        self._start_one(self.agent)
        self._start_one(self.hub)
        deadline = time.monotonic() + START_SECONDS
        while not self.stop_wanted.is_set() and not self._answers():
            self.tend()
            for child in (self.hub, self.agent):
                if child.quick_ends >= GIVE_UP_AFTER:
                    raise UpError(f"The {child.name} does not start. The end of its logs:\n{_ends(child.log)}")
            if time.monotonic() > deadline:
                raise UpError(f"No answer from {self.url} in {START_SECONDS} s. See the logs in {self.hub.log.parent}.")
            self.stop_wanted.wait(0.1)

    def _start_one(self, child: Child) -> None:
        child.start()
        told = {"event": "process-started", "child": child.name, "pid": child.process.pid if child.process else None}
        log.info("The %s is started (restarts so far: %d)", child.name, child.restarts, extra=told)

    def _answers(self) -> bool:
        try:
            agent_seen = bool(self.made.rows.boots(role="agent"))
        except Refused:  # a database server that is being started again
            return False
        return agent_seen and _ok(f"{self.url}/hub/health") and _ok(f"{self.url}/services/berth/health")

    def tend(self) -> None:
        """Start again what has ended."""
        for child in (self.hub, self.agent):
            if child.ended():
                screen.say(f"The {child.name} ended with code {child.code}; starting it again.")
                told = {"event": "process-ended", "child": child.name, "code": child.code}
                log.warning("The %s ended with code %s", child.name, child.code, extra=told)
                self._end_beats(child.name)  # its boot is dead for certain: no need to wait until it is stale
            if child.due():
                if child.started:
                    child.restarts += 1
                self._start_one(child)

    def _end_beats(self, role: str) -> None:
        try:
            end_beats(self.made, role)
        except Refused as refused:  # supervision goes on without the book; beats grow old by themselves
            log.warning("%s", trouble(refused), extra={"event": "book-unavailable"})

    def supervise(self) -> None:
        while not self.stop_wanted.wait(0.2):
            self.tend()

    def stop(self) -> None:
        """End everything, user servers included, and settle every bill."""
        log.info("Stopping", extra={"event": "up-stopping"})
        if self.hub.process is not None:
            try:
                let_save(self.made, self.hurry, screen.say, self.tend)
            except Refused as refused:
                screen.say(trouble(refused))
        screen.say("\nStopping: the hub …")
        self.hub.stop(20)
        self._end_beats("hub")
        if self.agent.process is None:
            self.agent.start()
        try:
            self._stop_servers()
        except Refused as refused:
            screen.say(f"{trouble(refused)}\nUser servers end all the same; the next start closes their bills.")
            self._end_servers_without_book()
        self.agent.stop(10)
        if self.made.hosting.docker:
            from hub_config import fencing  # loads the Engine's client

            fencing.take_down(self.made)

    def _force(self, lease_id: str) -> None:
        """What cannot be removed now is the next start's to remove; an Engine that is silent holds up no end."""
        try:
            self.made.runtime.remove(lease_id)
        except RuntimeError as error:
            log.warning("The server of lease %s could not be removed: %s", lease_id, error)

    def _end_servers_without_book(self) -> None:
        """Their ends are on record with the runtime, and the agent reads them as soon as the book is back."""
        look = self.made.runtime.look()
        for lease_id in [] if isinstance(look, Unreachable) else list(look):
            self.made.runtime.stop(lease_id, STOP_GRACE_SECONDS)

    def _stop_servers(self) -> None:
        made, now = self.made, self.made.clock.now()
        live = made.book.live()
        for lease in live:
            made.book.request_stop(lease.id, StopReason.PLATFORM, detail=BERTH_STOPS, by="berth up", stop_after=now)
            made.runtime.stop(lease.id, STOP_GRACE_SECONDS)
        if live:
            screen.say(f"Stopping: {len(live)} user server{'s' if len(live) != 1 else ''}, up to {STOP_SECONDS} s …")
        deadline = now + timedelta(seconds=STOP_SECONDS)
        forced = now + timedelta(seconds=STOP_GRACE_SECONDS + 5)
        while unsettled := made.book.unsettled():
            if made.clock.now() > deadline:
                screen.say(f"Not settled yet: {len(unsettled)}; the next start goes on with them.")
                return
            if made.clock.now() > forced:
                for lease in unsettled:
                    self._force(lease.id)
            if self.agent.ended():
                self.agent.start()
            time.sleep(0.1)


def end_beats(made: Parts, role: str) -> None:
    """Take note that the processes of this host in that role are dead. A hub's row stays, as a dead one's: its last
    start may still be on its way, and is waited for from the moment of its death."""
    for beat in made.rows.boots(role=role):
        if beat.host in ("", made.host):
            (made.rows.bury if role == "hub" else made.rows.drop_beat)(beat.boot)


def _ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _ends(out: Path) -> str:
    """The last lines of what it printed, and of its events where there are any."""
    events = out.with_name(out.name.replace(".out.log", ".log"))
    return "\n".join(f"---- {path}\n{_tail(path)}" for path in (events, out) if _tail(path)) or f"{out} is empty"


def _tail(path: Path, lines: int = 12) -> str:
    try:
        last = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join(map(logs.for_people, last))
    except OSError:
        return ""


def up(root: Path, host: str, port: int, backend: str = "") -> int:
    """Run the platform until Ctrl-C or SIGTERM. `backend` goes before that of `berth.toml`. Raises `UpError` and
    `SettingsError`, one line each."""
    if backend:
        os.environ[BACKEND] = backend  # for the hub and the agent as well
    data = DataFolder(root)
    data.make()
    make_private(data)
    settings = data.settings()
    check_host(host, settings)
    check_extra_config(data, settings.hub.extra_config)
    check_extensions(parts(root, settings))  # an extension that cannot be loaded ends here, in one line
    if data.unfinished_restore.exists():
        raise UpError(f"A restore into {data.root} did not come to its end. Run it again: berth restore FILE --force")
    with only_one(data):
        clear_leftovers(data)
        logs.set_up("up", data.logs, settings)
        if port_taken(host, port):
            raise UpError(
                f"Port {port} on {host} is taken by another program. Free it, or choose one: --port {port + 1}"
            )
        meet_provider(data, settings)
        made = parts(root, settings)
        ports = Ports.choose(data, port, made.hosting.address)
        bring_up(made, screen.say)
        for role in ("hub", "agent", "idle-culler", "berth"):
            end_beats(made, role)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{ports.public}"
        info = {"pid": os.getpid(), "url": url, "backend": settings.backend.kind, "since": made.clock.now().isoformat()}
        write_private(data.up_file, json.dumps(info) + "\n")
        return _run(made, url, host)


def _run(made: Parts, url: str, host: str) -> int:
    stop_wanted, hurry = threading.Event(), threading.Event()

    def told(*_: object) -> None:
        (hurry if stop_wanted.is_set() else stop_wanted).set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the last: its terminal was closed
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, told)
    hub, agent = children(made.data, host)
    platform = Platform(made, url, hub, agent, stop_wanted, hurry)
    screen.say("Starting Berth …")
    try:
        platform.start()
        if not stop_wanted.is_set():
            screen.say(screen.welcome(made, url))
            log.info("Berth is up at %s", url, extra={"event": "up-ready"})
            platform.supervise()
    finally:
        platform.stop()
        made.data.up_file.unlink(missing_ok=True)
        made.store.close()
    screen.say("Stopped. Nothing is lost: `berth up` carries on.")
    return 0
