"""A real Docker Engine of the tests' own: another data folder, another socket, another network; nothing of the
machine's Docker is touched.

    with engine.begun() as docker:                    # apart from the machine's network until the end
        docker.client().containers.run(engine_images.base(docker), ["true"])

The daemon finds a stand-in for NVIDIA's hook on its PATH, so it accepts requests for devices; what the hook is told is
kept and read by `Engine.hooked`. That a container really gets a device, only a GPU can prove.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import docker
import psutil

from tests.harness import netns
from tests.harness.waiting import until

CHECKOUT = Path(__file__).resolve().parents[2]
#: Images stay here from run to run.
FOLDER = CHECKOUT / "build" / "engine"
_DAEMONS = ("dockerd", "containerd", "containerd-shim", "ctr", "docker-proxy")
_HOOK = """#!/bin/sh
# Stands where NVIDIA's hook stands: keeps the state of the container that it is told.
cat > "{folder}/$(date +%s%N).$$.json"
"""


def missing() -> str:
    """Why no Engine can be started here, in words; empty when one can."""
    if os.geteuid() != 0:
        return "a Docker Engine of the tests' own needs root"
    lacks = [name for name in ("dockerd", "containerd", "iptables", "ip", "debootstrap") if not _program(name)]
    if lacks:
        return f"{', '.join(lacks)} not found: apt install docker.io iptables iproute2 debootstrap"
    return ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=netns.programs())


class Engine:
    """One daemon. `url` is its socket; `apart` the network in which it, and who speaks to its containers, lives.

    `live_restore` (of the next start) says whether containers outlive the daemon.
    """

    def __init__(self, folder: Path, apart: netns.Apart, *, live_restore: bool = False) -> None:
        self.folder, self.apart, self.live_restore = folder, apart, live_restore
        # Sockets lie deep below the exec root, and their paths may have 107 characters.
        self.run_folder = Path("/tmp") / f"berth-engine-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
        self.hooks = self.run_folder / "hooks"
        self.socket = self.run_folder / "docker.sock"
        self.url = f"unix://{self.socket}"
        self.log = folder / "dockerd.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @classmethod
    def begin(cls, folder: Path = FOLDER, *, live_restore: bool = False) -> Self:
        """A daemon that answers, and the calling thread apart with it. Raises `AssertionError` where another run
        has the folder, or with the end of the daemon's log."""
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise AssertionError(f"another test run has the Engine of {folder}: wait until it ends") from None
        engine = cls(folder, netns.Apart(), live_restore=live_restore)
        engine._lock = lock
        try:
            engine.sweep()
            engine.hooks.mkdir(parents=True)
            engine._write_hook()
            engine.log.unlink(missing_ok=True)
            engine.start()
        except BaseException:
            engine.stop()
            raise
        return engine

    def _write_hook(self) -> None:
        hook = self.run_folder / "bin" / "nvidia-container-runtime-hook"
        hook.parent.mkdir()
        hook.write_text(_HOOK.format(folder=self.hooks), encoding="utf-8")
        hook.chmod(0o755)

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        run = self.run_folder
        argv = [str(_program("dockerd")), "--host", self.url, "--data-root", str(self.folder / "data")]
        argv += ["--exec-root", str(run / "exec"), "--pidfile", str(run / "pid"), "--bridge", "none"]
        argv += ["--default-address-pool", "base=10.231.0.0/16,size=24", "--config-file", str(run / "none.json")]
        argv += ["--live-restore"] if self.live_restore else []
        (run / "none.json").write_text("{}", encoding="utf-8")
        env = {**netns.with_daemons(), "PATH": f"{run / 'bin'}{os.pathsep}{netns.programs()}"}
        with self.log.open("ab") as log:
            # A session of its own: a Ctrl-C at the tests is not one at the daemon, which `stop` ends.
            self.process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
        until(self._answers, 30, f"dockerd answers (log: {self.log})")

    def _answers(self) -> bool:
        process = self.process
        assert process is not None
        assert process.poll() is None, "dockerd ended:\n" + "\n".join(self.log.read_text().splitlines()[-20:])
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(5)
                asking.connect(str(self.socket))
                asking.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
                return asking.recv(64).startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))
        except OSError:
            return False

    def client(self, seconds: float = 60) -> docker.DockerClient:
        """A client that has agreed on a version with the daemon; each call takes at most `seconds`."""
        return docker.DockerClient(base_url=self.url, version="auto", timeout=seconds)

    @contextmanager
    def connected(self) -> Iterator[docker.DockerClient]:
        """A client that is closed in the end."""
        client = self.client()
        try:
            yield client
        finally:
            client.close()

    def kill(self) -> None:
        """SIGKILL to the daemon. Its containers go on; the next start ends them, unless `live_restore` held."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._forget_containerd()

    def _forget_containerd(self) -> None:
        """The kernel ends containerd with its dockerd. Where nobody buries it, the next dockerd would take the number
        in its pid file for a living one."""
        note = self.run_folder / "exec" / "containerd" / "containerd.pid"
        if note.exists():
            number = int(note.read_text(encoding="utf-8"))
            until(lambda: not _lives(number), 10, "containerd ends with its dockerd")
            note.unlink()

    def pause(self) -> None:
        """The daemon stands still: calls are neither answered nor refused."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """The daemon goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """End the daemon in order, where it still lives, and start it again."""
        self._end()
        self.start()

    def _end(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def clear(self) -> None:
        """No containers, networks and volumes; images stay."""
        with self.connected() as client:
            for container in client.containers.list(all=True, ignore_removed=True):
                container.remove(force=True, v=True)
            for network in client.networks.list(filters={"type": "custom"}):
                network.remove()
            for volume in client.volumes.list():
                volume.remove(force=True)

    def hooked(self, container_id: str) -> list[dict[str, Any]]:
        """What NVIDIA's hook was told of this container, oldest first: OCI states."""
        states = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.hooks.glob("*.json"))]
        return [state for state in states if state["id"] == container_id]

    def stop(self) -> None:
        """Containers and daemon gone, and the calling thread back in the machine's network."""
        try:
            if self.process is not None and self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)
                self.clear()
        finally:
            self._end()
            self.sweep()
            self.apart.leave()
            if self._lock is not None:
                self._lock.close()

    def sweep(self) -> None:
        """End what a killed run, or daemon, left: daemons and their containers, known by the folder in their command
        lines or their pid file, and what they mounted."""
        left = [process for process in psutil.process_iter(["name", "cmdline"]) if self._is_ours(process.info)]
        family = {process for parent in left for process in (parent, *_children(parent))}
        for process in family:
            if process.pid != os.getpid():
                _kill(process)
        psutil.wait_procs(list(family), timeout=20)
        _unmount(self.run_folder, self.folder)
        shutil.rmtree(self.run_folder, ignore_errors=True)

    def _is_ours(self, info: dict[str, Any]) -> bool:
        words = " ".join(info["cmdline"] or ())
        return (info["name"] or "").startswith(_DAEMONS) and str(self.run_folder) in words


def _lives(number: int) -> bool:
    try:
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass


def _unmount(*folders: Path) -> None:
    """Lazily: a mount of which something still holds a file goes with it."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    points = [line.split()[1] for line in lines]
    for point in reversed(points):
        if any(point.startswith(f"{folder}/") for folder in folders):
            subprocess.run(["umount", "--lazy", point], env=netns.with_daemons(), capture_output=True)


@contextmanager
def begun(*, live_restore: bool = False) -> Iterator[Engine]:
    """An Engine for as long as the block lasts."""
    engine = Engine.begin(live_restore=live_restore)
    try:
        yield engine
    finally:
        engine.stop()
