"""Small facts about processes: who dies with whom, who is alive, which port is free."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(sig: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send `sig` to this process when its parent ends (prctl(2), PR_SET_PDEATHSIG).

    Without it the proxy and the services of a killed hub keep their ports and answer with dead tokens.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)


def die_with_parent_hard() -> None:
    """As `die_with_parent`, by SIGKILL: for a child that holds nothing worth an orderly end."""
    die_with_parent(signal.SIGKILL)


def alive(pid: int | None) -> bool:
    """Whether the process exists and is no zombie."""
    if not pid:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def free_port(address: str = "127.0.0.1") -> int:
    """A port of this machine's address that was free just now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def port_taken(host: str, port: int) -> bool:
    """Whether somebody listens on host:port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def write_pid(folder: Path, name: str, pid: int | None = None) -> None:
    """Let `berth status` find a process, this one by default, and count its starts."""
    file, text = folder / f"{name}.pid", f"{pid or os.getpid()}\n"
    if file.exists() and file.read_text(encoding="ascii") == text:
        return  # whoever started it has said so already
    file.write_text(text, encoding="ascii")
    with (folder / f"{name}.starts").open("a", encoding="ascii") as starts:
        starts.write(".")


def starts_of(folder: Path, name: str) -> int | None:
    """How often it was started since `berth up` was; None where nothing was counted."""
    try:
        return (folder / f"{name}.starts").stat().st_size
    except OSError:
        return None


def read_pid(folder: Path, name: str) -> int | None:
    """The pid that `name` wrote, if that process is alive."""
    try:
        pid = int((folder / f"{name}.pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if alive(pid) else None
