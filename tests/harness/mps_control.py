"""Stands in for `nvidia-cuda-mps-control`, as far as a supervisor can tell the difference.

`-f` is the daemon: it refuses to start over another's pipes, listens on `control` in the pipe folder and writes what it
is told to `told` in the log folder. Without, lines of standard input go to the daemon, and its answers come back.
The word in `misbehave` in the folder of this program makes it `die` at its start, stay `mute`, or ignore `quit`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

PIPES = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
LOGS = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])


def misbehave() -> str:
    file = Path(__file__).with_name("misbehave")
    return file.read_text() if file.exists() else ""


def daemon() -> int:
    if misbehave() == "die":
        print("An instance of this daemon is already running", file=sys.stderr)
        return 1
    if (PIPES / "control").exists():
        print("stale pipes", file=sys.stderr)
        return 1
    if misbehave() == "mute":
        signal.pause()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(PIPES / "control"))
    server.listen()
    while True:
        with server.accept()[0] as peer:
            line = peer.makefile().readline().strip()
            with open(LOGS / "told", "a") as told:
                told.write(f"{line}\n")
            if line.startswith("quit") and misbehave() != "stay":
                return 0
            peer.sendall(b"refused\n" if line.startswith("set_nonsense") else b"ok\n")


def control() -> int:
    for line in sys.stdin:
        with socket.socket(socket.AF_UNIX) as peer:
            try:
                peer.connect(str(PIPES / "control"))
            except OSError:
                print("Cannot find MPS control daemon process", file=sys.stderr)
                return 1
            peer.sendall(line.encode())
            answer = peer.makefile().readline().strip()
            if answer == "refused":
                print(answer, file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(daemon() if "-f" in sys.argv else control())
