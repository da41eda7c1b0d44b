"""Words and figures for people: reasons, states, durations, times, shares. Pure.

Amounts and shares come as the integers of `quota.units`; times as aware UTC datetimes, shown in the site's zone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Protocol

from quota.i18n import N_, _
from quota.leases import Device, DeviceState, Lease, State, StopReason, Target
from quota.said import STOP_WORDS, duration_said, share_said
from quota.told import retold
from quota.units import CREDIT, MICROSECONDS, MilliGpu

#: Groups digits without letting a line break in between.
THIN_SPACE = "\u202f"
NO_BREAK = "\u00a0"

#: Names of the months as they stand in a date; a language may say numbers.
MONTHS = (
    N_("Jan"), N_("Feb"), N_("Mar"), N_("Apr"), N_("May"), N_("Jun"),
    N_("Jul"), N_("Aug"), N_("Sep"), N_("Oct"), N_("Nov"), N_("Dec"),
)  # fmt: skip
WHOLE_MONTHS = (
    N_("January"), N_("February"), N_("March"), N_("April"), N_("May"), N_("June"),
    N_("July"), N_("August"), N_("September"), N_("October"), N_("November"), N_("December"),
)  # fmt: skip

STATE_WORDS: dict[State, str] = {
    State.RESERVED: N_("reserved"),
    State.STARTING: N_("starting"),
    State.RUNNING: N_("running"),
    State.STOPPING: N_("stopping"),
    State.RELEASED: N_("ended, being settled"),
    State.SETTLED: N_("ended"),
}

DEVICE_WORDS: dict[DeviceState, str] = {
    DeviceState.OK: N_("in service"),
    DeviceState.SUSPECT: N_("suspect: no new servers for now"),
    DeviceState.QUARANTINED: N_("in quarantine: no new servers"),
    DeviceState.DRAINING: N_("draining: no new servers"),
    DeviceState.LOST: N_("lost"),
}


def state_words(lease: Lease) -> str:
    """What a lease is doing; a running one that is to stop says so."""
    if lease.state is State.RUNNING and lease.target is Target.STOP:
        return _("running, to be stopped")
    return _(STATE_WORDS[lease.state])


def stop_words(lease: Lease) -> str:
    """Why a lease ended or is to end, with the rule and its value; "" when nothing asked it to."""
    if lease.stop_reason is None:
        return ""
    words = _(STOP_WORDS[lease.stop_reason])
    if lease.stop_reason is StopReason.ADMIN and lease.stop_by:
        words = _("Stopped by the administrator %(name)s", name=lease.stop_by)
    return _("%(what)s: %(why)s", what=words, why=retold(lease.stop_detail)) if lease.stop_detail else words


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
    return duration_said(duration)


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
    return _(
        "%(day)s %(month)s %(year)s, %(time)s",
        day=local.day,
        month=_(MONTHS[local.month - 1]),
        year=local.year,
        time=f"{local:%H:%M:%S}",
    )


def device_words(device: Device) -> str:
    """One device for people, always saying when it is simulated: "GPU 0 · NVIDIA A100 · host gpu1 (simulated)"."""
    words = f"GPU {device.position} · {_(device.name)}"  # a simulated one has a name of ours
    words = words if not device.host else f"{words} · {device.host}"
    already = "simulated" in device.name.lower()
    return _("%(device)s (simulated)", device=words) if device.simulated and not already else words


def device_state_words(device: Device) -> str:
    """Whether a device is in service, and why it is not."""
    state = _(DEVICE_WORDS[device.state])
    return _("%(state)s (%(why)s)", state=state, why=retold(device.why)) if device.why else state


def part_words(milli: int) -> str:
    """A part of one device: "7/8 GPU", "1 GPU", "0.333 GPU", "nothing"."""
    if milli <= 0:
        return _("nothing")
    part = Fraction(milli, 1000)
    return f"{part} GPU" if part <= 1 and part.denominator <= 16 else f"{float(part):g} GPU"


def gpus_words(milli: int) -> str:
    """A number of GPUs as a limit: "no GPU", "1/2 GPU", "1 GPU", "4 GPUs"."""
    if milli <= 0:
        return _("no GPU")
    return share_said(1000, milli // 1000) if milli % 1000 == 0 else part_words(milli)


def memory_words(mib: int | None) -> str:
    """Memory for people: "24 GB", "1.5 GB", "512 MB", "memory unknown"."""
    if mib is None:
        return _("memory unknown")
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
    words = share_said(lease.share, lease.count)
    return _("%(share)s, simulated", share=words) if lease.simulated else words


def server_words(server: str) -> str:
    """A server's name for people; the Hub's default server has none."""
    return server or _("default server")
