"""The two worlds in which one contract suite holds: the fake runtime on a fake clock, and real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from spawner.local_runtime import LocalRuntime
from spawner.ports import Look, Runtime, Seen, ServerSpec, Unreachable
from tests.fakes.clock import FakeClock
from tests.fakes.runtime import FakeRuntime
from tests.harness import waiting

PATIENCE_S = 15.0

#: Ends when told to by a file, or by SIGTERM unless it is deaf.
SERVER = """
import os, signal, sys, time
if "deaf" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("the server is up", flush=True)
open("ready", "w").close()
while not os.path.exists("finish.done"): time.sleep(0.01)
sys.exit(int(open("finish.done").read()))
"""


def until(predicate: Callable[[], object], what: str = "", patience_s: float = PATIENCE_S) -> None:
    """Poll until it is true; fail when patience ends."""
    waiting.until(predicate, patience_s, what, every=0.01)


class World(Protocol):
    @property
    def runtime(self) -> Runtime: ...

    def start(self, lease_id: str, *, deaf: bool = False) -> None:
        """Start a server and wait until it listens to signals (or has decided not to)."""
        ...

    def ask_start(self, lease_id: str) -> None:
        """Ask for a start and wait for nothing."""
        ...

    def finish(self, lease_id: str, code: int) -> None:
        """The server ends by itself."""
        ...

    def kill(self, lease_id: str) -> None:
        """SIGKILL hits the server."""
        ...

    def lose(self) -> None:
        """The runtime can no longer be asked."""
        ...

    def until(self, predicate: Callable[[], object], what: str = "") -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.runtime = FakeRuntime(self.clock)

    def start(self, lease_id: str, *, deaf: bool = False) -> None:
        if deaf:
            self.runtime.deaf.add(lease_id)
        self.ask_start(lease_id)
        self.runtime.servers[lease_id].log = ("the server is up",)

    def ask_start(self, lease_id: str) -> None:
        self.runtime.start(ServerSpec(lease_id, ("serve",), {}, "/"))

    def finish(self, lease_id: str, code: int) -> None:
        self.runtime.end(lease_id, code)

    def kill(self, lease_id: str) -> None:
        self.runtime.end(lease_id, -9)

    def lose(self) -> None:
        self.runtime.outage = "the engine does not answer"

    def until(self, predicate: Callable[[], object], what: str = "") -> None:
        for _ in range(1000):
            if predicate():
                return
            self.clock.advance(0.1)
        raise AssertionError(what or predicate)


class LocalWorld:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "runs"
        self.deployment = f"test-{folder.name}-{os.getpid()}"
        self.runtime = LocalRuntime(self.root, self.deployment)
        self.started: list[str] = []

    def again(self) -> LocalRuntime:
        """Another object on the same deployment, as another process has it."""
        return LocalRuntime(self.root, self.deployment)

    def home(self, lease_id: str) -> Path:
        home = self.folder / "homes" / lease_id
        home.mkdir(parents=True, exist_ok=True)
        return home

    def spec(self, lease_id: str, *arguments: str, code: str = SERVER) -> ServerSpec:
        argv = (sys.executable, "-I", "-S", "-c", code, *arguments)
        return ServerSpec(lease_id, argv, {"PATH": os.environ["PATH"]}, str(self.home(lease_id)))

    def start(self, lease_id: str, *, deaf: bool = False, code: str = SERVER) -> None:
        self.started.append(lease_id)
        self.runtime.start(self.spec(lease_id, *(["deaf"] if deaf else []), code=code))
        until((self.home(lease_id) / "ready").exists, "the server is up")
        until((self.root / lease_id / "server.json").exists, "its runner has put it on record")

    def ask_start(self, lease_id: str) -> None:
        self.runtime.start(self.spec(lease_id))

    def finish(self, lease_id: str, code: int) -> None:
        written = self.home(lease_id) / "finish"
        written.write_text(str(code))
        written.rename(self.home(lease_id) / "finish.done")

    def pid(self, lease_id: str, record: str = "server.json") -> int:
        """Of the server, or of its runner (`start.json`)."""
        return int(json.loads((self.root / lease_id / record).read_text())["pid"])

    def kill(self, lease_id: str, record: str = "server.json") -> None:
        os.kill(self.pid(lease_id, record), signal.SIGKILL)

    def lose(self) -> None:
        self.root.rename(self.root.with_name("elsewhere"))

    def until(self, predicate: Callable[[], object], what: str = "") -> None:
        until(predicate, what)

    def clean(self) -> None:
        elsewhere = self.root.with_name("elsewhere")
        if elsewhere.exists():
            elsewhere.rename(self.root)
        for lease_id in self.started:
            self.runtime.remove(lease_id)


def seen_in(look: Look, lease_id: str) -> Seen | None:
    """What a look saw of one lease; the look itself must have succeeded."""
    assert not isinstance(look, Unreachable), look
    return look.get(lease_id)
