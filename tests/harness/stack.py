"""`berth up` on a data folder of its own, as a person at a terminal would run it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from tests.harness.person import Person
from tests.harness.waiting import until

UP_SECONDS = 90
DOWN_SECONDS = 60
FOREIGN = ("BERTH_", "JUPYTERHUB_", "JUPYTER_", "JPY_", "CUDA_", "NVIDIA_")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def berth_command() -> list[str]:
    """The console script beside this interpreter."""
    script = Path(sys.executable).with_name("berth")
    return [str(script)] if script.exists() else [sys.executable, "-m", "hub_config"]


def clean_environment() -> dict[str, str]:
    """No setting from outside, and no -W error of the test run in the processes under test."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k != "PYTHONWARNINGS"}
    kept["PYTHONUNBUFFERED"] = "1"
    return kept


def _as_at_a_terminal() -> None:
    """In the child: Ctrl-C works even where the tests run in the background, and nothing outlives them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG


class Stack:
    """One deployment. `toml` is written as its `berth.toml` before the first start; `env` is added to its environment.

    Use it as a context, or call `up` and `close`. `close` asserts that nothing was left running.
    """

    def __init__(self, data: Path, toml: str = "", extra_config: str = "", env: dict[str, str] | None = None) -> None:
        self.data = data.resolve()
        self.env = env or {}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._people: dict[str, Person] = {}
        self._passwords: dict[str, Any] = {}
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if extra_config:
            (self.data / "extra.py").write_text(extra_config, encoding="utf-8")
            toml = with_extra_config(toml)
        if toml:
            (self.data / "berth.toml").write_text(toml, encoding="utf-8")

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            print(self.logs())
            self.end_hard()
        else:
            self.close()

    # ---- up and down -----------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def screen(self) -> Path:
        """What `berth up` printed."""
        return self.data / "screen.log"

    def launch(self) -> subprocess.Popen[bytes]:
        """Start, and do not wait."""
        with self.screen.open("ab") as out:
            self.process = subprocess.Popen(
                [*berth_command(), "up", "--data", str(self.data), "--port", str(self.port)],
                cwd=self.data,
                env=clean_environment() | self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_as_at_a_terminal,
            )
        return self.process

    def up(self) -> Self:
        """Start and wait until the Hub and service `berth` answer."""
        process = self.launch()
        try:
            until(self._answers_or_ended, UP_SECONDS, f"{self.url} answers")
            assert process.poll() is None, f"`berth up` ended with {process.returncode}"
        except BaseException:
            print(self.logs())
            self.end_hard()
            raise
        return self

    def _answers_or_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None or self.answers()

    def answers(self) -> bool:
        """Whether the Hub and service `berth` both answer now."""
        try:
            hub = httpx.get(f"{self.url}/hub/health", timeout=2)
            service = httpx.get(f"{self.url}/services/berth/health", timeout=2)
        except httpx.HTTPError:
            return False
        return hub.status_code == 200 and service.status_code == 200

    def interrupt(self) -> int:
        """Ctrl-C, and wait for the end; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(DOWN_SECONDS)
        except subprocess.TimeoutExpired:
            print(self.logs())
            self.end_hard()
            raise AssertionError(f"`berth up` did not end within {DOWN_SECONDS} s of Ctrl-C") from None

    def close(self) -> None:
        """Ctrl-C; asserts exit code 0 and that nothing is left running."""
        self.forget_people()
        if self.process is None or self.process.poll() is not None:
            self.end_hard()
            return
        code = self.interrupt()
        self.process = None
        left = self.leftovers()
        if left or code:
            print(self.logs())
            self.end_hard()
        assert code == 0, f"`berth up` ended with {code}"
        assert not left, f"left running: {left}"

    def end_hard(self) -> None:
        """kill -9 of all that belongs to this deployment, repeated until nothing is left."""
        self.forget_people()
        deadline = time.monotonic() + 15
        while (left := self._leftover_processes()) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=1)
        if self.process is not None:
            self.process.wait(5)
            self.process = None

    # ---- looking at processes --------------------------------------------------------------------------------

    def _leftover_processes(self) -> list[psutil.Process]:
        """Processes that carry this data folder in their environment or command line: ours and nobody else's."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                words = [*process.cmdline(), *process.environ().values()]
            except psutil.Error:
                continue
            if any(str(self.data) in word for word in words):
                found.append(process)
        return found

    def leftovers(self) -> list[str]:
        return [f"{process.pid} {_command(process)}" for process in self._leftover_processes()]

    def server_processes(self) -> list[psutil.Process]:
        """The user servers' own processes (runners and kernels apart)."""
        return [
            p for p in self._leftover_processes() if "berth_lab.launch" in _command(p) and "runner" not in _command(p)
        ]

    def runner_processes(self) -> list[psutil.Process]:
        return [p for p in self._leftover_processes() if "runner" in _command(p)]

    def pid(self, name: str) -> int | None:
        """Of hub, agent, berth, idle-culler or proxy; None while it is not running. As `berth status` has it, from
        the file that it reads: a command line of Python is too slow to be asked again and again."""
        try:
            pid = int((self.data / "pids" / f"{name}.pid").read_text(encoding="ascii"))
            return pid if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else None
        except (OSError, ValueError, psutil.Error):
            return None

    def kill(self, name: str) -> int:
        """kill -9 one of them; the pid that it had."""
        pid = self.pid(name)
        assert pid, f"{name} is not running"
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_everything(self) -> None:
        """kill -9 of `berth up`, all it started and all user servers at once, as a power cut would."""
        self.forget_people()
        victims = self._leftover_processes()
        for process in victims:
            with contextlib.suppress(psutil.Error):
                process.suspend()  # nobody may react to the end of another
        for process in victims:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.end_hard()

    def wait_for_new(self, name: str, old_pid: int, seconds: float = 90) -> int:
        """Wait until a killed process is back under another pid and the site answers."""

        def back() -> int | None:
            pid = self.pid(name) if self.answers() else None
            return pid if pid and pid != old_pid and self.answers() else None

        return until(back, seconds, f"{name} is back")

    # ---- the command line ------------------------------------------------------------------------------------

    def run(self, *words: str, code: int | None = 0) -> str:
        """Run `berth WORDS --data DIR`; asserts the exit code unless it is None; standard output."""
        argv = [*berth_command(), *words, "--data", str(self.data)]
        done = subprocess.run(argv, capture_output=True, text=True, env=clean_environment(), cwd=self.data, timeout=60)
        assert code in (None, done.returncode), f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        """`berth status --json`; with findings (something was killed) it ends with 1."""
        return dict(json.loads(self.run("status", "--json", code=None)))

    def passwords(self) -> dict[str, Any]:
        if not self._passwords:
            self._passwords = dict(json.loads(self.run("passwords", "--json")))
        return self._passwords

    # ---- people ----------------------------------------------------------------------------------------------

    def person(self, name: str = "", role: str = "researcher") -> Person:
        """Somebody logged in (kept until the stack goes down). Any name may use the researchers' password once an
        admin has added it; `add` does that."""
        login = self.passwords()[role]
        name = name or login["name"]
        if name not in self._people:
            self._people[name] = Person(self.url, name, login["password"])
        return self._people[name]

    @property
    def admin(self) -> Person:
        return self._people.get("admin") or self.person(role="admin")

    @property
    def researcher(self) -> Person:
        return self._people.get("researcher") or self.person()

    def add(self, name: str) -> Person:
        """An admin adds a user, who then logs in."""
        answer = self.admin.hub("POST", "/users", {"usernames": [name]})
        assert answer.status_code in (201, 409), answer.text
        return self.person(name)

    def forget_people(self) -> None:
        for person in self._people.values():
            person.close()
        self._people.clear()

    def tidy(self) -> None:
        """Stop every server that a failed test left, so that the next one starts from nothing."""
        if self.process is None or self.process.poll() is not None:
            return
        until(self.answers, UP_SECONDS, "the site answers again")
        for lease in self.admin.leases():
            if lease["state"] != "SETTLED":
                user, server = lease["holder"]["user"], lease["holder"]["server"]
                self.admin.ask_stop(user=user, server=server)
                self.admin.settled(lease["id"])
                until(partial(self.admin.gone, server, user), 40, f"{user}'s server is gone")

    # ---- what happened ---------------------------------------------------------------------------------------

    def log(self, name: str) -> str:
        try:
            return (self.data / "logs" / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def logs(self, lines: int = 40) -> str:
        """The end of every log, for a failed test."""
        files = [self.screen, *sorted((self.data / "logs").rglob("*.log"))]
        parts = []
        for path in files:
            if path.exists():
                tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
                parts.append(f"---- {path.relative_to(self.data)}\n" + "\n".join(tail))
        return "\n".join(parts)


def with_extra_config(toml: str) -> str:
    """Name extra.py in the [hub] table, which may be there already."""
    line = 'extra_config = "extra.py"\n'
    return toml.replace("[hub]\n", f"[hub]\n{line}") if "[hub]\n" in toml else f"{toml}\n[hub]\n{line}"


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
