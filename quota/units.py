"""Quantities are integers in a named unit; conversion happens only at the edge.

* share: milli-GPU (1000 = one whole GPU)
* usage: milli-GPU-seconds
* money: micro-credits (1 credit = 1 000 000)

`Fraction` carries what lies between them, so that splitting a period never changes a sum; floats never do.
"""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from typing import NewType

MilliGpu = NewType("MilliGpu", int)
MilliGpuSeconds = NewType("MilliGpuSeconds", int)
MicroCredits = NewType("MicroCredits", int)

WHOLE_GPU = MilliGpu(1000)
CREDIT = MicroCredits(1_000_000)
MICROSECONDS = 1_000_000
SECONDS_PER_HOUR = 3600


def round_credits(amount: Fraction) -> MicroCredits:
    """The nearest micro-credit; a tie goes to the even one (as `round` does), so no direction is favoured."""
    return MicroCredits(round(amount))


_CREDITS = re.compile(r"[+-]?(\d{1,12}(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?", re.ASCII)


def parse_credits(text: str) -> MicroCredits:
    """Credits as a person writes them ("12.5") in micro-credits.

    Raises `ValueError` for anything that is not a plain decimal number below 10^12 with at most six places.
    """
    plain = text.strip()
    if len(plain) > 40 or not _CREDITS.fullmatch(plain):
        raise ValueError(f"{text[:40]!r} is not a number of credits, such as 12.5")
    micro = Fraction(plain) * CREDIT
    if abs(micro) >= 10**12 * CREDIT:
        raise ValueError(f"{text!r} is more credits than there can be")
    if micro.denominator != 1:
        raise ValueError(f"{text!r} has more than six decimal places")
    return MicroCredits(int(micro))


def show_credits(amount: int, places: int = 2) -> str:
    """Micro-credits in words for people: "99.87". Digits are cut, never rounded up: nobody is shown what they lack."""
    step = Decimal(1).scaleb(-places)
    return f"{(Decimal(amount) / CREDIT).quantize(step, rounding=ROUND_DOWN):f}"


def show_share(share_milli: int, count: int = 1) -> str:
    """A share for people: "1/8 GPU", "1 GPU", "2 GPUs", "0.3 GPU", "CPU only"."""
    if share_milli == 0 or count == 0:
        return "CPU only"
    whole = Fraction(share_milli * count, WHOLE_GPU)
    if whole.denominator == 1:
        return f"{whole} GPU" if whole == 1 else f"{whole} GPUs"
    if whole.numerator == 1:
        return f"1/{whole.denominator} GPU"
    return f"{float(whole):g} GPU"
