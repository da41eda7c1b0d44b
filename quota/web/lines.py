"""Rows and cards as pages show them: frozen values made of leases and devices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from quota.book_reads import Holding
from quota.groups import group_of
from quota.i18n import _
from quota.leases import Device, DeviceState, Lease, State, StopReason, Target
from quota.told import retold
from quota.units import WHOLE_GPU
from quota.web.figures import figures
from quota.web.snapshot import Snapshot
from quota.web.wish_words import wish_lines
from quota.web.words import (
    credits_words,
    device_state_words,
    device_words,
    duration_words,
    memory_words,
    part_words,
    server_words,
    share_words,
    state_words,
    stop_words,
)

#: A reading older than this says nothing about now.
FRESH = timedelta(minutes=2)
#: The idle rule looks every half minute or so; a verdict older than this is no verdict.
VERDICT_FRESH = timedelta(minutes=10)
#: What a wish to be kept puts off.
POSTPONED = ("idle", "gpu-idle")


@dataclass(frozen=True, slots=True)
class Notice:
    """What is about to happen to a server. `kind` is a Bootstrap colour; `deadline` None where no time is set."""

    kind: str
    title: str
    words: str
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One lease in a table. Money in micro-credits where the name says so, else words."""

    id: str
    user: str
    server: str
    profile: str
    share: str
    devices: tuple[str, ...]
    simulated: bool
    state: str
    since: datetime | None
    lasting: str
    charged_micro: int
    per_hour_micro: int
    per_hour: str
    notice: Notice | None
    idle_words: str
    use: tuple[str, ...]
    can_stop: bool
    group: str = ""  # that pays; "" where its user does
    wishes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a device's bar, in milli-GPU from the left."""

    start: int
    width: int
    words: str


@dataclass(frozen=True, slots=True)
class DeviceCard:
    """One device with what is held of it."""

    uuid: str
    words: str
    simulated: bool
    memory: str
    isolation: str
    in_service: bool
    state: str
    free_words: str
    parts: tuple[Part, ...]
    holders: tuple[str, ...]

    @property
    def bar_words(self) -> str:
        if not self.holders:
            return _("%(device)s: %(free)s free, nobody holds a part", device=self.words, free=self.free_words)
        held = "; ".join(self.holders)
        return _("%(device)s: %(free)s free, held: %(held)s", device=self.words, free=self.free_words, held=held)


def lease_row(lease: Lease, seen: Snapshot) -> LeaseRow:
    """One lease in a table, as of the snapshot's moment."""
    figure = figures(lease, seen.segments(lease), seen.now)
    until = lease.ended_at or seen.now
    notice = notice_of(lease, seen)
    return LeaseRow(
        id=lease.id,
        user=lease.holder.user,
        server=server_words(lease.holder.server),
        profile=lease.profile,
        share=share_words(lease),
        devices=held_devices(lease, seen),
        simulated=lease.simulated,
        state=state_words(lease),
        since=lease.started_at,
        lasting=duration_words(until - lease.started_at) if lease.started_at else "",
        charged_micro=figure.charged,
        per_hour_micro=figure.per_hour,
        per_hour=credits_words(figure.per_hour),
        notice=notice,
        idle_words="" if notice else idle_words(lease, seen),
        use=use_words(lease, seen),
        can_stop=lease.live and lease.target is Target.RUN,
        group=group_of(lease.account) or "",
        wishes=wish_lines(seen.wish(lease), seen.now, seen.zone) if lease.live else (),
    )


def held_devices(lease: Lease, seen: Snapshot) -> tuple[str, ...]:
    """The devices of a lease in words; one that the book has no row of any more by its UUID."""
    found = []
    for slot in lease.slots:
        if slot.device is not None:
            device = seen.devices.get(slot.device)
            found.append(device_words(device) if device else slot.device)
    return tuple(found)


def notice_of(lease: Lease, seen: Snapshot) -> Notice | None:
    """What its user must know now: a stop that was asked for, or the idle rule's warning."""
    if not lease.live:
        return None
    if lease.target is Target.STOP:
        coming = lease.stop_after is not None and lease.stop_after > seen.now and lease.state is State.RUNNING
        title = _("Idle") if lease.stop_reason is StopReason.IDLE else _("Stopping")
        return Notice("warning", title, sentence(stop_words(lease)), lease.stop_after if coming else None)
    verdict = seen.verdict(lease)
    if lease.state is not State.RUNNING or verdict is None or seen.now - verdict.at > VERDICT_FRESH:
        return None
    keep = seen.wish(lease).keep_until
    if verdict.rule in POSTPONED and keep is not None and keep > (verdict.deadline or seen.now):
        return None  # its user has wished so since: the next verdict says it
    if verdict.kind == "warn":
        return Notice("warning", _("Idle"), sentence(retold(verdict.words)), verdict.deadline)
    words = sentence(retold(verdict.words))
    return Notice("danger", _("Being reclaimed"), words) if verdict.kind == "reclaim" else None


def idle_words(lease: Lease, seen: Snapshot) -> str:
    """Why the idle rule keeps a running server."""
    verdict = seen.verdict(lease)
    if lease.state is not State.RUNNING:
        return ""
    if verdict is None:
        return _("not judged yet")
    old = seen.now - verdict.at
    if old > VERDICT_FRESH:
        return _("not judged for %(duration)s", duration=duration_words(old))
    return sentence(retold(verdict.words))


def sentence(words: str) -> str:
    """Words with a capital and a full stop."""
    words = words.strip()
    words = (words[:1].upper() + words[1:]).rstrip(".。")
    return _("%(sentence)s.", sentence=words) if words else ""


def use_words(lease: Lease, seen: Snapshot) -> tuple[str, ...]:
    """What it does with what it holds: GPU, CPU, memory. What nobody knows is said to be unknown."""
    if lease.state is not State.RUNNING:
        return (_("not running yet"),) if lease.started_at is None else ()
    sample = seen.samples.get(lease.id)
    fresh = sample if sample is not None and seen.now - sample.at <= FRESH else None
    words = [] if not lease.share else [_gpu_words(lease, None if fresh is None else fresh.gpu_util)]
    at, host = seen.signals.get(lease.id, {}).get("host", (None, {}))
    percent = host.get("cpu_percent") if at is not None and seen.now - at <= FRESH else None
    words.append(f"CPU {percent:.0f} %" if isinstance(percent, int | float) else _("CPU unknown"))
    if fresh is not None and fresh.memory_mib is not None:
        words.append(_("memory %(amount)s", amount=memory_words(fresh.memory_mib)))
    return tuple(words)


def _gpu_words(lease: Lease, percent: int | None) -> str:
    if percent is not None:
        return f"GPU {percent} %"
    if lease.simulated:
        return _("GPU: no reading (simulated)")
    return _("GPU: shared, not known per server") if lease.share < WHOLE_GPU else _("GPU unknown")


def device_card(device: Device, leases: Iterable[Lease | Holding], isolation: str) -> DeviceCard:
    """One device with the parts that live leases hold, in the order they were asked for."""
    held = sorted(
        ((lease, slot) for lease in leases for slot in lease.slots if slot.device == device.uuid),
        key=lambda pair: (pair[0].requested_at, pair[0].id),
    )
    parts, start = [], 0
    for lease, slot in held:
        parts.append(Part(start, int(slot.share), f"{lease.holder}: {part_words(slot.share)}"))
        start += slot.share
    return DeviceCard(
        uuid=device.uuid,
        words=device_words(device),
        simulated=device.simulated,
        memory=memory_words(device.memory_mib),
        isolation=isolation,
        in_service=device.state is DeviceState.OK,
        state=device_state_words(device),
        free_words=part_words(device.free),
        parts=tuple(parts),
        holders=tuple(part.words for part in parts),
    )


def rows_of(leases: Iterable[Lease], seen: Snapshot) -> tuple[LeaseRow, ...]:
    return tuple(lease_row(lease, seen) for lease in leases)


def burn(rows: Sequence[LeaseRow]) -> int:
    """Micro-credits per hour of all these rows."""
    return sum(row.per_hour_micro for row in rows)
