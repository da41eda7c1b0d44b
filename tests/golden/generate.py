"""Histories of servers: signal rows as the book would have held them, with the ground truth beside them.

`python -m tests.golden.generate --seed 1 --count 240 [--out FILE]` writes one JSON object a line, or says what it made.

The rows come from what the workload's programs do (`tests.golden.workloads`) by way of the product's own samplers: the
agent reads counters that grow and devices that are busy at a moment, with noise, jitter, gaps and a kit whose clock is
off. The label of a minute ("working", "idle", "asleep") is that of the phase and comes from nowhere else. A seed makes
the same histories on every machine.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from quota.leases import Lease, Slot
from quota.units import WHOLE_GPU, MilliGpu
from spawner.gpu_use import gpu_signal
from spawner.ports import GpuProcess, GpuReading, Load
from spawner.sampling import ACTIVE_BYTES, Usage, host_signal, next_usage
from tests.fakes.clock import START
from tests.fakes.use import lease
from tests.golden.workloads import KINDS, Phase, Silence, Workload

SEED, COUNT = 1, 240
WINDOW = timedelta(seconds=30)
#: The notebook server tells the Hub of its activity so often (JUPYTERHUB_ACTIVITY_INTERVAL).
HUB_EVERY = 300.0
OWN_PID, SHARE = 4101, 250


@dataclass(frozen=True, slots=True)
class Row:
    """One source's report, `at` seconds after the start. `hub` is the Hub's list: {"last_activity"}."""

    at: float
    source: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """`labels` holds a word for each minute; `naps` are the stretches in which the machine, and all on it, slept."""

    name: str
    kind: str
    gpus: int
    whole: bool
    labels: tuple[str, ...]
    rows: tuple[Row, ...]
    naps: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        return 60.0 * len(self.labels)

    def lease(self) -> Lease:
        return _lease(self.name, self.gpus, self.whole)


def _lease(name: str, gpus: int, whole: bool) -> Lease:
    share = MilliGpu(WHOLE_GPU if whole else SHARE)
    slots = tuple(Slot("h", f"GPU-{n}", share) for n in range(gpus)) or (Slot("h", None, MilliGpu(0)),)
    return lease(gpus, share=int(share), id=name, slots=slots, started_at=START)


def moment(at: float) -> datetime:
    return START + timedelta(seconds=at)


# ---- what the programs do --------------------------------------------------------------------------------------------


class Truth:
    """The world of one workload: what is the case at a moment, and what was used up to it."""

    def __init__(self, workload: Workload) -> None:
        self._begins: list[tuple[float, Phase]] = []
        at = 0.0
        for phase in workload.phases:
            self._begins.append((at, phase))
            at += phase.seconds
        self._naps = [silence for silence in workload.silences if silence.sleep]

    def phase(self, at: float) -> tuple[float, Phase]:
        """The phase of a moment and its begin."""
        return next((each for each in reversed(self._begins) if each[0] <= at), self._begins[0])

    def active(self, at: float) -> bool:
        """Whether a burst goes on."""
        begin, phase = self.phase(at)
        return (at - begin) % phase.every < phase.on

    def used(self, until: float, what: str) -> float:
        """CPU seconds ("cpu") or bytes ("io") used so far. Between bursts nearly nothing is."""
        total = 0.0
        for begin, phase in self._begins:
            length = min(until - begin, phase.seconds)
            if length <= 0:
                break
            whole, rest = divmod(length, phase.every)
            bursting = whole * phase.on + min(rest, phase.on)
            total += getattr(phase, what) * bursting + 0.002 * (length - bursting)
        return total

    def last_run(self, at: float) -> float | None:
        """When a cell last began or ended, as far as the phases before tell."""
        last: float | None = None
        for begin, phase in self._begins:
            if begin > at:
                break
            end = min(at, begin + phase.seconds)
            if phase.runs_every:
                last = begin + (end - begin) // phase.runs_every * phase.runs_every
            elif phase.busy:
                last = begin if end == at else end
        return last

    def shown(self, at: float) -> float | None:
        """The last request, output or ping that the Hub would hear of."""
        last: float | None = None
        for begin, phase in self._begins:
            if begin > at:
                break
            if phase.shown_every is not None:
                end = min(at, begin + phase.seconds)
                last = begin + (end - begin) // phase.shown_every * phase.shown_every
        return last

    def label(self, minute: int) -> str:
        at = 60.0 * minute + 30
        if any(nap.begin <= at < nap.end for nap in self._naps):
            return "asleep"
        return "working" if self.phase(at)[1].works else "idle"


# ---- how it is seen --------------------------------------------------------------------------------------------------


def kit_row(truth: Truth, at: float, skew: float) -> dict[str, Any]:
    begin, phase = truth.phase(at)

    def stamp(when: float | None) -> str | None:
        return None if when is None else moment(when + skew).isoformat()

    kernel = {
        "id": "k1",
        "busy": phase.busy,
        "last_execute_at": stamp(truth.last_run(at)),
        "busy_since": stamp(begin) if phase.busy else None,
    }
    kernels = [kernel for _ in range(phase.kernels)]
    return {"kernels": kernels, "terminals": phase.terminals, "children": phase.children}


class AgentEyes:
    """The agent's samplers, one lease long."""

    def __init__(self, truth: Truth, of: Lease, rng: random.Random) -> None:
        self._truth, self._lease, self._rng = truth, of, rng
        self._cpu: Usage | None = None
        self._io: Usage | None = None
        self._gpu: dict[str, Any] | None = None

    def host(self, at: float) -> dict[str, Any]:
        cpu, moved = self._truth.used(at, "cpu"), self._truth.used(at, "io")
        self._cpu = next_usage(self._cpu, round(cpu, 2), moment(at), WINDOW)
        self._io = next_usage(self._io, float(int(moved)), moment(at), WINDOW, ACTIVE_BYTES)
        return host_signal(self._cpu, self._io, Load(cpu, None, int(moved), self._truth.phase(at)[1].children))

    def gpu(self, at: float, *, blind: bool) -> dict[str, Any]:
        phase, busy = self._truth.phase(at)[1], self._truth.active(at)
        readings = {} if blind else {f"GPU-{n}": self._reading(n, phase, busy) for n in range(self._lease.count)}
        pids = {self._lease.id: frozenset({OWN_PID})}
        self._gpu = gpu_signal(self._lease, readings, self._gpu, pids, moment(at))
        return self._gpu

    def _reading(self, number: int, phase: Phase, busy: bool) -> GpuReading:
        level = phase.gpu[number] if busy else 0
        util = min(100, max(1, level + self._rng.randint(-3, 3))) if level else 0
        own = GpuProcess(OWN_PID, 2048, util=util, memory_util=phase.traffic if util else 0)
        # Somebody else shares the device, if it is shared, and is never at rest.
        other = () if self._lease.share >= WHOLE_GPU else (GpuProcess(999, 1024, util=0, memory_util=0),)
        return GpuReading(
            f"GPU-{number}", number, "GPU", 24576, 3072, util, False, processes=(own, *other), memory_utilisation=0
        )


def _silent(silences: tuple[Silence, ...], source: str, at: float) -> Silence | None:
    """The silence that a source has at a moment. While the machine sleeps, all have."""
    return next((s for s in silences if s.begin <= at < s.end and (s.sleep or s.source in ("all", source))), None)


def rows_of(workload: Workload, of: Lease, rng: random.Random) -> Iterator[Row]:
    """The reports of all sources in the order in which they were written."""
    truth = Truth(workload)
    eyes, steps = AgentEyes(truth, of, rng), {"kit": 30.0, "host": 30.0, "gpu": 30.0, "hub": HUB_EVERY}
    due = {name: rng.uniform(0, 10) for name in steps}
    while (source := min(due, key=lambda name: due[name])) and due[source] < workload.seconds:
        at = due[source]
        due[source] = at + steps[source] * rng.uniform(0.7, 1.3)
        silence = _silent(workload.silences, source, at)
        if silence is not None and not (silence.word and source == "gpu"):
            continue
        if source == "kit":
            yield Row(at, source, kit_row(truth, at, workload.skew))
        elif source == "host":
            yield Row(at, source, eyes.host(at))
        elif source == "gpu" and of.count:
            yield Row(at, source, dict(eyes.gpu(at, blind=silence is not None)))
        elif source == "hub":
            shown = truth.shown(at)
            yield Row(at, source, {"last_activity": moment(shown or 0.0).isoformat()})


def history(seed: int, number: int) -> History:
    """The history of this number; kinds come in turn. Each has a random stream of its own."""
    rng = random.Random(f"{seed}/{number}")
    workload = KINDS[number % len(KINDS)](rng)
    name = f"h{number:04}"
    truth, minutes = Truth(workload), int(workload.seconds // 60)
    return History(
        name,
        workload.kind,
        workload.gpus,
        workload.whole,
        tuple(truth.label(minute) for minute in range(minutes)),
        tuple(rows_of(workload, _lease(name, workload.gpus, workload.whole), rng)),
        tuple((nap.begin, nap.end) for nap in workload.silences if nap.sleep),
    )


def histories(seed: int = SEED, count: int = COUNT) -> Iterator[History]:
    return (history(seed, number) for number in range(count))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.generate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all that is random ({SEED})")
    parser.add_argument("--count", type=int, default=COUNT, help=f"how many histories ({COUNT})")
    parser.add_argument("--out", type=Path, help="write one JSON object a line here; without it, say what was made")
    options = parser.parse_args(words)
    kinds: Counter[str] = Counter()
    minutes: Counter[str] = Counter()
    with options.out.open("w", encoding="utf-8") if options.out else open("/dev/null", "w", encoding="ascii") as out:
        for made in histories(options.seed, options.count):
            kinds[made.kind] += 1
            minutes.update(made.labels)
            if options.out:
                out.write(json.dumps(asdict(made), separators=(",", ":")) + "\n")
    json.dump({"seed": options.seed, "histories": dict(kinds), "minutes": dict(minutes)}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
