"""The idle rules as one table: what is seen of a server, and what follows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from idle_culler.decide import Decision, Keep, Policy, Reclaim, Rule, Warn, decide
from idle_culler.signals import NOTHING, Known, Memory, Row, read
from quota.leases import Lease
from quota.wish import Wish
from tests.fakes.use import DAY, DEFAULT, NOW, ago, gpu, host, judge, kernel, kit, lease, quiet, text, watched

LONG = watched()
WARNED = watched(warned=301)
OLD = lease(started=4 * DAY)


@dataclass(frozen=True)
class Case:
    id: str
    expect: type[Decision]
    rule: Rule
    rows: dict[str, Row]
    memory: Memory = LONG
    of: Lease = field(default_factory=lease)
    policy: Policy = DEFAULT


CASES = [
    # I1: a busy kernel is use, however silent and however long
    Case("i01-silent-loop-5h-tab-closed", Keep, Rule.BUSY_KERNEL, {**quiet(), **kit(kernel(True, 5 * 3600, 5 * 3600))}),
    Case("i01-busy-after-a-warning", Keep, Rule.BUSY_KERNEL, {**quiet(), **kit(kernel(True, DAY))}, WARNED),
    Case("i01-busy-beside-idle-ones", Keep, Rule.BUSY_KERNEL, {**quiet(), **kit(kernel(), kernel(True), kernel())}),
    Case("i01-busy-and-gpu-at-80", Keep, Rule.BUSY_KERNEL, {**quiet(), **kit(kernel(True)), **gpu(80)}),
    Case("i01-busy-beside-an-unknown", Keep, Rule.BUSY_KERNEL, {**quiet(), **kit(kernel(None), kernel(True))}),
    # I2: what programs do counts, with no kernel at all
    Case("i02-nohup-job-from-a-terminal", Keep, Rule.CPU_ACTIVE, {**quiet(), **kit(terminals=1), **host(98.0, 3)}),
    Case("i02-job-a-minute-ago", Keep, Rule.RECENT, {**quiet(), **kit(terminals=1), **host(0.0, 60)}),
    Case("i02-gpu-program-without-kernel", Keep, Rule.GPU_ACTIVE, {**quiet(), **kit(), **gpu(35)}),
    Case("i02-gpu-used-a-minute-ago", Keep, Rule.RECENT, {**quiet(), **gpu(0, 60)}),
    Case("i02-quiet-terminal-is-not-use", Warn, Rule.IDLE, {**quiet(), **kit(terminals=3)}),
    # I3, I5: kernels that answer polls and tabs that stay open leave no trace in these signals
    Case("i03-idle-kernel-open-tab", Reclaim, Rule.IDLE, quiet(last=3600), WARNED),
    Case("i05-kernel-that-never-executed", Reclaim, Rule.IDLE, quiet(), WARNED),
    # I7, X16, X24: unknown is never idle, and never zero
    Case("i07-gpu-reader-fails", Keep, Rule.BLIND, {**quiet(), **gpu(None)}, WARNED),
    Case("i07-gpu-reader-silent-for-an-hour", Keep, Rule.BLIND, {**quiet(), **gpu(0, age=3600)}, WARNED),
    Case("i07-gpu-never-read", Keep, Rule.BLIND, {**kit(kernel()), **host()}, WARNED),
    Case("i07-cpu-not-measured", Keep, Rule.BLIND, {**quiet(), **host(None)}, WARNED),
    Case("i07-kernel-not-seen", Keep, Rule.BLIND, {**quiet(), **kit(kernel(None))}, WARNED),
    Case("i07-kit-silent", Keep, Rule.BLIND, {**quiet(), **kit(kernel(last=DAY), age=121)}, WARNED),
    Case("i07-kit-just-in-time", Reclaim, Rule.IDLE, {**quiet(), **kit(kernel(), age=120)}, WARNED),
    Case("i07-start-not-on-record", Keep, Rule.BLIND, quiet(), WARNED, lease(started=None)),
    Case("x16-no-signals-at-all", Keep, Rule.BLIND, {}, WARNED),
    Case("x16-no-signals-on-a-cpu-server", Keep, Rule.BLIND, {}, WARNED, lease(0)),
    Case("x24-other-ide-without-a-kit", Keep, Rule.BLIND, {**host(0.0, DAY), **gpu()}, WARNED),
    Case("x24-other-ide-that-computes", Keep, Rule.CPU_ACTIVE, {**host(40.0, 2), **gpu()}, WARNED),
    # A shared or simulated GPU tells nothing about one lease: neither use nor blindness
    Case("shared-gpu-untold", Reclaim, Rule.IDLE, {**quiet(), **gpu(None, reason="shared")}, WARNED, lease(share=250)),
    Case("shared-gpu-own-use-told", Keep, Rule.GPU_ACTIVE, {**quiet(), **gpu(12)}, WARNED, lease(share=250)),
    Case(
        "shared-gpu-reader-fails",
        Keep,
        Rule.BLIND,
        {**quiet(), **gpu(None, reason="unknown")},
        WARNED,
        lease(share=250),
    ),
    Case("simulated-gpu", Reclaim, Rule.IDLE, {**kit(kernel()), **host()}, WARNED, lease(simulated=True)),
    Case("cpu-server-needs-no-gpu-signal", Reclaim, Rule.IDLE, {**kit(kernel()), **host()}, WARNED, lease(0)),
    # I13: with a GPU shorter than without
    Case("i13-gpu-45-min", Warn, Rule.IDLE, quiet(last=2700)),
    Case("i13-cpu-45-min", Keep, Rule.RECENT, {**kit(kernel(last=2700)), **host()}, LONG, lease(0)),
    Case("i13-cpu-116-min", Warn, Rule.IDLE, {**kit(kernel(last=6960)), **host()}, LONG, lease(0)),
    Case("i13-off-for-gpu", Keep, Rule.OFF, quiet(last=DAY), WARNED, policy=Policy(None, notice=300)),
    Case("i13-off-for-cpu-only", Warn, Rule.IDLE, quiet(last=DAY), policy=Policy(idle_cpu=None, notice=300)),
    # I16: memory held is not use
    Case("i16-20-gb-held-at-0-percent", Warn, Rule.IDLE, {**quiet(last=2000), **gpu(0, 2000, memory=20_480)}),
    # X25: age is not idleness
    Case("x25-4-days-of-training", Keep, Rule.BUSY_KERNEL, {**quiet(), **kit(kernel(True, 4 * DAY))}, LONG, OLD),
    Case("x25-4-days-old-used-of-late", Keep, Rule.RECENT, quiet(last=60), LONG, OLD),
    # The time covered
    Case("gap-first-look-at-an-old-server", Keep, Rule.RECENT, quiet(), NOTHING),
    Case("gap-culler-was-down", Keep, Rule.RECENT, quiet(), watched(looked=121, warned=400)),
    Case("gap-watched-for-ten-minutes", Keep, Rule.RECENT, quiet(), watched(since=600)),
    Case("gap-none-since-the-start", Keep, Rule.RECENT, quiet(), NOTHING, lease(started=60)),
    Case("kernel-that-ran-and-is-gone", Keep, Rule.RECENT, {**quiet(), **kit()}, watched(active=60)),
    # Warnings
    Case("warn-at-limit-minus-notice", Warn, Rule.IDLE, quiet(last=1500)),
    Case("keep-a-second-before", Keep, Rule.RECENT, quiet(last=1499)),
    Case("warned-but-the-notice-runs", Warn, Rule.IDLE, quiet(last=DAY), watched(warned=299)),
    Case("warned-and-the-limit-runs", Warn, Rule.IDLE, quiet(last=1799), watched(warned=1000)),
    Case("reclaim-at-the-deadline", Reclaim, Rule.IDLE, quiet(last=1800), watched(warned=300)),
    Case("used-after-the-warning", Keep, Rule.RECENT, quiet(last=100), watched(warned=400)),
    Case("long-unwarned", Warn, Rule.IDLE, quiet(last=DAY)),
    Case("notice-longer-than-limit-waits-half", Keep, Rule.RECENT, quiet(last=29), policy=Policy(60, 60, 300)),
    Case("notice-longer-than-limit-warns", Warn, Rule.IDLE, quiet(last=30), policy=Policy(60, 60, 300)),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_verdicts(case: Case) -> None:
    decision = judge(case.rows, case.memory, case.of, case.policy)
    assert (type(decision), decision.evidence.rule) == (case.expect, case.rule), decision.evidence.words
    assert decision.evidence.words
    stands = decision.memory.warned_at is not None
    assert stands == isinstance(decision, Warn), "a keep withdraws the warning, and a stop has spent it"


def test_i03_an_open_tab_and_a_poller_change_nothing() -> None:
    """What the Hub calls activity is the same server, judged the same."""
    seen = Known(NOW, NOW)
    with_tab = decide(read(lease(), quiet(last=DAY), WARNED, NOW, seen), DEFAULT, NOW)
    without = decide(read(lease(), quiet(last=DAY), WARNED, NOW), DEFAULT, NOW)
    assert isinstance(with_tab, Reclaim) and isinstance(without, Reclaim)
    assert with_tab.deadline == without.deadline
    assert with_tab.evidence.facts["hub_activity"] == NOW.isoformat()


def test_i05_status_messages_let_idle_time_grow() -> None:
    """Fresh reports about a kernel that executed long ago: the idle time is told from the execution."""
    looks = [judge({**quiet(), **kit(kernel(last=1400), age=age)}, LONG) for age in (90, 30, 1)]
    assert {decision.evidence.facts["idle_since"] for decision in looks} == {text(1400)}


def test_i13_gpu_60_s_cpu_300_s_stop_times_differ() -> None:
    policy = Policy(idle_gpu=60, idle_cpu=300, notice=10)
    of_gpu, of_cpu = (judge(quiet(last=295), LONG, lease(gpus), policy) for gpus in (1, 0))
    assert isinstance(of_gpu, Warn) and of_gpu.deadline == NOW + timedelta(seconds=10)
    assert isinstance(of_cpu, Warn) and of_cpu.deadline == NOW + timedelta(seconds=10)
    gpu_short, cpu_short = (judge(quiet(last=55), LONG, lease(gpus), policy) for gpus in (1, 0))
    assert isinstance(gpu_short, Warn) and isinstance(cpu_short, Keep)


@pytest.mark.parametrize("days", [3, 4, 40])
@pytest.mark.parametrize("gpus", [0, 1])
def test_x25_no_age_ends_a_server_that_is_used(days: int, gpus: int) -> None:
    """However old it is and however often its time was renewed: age is no rule here."""
    of = lease(gpus, started=days * DAY)
    uses = [kit(kernel(True, days * DAY, days * DAY)), kit(kernel(last=60)), host(98.0, 3), *([gpu(80)] * gpus)]
    for use in uses:
        assert isinstance(judge({**quiet(last=DAY), **use}, WARNED, of), Keep), use


def test_i20_looking_does_not_move_the_deadline() -> None:
    first = judge(quiet(last=1600), watched(warned=100))
    assert isinstance(first, Warn)
    looks = [judge(quiet(last=1600), watched(warned=100)) for _ in range(100)]
    assert all(isinstance(look, Warn) and look.deadline == first.deadline for look in looks)


def test_the_deadline_gives_the_whole_notice_to_a_late_warning() -> None:
    decision = judge(quiet(last=DAY), LONG)
    assert isinstance(decision, Warn) and decision.deadline == NOW + timedelta(seconds=300)


def test_the_words_name_the_rule_and_its_value() -> None:
    decision = judge(quiet(last=1800), WARNED)
    assert "servers with a GPU are stopped after 30 min without use (idle.with_gpu)" in decision.evidence.words
    assert "Not used since 08:30 UTC (30 min)" in decision.evidence.words
    cpu = judge({**kit(kernel(last=7200)), **host()}, WARNED, lease(0))
    assert "servers without a GPU are stopped after 2 h without use (idle.without_gpu)" in cpu.evidence.words


def test_blind_words_say_what_is_unknown() -> None:
    words = judge({**quiet(), **gpu(None), **host(None)}).evidence.words
    assert words.startswith("blind: the CPU use could not be measured; the GPU's utilisation could not be read")


def test_use_is_remembered_when_its_trace_is_gone() -> None:
    """A kernel that ran and was shut down between two looks still counts from the look that saw it busy."""
    busy = judge({**quiet(), **kit(kernel(True))}, LONG)
    after = judge({**quiet(), **kit()}, busy.memory, now=NOW + timedelta(seconds=60))
    assert isinstance(after, Keep) and after.evidence.facts["idle_since"] == NOW.isoformat()


def test_evidence_is_json() -> None:
    for case in CASES:
        json.dumps(dict(judge(case.rows, case.memory, case.of, case.policy).evidence.facts))


@pytest.mark.parametrize("value", [0, 0.0, -1, True, "30", float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["idle_gpu", "idle_cpu", "notice"])
def test_a_policy_of_nothing_is_refused(name: str, value: Any) -> None:
    """0 is invalid and distinct from off, which is None."""
    with pytest.raises(ValueError, match=name):
        Policy(**{name: value})


def test_a_notice_cannot_be_off() -> None:
    with pytest.raises(ValueError, match="notice"):
        Policy(notice=None)  # type: ignore[arg-type]


def test_warned_at_is_the_first_warning() -> None:
    decision = judge(quiet(last=DAY), watched(warned=100))
    assert decision.memory.warned_at == ago(100)


def test_a_late_first_look_is_not_called_use() -> None:
    assert judge(quiet()).evidence.words.startswith("Watched without a gap since 09:00 UTC and not used meanwhile")


def test_use_between_two_looks_starts_the_notice_anew() -> None:
    """The look after it finds the server idle again already; the warning before it counts for nothing."""
    decision = judge(quiet(last=35), watched(warned=40), policy=Policy(60, 60, 300))
    assert isinstance(decision, Warn) and decision.deadline == NOW + timedelta(seconds=300)


def test_done_is_not_what_computes_right_now() -> None:
    """Though nothing was on record before this look."""
    decision = judge({**quiet(), **host(50.0)}, LONG, wish=Wish(when_done=True))
    assert isinstance(decision, Keep) and decision.evidence.words.endswith("as soon as nothing runs, as its user asked")
