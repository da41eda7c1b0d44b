"""What a stretch of time costs. Pure: integers and `Fraction`, never floats.

Charges are `round(price x cumulative usage) - already posted` (ARCHITECTURE, "Money"), so that splitting a period
never changes the sum: everything here is cumulative and is rounded exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction

from quota.leases import Price, Segment
from quota.metering import microseconds, span
from quota.units import MICROSECONDS, SECONDS_PER_HOUR, WHOLE_GPU, MicroCredits, MilliGpu, round_credits

_HOUR_MICROSECONDS = SECONDS_PER_HOUR * MICROSECONDS


def rate(price: Price, weight: MilliGpu) -> Fraction:
    """Micro-credits per hour of `weight` milli-GPU; weight 0 is a CPU server and has the CPU rate. A price that a rule
    of the site made is the whole server's.

    Raises `ValueError` for a negative weight.
    """
    if weight < 0:
        raise ValueError(f"weight {weight} is negative")
    if price.per_hour is not None:
        return Fraction(price.per_hour)
    if weight == 0:
        return Fraction(price.cpu_hour)
    return Fraction(price.gpu_hour * weight, WHOLE_GPU)


def cost(price: Price, weight: MilliGpu, duration: timedelta) -> Fraction:
    """Micro-credits, unrounded, for `duration` (not negative) at `weight` milli-GPU."""
    return rate(price, weight) * Fraction(microseconds(duration), _HOUR_MICROSECONDS)


def charge_due(segments: Iterable[Segment], until: datetime) -> MicroCredits:
    """All that these segments cost up to `until`, rounded once. Grows with `until` and never shrinks."""
    total = sum((cost(part.price, part.weight, span(part, until)) for part in segments), Fraction(0))
    return round_credits(total)


def hold_for(price: Price, weight: MilliGpu, seconds: int) -> MicroCredits:
    """What must be held to carry `seconds` ahead; rounded up, so that a hold always covers the charge."""
    return MicroCredits(math.ceil(cost(price, weight, timedelta(seconds=seconds))))


def hold_between(price: Price, weight: MilliGpu, start: datetime, until: datetime) -> MicroCredits:
    """The same for what lies between two moments; nothing where the second is not later."""
    return MicroCredits(math.ceil(cost(price, weight, max(timedelta(0), until - start))))


def hourly(price: Price, weight: MilliGpu) -> MicroCredits:
    """The price of one hour, for people."""
    return round_credits(rate(price, weight))


def carries(price: Price, weight: MilliGpu, held: int) -> timedelta | None:
    """How long `held` micro-credits last, cut to the microsecond; None is for ever (a price of 0)."""
    per_hour = rate(price, weight)
    if per_hour == 0:
        return None
    return timedelta(microseconds=math.floor(held * _HOUR_MICROSECONDS / per_hour))
