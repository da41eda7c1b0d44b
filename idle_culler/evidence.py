"""[P] What a verdict rests on: the rule's name, words for people, facts for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from idle_culler.signals import Known, Memory, NotApplicable, Signals, Unknown, remember
from quota import told
from quota.told import span as span
from quota.wish import Wish

#: Percent of one core above which a server's programs count as in use; the agent's `cpu_active_at` has the same.
CPU_ACTIVE_PERCENT = 5.0
#: Bytes a second, read and written, from which its programs count as in use; the agent's `io_active_at` has the same.
IO_ACTIVE_BYTES = 64 * 1024
#: A GPU that was held for so long without computing is spoken of, whatever else the server does.
UNUSED = timedelta(hours=2)

#: Facts that come from the server itself: its user could forge them.
FORGEABLE = ("kernels", "busy_kernels", "terminals", "children", "background", "saved_at")


class Rule(StrEnum):
    """Why a verdict is what it is; the same words in the book, on pages and in messages."""

    BUSY_KERNEL = "busy-kernel"
    CPU_ACTIVE = "cpu-active"
    IO_ACTIVE = "io-active"
    GPU_ACTIVE = "gpu-active"
    OFF = "off"
    BLIND = "blind"
    KEPT = "kept"
    RECENT = "recent"
    IDLE = "idle"
    GPU_IDLE = "gpu-idle"
    MAX_AGE = "max-age"
    SHUTDOWN = "shutdown"
    WHEN_DONE = "when-done"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why, for machines (`rule`, `facts`: JSON) and for people (`words`, without a full stop)."""

    rule: Rule
    words: str
    facts: Mapping[str, object]


# ---- for people ------------------------------------------------------------------------------------------------------


def in_use(signals: Signals, now: datetime) -> tuple[Rule, str] | None:
    """The rule by which the server is in use right now, with words."""
    if isinstance(signals.kit, Known):
        busy = [kernel for kernel in signals.kit.value.kernels if kernel.busy]
        if busy:
            since = min((kernel.busy_since for kernel in busy if kernel.busy_since), default=None)
            if since is None:
                return Rule.BUSY_KERNEL, told.KERNEL_RUNS
            return Rule.BUSY_KERNEL, told.KERNEL_RUNS_SINCE % {"time": f"{since:%H:%M}", "span": span(now - since)}
    if isinstance(signals.gpu, Known) and signals.gpu.value.util > 0:
        return Rule.GPU_ACTIVE, told.GPU_RUNS % {"percent": signals.gpu.value.util}
    if isinstance(signals.host, Known) and signals.host.value.cpu_percent > CPU_ACTIVE_PERCENT:
        return Rule.CPU_ACTIVE, told.PROGRAMS_RUN % {"percent": f"{signals.host.value.cpu_percent:.0f}"}
    if isinstance(signals.io, Known) and signals.io.value.bytes_per_s > IO_ACTIVE_BYTES:
        return Rule.IO_ACTIVE, told.PROGRAMS_MOVE % {"number": f"{signals.io.value.bytes_per_s / 1024:.0f}"}
    return None


def unknown(signals: Signals) -> list[str]:
    """Everything that would have to be known to call the server idle, and is not."""
    reports = (signals.kit, signals.host, signals.io, signals.gpu)
    whys = list(dict.fromkeys(report.why for report in reports if isinstance(report, Unknown)))
    if signals.started_at is None:
        whys.append(told.NO_START)
    if isinstance(signals.kit, Known):
        unseen = sum(kernel.busy is None for kernel in signals.kit.value.kernels)
        if unseen:
            whys.append(told.KERNEL_UNSEEN if unseen == 1 else told.KERNELS_UNSEEN % {"number": unseen})
    if not whys and signals.watched_since is None:
        whys.append(told.GAP)
    return whys


def quiet_words(signals: Signals) -> str:
    """What was looked at and found quiet."""
    quiet = [told.NO_CODE, told.CPU_QUIET % {"percent": f"{CPU_ACTIVE_PERCENT:g}"}]
    if isinstance(signals.io, Known):
        quiet.append(told.IO_QUIET)
    if isinstance(signals.gpu, Known):
        quiet.append(told.GPU_QUIET)
    elif isinstance(signals.gpu, NotApplicable) and signals.gpus:
        quiet.append(told.GPU_SIMULATED if signals.gpu.why == "simulated" else told.GPU_SHARED)
    return ", ".join(quiet)


def living(signals: Signals) -> int | None:
    """How many programs live in the server besides kernels and shells that wait, however quiet: as its host counts
    them and as the kit sees its terminals, whichever is more. None where the host does not tell."""
    if not isinstance(signals.host, Known) or signals.host.value.processes is None:
        return None
    children = signals.kit.value.children if isinstance(signals.kit, Known) else None
    return max(signals.host.value.processes, children or 0)


def gpu_unused(signals: Signals, now: datetime) -> timedelta | None:
    """For how long its devices have been held without computing; None where they compute or nobody can tell."""
    gpu = signals.gpu
    if not isinstance(gpu, Known) or gpu.value.util or gpu.value.active_at is None or signals.started_at is None:
        return None
    return now - max(gpu.value.active_at, signals.started_at)


def unused_words(signals: Signals, now: datetime) -> str:
    """Of a GPU that is held without computing for long; "" else."""
    unused = gpu_unused(signals, now)
    return told.GPU_UNUSED % {"span": span(unused)} if unused is not None and unused >= UNUSED else ""


# ---- for machines ----------------------------------------------------------------------------------------------------


def facts_of(signals: Signals, wish: Wish, memory: Memory, now: datetime, **more: object) -> dict[str, object]:
    """All values a person may ask for, as JSON; a text in place of a value says why there is none. `ages` are
    seconds since each source reported, `forgeable` names what comes from the server itself."""
    facts: dict[str, object] = {**more, **_kit_facts(signals), **_host_facts(signals, now)}
    hub, unused = signals.hub_activity, gpu_unused(signals, now)
    facts["hub_activity"] = hub.value.isoformat() if isinstance(hub, Known) else hub.why
    facts["gpu_unused_s"] = None if unused is None else int(unused.total_seconds())
    reports = {"kit": signals.kit, "host": signals.host, "io": signals.io, "gpu": signals.gpu}
    facts["ages"] = {
        name: round((now - report.at).total_seconds()) if isinstance(report, Known) else None
        for name, report in reports.items()
    }
    facts["forgeable"] = list(FORGEABLE)
    wanted = {"keep_until": _text(wish.keep_until), "shutdown_at": _text(wish.shutdown_at), "when_done": wish.when_done}
    facts["wish"] = wanted
    facts["memory"] = remember(memory)
    return facts


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _kit_facts(signals: Signals) -> dict[str, object]:
    kit = signals.kit
    if not isinstance(kit, Known):
        return {"kernels": kit.why}
    return {
        "kernels": len(kit.value.kernels),
        "busy_kernels": sum(kernel.busy is True for kernel in kit.value.kernels),
        "terminals": kit.value.terminals,
        "children": kit.value.children,
        "background": kit.value.background,
        "saved_at": _text(kit.value.saved_at),
    }


def _host_facts(signals: Signals, now: datetime) -> dict[str, object]:
    host, io, gpu = signals.host, signals.io, signals.gpu
    facts: dict[str, object] = {"cpu_percent": host.value.cpu_percent if isinstance(host, Known) else host.why}
    facts["processes"] = host.value.processes if isinstance(host, Known) else None
    facts["io"] = io.value.bytes_per_s if isinstance(io, Known) else io.why
    facts["gpu_util"] = gpu.value.util if isinstance(gpu, Known) else gpu.why
    facts["gpu_memory_mib"] = gpu.value.memory_used_mib if isinstance(gpu, Known) else gpu.why
    if isinstance(gpu, Known):
        active = gpu.value.active_at
        facts["gpu"] = {
            "util": gpu.value.util,
            "memory_used_mib": gpu.value.memory_used_mib,
            "memory_util": gpu.value.memory_util,
            "active_at": _text(active),
        }
    else:
        facts["gpu"] = {"why": gpu.why}
    return facts
