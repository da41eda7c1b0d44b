"""The kit in a user's server at rest: what it costs, beside the same server without it.

`python -m benchmarks.kit_rest --json [--seconds 60] [--pairs 5]`

Each pair is two Jupyter servers that run at the same time, each with a notebook and its idle kernel; in one the kit
works: it reports to a service that takes its reports, and hears the state of its lease every ten seconds, as the real
service tells it. The other has the extension turned off. Nobody has a page open. `cpu_percent` is of one core, from the
kernel's own count over `--seconds`; memory is of all that is resident, server and kernel. `kit` is the median of the
pairs' differences; it is to be at most 0.5 % of a core and 25 MiB, else the exit code is 1.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import arguments, machine, show
from benchmarks.idle import MIB, cpu_seconds, switches
from quota.clock import SystemClock

TARGET_PERCENT, TARGET_MIB = 0.5, 25.0
SETTLE_SECONDS = 20.0  # what a start and a kernel's first report leave to do
TELL_SECONDS = 10.0
FIGURES = ("cpu_percent", "wake_ups_per_second", "rss_mib", "uss_mib")
WITHOUT = '--ServerApp.jpserver_extensions={"berth_lab.extension": False}'

#: As `quota.web.kit_state` makes it.
STATE = {
    "lease_id": "l1",
    "profile": "gpu-1-8",
    "share_milli": 125,
    "count": 1,
    "simulated": False,
    "gpu_util": 0,
    "gpu_memory_mib": 0,
    "gpu_memory_total_mib": 10_240,
    "rate_micro_per_hour": 250_000,
    "balance_micro": 99_000_000,
    "payer": "alice",
    "credit_ends_at": None,
    "charged_micro": 1_000_000,
    "started_at": "2026-01-01T00:00:00Z",
    "max_age_ends_at": None,
    "verdict": {"kind": "keep", "rule": "idle", "words": "Last used 5 min ago", "deadline": None},
    "wish": {"keep_until": None, "shutdown_at": None, "when_done": False},
    "target": "RUN",
    "stop": None,
}


@contextmanager
def telling(service: Any) -> Iterator[None]:
    """The service says the state of the lease again and again."""
    ending = threading.Event()

    def tell() -> None:
        while not ending.wait(TELL_SECONDS):
            if service.streams:
                service.say("state", STATE | {"now": SystemClock().now().isoformat()})

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def pair(root: Path, seconds: float) -> dict[str, dict[str, float]]:
    """Both servers over the same seconds."""
    from tests.harness import until  # programs of the clone, not of an installation
    from tests.harness.notebook import Tab, listening, serving

    with ExitStack() as running:
        service = running.enter_context(listening())
        running.enter_context(telling(service))
        servers = {
            "with": running.enter_context(serving(root / "with", service)),
            "without": running.enter_context(serving(root / "without", None, words=[WITHOUT])),
        }
        for server in servers.values():
            server.save("a.ipynb", "1")
            with Tab(server, server.session("a.ipynb")) as tab:
                tab.finish(tab.run("c0", "1"))
        until(lambda: service.streams and any(each["kernels"] for each in service.signals), 60, "the kit works")
        time.sleep(SETTLE_SECONDS)
        parts = {name: _processes(server.process.pid) for name, server in servers.items()}
        began, before = time.monotonic(), {name: (cpu_seconds(each), switches(each)) for name, each in parts.items()}
        time.sleep(seconds)
        took = time.monotonic() - began
        return {name: _figures(each, before[name], took) for name, each in parts.items()}


def _processes(pid: int) -> list[psutil.Process]:
    """The server and its kernel."""
    server = psutil.Process(pid)
    return [server, *server.children(recursive=True)]


def _figures(processes: list[psutil.Process], before: tuple[float, int], took: float) -> dict[str, float]:
    memory = [process.memory_full_info() for process in processes]
    values = (
        100 * (cpu_seconds(processes) - before[0]) / took,
        (switches(processes) - before[1]) / took,
        sum(one.rss for one in memory) / MIB,
        sum(one.uss for one in memory) / MIB,
    )
    return {name: round(value, 3) for name, value in zip(FIGURES, values, strict=True)}


def measure(seconds: float, pairs: int, folder: str | None) -> dict[str, Any]:
    found = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as root:
            found.append(pair(Path(root), seconds))
    sides: dict[str, Any] = {
        side: {name: round(statistics.median(each[side][name] for each in found), 3) for name in FIGURES}
        for side in ("with", "without")
    }
    costs = {name: [each["with"][name] - each["without"][name] for each in found] for name in FIGURES}
    sides["kit"] = {name: round(statistics.median(values), 3) for name, values in costs.items()}
    sides["kit_most"] = {name: round(max(values), 3) for name, values in costs.items()}
    return sides


def main(words: list[str] | None = None) -> int:
    parser = arguments("kit_rest", __doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long both rest while they are measured (60)")
    parser.add_argument("--pairs", type=int, default=5, help="how often (5)")
    parser.add_argument("--folder", help="where the homes lie (the system's temporary folder)")
    options = parser.parse_args(words)
    found = measure(options.seconds, options.pairs, options.folder)
    setting: dict[str, Any] = {"benchmark": "kit_rest", "seconds": options.seconds, "pairs": options.pairs}
    setting |= {"target_cpu_percent": TARGET_PERCENT, "target_mib": TARGET_MIB, "machine": machine()}
    show(setting | found, options.json)
    kit = found["kit"]
    return 1 if kit["cpu_percent"] > TARGET_PERCENT or kit["rss_mib"] > TARGET_MIB else 0


if __name__ == "__main__":
    raise SystemExit(main())
