"""Whatever a server does and whatever is seen of it: no reclaim of a busy or unseen one, none without a notice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from idle_culler.decide import Keep, Policy, Reclaim, Rule, Warn, decide
from idle_culler.signals import NOTHING, Row, read, recall, remember
from quota.wish import Wish
from tests.fakes.use import NOW, ago, gpu, host, judge, kernel, kit, lease, text, watched

seconds = st.floats(0, 100_000)
maybe_seconds = st.none() | seconds
policies = st.builds(
    Policy,
    idle_gpu=st.none() | st.floats(1, 10_000),
    idle_cpu=st.none() | st.floats(1, 10_000),
    notice=st.floats(1, 5_000),
    gpu_idle=st.none() | st.floats(1, 10_000),
)
kernels = st.builds(kernel, busy=st.none() | st.booleans(), last=maybe_seconds, since=maybe_seconds)
kits = st.builds(lambda ks, age: kit(*ks, age=age), st.lists(kernels, max_size=4), st.floats(0, 300))
ios = st.fixed_dictionaries(
    {}, optional={"io_bytes_per_s": st.none() | st.floats(0, 200_000), "io_active_at": maybe_seconds.map(text)}
)
hosts = st.builds(
    lambda percent, active, age, io: host(percent, active, age, **io),
    st.none() | st.floats(0, 20),
    maybe_seconds,
    st.floats(0, 300),
    ios,
)
gpus = st.builds(
    lambda util, active, age, reason: gpu(util, active, age, reason=reason),
    st.none() | st.integers(0, 100),
    maybe_seconds,
    st.floats(0, 300),
    st.sampled_from(["", "shared", "unknown"]),
)
wild = st.builds(
    lambda parts: {k: v for part in parts for k, v in part.items()},
    st.tuples(kits | st.just({}), hosts | st.just({}), gpus | st.just({})),
)
#: Long unused, and at most one source that says anything else: close to a stop, where mistakes are made.
idle_kit, idle_host, idle_gpu = kit(kernel(last=90_000)), host(0.1, 90_000), gpu(0, 90_000, reason="")
nearly = st.builds(
    lambda odd: {**idle_kit, **idle_host, **idle_gpu, **odd}, st.just({}) | kits | hosts | gpus | st.just(idle_kit)
)
rows = wild | nearly
memories = (
    st.just(NOTHING)
    | st.builds(
        lambda gpu_warned, **more: replace(watched(**more), gpu_warned_at=gpu_warned),
        st.none() | seconds.map(ago),
        since=seconds,
        looked=st.floats(0, 300),
        active=maybe_seconds,
        warned=maybe_seconds,
    )
    | st.builds(
        lambda gpu_warned, warned: replace(watched(90_000, warned=warned), gpu_warned_at=gpu_warned),
        st.none() | st.floats(0, 20_000).map(ago),
        st.none() | st.floats(0, 20_000),
    )
)
leases = st.just(lease(started=95_000)) | st.builds(
    lease, st.integers(0, 2), share=st.sampled_from([250, 1000]), simulated=st.booleans(), started=maybe_seconds
)


wishes = st.builds(
    Wish, st.none() | st.floats(-9_000, 9_000).map(ago), st.none(), when_done=st.booleans()
)  # not a time that was set: it asks for no signal


@given(rows, memories, leases, policies, wishes)
def test_i01_i07_never_reclaim_what_is_busy_or_unseen(rows: dict[str, Row], memory, of, policy, wish) -> None:  # type: ignore[no-untyped-def]
    decision = judge(rows, memory, of, policy, wish=wish)
    if isinstance(decision, Keep):
        return
    ages = {source: (NOW - row[0]).total_seconds() for source, row in rows.items()}
    assert of.started_at is not None
    assert ages.get("kit", 999) <= 120 and ages.get("host", 999) <= 120
    assert all(k["busy"] is False for k in rows["kit"][1]["kernels"])
    said = rows["host"][1]
    assert said["cpu_percent"] is not None and said.get("io_bytes_per_s", 0) is not None
    if decision.evidence.rule is not Rule.GPU_IDLE:
        assert said["cpu_percent"] <= 5 and said.get("io_bytes_per_s", 0) <= 64 * 1024
    told = "gpu" in rows and (rows["gpu"][1]["util"] is not None or rows["gpu"][1]["reason"] != "shared")
    if of.count and not of.simulated and (of.share == 1000 or told):
        assert ages.get("gpu", 999) <= 120 and rows["gpu"][1]["util"] == 0
    if isinstance(decision, Reclaim) and wish.keep_until is not None and not wish.when_done:
        assert wish.keep_until <= NOW


@given(rows, memories, leases, policies, wishes)
def test_more_use_never_makes_a_verdict_worse(rows, memory, of, policy, wish) -> None:  # type: ignore[no-untyped-def]
    """Whatever is seen: with a kernel that runs beside it, nobody ends or warns the server for want of use."""
    seen = {**rows, **kit(kernel(), kernel(True))}
    assert isinstance(judge(seen, memory, of, policy, wish=wish), Keep)


@given(rows, memories, leases, policies, st.floats(0, 110))
def test_the_same_seen_later_is_never_a_milder_verdict(rows, memory, of, policy, wait: float) -> None:  # type: ignore[no-untyped-def]
    """Time alone brings an end nearer: reports that say the same, with the same last use, a little later."""
    first = judge(rows, memory, of, policy)
    if not isinstance(first, Warn | Reclaim):
        return
    later = NOW + timedelta(seconds=wait)
    fresh = {source: (later - timedelta(seconds=1), row[1]) for source, row in rows.items()}
    second = decide(read(of, fresh, first.memory, later), policy, later)
    assert not isinstance(second, Keep), second.evidence.words
    if isinstance(first, Warn) and second.evidence.rule is first.evidence.rule:
        assert second.deadline == first.deadline


@given(st.lists(st.tuples(rows, wishes, st.floats(1, 110)), min_size=30, max_size=60), st.floats(600, 2_000))
def test_i17_x25_no_kit_and_no_wish_outlives_the_longest_life(story, max_age: float) -> None:  # type: ignore[no-untyped-def]
    """Whatever a server says of itself and its user wishes: it is told to end within its longest life, the notice (a
    culler that only just looks has to give it) and a look."""
    policy, of = Policy(None, None, 300, max_age=max_age), lease(started=0)
    now, memory, warned = NOW, NOTHING, False
    for seen, wish, wait in story:
        now += timedelta(seconds=wait)
        if (now - NOW).total_seconds() > max_age + 300 + 110:
            raise AssertionError("it lives beyond its longest life")
        decision = decide(read(of, seen, memory, now), policy, now, wish)
        if isinstance(decision, Reclaim):
            if decision.evidence.rule is Rule.MAX_AGE:
                assert warned and (now - NOW).total_seconds() >= max_age - 1e-3
            return
        warned = warned or (isinstance(decision, Warn) and decision.evidence.rule is Rule.MAX_AGE)
        memory = recall({"memory": remember(decision.memory)}, now)


@given(rows, memories, leases, policies)
def test_a_reclaim_is_idle_for_the_limit_and_warned_for_the_notice(rows, memory, of, policy) -> None:  # type: ignore[no-untyped-def]
    decision = judge(rows, memory, of, policy)
    if not isinstance(decision, Reclaim):
        return
    limit = policy.gpu_idle if decision.evidence.rule is Rule.GPU_IDLE else policy.limit(of.count)
    stamp = memory.gpu_warned_at if decision.evidence.rule is Rule.GPU_IDLE else memory.warned_at
    uses = [k["last_execute_at"] for k in rows["kit"][1]["kernels"]]
    if decision.evidence.rule is Rule.IDLE:
        uses += [rows["host"][1]["cpu_active_at"]]
        uses += [rows["host"][1].get("io_active_at")] if "io_bytes_per_s" in rows["host"][1] else []
    last = max([of.started_at, memory.watched_since, *(datetime.fromisoformat(use) for use in uses if use)])
    assert limit is not None and stamp is not None
    assert (NOW - last).total_seconds() >= limit - 1e-3
    assert (NOW - stamp).total_seconds() >= policy.notice - 1e-3
    assert last <= stamp, "used after the warning"


@dataclass(frozen=True)
class Step:
    wait: float
    busy: bool | None
    executed: bool
    kit_silent: bool
    cpu: float


steps = st.lists(
    st.builds(
        Step,
        wait=st.floats(1, 150),
        busy=st.sampled_from([False] * 6 + [True, None]),
        executed=st.sampled_from([False] * 8 + [True]),
        kit_silent=st.sampled_from([False] * 8 + [True]),
        cpu=st.sampled_from([0.0] * 8 + [50.0]),
    ),
    min_size=5,
    max_size=80,
)


@given(steps, st.floats(20, 600), st.floats(5, 400))
def test_a_warning_precedes_every_reclaim_by_the_notice_and_use_withdraws_it(
    story: list[Step], limit: float, notice: float
) -> None:
    """A server's life look by look, with what one look hands to the next going through the verdict's evidence."""
    now, memory, warned_since, last_use = NOW, NOTHING, None, NOW
    policy, of = Policy(limit, limit, notice), lease(0, started=0)
    executed_at: datetime | None = None
    for step in story:
        now += timedelta(seconds=step.wait)
        if step.executed or step.busy:
            executed_at = last_use = now
        if step.cpu > 5:
            last_use = now
        kit_at = now - timedelta(seconds=500 if step.kit_silent else 1)
        row = {
            "id": "k",
            "busy": step.busy,
            "last_execute_at": executed_at and executed_at.isoformat(),
            "busy_since": None,
        }
        seen: dict[str, Row] = {
            "kit": (kit_at, {"kernels": [row], "terminals": 0}),
            "host": (now, {"cpu_percent": step.cpu, "cpu_active_at": None}),
        }
        decision = decide(read(of, seen, memory, now), policy, now)
        if isinstance(decision, Reclaim):
            assert warned_since is not None and (now - warned_since).total_seconds() >= notice - 1e-3
            assert (now - last_use).total_seconds() >= limit - 1e-3
            return
        if isinstance(decision, Warn):
            warned_since = warned_since or now
            assert decision.deadline >= warned_since + timedelta(seconds=notice) - timedelta(milliseconds=1)
        else:
            warned_since = None
        memory = recall({"memory": remember(decision.memory)}, now)


stamps = st.sampled_from(
    [text(60), "2026-03-02T08:00:00", "2026-03-02T08:00:00+09:00", "0001-01-01T00:00:00+23:59"]
) | (st.none() | st.text(max_size=12) | st.integers() | st.datetimes() | st.floats() | st.just(ago(5)))
FIELDS = [
    "kernels",
    "busy",
    "id",
    "cpu_percent",
    "util",
    "terminals",
    "io_bytes_per_s",
    "children",
    "reason",
    "pattern",
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | stamps,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=10,
)
wild_rows = st.dictionaries(st.sampled_from(["kit", "host", "gpu", "new"]), st.tuples(stamps, anything), max_size=4)


@given(wild_rows, anything, st.datetimes(), leases)
def test_i21_i08_nothing_in_a_row_can_crash_the_rules(rows, evidence, started, of) -> None:  # type: ignore[no-untyped-def]
    """Naive, aware, foreign and mangled stamps and payloads: a verdict in any case, and never one to stop."""
    decision = judge(rows, recall(evidence, NOW), replace(of, started_at=started))
    assert not isinstance(decision, Reclaim)
