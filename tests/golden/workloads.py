"""The ground truth: what people and programs do in a server, minute by minute, and what of it could be seen.

A workload is a row of `Phase`s. Each says whether somebody *works* in it, which is known because the workload was made
so, and what its programs do. No label here comes from a verdict, and no verdict may look at one.

What none of the sources can show is not in the corpus: a program that waits for another machine without a kernel, CPU,
disk, network or GPU (`sleep 3h && run`) leaves no trace to judge by, and the documentation says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

MINUTE, HOUR = 60.0, 3600.0
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time in which the same goes on. Rates are while its bursts last; `on` of every `every` seconds.

    `gpu` is percent for each device. `runs_every` is between the cells that somebody runs, None for none. `shown_every`
    is between the requests, outputs and pings that move the Hub's `last_activity`, None for none.
    """

    seconds: float
    works: bool
    busy: bool = False  # a cell executes
    cpu: float = 0.002  # cores
    io: float = 40.0  # bytes a second
    gpu: tuple[int, ...] = (0, 0)
    traffic: int = 0  # percent, of the memory of a device that computes
    on: float = 1.0
    every: float = 1.0
    runs_every: float | None = None
    shown_every: float | None = None
    kernels: int = 1
    terminals: int = 0
    children: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """A source (`kit`, `host`, `gpu`) or everything (`all`) that says nothing from `begin` to `end`, seconds after the
    start; `word`: it speaks, and says that it does not know. `sleep`: the machine sleeps, and the culler with it."""

    begin: float
    end: float
    source: str
    word: bool = False
    sleep: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    kind: str
    gpus: int
    phases: tuple[Phase, ...]
    silences: tuple[Silence, ...] = ()
    skew: float = 0.0  # seconds by which the kit's clock is ahead
    whole: bool = True  # its device is not shared

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)


def rest(seconds: float, **more: object) -> Phase:
    """Nobody works, nothing runs."""
    return replace(Phase(seconds, works=False), **more)  # type: ignore[arg-type]


def at_work(seconds: float, **more: object) -> Phase:
    return replace(Phase(seconds, works=True), **more)  # type: ignore[arg-type]


def by_hand(rng: random.Random, hours: float) -> Phase:
    """Somebody at a notebook: a cell now and then, thinking in between, a browser open."""
    pause = rng.uniform(40, 300)
    return at_work(
        hours * HOUR, cpu=0.8, on=rng.uniform(1, 10), every=pause, runs_every=pause, shown_every=20.0, gpu=(30, 0)
    )


# ---- kinds -----------------------------------------------------------------------------------------------------------

Make = Callable[[random.Random], Workload]


def silent_cell(rng: random.Random) -> Workload:
    cell = at_work(rng.uniform(2, 8) * HOUR, busy=True, cpu=rng.choice([0.0, 0.002]))
    return Workload("silent long cell", rng.choice([0, 1]), (by_hand(rng, 0.3), cell, rest(3 * HOUR)))


def gpu_cell(rng: random.Random) -> Workload:
    cell = at_work(
        rng.uniform(1, 6) * HOUR,
        busy=True,
        cpu=1.0,
        gpu=(rng.randint(40, 99), 0),
        traffic=40,
        shown_every=rng.choice([None, 5.0]),  # it prints, or it does not
    )
    return Workload("cell on the GPU", 1, (by_hand(rng, 0.3), cell, rest(2 * HOUR)))


def terminal_training(rng: random.Random) -> Workload:
    train = at_work(
        rng.uniform(2, 7) * HOUR,
        cpu=rng.uniform(0.3, 3),
        gpu=(rng.randint(50, 99), 0),
        traffic=50,
        kernels=0,
        terminals=1,
        children=1,
        shown_every=rng.choice([None, 30.0]),
    )
    return Workload("training in a terminal", 1, (train, rest(2 * HOUR, kernels=0, terminals=1)))


def shared_training(rng: random.Random) -> Workload:
    train = at_work(
        rng.uniform(1, 5) * HOUR,
        cpu=rng.uniform(0.0, 0.03),
        gpu=(rng.randint(20, 99), 0),
        kernels=0,
        terminals=1,
        shown_every=rng.choice([None, 30.0]),
    )
    return Workload("training on a share", 1, (train, rest(2 * HOUR, kernels=0)), whole=False)


def download(rng: random.Random) -> Workload:
    fetch = at_work(
        rng.uniform(1.5, 6) * HOUR,
        cpu=rng.uniform(0.001, 0.03),
        io=rng.uniform(200 * KIB, 20 * MIB),
        kernels=0,
        terminals=1,
        children=1,
    )
    return Workload("nohup download", rng.choice([0, 1]), (fetch, rest(3 * HOUR, kernels=0, terminals=1)))


def forgotten_tab(rng: random.Random) -> Workload:
    tab = rest(rng.uniform(5, 14) * HOUR, shown_every=rng.choice([10.0, 30.0, 60.0]))
    return Workload("forgotten tab", rng.choice([0, 1, 1]), (by_hand(rng, rng.uniform(0.2, 1.5)), tab))


def poller(rng: random.Random) -> Workload:
    poll = rest(rng.uniform(4, 10) * HOUR, shown_every=rng.choice([2.0, 30.0, 120.0]), kernels=rng.choice([0, 1]))
    return Workload("scripted poller", 1, (by_hand(rng, 0.2), poll))


def page_reader(rng: random.Random) -> Workload:
    return Workload("reads pages and status", 1, (by_hand(rng, 0.1), rest(4 * HOUR, shown_every=45.0)))


def ide(rng: random.Random) -> Workload:
    edit = at_work(
        rng.uniform(1, 4) * HOUR,
        cpu=0.5,
        on=rng.uniform(5, 20),
        every=rng.uniform(60, 400),
        kernels=0,
        shown_every=20.0,
    )
    left = rest(3 * HOUR, kernels=0, cpu=0.01, shown_every=rng.choice([None, 60.0]))
    return Workload("IDE without kernels", rng.choice([0, 1]), (edit, left))


def two_devices(rng: random.Random) -> Workload:
    first = rng.choice([True, False])
    train = at_work(
        rng.uniform(2, 6) * HOUR,
        gpu=(0, 95) if first else (95, 0),
        cpu=0.02,
        kernels=0,
        terminals=1,
        children=1,
        shown_every=rng.choice([None, 30.0]),
    )
    return Workload("two devices at 0 and 95 %", 2, (train, rest(2 * HOUR, kernels=0)))


def keep_busy(rng: random.Random) -> Workload:
    toy = rest(rng.uniform(4, 9) * HOUR, gpu=(30, 0), cpu=0.02, kernels=0, terminals=1, children=1)
    return Workload("keep-busy tool", 1, (by_hand(rng, 0.3), toy))


def bursts(rng: random.Random) -> Workload:
    every = rng.uniform(3, 14) * MINUTE
    cron = at_work(
        rng.uniform(3, 7) * HOUR,
        cpu=rng.uniform(0.6, 2),
        io=5 * MIB,
        on=rng.uniform(20, 60),
        every=every,
        kernels=0,
        terminals=1,
        children=1,
    )
    return Workload("bursts", rng.choice([0, 1]), (cron, rest(3 * HOUR, kernels=0, terminals=1)))


def kit_crash(rng: random.Random) -> Workload:
    cell = at_work(rng.uniform(2, 5) * HOUR, busy=True)
    gone = rng.uniform(0.1, 1) * HOUR
    back = rng.choice([gone + rng.uniform(0.2, 3) * HOUR, 99 * HOUR])
    return Workload("crash of the kit", 1, (cell, rest(2 * HOUR)), (Silence(gone, back, "kit"),))


def blind_nvml(rng: random.Random) -> Workload:
    train = at_work(rng.uniform(2, 5) * HOUR, gpu=(90, 0), cpu=rng.uniform(0, 0.03), kernels=0, terminals=1, children=1)
    begin = rng.uniform(0, 1) * HOUR
    end = rng.choice([train.seconds + rng.uniform(0, 1) * HOUR, 99 * HOUR])
    silence = Silence(begin, end, "gpu", word=rng.random() < 0.5)
    return Workload("blind NVML", 1, (train, rest(3 * HOUR, kernels=0)), (silence,))


def gaps(rng: random.Random) -> Workload:
    at, silences = 0.0, []
    while at < 5 * HOUR:
        at += rng.uniform(5, 60) * MINUTE
        end = at + rng.uniform(2, 15) * MINUTE
        silences.append(Silence(at, end, rng.choice(["kit", "host", "gpu", "all"])))
        at = end
    every = rng.uniform(2, 10) * MINUTE
    job = at_work(rng.uniform(2, 5) * HOUR, cpu=1.0, on=30, every=every, kernels=0, terminals=1, children=1)
    return Workload("sampling gaps", 1, (job, rest(4 * HOUR, kernels=0)), tuple(silences))


def sleep(rng: random.Random) -> Workload:
    """The machine sleeps, and nobody works meanwhile; afterwards the cell goes on where it was."""
    before, asleep = rng.uniform(0.3, 2) * HOUR, rng.uniform(0.5, 8) * HOUR
    phases = (at_work(before, busy=True, cpu=0.001), rest(asleep), at_work(HOUR, busy=True, cpu=0.001), rest(2 * HOUR))
    return Workload("sleep of the machine", 1, phases, (Silence(before, before + asleep, "all", sleep=True),))


def after_work(rng: random.Random) -> Workload:
    gpus = rng.choice([0, 1])
    return Workload("idle after work", gpus, (by_hand(rng, rng.uniform(0.3, 3)), rest(6 * HOUR)))


def never_used(rng: random.Random) -> Workload:
    return Workload("never used", rng.choice([0, 1]), (rest(rng.uniform(4, 9) * HOUR, kernels=rng.choice([0, 1])),))


def comes_back(rng: random.Random) -> Workload:
    """Somebody who works, eats (shorter than any limit), and works again."""
    lunch = rest(rng.uniform(8, 24) * MINUTE, shown_every=rng.choice([None, 30.0]))
    return Workload("a pause shorter than the limit", 1, (by_hand(rng, 1), lunch, by_hand(rng, 1), rest(2 * HOUR)))


def skewed(rng: random.Random) -> Workload:
    made = rng.choice([silent_cell, after_work, forgotten_tab])(rng)
    return replace(made, kind="clock skew", skew=rng.choice([-90.0, -20.0, 30.0, 3600.0]))


def kernel_gone(rng: random.Random) -> Workload:
    cell = at_work(rng.uniform(1, 4) * HOUR, busy=True)
    return Workload("kernel that ran and went", 1, (cell, rest(3 * HOUR, kernels=0)))


KINDS: tuple[Make, ...] = (
    silent_cell,
    gpu_cell,
    terminal_training,
    shared_training,
    download,
    forgotten_tab,
    poller,
    page_reader,
    ide,
    two_devices,
    keep_busy,
    bursts,
    kit_crash,
    blind_nvml,
    gaps,
    sleep,
    after_work,
    never_used,
    comes_back,
    skewed,
    kernel_gone,
)
