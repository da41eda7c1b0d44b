"""[P] Keep, warn or reclaim: one function, from which both the user's page and the culler's acts come.

In use is: a kernel that executes, however silently; programs of the server that use the CPU (a terminal's, a
`nohup` job's); a whole GPU that computes. An open tab, a poller, a page that was read is not. What is unknown never
counts as idle. A reclaim follows a warning by at least the notice, and any use in between withdraws the warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from idle_culler.signals import Known, Memory, NotApplicable, Signals, Unknown, remember
from quota import told

#: Percent of one core above which a server's programs count as in use; the agent's `cpu_active_at` has the same.
CPU_ACTIVE_PERCENT = 5.0


#: Ten years, in seconds.
LONGEST = 315_360_000


class Rule(StrEnum):
    """Why a verdict is what it is; the same words in the book, on pages and in messages."""

    BUSY_KERNEL = "busy-kernel"
    CPU_ACTIVE = "cpu-active"
    GPU_ACTIVE = "gpu-active"
    OFF = "off"
    BLIND = "blind"
    RECENT = "recent"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Policy:
    """Seconds without use after which a server with, or without, a GPU is stopped, and the notice before it.

    None is off: never stopped for idleness. Zero is nobody's wish and no way to say off. Raises `ValueError`.
    """

    idle_gpu: float | None = 1800
    idle_cpu: float | None = 7200
    notice: float = 300

    def __post_init__(self) -> None:
        for name in ("idle_gpu", "idle_cpu", "notice"):
            value = getattr(self, name)
            if value is None and name != "notice":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST:
                raise ValueError(f"{name} must be seconds above 0 and at most {LONGEST} (None is off): {value!r}")

    def limit(self, gpus: int) -> float | None:
        return self.idle_gpu if gpus else self.idle_cpu


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why, for machines (`rule`, `facts`: JSON) and for people (`words`, without a full stop)."""

    rule: Rule
    words: str
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Keep:
    evidence: Evidence
    memory: Memory


@dataclass(frozen=True, slots=True)
class Warn:
    """It will be reclaimed at `deadline` unless it is used before."""

    evidence: Evidence
    memory: Memory
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Stop it now: `deadline` has passed, and the warning was given at least a notice ago."""

    evidence: Evidence
    memory: Memory
    deadline: datetime


Decision = Keep | Warn | Reclaim


def decide(signals: Signals, policy: Policy, now: datetime) -> Decision:
    """The verdict on one server at `now` (aware, UTC). The decision's `memory` goes into the next look's signals."""
    limit = policy.limit(signals.gpus)
    use = _in_use(signals, now)
    if use is not None:
        rule, words = use
        return _keep(signals, now, rule, words, used_now=True)
    if limit is None:
        return _keep(signals, now, Rule.OFF, told.NOT_STOPPED)
    unknown = _unknown(signals)
    if unknown:
        return _keep(signals, now, Rule.BLIND, told.BLIND % {"unknown": "; ".join(unknown)})
    idle_since = _idle_since(signals)
    if now - idle_since < _quiet(policy, limit):
        words = f"{_recent_words(signals, idle_since, now)}; {_rule_words(signals.gpus, limit)}"
        return _keep(signals, now, Rule.RECENT, words, limit=limit, idle_since=idle_since)
    return _idle(signals, policy, limit, idle_since, now)


def _idle(signals: Signals, policy: Policy, limit: float, idle_since: datetime, now: datetime) -> Warn | Reclaim:
    """Idle for long enough to warn. A warning older than the last use was withdrawn by it."""
    before = signals.memory.warned_at
    standing = before is not None and idle_since <= before
    warned_at = before if before is not None and standing else now
    deadline = max(idle_since + timedelta(seconds=limit), warned_at + timedelta(seconds=policy.notice))
    memory = _memory(signals, now, warned_at=warned_at)
    words = told.NOT_USED % {
        "time": f"{idle_since:%H:%M}",
        "span": _span(now - idle_since),
        "quiet": _idle_words(signals),
        "rule": _rule_words(signals.gpus, limit),
    }
    evidence = Evidence(Rule.IDLE, words, _facts(signals, memory, limit, idle_since))
    if standing and now >= deadline:
        return Reclaim(evidence, memory, deadline)
    return Warn(evidence, memory, deadline)


def _quiet(policy: Policy, limit: float) -> timedelta:
    """Time without use before a warning. Where the notice is as long as the limit, half the limit, so that
    nobody is warned while working."""
    return timedelta(seconds=limit - policy.notice if policy.notice < limit else limit / 2)


def _in_use(signals: Signals, now: datetime) -> tuple[Rule, str] | None:
    """The rule by which the server is in use right now, with words."""
    if isinstance(signals.kit, Known):
        busy = [kernel for kernel in signals.kit.value.kernels if kernel.busy]
        if busy:
            since = min((kernel.busy_since for kernel in busy if kernel.busy_since), default=None)
            if since is None:
                return Rule.BUSY_KERNEL, told.KERNEL_RUNS
            return Rule.BUSY_KERNEL, told.KERNEL_RUNS_SINCE % {"time": f"{since:%H:%M}", "span": _span(now - since)}
    if isinstance(signals.host, Known) and signals.host.value.cpu_percent > CPU_ACTIVE_PERCENT:
        return Rule.CPU_ACTIVE, told.PROGRAMS_RUN % {"percent": f"{signals.host.value.cpu_percent:.0f}"}
    if isinstance(signals.gpu, Known) and signals.gpu.value.util > 0:
        return Rule.GPU_ACTIVE, told.GPU_RUNS % {"percent": signals.gpu.value.util}
    return None


def _unknown(signals: Signals) -> list[str]:
    """Everything that would have to be known to call the server idle, and is not."""
    whys = [s.why for s in (signals.kit, signals.host, signals.gpu) if isinstance(s, Unknown)]
    if signals.started_at is None:
        whys.append(told.NO_START)
    if isinstance(signals.kit, Known):
        unseen = sum(kernel.busy is None for kernel in signals.kit.value.kernels)
        if unseen:
            whys.append(told.KERNEL_UNSEEN if unseen == 1 else told.KERNELS_UNSEEN % {"number": unseen})
    if not whys and signals.watched_since is None:
        whys.append(told.GAP)
    return whys


def _last_use(signals: Signals) -> datetime | None:
    """The last use on record, this look's and all former ones'."""
    moments = [signals.memory.active_at, signals.started_at]
    if isinstance(signals.kit, Known):
        moments += [kernel.last_execute_at for kernel in signals.kit.value.kernels]
    if isinstance(signals.host, Known):
        moments.append(signals.host.value.cpu_active_at)
    if isinstance(signals.gpu, Known):
        moments.append(signals.gpu.value.active_at)
    return max((m for m in moments if m is not None), default=None)


def _idle_since(signals: Signals) -> datetime:
    """Start of the time in which the server was watched and not used; only asked when nothing is unknown."""
    known = [m for m in (_last_use(signals), signals.watched_since) if m is not None]
    return max(known)


def _memory(signals: Signals, now: datetime, *, used_now: bool = False, warned_at: datetime | None = None) -> Memory:
    return Memory(
        active_at=now if used_now else _last_use(signals),
        watched_since=signals.watched_since,
        looked_at=now,
        warned_at=warned_at,
    )


def _keep(
    signals: Signals,
    now: datetime,
    rule: Rule,
    words: str,
    *,
    used_now: bool = False,
    limit: float | None = None,
    idle_since: datetime | None = None,
) -> Keep:
    """A keep withdraws a standing warning: its memory has none."""
    memory = _memory(signals, now, used_now=used_now)
    return Keep(Evidence(rule, words, _facts(signals, memory, limit, idle_since)), memory)


def _facts(signals: Signals, memory: Memory, limit: float | None, idle_since: datetime | None) -> dict[str, object]:
    """All values a person may ask for, as JSON; a text in place of a value says why there is none."""
    kit, host, gpu, hub = signals.kit, signals.host, signals.gpu, signals.hub_activity
    facts: dict[str, object] = {"limit_s": limit, "idle_since": None if idle_since is None else idle_since.isoformat()}
    if isinstance(kit, Known):
        facts["kernels"] = len(kit.value.kernels)
        facts["busy_kernels"] = sum(kernel.busy is True for kernel in kit.value.kernels)
        facts["terminals"] = kit.value.terminals
    else:
        facts["kernels"] = kit.why
    facts["cpu_percent"] = host.value.cpu_percent if isinstance(host, Known) else host.why
    facts["gpu_util"] = gpu.value.util if isinstance(gpu, Known) else gpu.why
    facts["gpu_memory_mib"] = gpu.value.memory_used_mib if isinstance(gpu, Known) else gpu.why
    facts["hub_activity"] = hub.value.isoformat() if isinstance(hub, Known) else hub.why
    facts["memory"] = remember(memory)
    return facts


def _recent_words(signals: Signals, idle_since: datetime, now: datetime) -> str:
    last = _last_use(signals)
    if last is not None and last < idle_since:
        return told.WATCHED % {"time": f"{idle_since:%H:%M}"}
    ago = now - idle_since
    return told.USED_NOW if ago < timedelta(seconds=1) else told.LAST_USED % {"span": _span(ago)}


def _rule_words(gpus: int, limit: float) -> str:
    """The rule and its value, by the key of `berth.toml` that holds it."""
    rule = told.RULE_WITH_GPU if gpus else told.RULE_WITHOUT_GPU
    return rule % {"span": _span(timedelta(seconds=limit))}


def _idle_words(signals: Signals) -> str:
    """What was looked at and found quiet."""
    quiet = [told.NO_CODE, told.CPU_QUIET % {"percent": f"{CPU_ACTIVE_PERCENT:g}"}]
    if isinstance(signals.gpu, Known):
        quiet.append(told.GPU_QUIET)
    elif isinstance(signals.gpu, NotApplicable) and signals.gpus:
        quiet.append(told.GPU_SIMULATED if signals.gpu.why == "simulated" else told.GPU_SHARED)
    return ", ".join(quiet)


def _span(length: timedelta) -> str:
    """A length of time for people: "45 s", "29 min", "5 h 12 min", "4 d 2 h"."""
    seconds = max(0, int(length.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return told.SECONDS % {"seconds": seconds}
    if hours < 1:
        return told.MINUTES % {"minutes": minutes}
    if days < 1:
        hm = {"hours": hours, "minutes": minutes % 60}
        return (told.HOURS_MINUTES if minutes % 60 else told.HOURS) % hm
    return (told.DAYS_HOURS if hours % 24 else told.DAYS) % {"days": days, "hours": hours % 24}
