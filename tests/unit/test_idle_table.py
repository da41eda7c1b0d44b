"""The table "Idle, lifecycle" of the demands, and X24 and X25, as histories of servers: what each reports look by look,
and what becomes of it. docs/explanation/idle-promises.md names the tests that show each row on something real."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from berth_lab.watch import KernelState
from idle_culler import keepbusy
from idle_culler.decide import Decision, Keep, Policy, Reclaim, Rule, Warn, decide
from idle_culler.ports import SCOPES
from idle_culler.signals import NOTHING, Known, Row, Unknown, read, recall, remember
from quota.leases import Lease, ServiceClass, Slot, StopReason
from quota.units import WHOLE_GPU
from quota.wish import NO_WISH, Wish
from spawner.gpu_use import gpu_signal
from spawner.ports import GpuReading
from tests.fakes.use import NOW, gpu, host, kernel, kit, lease

ROOT = Path(__file__).parents[2]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
#: With a GPU half an hour, without one two hours, ten minutes' notice.
PLAIN = Policy()

#: The rows of one look, by the minutes since the server's start.
Reports = Callable[[float], Mapping[str, Row]]


def shifted(rows: Mapping[str, Row], minute: float) -> dict[str, Row]:
    """Rows made for `NOW`, as they are so many minutes later."""
    return {source: (at + minute * MINUTE, _moved(payload, minute)) for source, (at, payload) in rows.items()}


def _moved(payload: object, minute: float) -> object:
    if isinstance(payload, dict):
        return {key: _moved(value, minute) for key, value in payload.items()}
    if isinstance(payload, list):
        return [_moved(each, minute) for each in payload]
    if isinstance(payload, str) and payload[:4] == f"{NOW:%Y}":
        return (datetime.fromisoformat(payload) + minute * MINUTE).isoformat()
    return payload


def same(*parts: Mapping[str, Row]) -> Reports:
    """The same is seen for ever: ages of what it says stay as they are."""
    rows = {source: row for part in parts for source, row in part.items()}
    return lambda minute: shifted(rows, minute)


def since_start(*parts: Mapping[str, Row]) -> Reports:
    """The same is seen for ever, and its last use was at the start: stamps stand, reports are fresh."""
    rows = {source: row for part in parts for source, row in part.items()}
    return lambda minute: {source: (at + minute * MINUTE, payload) for source, (at, payload) in rows.items()}


def until(minute: float, first: Reports, then: Reports) -> Reports:
    return lambda now: first(now) if now <= minute else then(now)


def stopped_at(minute: float, *sources: str) -> Reports:
    """All is quiet, and from then on nothing comes of these sources any more: their last rows stay."""

    def sees(now: float) -> dict[str, Row]:
        last = QUIET(min(now, minute))
        return {source: last[source] if source in sources else row for source, row in QUIET(now).items()}

    return sees


def polled(minute: float) -> Mapping[str, Row]:
    """What the kit's own rule makes of a kernel that ran a cell at the start and is asked by tabs and pollers twice a
    minute ever since: status, debugger, completion, comms."""
    now, state = NOW + minute * MINUTE, KernelState("k", NOW)
    state.sighted(NOW)
    state.message("execute_input", {"msg_id": "r", "msg_type": "execute_request"}, {}, NOW)
    state.message("status", {"msg_id": "r", "msg_type": "execute_request"}, {"execution_state": "idle"}, NOW)
    for look in range(int(minute * 2)):
        for kind in ("kernel_info_request", "debug_request", "complete_request", "comm_msg", "comm_info_request"):
            for word in ("busy", "idle"):
                header = {"msg_id": f"{kind}-{look}", "msg_type": kind}
                state.message("status", header, {"execution_state": word}, NOW + look / 2 * MINUTE)
    rows = {"kit": (now, {"kernels": [state.report()], "terminals": 0})}
    return {**rows, **shifted({**host(), **gpu(0, None)}, minute)}


def devices(*utils: int | None) -> Reports:
    """What the agent's own rule makes of several devices of one lease; None: one that cannot be read."""
    slots = tuple(Slot("h", f"GPU-{number}", WHOLE_GPU) for number in range(len(utils)))
    readings = {
        f"GPU-{number}": GpuReading(f"GPU-{number}", number, "A10", 24576, 4096, util, False)
        for number, util in enumerate(utils)
    }
    of, before = lease(len(utils), started=0, slots=slots), {"util": 0, "active_at": NOW.isoformat()}

    def sees(minute: float) -> dict[str, Row]:
        now = NOW + minute * MINUTE
        payload = gpu_signal(of, readings, before, {}, now)
        return {**shifted({**kit(kernel()), **host()}, minute), "gpu": (now, payload)}

    return sees


QUIET = since_start(kit(kernel(last=0)), host(), gpu(0, 0))
QUIET_CPU = since_start(kit(kernel(last=0)), host())


def naive(minute: float) -> Mapping[str, Row]:
    """All quiet, and no stamp says its zone."""
    return {source: (at.replace(tzinfo=None), payload) for source, (at, payload) in QUIET(minute).items()}


@dataclass(frozen=True)
class Story:
    """`ends` is the minute of the stop with its rule, None: it lives; `warned` the minute of the first warning."""

    id: str
    sees: Reports
    ends: tuple[float, Rule] | None
    warned: float | None = None
    minutes: int = 360
    policy: Policy = PLAIN
    of: Lease = field(default_factory=lambda: lease(started=0))
    wish: Wish = NO_WISH
    kept_by: Rule | None = None  # the rule of the last verdict, where it lives
    tab: bool = False
    away: tuple[float, float] = (0, 0)  # minutes between which nobody looks


def lived(story: Story) -> Iterator[tuple[float, Decision]]:
    """Look by look, twice a minute, each memory going through the evidence as the book keeps it, up to the stop."""
    memory = NOTHING
    for look in range(story.minutes * 2 + 1):
        minute = look / 2
        now = NOW + minute * MINUTE
        if story.away[0] < minute < story.away[1]:
            continue
        seen: Known[datetime] | Unknown = Known(now, now) if story.tab else Unknown("the Hub does not tell")
        decision = decide(read(story.of, story.sees(minute), memory, now, seen), story.policy, now, story.wish)
        yield minute, decision
        if isinstance(decision, Reclaim):
            return
        memory = recall({"memory": remember(decision.memory)}, now)


CPU = lease(0, started=0)
NEVER = Policy(None, None)
GPU_IDLE = Policy(idle_gpu=None, gpu_idle=1800)
JOB = host(98.0, 0, io_bytes_per_s=0.0, io_active_at=None)
DD = host(1.0, None, io_bytes_per_s=90e6, io_active_at=None)
BURN = gpu(30, 0, memory_util=0)

STORIES = [
    Story("i01-silent-cell-5-h-no-client", same(kit(kernel(True, since=600)), host(), gpu()), None,
          kept_by=Rule.BUSY_KERNEL),
    Story("i01-and-gpu-at-80", same(kit(kernel(True)), host(), gpu(80)), None, kept_by=Rule.BUSY_KERNEL),
    Story("i01-cell-ends-after-5-h", until(300, same(kit(kernel(True)), host(), gpu()), same(kit(), host(), gpu())),
          (330, Rule.IDLE), 320),
    Story("i02-nohup-job-no-kernel", same(kit(terminals=0), JOB, gpu()), None, kept_by=Rule.CPU_ACTIVE),
    Story("i02-nohup-dd-no-cpu", same(kit(), DD, gpu()), None, kept_by=Rule.IO_ACTIVE),
    Story("i02-download-without-gpu", same(kit(), DD), None, of=CPU, kept_by=Rule.IO_ACTIVE),
    Story("i02-gpu-program-from-a-terminal", same(kit(terminals=1), host(), gpu(35)), None, kept_by=Rule.GPU_ACTIVE),
    Story("i02-job-ends-after-an-hour", until(60, same(kit(), JOB, gpu()), same(kit(), host(), gpu())),
          (90, Rule.IDLE), 80),
    Story("i02-program-that-waits-is-not-use", since_start(kit(terminals=1, children=1), host(processes=2), gpu(0, 0)),
          (30, Rule.IDLE), 20),
    Story("i03-forgotten-tab", QUIET, (30, Rule.IDLE), 20, tab=True),
    Story("i03-tab-that-saves-by-itself", same(kit(kernel(), saved_at=NOW.isoformat()), host(), gpu()),
          (30, Rule.IDLE), 20, tab=True),
    Story("i05-scripted-pollers-and-status-messages", polled, (30, Rule.IDLE), 20, minutes=60, tab=True),
    Story("i07-nvml-fails-for-ever", same(kit(kernel()), host(), gpu(None, reason="unknown")), None,
          kept_by=Rule.BLIND),
    Story("i07-nvml-fails-after-the-warning", until(25, QUIET, same(kit(), host(), gpu(None))), None, 20,
          kept_by=Rule.BLIND),
    Story("i07-io-cannot-be-read", same(kit(), host(io_bytes_per_s=None), gpu()), None, kept_by=Rule.BLIND),
    Story("i07-reader-of-a-shared-gpu-fails", same(kit(), host(), gpu(None, reason="unknown")), None,
          of=lease(share=250, started=0), kept_by=Rule.BLIND),
    Story("i07-nvml-comes-back", until(59.5, same(kit(), host(), gpu(None)), same(kit(), host(), gpu())),
          (90, Rule.IDLE), 80),
    Story("i07-kit-falls-silent", stopped_at(10, "kit"), None, kept_by=Rule.BLIND),
    Story("i07-agent-falls-silent", stopped_at(25, "host", "gpu"), None, 20, kept_by=Rule.BLIND),
    Story("i07-a-reader-that-repeats-its-last-zero", stopped_at(29.5, "gpu"), (30, Rule.IDLE), 20),
    Story("i07-kit-is-silent-for-a-while", until(10, QUIET, until(40, same(host(), gpu()), QUIET)),
          (70.5, Rule.IDLE), 60.5),
    Story("i07-nobody-looked-for-half-an-hour", QUIET, (70, Rule.IDLE), 60, away=(10, 40)),
    Story("i07-nobody-looked-for-two-minutes", QUIET, (30, Rule.IDLE), 20, away=(10, 12)),
    Story("i07-nobody-looked-while-it-was-warned", QUIET, (80, Rule.IDLE), 20, away=(21, 50)),
    Story("i07-one-of-two-devices-cannot-be-read", devices(0, None), None, of=lease(2, started=0), kept_by=Rule.BLIND),
    Story("i08-rows-of-an-orphan", lambda minute: {}, None, kept_by=Rule.BLIND),
    Story("i13-gpu-60-s", QUIET, (1, Rule.IDLE), 0.5, policy=Policy(60, 300, 30)),
    Story("i13-cpu-300-s", QUIET_CPU, (5, Rule.IDLE), 4.5, policy=Policy(60, 300, 30), of=CPU),
    Story("i13-off-is-never", QUIET, None, policy=Policy(None, 300, 30), kept_by=Rule.OFF),
    Story("i14-warned-ten-minutes-before", QUIET_CPU, (120, Rule.IDLE), 110, of=CPU),
    Story("i14-max-age-of-a-busy-server", same(kit(kernel(True)), host(99.0), gpu(90)), (240, Rule.MAX_AGE), 230,
          policy=Policy(max_age=4 * 3600)),
    Story("i14-max-age-of-a-blind-server", lambda minute: {}, (240, Rule.MAX_AGE), 230,
          policy=Policy(max_age=4 * 3600)),
    Story("i15-kept-for-an-hour", QUIET, (60, Rule.IDLE), 50, wish=Wish(keep_until=NOW + 60 * MINUTE)),
    Story("i15-kept-beyond-max-age-in-vain", QUIET, (120, Rule.MAX_AGE), 110, policy=Policy(max_age=7200),
          wish=Wish(keep_until=NOW + 180 * MINUTE)),
    Story("i15-shutdown-time-whatever-runs", same(kit(kernel(True)), JOB, gpu(90)), (45, Rule.SHUTDOWN), 35,
          wish=Wish(shutdown_at=NOW + 45 * MINUTE)),
    Story("i15-stop-when-done", until(100, same(kit(kernel(True)), host(), gpu()), same(kit(), host(), gpu())),
          (101, Rule.WHEN_DONE), wish=Wish(when_done=True)),
    Story("i15-not-done-while-a-job-computes", same(kit(), host(50.0), gpu()), None, wish=Wish(when_done=True),
          kept_by=Rule.CPU_ACTIVE),
    Story("i15-not-done-while-a-program-waits-in-a-terminal",
          since_start(kit(terminals=1, children=1), host(), gpu(0, 0)), None, policy=NEVER,
          wish=Wish(when_done=True), kept_by=Rule.OFF),
    Story("i15-not-done-while-a-nohup-program-waits-anywhere", since_start(kit(), host(processes=1), gpu(0, 0)), None,
          policy=NEVER, wish=Wish(when_done=True), kept_by=Rule.OFF),
    Story("i15-not-done-where-nobody-counts-programs", since_start(kit(), host(processes=None), gpu(0, 0)), None,
          policy=NEVER, wish=Wish(when_done=True), kept_by=Rule.OFF),
    Story("i15-done-when-the-program-that-waited-ends",
          until(100, since_start(kit(), host(processes=1), gpu(0, 0)), since_start(kit(), host(), gpu(0, 0))),
          (100.5, Rule.WHEN_DONE), policy=NEVER, wish=Wish(when_done=True)),
    Story("i15-a-program-that-waits-keeps-no-idle-server", since_start(kit(), host(processes=1), gpu(0, 0)),
          (30, Rule.IDLE), 20, wish=Wish(when_done=True)),
    Story("i16-20-gb-held-at-0-percent", since_start(kit(kernel(last=0)), host(), gpu(0, 0, memory=20_480)),
          (30, Rule.IDLE), 20),
    Story("i16-held-beside-a-cpu-job", since_start(kit(), JOB, gpu(0, 0, memory=20_480)), (30, Rule.GPU_IDLE), 20,
          policy=GPU_IDLE),
    Story("i16-a-cell-that-runs-is-use-of-it", since_start(kit(kernel(True)), JOB, gpu(0, 0)), None, policy=GPU_IDLE,
          kept_by=Rule.BUSY_KERNEL),
    Story("i16-two-devices-at-0-and-95", devices(0, 95), None, policy=GPU_IDLE, of=lease(2, started=0),
          kept_by=Rule.GPU_ACTIVE),
    Story("i16-two-devices-at-0-and-95-without-that-rule", devices(95, 0), None, of=lease(2, started=0),
          kept_by=Rule.GPU_ACTIVE),
    Story("i16-two-devices-at-0", devices(0, 0), (30, Rule.IDLE), 20, of=lease(2, started=0)),
    Story("i16-device-that-cannot-be-measured", since_start(kit(), JOB, gpu(None, reason="shared")), None,
          policy=GPU_IDLE, of=lease(share=250, started=0), kept_by=Rule.CPU_ACTIVE),
    Story("i17-keep-busy-is-never-stopped", same(kit(kernel(last=None)), host(), BURN), None, kept_by=Rule.GPU_ACTIVE),
    Story("i19-hub-forbids-to-ask", same(kit(kernel(last=10)), host(), gpu()), None, kept_by=Rule.RECENT),
    Story("i19-hub-forbids-to-ask-about-an-idle-one", QUIET, (30, Rule.IDLE), 20),
    Story("i19-service-forbids-the-kit-to-report", since_start(host(), gpu(0, 0)), None, kept_by=Rule.BLIND),
    Story("i20-pages-are-read", QUIET, (30, Rule.IDLE), 20, tab=True),
    Story("i21-a-report-of-last-week", lambda minute: {**QUIET(minute), "kit": (NOW - 7 * DAY, {"kernels": []})}, None,
          kept_by=Rule.BLIND),
    Story("i21-a-report-of-tomorrow", lambda minute: {**QUIET(minute), "host": (NOW + DAY, host()["host"][1])}, None,
          kept_by=Rule.BLIND),
    Story("i21-naive-stamps", naive, (30, Rule.IDLE), 20),
    Story("i24-job-ends-then-one-clock",
          until(200, same(kit(), JOB, gpu()), since_start(kit(kernel(last=0)), host(), gpu())),
          (230, Rule.IDLE), 220),
    Story("x24-probe-fails-for-ever", same(host(), gpu()), None, kept_by=Rule.BLIND),
    Story("x24-other-ide-that-computes", same(host(40.0), gpu()), None, kept_by=Rule.CPU_ACTIVE),
    Story("x24-other-ide-without-a-kit-that-rests", since_start(host(processes=2), gpu(0, 0)), None,
          kept_by=Rule.BLIND),
    Story("x24-other-ide-beside-the-kit-that-builds", same(kit(), host(1.0, io_bytes_per_s=2e6), gpu()), None,
          kept_by=Rule.IO_ACTIVE),
    Story("x24-other-ide-beside-the-kit-that-rests", since_start(kit(), host(processes=2), gpu(0, 0)),
          (30, Rule.IDLE), 20),
    Story("x25-four-days-of-training", same(kit(kernel(True)), host(99.0), gpu(97)), None,
          of=lease(started=4 * 86400), kept_by=Rule.BUSY_KERNEL),
]  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=[story.id for story in STORIES])
def test_the_idle_table(story: Story) -> None:
    looks = list(lived(story))
    warned = next((minute for minute, decision in looks if isinstance(decision, Warn)), None)
    minute, last = looks[-1]
    told = f"{type(last).__name__} by {last.evidence.rule} at minute {minute}: {last.evidence.words}"
    if story.ends is None:
        assert isinstance(last, Keep) and last.evidence.rule is story.kept_by, told
    else:
        assert isinstance(last, Reclaim) and (minute, last.evidence.rule) == story.ends, told
    assert warned == story.warned


def by_id(name: str) -> Story:
    return next(story for story in STORIES if story.id == name)


@pytest.mark.parametrize(
    ("name", "reason", "key"),
    [
        ("i03-forgotten-tab", StopReason.IDLE, "30 min without use (idle.with_gpu)"),
        ("i14-warned-ten-minutes-before", StopReason.IDLE, "2 h without use (idle.without_gpu)"),
        ("i14-max-age-of-a-busy-server", StopReason.MAX_AGE, "4 h after their start (idle.max_age)"),
        ("i15-shutdown-time-whatever-runs", StopReason.SHUTDOWN, "Its user asked for it to be stopped at 09:45 UTC"),
        ("i15-stop-when-done", StopReason.SHUTDOWN, "when its work is done"),
        ("i16-held-beside-a-cpu-job", StopReason.IDLE, "30 min without use (idle.gpu_idle)"),
    ],
)
def test_i14_every_stop_names_its_rule_and_value(name: str, reason: StopReason, key: str) -> None:
    *_, (_, end) = lived(by_id(name))
    assert isinstance(end, Reclaim) and end.reason is reason and key in end.evidence.words


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        (2, "it is stopped as soon as nothing runs, as its user asked (programs that live: 2)"),
        (None, "it is stopped as soon as nothing runs, as its user asked (whether programs live cannot be seen)"),
    ],
)
def test_i15_what_is_waited_for_is_said(programs: int | None, words: str) -> None:
    sees = since_start(kit(), host(processes=programs), gpu(0, 0))
    *_, (_, last) = lived(Story("i15", sees, None, minutes=5, policy=NEVER, wish=Wish(when_done=True)))
    assert last.evidence.words.endswith(words)


def moving(minutes: float) -> Iterator[tuple[float, Decision]]:
    """A user who sets an end so many minutes ahead at each look, and never lets it come."""
    memory = NOTHING
    for look in range(720):
        now = NOW + look / 2 * MINUTE
        seen = read(lease(started=0), shifted({**kit(kernel(True)), **host(), **gpu(90)}, look / 2), memory, now)
        wish = Wish(shutdown_at=now + minutes * MINUTE)
        decision = decide(seen, Policy(max_age=4 * 3600), now, wish)
        yield look / 2, decision
        if isinstance(decision, Reclaim):
            return
        memory = recall({"memory": remember(decision.memory)}, now)


@pytest.mark.parametrize("minutes", [0.5, 5, 9.5, 20])
def test_i14_an_end_that_is_moved_again_and_again_hides_no_longest_life(minutes: float) -> None:
    looks = list(moving(minutes))
    minute, end = looks[-1]
    assert isinstance(end, Reclaim) and (minute, end.reason) == (240, StopReason.MAX_AGE), end.evidence.words
    told = [m for m, each in looks if isinstance(each, Warn) and each.evidence.rule is Rule.MAX_AGE]
    assert told[0] == 230


def test_i14_where_both_are_due_the_longest_life_is_the_reason() -> None:
    """A stop at a set time is taken back by use, one by the longest life is not."""
    story = Story(
        "i14", QUIET, None, policy=Policy(None, None, max_age=7200), wish=Wish(shutdown_at=NOW + 120 * MINUTE)
    )
    *_, (minute, end) = lived(story)
    assert isinstance(end, Reclaim) and (minute, end.reason) == (120, StopReason.MAX_AGE)


def test_i14_two_warnings_ten_and_two_minutes_before() -> None:
    warnings = [(minute, each.last) for minute, each in lived(by_id("i03-forgotten-tab")) if isinstance(each, Warn)]
    assert warnings[0] == (20, False) and next(minute for minute, last in warnings if last) == 28
    assert [last for _, last in warnings] == sorted(last for _, last in warnings)


def test_i16_words_and_figure_of_a_gpu_that_works_for_nobody() -> None:
    looks = dict(lived(by_id("i16-a-cell-that-runs-is-use-of-it")))
    assert "its GPU has not computed" not in looks[119].evidence.words
    assert looks[121].evidence.words.endswith("its GPU has not computed for 2 h 1 min")
    assert looks[121].evidence.facts["gpu_unused_s"] == 121 * 60


def test_i17_a_keep_busy_pattern_is_suspected_after_three_hours() -> None:
    found = dict(lived(by_id("i17-keep-busy-is-never-stopped")))
    at = {minute: keepbusy.suspected(each.memory.pattern, NOW + minute * MINUTE) for minute, each in found.items()}
    assert not at[180] and at[180.5] and at[360]


@pytest.mark.parametrize(
    "honest",
    [
        same(kit(kernel()), host(), gpu(30, 0, memory_util=4)),
        same(kit(kernel()), host(), gpu(30, 0)),
        same(kit(kernel(True)), host(), BURN),
        same(kit(kernel(last=60)), host(), BURN),
        same(host(), BURN),
        until(90, same(kit(), host(), BURN), same(kit(), host(), gpu(60, 0, memory_util=0))),
    ],
    ids=[
        "memory-traffic",
        "traffic-unknown",
        "a-cell-runs",
        "cells-run-now-and-then",
        "kernels-unknown",
        "use-changes",
    ],
)
def test_i17_honest_work_and_what_is_not_known_are_no_pattern(honest: Reports) -> None:
    looks = list(lived(Story("i17", honest, None, minutes=240)))
    assert not any(keepbusy.suspected(each.memory.pattern, NOW + minute * MINUTE) for minute, each in looks)


def test_i19_what_the_hub_tells_changes_no_verdict() -> None:
    """A 403 on the question for activity, an answer, a stale answer: the same verdicts at the same minutes."""
    without, with_tab = (Story("i19", QUIET, None, tab=tab) for tab in (False, True))
    first, second = ([(minute, type(d), d.evidence.rule) for minute, d in lived(s)] for s in (without, with_tab))
    assert first == second


def test_i21_mixed_stamps_of_one_server() -> None:
    """Naive, foreign, in the future and none: no exception, and no stop."""
    rows: dict[str, Row] = {
        "kit": (NOW.replace(tzinfo=None), {"kernels": [{**kernel(), "last_execute_at": "2026-03-02T08:00"}]}),
        "host": (NOW + timedelta(days=9), {"cpu_percent": 0.0, "cpu_active_at": "2026-03-02T17:00:00+09:00"}),
        "gpu": (NOW, {"util": 0, "active_at": 1772438400}),
    }
    assert isinstance(decide(read(lease(), rows, NOTHING, NOW), PLAIN, NOW), Keep)


def test_i08_i11_everybody_is_judged_whatever_the_others_rows_hold() -> None:
    """Two thousand servers, every tenth with mangled rows: all idle ones are warned, no mangled one is stopped."""
    verdicts = []
    for number in range(2000):
        mangled = number % 10 == 0
        rows = {"kit": (NOW, None), "host": ("?", [])} if mangled else QUIET(40)
        of = lease(id=f"l-{number}", started=86400)
        memory = recall(
            {"memory": {"watched_since": NOW.isoformat(), "looked_at": (NOW + 39.5 * MINUTE).isoformat()}},
            NOW + 40 * MINUTE,
        )
        verdicts.append(decide(read(of, rows, memory, NOW + 40 * MINUTE), PLAIN, NOW + 40 * MINUTE))  # type: ignore[arg-type]
    assert all(isinstance(each, Keep if number % 10 == 0 else Warn) for number, each in enumerate(verdicts))


def test_i12_the_scopes_are_the_ones_of_the_design() -> None:
    assert SCOPES == ("list:users", "read:users:activity", "read:servers", "delete:servers")


def test_x25_a_longest_life_differs_by_class_not_by_renewals() -> None:
    of = lease(started=0, service_class=ServiceClass.RESERVED)
    assert not any(
        isinstance(each, Reclaim)
        for _, each in lived(Story("x25", same(kit(kernel(True)), host(), gpu()), None, of=of))
    )


PAGE = (ROOT / "docs/explanation/idle-promises.md").read_text(encoding="utf-8")
PROMISES = {
    cells[1].lower(): re.findall(r"`([a-z]+/test_\w+)`", cells[4])
    for cells in ([cell.strip() for cell in line.split("|")] for line in PAGE.splitlines() if line.startswith("| "))
    if re.fullmatch(r"[IX]\d+", cells[1])
}
ROWS = "i1 i2 i3 i5 i7 i8 i11 i12 i13 i14 i15 i16 i17 i19 i20 i21 i23 i24 x24 x25".split()


def test_every_row_is_promised() -> None:
    assert list(PROMISES) == ROWS


@pytest.mark.parametrize("row", ROWS)
def test_every_promise_names_tests_of_that_row_that_are_there(row: str) -> None:
    number = f"{row[0]}{int(row[1:]):02}"
    assert PROMISES[row]
    for path in PROMISES[row]:
        code = (ROOT / "tests" / f"{path}.py").read_text(encoding="utf-8")
        named = re.search(rf"def test_(\w+_)?{number}_", code)
        told = path == "unit/test_idle_table" and any(story.id.startswith(number) for story in STORIES)
        assert named or told, f"no test of {number} in {path}"
