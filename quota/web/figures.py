"""What a lease has used and cost up to a moment, exactly, and the arithmetic behind it in words. Pure.

The same functions as the meter's (`quota.pricing`, `quota.metering`), so that a page never differs from the bill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from quota.i18n import _
from quota.leases import Lease, Segment, State
from quota.metering import span, usage
from quota.pricing import charge_due, cost, hourly
from quota.units import CREDIT
from quota.web.words import NO_BREAK, credits_words, exact_credits, factor_words, seconds_words


@dataclass(frozen=True, slots=True)
class Figures:
    """Milli-GPU-seconds and micro-credits so far; `per_hour` is what it costs from now on, 0 once it has ended."""

    usage: int
    charged: int
    per_hour: int


@dataclass(frozen=True, slots=True)
class Line:
    """One segment's arithmetic: "3 612.4 s × 1/4 × 1.00 credit/h = 0.250861"."""

    seconds: str
    factor: str
    rate: str
    amount: str

    def __str__(self) -> str:
        return f"{self.seconds} × {self.factor} × {self.rate} = {self.amount}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Lines whose exact sum, rounded once, is `computed`; `charged` differs where something was refunded."""

    lines: tuple[Line, ...]
    computed: int
    charged: int

    @property
    def refunded(self) -> int:
        return self.computed - self.charged


def segments_of(lease: Lease, parts: Sequence[Segment] = ()) -> tuple[Segment, ...]:
    """The segments of a lease: `parts` as the book has them, or where none were read the one of a lease that was never
    moved, re-priced or cut by a jump of the clock: its pinned weight and price from ready to gone.

    What is being removed may be gone already: until its end is on record it reaches to when it was last seen, so that
    no figure goes beyond the final bill."""
    if lease.started_at is None:
        return ()
    found = tuple(parts) or (Segment(1, lease.weight, lease.price, lease.started_at, lease.ended_at),)
    last = found[-1]
    if last.ended_at is None and lease.state is State.STOPPING:
        last = replace(last, ended_at=max(last.started_at, lease.last_seen or last.started_at))
    return (*found[:-1], last)


def figures(lease: Lease, segments: Sequence[Segment], now: datetime) -> Figures:
    """Settled leases say what the ledger says; the others what their segments cost up to `now`."""
    if lease.state is State.SETTLED:
        return Figures(lease.usage, lease.charged, 0)
    open_ones = [part for part in segments if part.ended_at is None]
    per_hour = sum(hourly(part.price, part.weight) for part in open_ones)
    return Figures(usage(segments, now), charge_due(segments, now), per_hour)


def rate_words(segment: Segment) -> str:
    """The pinned price of a segment: "1.00 credit/h"; a GPU's is for a whole one, that of a site's own rule is the
    server's and is named."""
    own = segment.price.per_hour
    price = own if own is not None else segment.price.gpu_hour if segment.weight else segment.price.cpu_hour
    words = _("%(amount)s credit/h") if price == CREDIT else _("%(amount)s credits/h")
    plain = (words % {"amount": credits_words(price)}).replace(" ", NO_BREAK)
    return plain if own is None else f"{plain} ({segment.price.rule})"


def line(segment: Segment, duration: timedelta, share: int, count: int) -> Line:
    """The arithmetic of `duration` in one segment. The factor of a CPU server, and of a price for all of it, is 1."""
    by_share = segment.weight and segment.price.per_hour is None
    factor = factor_words(share, count) if by_share else _("1 server").replace(" ", NO_BREAK)
    amount = exact_credits(cost(segment.price, segment.weight, duration))
    return Line(seconds_words(duration), factor, rate_words(segment), amount)


def receipt(lease: Lease, segments: Sequence[Segment], now: datetime) -> Receipt:
    """The bill of one lease up to `now`, segment by segment."""
    lines = tuple(line(part, span(part, now), lease.share, lease.count) for part in segments)
    return Receipt(lines, charge_due(segments, now), figures(lease, segments, now).charged)


def gpu_hours(milli_gpu_seconds: int) -> str:
    """Milli-GPU-seconds as GPU-hours, for display: "12.50"; cut, not rounded."""
    hundredths = milli_gpu_seconds * 100 // (1000 * 3600)
    return f"{hundredths // 100}.{hundredths % 100:02d}"
