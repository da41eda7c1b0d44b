"""Words and figures for people: reasons, states, durations, times, shares. Pure.

Amounts and shares come as the integers of `quota.units`; times as aware UTC datetimes, shown in the site's zone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Protocol

from quota.leases import Device, DeviceState, Lease, State, StopReason, Target
from quota.units import CREDIT, MICROSECONDS, MilliGpu, show_share

#: Groups digits without letting a line break in between.
THIN_SPACE = "\u202f"
NO_BREAK = "\u00a0"

STOP_WORDS: dict[StopReason, str] = {
    StopReason.USER: "Stopped by its user",
    StopReason.ADMIN: "Stopped by an administrator",
    StopReason.PLATFORM: "Ended because Berth itself was stopped",
    StopReason.SHUTDOWN: "Ended at the time its user had set",
    StopReason.IDLE: "Reclaimed because it was idle",
    StopReason.MAX_AGE: "Ended because it reached the longest time a server may run",
    StopReason.QUOTA: "Ended because the credits or the monthly limit ran out",
    StopReason.PREEMPTED: "Ended to make room for a server with a higher claim",
    StopReason.WINDOW_END: "Ended with its booked window",
    StopReason.RESIZE: "Ended to be resized",
    StopReason.PARK: "Parked to be resumed later",
    StopReason.NO_SHOW: "Given up because nobody came to claim it",
    StopReason.OVER_SHARE: "Ended because it used more than its share of the GPU",
    StopReason.LEAK: "Removed because it belonged to no lease any more",
    StopReason.GPU_LOST: "Ended because its GPU was lost",
    StopReason.DRAIN: "Ended because its machine or GPU is being taken out of service",
    StopReason.FAILED: "It failed to start, or ended by itself",
}

STATE_WORDS: dict[State, str] = {
    State.RESERVED: "reserved",
    State.STARTING: "starting",
    State.RUNNING: "running",
    State.STOPPING: "stopping",
    State.RELEASED: "ended, being settled",
    State.SETTLED: "ended",
}

DEVICE_WORDS: dict[DeviceState, str] = {
    DeviceState.OK: "in service",
    DeviceState.SUSPECT: "suspect: no new servers for now",
    DeviceState.QUARANTINED: "in quarantine: no new servers",
    DeviceState.DRAINING: "draining: no new servers",
    DeviceState.LOST: "lost",
}


def state_words(lease: Lease) -> str:
    """What a lease is doing; a running one that is to stop says so."""
    if lease.state is State.RUNNING and lease.target is Target.STOP:
        return "running, to be stopped"
    return STATE_WORDS[lease.state]


def stop_words(lease: Lease) -> str:
    """Why a lease ended or is to end, with the rule and its value; "" when nothing asked it to."""
    if lease.stop_reason is None:
        return ""
    words = STOP_WORDS[lease.stop_reason]
    if lease.stop_reason is StopReason.ADMIN and lease.stop_by:
        words = f"Stopped by the administrator {lease.stop_by}"
    return f"{words}: {lease.stop_detail}" if lease.stop_detail else words


def digits(number: Decimal) -> str:
    """A number with thin spaces between groups of three: "3 612.4". Trailing zeros of the fraction go."""
    text = f"{number:f}"
    whole, _, fraction = text.partition(".")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    grouped = f"{int(whole):,}".replace(",", THIN_SPACE)
    fraction = fraction.rstrip("0")
    return f"{sign}{grouped}.{fraction}" if fraction else f"{sign}{grouped}"


def seconds_words(duration: timedelta) -> str:
    """A duration as exact seconds, to the microsecond: "3 612.4 s"."""
    micro = duration // timedelta(microseconds=1)
    return f"{digits(Decimal(micro) / MICROSECONDS)}{THIN_SPACE}s"


def duration_words(duration: timedelta) -> str:
    """A duration at a glance: "42 s", "12 min", "3 h 05 min", "2 d 4 h". A negative one counts as none."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def factor_words(share: int, count: int) -> str:
    """Share and count as a factor: "1/4", "1", "2", "2 × 1/4", "0.3"."""
    part = Fraction(share, 1000)
    words = str(part) if part.numerator == 1 or part.denominator == 1 else f"{float(part):g}"
    if count == 1:
        return words
    return str(count) if part == 1 else f"{count} × {words}"


def credits_words(amount: int) -> str:
    """Micro-credits as credits, all six places that matter, at least two: "0.250861", "1.00"."""
    sign = "-" if amount < 0 else ""
    whole, micro = divmod(abs(amount), CREDIT)
    fraction = f"{micro:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole:,}.{fraction}".replace(",", THIN_SPACE)


def exact_credits(amount: Fraction) -> str:
    """Micro-credits with a fraction as credits, to six places (nearest): "0.250861"."""
    number = Decimal(amount.numerator) / Decimal(amount.denominator) / CREDIT
    return f"{number.quantize(Decimal(1).scaleb(-6), rounding=ROUND_HALF_EVEN):f}"


def instant(moment: datetime) -> str:
    """RFC 3339 in UTC: "2026-03-01T12:00:00.250000Z"."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def instant_or_none(moment: datetime | None) -> str | None:
    """As `instant`; unknown stays None."""
    return None if moment is None else instant(moment)


def clock_words(moment: datetime, zone: tzinfo) -> str:
    """A moment on the site's clock, to the second: "1 Mar 2026, 12:00:00"."""
    local = moment.astimezone(zone)
    return f"{local.day} {local:%b %Y, %H:%M:%S}"


def device_words(device: Device) -> str:
    """One device for people, always saying when it is simulated: "GPU 0 · NVIDIA A100 · host gpu1 (simulated)"."""
    words = f"GPU {device.position} · {device.name}"
    words = words if not device.host else f"{words} · {device.host}"
    already = "simulated" in device.name.lower()
    return f"{words} (simulated)" if device.simulated and not already else words


def part_words(milli: int) -> str:
    """A part of one device: "7/8 GPU", "1 GPU", "0.333 GPU", "nothing"."""
    if milli <= 0:
        return "nothing"
    part = Fraction(milli, 1000)
    return f"{part} GPU" if part <= 1 and part.denominator <= 16 else f"{float(part):g} GPU"


def gpus_words(milli: int) -> str:
    """A number of GPUs as a limit: "no GPU", "1/2 GPU", "1 GPU", "4 GPUs"."""
    if milli <= 0:
        return "no GPU"
    return show_share(1000, milli // 1000) if milli % 1000 == 0 else part_words(milli)


def memory_words(mib: int | None) -> str:
    """Memory for people: "24 GB", "1.5 GB", "512 MB", "memory unknown"."""
    if mib is None:
        return "memory unknown"
    if mib < 1024:
        return f"{mib} MB"
    tenths = mib * 10 // 1024
    return f"{tenths // 10} GB" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10} GB"


class Shared(Protocol):
    """What a share is told of: a lease, or as much of one as says who holds what."""

    @property
    def share(self) -> MilliGpu: ...

    @property
    def count(self) -> int: ...

    @property
    def simulated(self) -> bool: ...


def share_words(lease: Shared) -> str:
    """The share of a lease: "1/4 GPU", "2 GPUs", "CPU only"; simulated ones say so."""
    words = show_share(lease.share, lease.count)
    return f"{words}, simulated" if lease.simulated else words


def server_words(server: str) -> str:
    """A server's name for people; the Hub's default server has none."""
    return server or "default server"
