"""A network of the tests' own: everything started while apart sees its loopback, its bridges and its packet filter, and
none of the machine's. Needs root."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.waiting import until

_CLONE_NEWNET = 0x40000000
_PROGRAMS = f"/usr/sbin{os.pathsep}/sbin{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def with_daemons() -> dict[str, str]:
    """The environment with the folders on PATH in which Debian keeps daemons and `ip`."""
    return {**os.environ, "PATH": _PROGRAMS}


def programs() -> str:
    """PATH with the folders of daemons."""
    return _PROGRAMS


def run(*argv: str) -> str:
    """What the command printed. Raises `AssertionError` with what it complained of."""
    done = subprocess.run(argv, env=with_daemons(), capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr or done.stdout}"
    return done.stdout


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _open() -> int:
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Apart:
    """The calling thread, and what it starts from now on, in a network namespace of its own until `leave`.

    One namespace for the test, the Hub it starts and the Engine: so the Hub reaches the containers' addresses and they
    reach the gateway's, as on a real host, and a daemon that writes its packet filter anew at each start (it
    takes away the chains it finds) disturbs no other Docker of this machine.
    """

    def __init__(self) -> None:
        self._before = _open()
        _call("unshare", _CLONE_NEWNET)
        self._own = _open()
        run("ip", "link", "set", "lo", "up")

    def leave(self) -> None:
        """Back to the machine's network. What still runs apart keeps its own."""
        _call("setns", self._before, _CLONE_NEWNET)
        os.close(self._before)
        os.close(self._own)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """The machine's network for a moment: to fetch what an image is made of."""
        _call("setns", self._before, _CLONE_NEWNET)
        try:
            yield
        finally:
            _call("setns", self._own, _CLONE_NEWNET)


class Neighbour:
    """A machine beyond the host: a namespace joined to this one by a cable. `ours` is this end's address."""

    def __init__(self, name: str, ours: str, theirs: str) -> None:
        self.name, self.ours, self.theirs = name, ours, theirs
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], env=with_daemons())
        own = os.readlink("/proc/self/ns/net")
        mine = Path(f"/proc/{self._holder.pid}/ns/net")
        until(lambda: os.readlink(mine) != own and self._holder.poll() is None, 5, "a namespace of its own")
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self._holder.pid))
        run("ip", "address", "add", f"{ours}/24", "dev", name)
        run("ip", "link", "set", name, "up")
        for command in (("link", "set", "lo", "up"), ("address", "add", f"{theirs}/24", "dev", "eth0")):
            self.run("ip", *command)
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", ours)

    def argv(self, *argv: str) -> list[str]:
        """The command line that runs `argv` over there."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *argv]

    def run(self, *argv: str) -> str:
        """What the command printed over there."""
        return run(*self.argv(*argv))

    def close(self) -> None:
        """Gone, its cable with it."""
        self._holder.kill()
        self._holder.wait()
