"""Memory and processor time of a platform at rest: each process of a running `berth up`, without and with servers.

`python -m benchmarks.idle --json [--seconds 60] [--servers 3]`

`cpu_percent` is of one core, from the kernel's own count over `--seconds`; PSS shares what processes share. Nobody has
a page open; the user servers run without a kernel, and are told apart from the platform. The platform's sum is to be
below 2 % of a core, else the exit code is 1.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import arguments, machine, show

TARGET_PERCENT = 2.0
SETTLE_SECONDS = 25  # the processes' first cycles, and what a start leaves to do
PARTS = ("hub", "proxy", "berth", "idle-culler", "agent")
MIB = 1 << 20

TOML = """
[gpus]
source = "simulated"
simulated = 4

[first_start]
max_servers = 50
"""


def groups(stack: Any) -> dict[str, list[psutil.Process]]:
    """The processes by part: with those that a part started itself, and the user servers."""
    assert stack.process is not None
    own = {name: psutil.Process(stack.pid(name)) for name in PARTS}
    known = {process.pid for process in own.values()}
    servers = [*stack.runner_processes(), *stack.server_processes()]
    theirs = {process.pid for process in servers}
    found = {"berth up": [psutil.Process(stack.process.pid)]}
    for name, process in own.items():
        children = [child for child in process.children(recursive=True) if child.pid not in known | theirs]
        found[name] = [process, *children]
    return found | {"user servers": servers}


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """User and system time of these, and of children that they have waited for."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def switches(processes: list[psutil.Process]) -> int:
    """How often their threads have gone to sleep: the wake-ups, near enough."""
    total = 0
    for process in processes:
        for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
            with contextlib.suppress(OSError):
                lines = status.read_text(encoding="ascii").splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return total


def at_rest(stack: Any, seconds: float) -> dict[str, Any]:
    """What each part uses over so many seconds."""
    time.sleep(SETTLE_SECONDS)
    parts = groups(stack)
    began, before = time.monotonic(), {name: (cpu_seconds(each), switches(each)) for name, each in parts.items()}
    time.sleep(seconds)
    took = time.monotonic() - began
    found: dict[str, Any] = {}
    for name, each in parts.items():
        used, woken = cpu_seconds(each) - before[name][0], switches(each) - before[name][1]
        memory = [process.memory_full_info() for process in each]
        found[name] = {
            "cpu_percent": round(100 * used / took, 3),
            "wake_ups_per_second": round(woken / took, 1),
            "rss_mib": round(sum(one.rss for one in memory) / MIB, 1),
            "pss_mib": round(sum(one.pss for one in memory) / MIB, 1),
        }
    platform = [each for name, each in found.items() if name != "user servers"]
    found["platform"] = {key: round(sum(each[key] for each in platform), 2) for key in platform[0]}
    return found


def measure(seconds: float, servers: int, folder: str | None) -> dict[str, Any]:
    from tests.harness import Stack  # a program of the clone, not of an installation

    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as root:
        with Stack(Path(root) / "data", TOML) as stack:
            found = {"0 servers": at_rest(stack, seconds)}
            if servers:
                for number in range(servers):
                    stack.researcher.start("gpu-1-8", server=f"s{number}" if number else "")
                stack.forget_people()
                found[f"{servers} servers"] = at_rest(stack, seconds)
    return found


def main(words: list[str] | None = None) -> int:
    parser = arguments("idle", __doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long it rests while it is measured (60)")
    parser.add_argument("--servers", type=int, default=3, help="user servers in the second part (3)")
    parser.add_argument("--folder", help="where the data folder lies (the system's temporary folder)")
    options = parser.parse_args(words)
    found = measure(options.seconds, options.servers, options.folder)
    setting = {"benchmark": "idle", "seconds": options.seconds, "target_cpu_percent": TARGET_PERCENT}
    show(setting | {"machine": machine()} | found, options.json)
    return 1 if any(each["platform"]["cpu_percent"] > TARGET_PERCENT for each in found.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
