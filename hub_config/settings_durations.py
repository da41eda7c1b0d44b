"""Lengths of time as `berth.toml` writes them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400}
_DURATION = re.compile(r"(\d+)\s*([a-z]+)", re.ASCII)


def _seconds(value: Any, more: str) -> timedelta:
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    nothing = (value == 0 and not isinstance(value, bool)) or (match is not None and int(match[1]) == 0)
    if nothing:
        raise ValueError(f'{value!r} is no length of time; write one above 0, such as "30 min"{more}')
    if match is None or match[2] not in _UNITS:
        raise ValueError(f'{value!r} is not a duration; write one such as "30 min", "2 h" or "90 s"')
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > 366 * 86400:
        raise ValueError(f"{value!r} is longer than a year")
    return timedelta(seconds=seconds)


def _duration(value: Any) -> Any:
    if value == "off":
        raise ValueError('"off" is not possible here; write a duration such as "5 min"')
    return _seconds(value, "")


def _duration_or_off(value: Any) -> Any:
    return None if value == "off" else _seconds(value, ', or "off" for never')


#: A length of time above 0.
Duration = Annotated[timedelta, BeforeValidator(_duration)]
#: The same, or `"off"`, which is None: 0 is neither.
DurationOrOff = Annotated[timedelta | None, BeforeValidator(_duration_or_off)]
