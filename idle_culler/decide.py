"""[P] Keep, warn or reclaim: one function, from which both the user's page and the culler's acts come.

In use is: a kernel that executes, however silently; programs of the server that use the CPU, the disk or the network
(a terminal's, a `nohup` job's); a GPU of its own that computes. An open tab, a poller, a page that was read, a
document that saves itself is not. What is unknown never counts as idle. An end for want of use follows a warning by at
least the notice, and any use in between withdraws the warning.

Five rules end a server: `max-age` (whatever it does), `shutdown` (a time that its user set), `when-done` (its user's
wish, once nothing runs), `idle`, and `gpu-idle` (a device that is held and not used, whatever the CPU does). The last
two wait for `Wish.keep_until`; the first two ask neither the kit nor anything else that a user could forge. A program
that lives and waits is no use, so an idle server with one is stopped; but it is work that is not done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from idle_culler import keepbusy
from idle_culler.evidence import Evidence, facts_of, in_use, living, quiet_words, span, unknown, unused_words
from idle_culler.evidence import Rule as Rule
from idle_culler.signals import Known, Memory, Signals
from quota import told
from quota.leases import StopReason
from quota.wish import NO_WISH, Wish

#: Ten years, in seconds.
LONGEST = 315_360_000
#: The second and last warning comes so long before the end.
LAST_CALL = timedelta(minutes=2)
#: "When done": nothing has run for so long.
DONE_QUIET = timedelta(seconds=60)

#: Keys of `berth.toml`, by the field of `Policy` that holds their value.
KEYS = {
    "idle_gpu": "idle.with_gpu",
    "idle_cpu": "idle.without_gpu",
    "notice": "idle.notice",
    "gpu_idle": "idle.gpu_idle",
    "max_age": "idle.max_age",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """Seconds without use after which a server with, or without, a GPU is stopped, and the notice before it; seconds
    after which devices that are held and not used are given back, and after which any server is stopped.

    None is off. Zero is nobody's wish and no way to say off. `sources` names the key of `berth.toml` of each value
    that does not come from the plain one. Raises `ValueError`.
    """

    idle_gpu: float | None = 1800
    idle_cpu: float | None = 7200
    notice: float = 600
    gpu_idle: float | None = None
    max_age: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in KEYS:
            value = getattr(self, name)
            if value is None and name != "notice":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST:
                raise ValueError(f"{name} must be seconds above 0 and at most {LONGEST} (None is off): {value!r}")

    def limit(self, gpus: int) -> float | None:
        return self.idle_gpu if gpus else self.idle_cpu

    def key(self, name: str) -> str:
        """The key of `berth.toml` that a value comes from."""
        return self.sources.get(name, KEYS[name])


@dataclass(frozen=True, slots=True)
class Keep:
    evidence: Evidence
    memory: Memory


@dataclass(frozen=True, slots=True)
class Warn:
    """It will be stopped at `deadline`; for want of use only unless it is used before. `last`: it is the last call."""

    evidence: Evidence
    memory: Memory
    deadline: datetime
    last: bool = False


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Stop it now: `deadline` has passed, and the warning that its rule asks for was given at least a notice ago.

    In `memory` warnings for want of use are spent: should this stop be taken back, another one follows another warning.
    """

    evidence: Evidence
    memory: Memory
    deadline: datetime
    reason: StopReason = StopReason.IDLE


Decision = Keep | Warn | Reclaim


@dataclass(frozen=True, slots=True)
class _End:
    """One rule's end that is near. `stamp` names the memory's warning, None for what its user asked for; `warned_at`
    is that of the standing one, `base` the end without regard to warnings."""

    rule: Rule
    reason: StopReason
    base: datetime
    words: str
    stamp: str | None = None
    warned_at: datetime | None = None
    limit: float | None = None
    since: datetime | None = None

    def deadline(self, policy: Policy, now: datetime) -> datetime:
        if self.stamp is None:
            return self.base
        return max(self.base, (self.warned_at or now) + timedelta(seconds=policy.notice))

    def due(self, policy: Policy, now: datetime) -> bool:
        told_of = self.stamp is None or self.warned_at is not None
        return told_of and now >= self.deadline(policy, now)


@dataclass(frozen=True, slots=True)
class _Case:
    """All that the rules look at."""

    signals: Signals
    policy: Policy
    now: datetime
    wish: Wish
    use: tuple[Rule, str] | None
    unknown: list[str]


def decide(signals: Signals, policy: Policy, now: datetime, wish: Wish = NO_WISH) -> Decision:
    """The verdict on one server at `now` (aware, UTC). The decision's `memory` goes into the next look's signals."""
    case = _Case(signals, policy, now, wish, in_use(signals, now), unknown(signals))
    rules = (_max_age, _shutdown, _when_done, _idle, _gpu_idle)  # of two that are due the first is the reason
    ends = [end for end in (rule(case) for rule in rules) if end is not None]
    untold = _untold(ends)
    due = next((end for end in ends if end.due(policy, now)), None)
    if due is not None and untold is None:
        memory = _memory(case, [end for end in ends if end.rule is Rule.MAX_AGE])
        return Reclaim(_end_evidence(case, due, memory), memory, due.deadline(policy, now), due.reason)
    if not ends:
        return _keep(case)
    shown = untold or min(ends, key=lambda end: end.deadline(policy, now))
    if shown.stamp is not None and shown.warned_at is None:
        ends = [replace(end, warned_at=now) if end is shown else end for end in ends]
    memory, deadline = _memory(case, ends), shown.deadline(policy, now)
    return Warn(_end_evidence(case, shown, memory), memory, deadline, deadline - now <= LAST_CALL)


def _untold(ends: list[_End]) -> _End | None:
    """The longest life, near and not told of yet. It is told before anything else happens, once: were it hidden behind
    an end that its user can move or take back, such as a set time, its own would never come."""
    return next((end for end in ends if end.rule is Rule.MAX_AGE and end.warned_at is None), None)


# ---- the rules that end a server -----------------------------------------------------------------------------------


def _shutdown(case: _Case) -> _End | None:
    """A time that its user set: whatever runs."""
    at = case.wish.shutdown_at
    if at is None or case.now < at - timedelta(seconds=case.policy.notice):
        return None
    return _End(Rule.SHUTDOWN, StopReason.SHUTDOWN, at, told.SHUTDOWN_SET % {"time": f"{at:%H:%M}"})


def _max_age(case: _Case) -> _End | None:
    """The site's longest life of a server: whatever runs, and whatever anybody says runs."""
    started, limit = case.signals.started_at, case.policy.max_age
    if limit is None or started is None or case.now - started < _quiet(case.policy, limit):
        return None
    span_words = span(timedelta(seconds=limit))
    rule = told.RULE_MAX_AGE % {"span": span_words, "key": case.policy.key("max_age")}
    words = told.AGED % {"time": f"{started:%H:%M}", "span": span(case.now - started), "rule": rule}
    base = started + timedelta(seconds=limit)
    warned = case.signals.memory.age_warned_at
    return _End(Rule.MAX_AGE, StopReason.MAX_AGE, base, words, "age_warned_at", warned, limit, started)


def _when_done(case: _Case) -> _End | None:
    """Its user's wish: once no kernel runs, no program lives, and all has been quiet for a minute."""
    if not case.wish.when_done or case.use is not None or case.unknown or living(case.signals) != 0:
        return None
    since = _idle_since(case.signals)
    if case.now - since < DONE_QUIET:
        return None
    words = told.WORK_DONE % {"time": f"{since:%H:%M}"}
    return _End(Rule.WHEN_DONE, StopReason.SHUTDOWN, since + DONE_QUIET, words, since=since)


def _idle(case: _Case) -> _End | None:
    """Not used at all."""
    policy, signals, limit = case.policy, case.signals, case.policy.limit(case.signals.gpus)
    if limit is None or case.use is not None or case.unknown:
        return None
    since = _idle_since(signals)
    if not _near(case, since, limit):
        return None
    name, rule = ("idle_gpu", told.RULE_WITH_GPU) if signals.gpus else ("idle_cpu", told.RULE_WITHOUT_GPU)
    words = told.NOT_USED % {
        "time": f"{since:%H:%M}",
        "span": span(case.now - since),
        "quiet": quiet_words(signals),
        "rule": rule % {"span": span(timedelta(seconds=limit)), "key": policy.key(name)},
    }
    warned = _standing(signals.memory.warned_at, since)
    base = _base(case, since, limit)
    return _End(Rule.IDLE, StopReason.IDLE, base, words, "warned_at", warned, limit, since)


def _gpu_idle(case: _Case) -> _End | None:
    """A device that is held and not used, whatever the CPU does. A kernel that runs is always use."""
    policy, signals, limit = case.policy, case.signals, case.policy.gpu_idle
    quiet = case.use is None or case.use[0] in (Rule.CPU_ACTIVE, Rule.IO_ACTIVE)
    if limit is None or not quiet or case.unknown or not isinstance(signals.gpu, Known):
        return None
    since = _gpu_since(signals)
    if not _near(case, since, limit):
        return None
    words = told.GPU_NOT_USED % {
        "time": f"{since:%H:%M}",
        "span": span(case.now - since),
        "rule": told.RULE_GPU_IDLE % {"span": span(timedelta(seconds=limit)), "key": policy.key("gpu_idle")},
    }
    warned = _standing(signals.memory.gpu_warned_at, since)
    base = _base(case, since, limit)
    return _End(Rule.GPU_IDLE, StopReason.IDLE, base, words, "gpu_warned_at", warned, limit, since)


def _near(case: _Case, since: datetime, limit: float) -> bool:
    """Unused for long enough to warn, and not kept by its user's wish until then."""
    keep = case.wish.keep_until
    if keep is not None and case.now < keep - timedelta(seconds=case.policy.notice):
        return False
    return case.now - since >= _quiet(case.policy, limit)


def _base(case: _Case, since: datetime, limit: float) -> datetime:
    end = since + timedelta(seconds=limit)
    return end if case.wish.keep_until is None else max(end, case.wish.keep_until)


def _standing(warned_at: datetime | None, since: datetime) -> datetime | None:
    """A warning older than the last use was withdrawn by it."""
    return warned_at if warned_at is not None and since <= warned_at else None


def _quiet(policy: Policy, limit: float) -> timedelta:
    """Time before a warning. Where the notice is as long as the limit, half the limit, so that nobody is warned while
    working."""
    return timedelta(seconds=limit - policy.notice if policy.notice < limit else limit / 2)


# ---- times -----------------------------------------------------------------------------------------------------------


def _last_use(signals: Signals) -> datetime | None:
    """The last use on record, this look's and all former ones'."""
    moments = [signals.memory.active_at, signals.started_at, *_runs(signals)]
    if isinstance(signals.host, Known):
        moments.append(signals.host.value.cpu_active_at)
    if isinstance(signals.io, Known):
        moments.append(signals.io.value.active_at)
    if isinstance(signals.gpu, Known):
        moments.append(signals.gpu.value.active_at)
    return max((m for m in moments if m is not None), default=None)


def _runs(signals: Signals) -> list[datetime | None]:
    """When kernels last executed."""
    return [k.last_execute_at for k in signals.kit.value.kernels] if isinstance(signals.kit, Known) else []


def _idle_since(signals: Signals) -> datetime:
    """Start of the time in which the server was watched and not used; only asked when nothing is unknown."""
    known = [m for m in (_last_use(signals), signals.watched_since) if m is not None]
    return max(known)


def _gpu_since(signals: Signals) -> datetime:
    """The same for its devices alone."""
    known = [signals.started_at, signals.watched_since, _gpu_used(signals)]
    return max(m for m in known if m is not None)


def _gpu_used(signals: Signals) -> datetime | None:
    """The last use on record that was for a device."""
    moments = [signals.memory.gpu_used_at, *_runs(signals)]
    if isinstance(signals.gpu, Known):
        moments.append(signals.gpu.value.active_at)
    return max((m for m in moments if m is not None), default=None)


# ---- what is kept for the next look ----------------------------------------------------------------------------------


def _memory(case: _Case, ends: list[_End]) -> Memory:
    """Of warnings only those that stand: a keep, or another rule's end alone, withdraws them."""
    warned = {end.stamp: end.warned_at for end in ends if end.stamp is not None}
    used, gpu_used = case.use is not None, case.use is not None and case.use[0] in (Rule.BUSY_KERNEL, Rule.GPU_ACTIVE)
    return Memory(
        active_at=case.now if used else _last_use(case.signals),
        watched_since=case.signals.watched_since,
        looked_at=case.now,
        warned_at=warned.get("warned_at"),
        gpu_used_at=case.now if gpu_used else _gpu_used(case.signals),
        gpu_warned_at=warned.get("gpu_warned_at"),
        age_warned_at=warned.get("age_warned_at"),
        pattern=_pattern(case),
    )


def _pattern(case: _Case) -> keepbusy.Pattern | None:
    signals = case.signals
    ran: datetime | None = None
    if isinstance(signals.kit, Known) and all(kernel.busy is False for kernel in signals.kit.value.kernels):
        ran = max([m for m in _runs(signals) if m is not None] or [signals.started_at or case.now])
    gpu = signals.gpu.value if isinstance(signals.gpu, Known) else None
    look = keepbusy.Look(gpu.util if gpu else None, gpu.memory_util if gpu else None, ran)
    return keepbusy.follow(signals.memory.pattern, look, case.now)


# ---- evidence --------------------------------------------------------------------------------------------------------


def _end_evidence(case: _Case, end: _End, memory: Memory) -> Evidence:
    return Evidence(end.rule, end.words, _facts(case, memory, end.limit, end.since))


def _facts(case: _Case, memory: Memory, limit: float | None, since: datetime | None) -> dict[str, object]:
    since_text = None if since is None else since.isoformat()
    return facts_of(case.signals, case.wish, memory, case.now, limit_s=limit, idle_since=since_text)


def _keep(case: _Case) -> Keep:
    """A keep withdraws standing warnings: its memory has none."""
    memory, limit = _memory(case, []), case.policy.limit(case.signals.gpus)
    since = None if case.unknown else _idle_since(case.signals)
    rule, words = _why_kept(case, limit)
    shown = since if rule is Rule.RECENT else None
    unused = unused_words(case.signals, case.now) if case.use is not None else ""
    words = "; ".join(filter(None, (words, unused, _waited_for(case))))
    return Keep(Evidence(rule, words, _facts(case, memory, limit if shown else None, shown)), memory)


def _waited_for(case: _Case) -> str:
    """Of the wish to be stopped when all is done, and what still lives."""
    if not case.wish.when_done:
        return ""
    programs = living(case.signals)
    if programs is None:
        return told.WHEN_DONE_UNSEEN
    return told.WHEN_DONE_LIVING % {"number": programs} if programs else told.WHEN_DONE


def _why_kept(case: _Case, limit: float | None) -> tuple[Rule, str]:
    if case.use is not None:
        return case.use
    if limit is None:
        return Rule.OFF, told.NOT_STOPPED
    if case.unknown:
        return Rule.BLIND, told.BLIND % {"unknown": "; ".join(case.unknown)}
    since, keep = _idle_since(case.signals), case.wish.keep_until
    if keep is not None and keep > case.now and case.now - since >= _quiet(case.policy, limit):
        return Rule.KEPT, told.KEPT % {"time": f"{keep:%H:%M}"}
    name, rule = ("idle_gpu", told.RULE_WITH_GPU) if case.signals.gpus else ("idle_cpu", told.RULE_WITHOUT_GPU)
    rule_words = rule % {"span": span(timedelta(seconds=limit)), "key": case.policy.key(name)}
    return Rule.RECENT, f"{_recent_words(case.signals, since, case.now)}; {rule_words}"


def _recent_words(signals: Signals, since: datetime, now: datetime) -> str:
    last = _last_use(signals)
    if last is not None and last < since:
        return told.WATCHED % {"time": f"{since:%H:%M}"}
    ago = now - since
    return told.USED_NOW if ago < timedelta(seconds=1) else told.LAST_USED % {"span": span(ago)}
