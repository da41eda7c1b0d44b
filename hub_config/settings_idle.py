"""The tables `[idle]` and `[[idle.rules]]` of `berth.toml`: when servers are stopped by themselves."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hub_config.settings_durations import Duration, DurationOrOff
from hub_config.settings_groups import Names

ServiceClassName = Literal["reserved", "on-demand", "preemptible", "off-peak"]

#: Monday first, as `datetime.weekday` counts.
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: What a rule may set.
VALUES = ("with_gpu", "without_gpu", "gpu_idle", "max_age", "notice")
#: Says in a field's `json_schema_extra` that its default is "not set", which is not "off".
UNSET: dict[str, Any] = {"unset": True}

_TIME = r"(?:[01]?\d|2[0-3]):[0-5]\d"
_WINDOW = re.compile(rf"({_TIME})\s*-\s*({_TIME}|24:00)", re.ASCII)

#: From when to when, in minutes after midnight.
Window = tuple[int, int]


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def _window(value: Any) -> Any:
    match = _WINDOW.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a time of day from and to; write one such as "22:00-06:00"')
    begin, end = _minutes(match[1]), _minutes(match[2])
    if begin == end:
        raise ValueError(f"{value!r} is empty; leave the key out for the whole day")
    return begin, end


def _some_of(known: Collection[str], what: str) -> Any:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f"{value!r} is not a list of {what}; write some of {', '.join(known)}")
        wrong = next((each for each in value if each not in known), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is none of the {what}; there are {', '.join(known)}")
        return tuple(dict.fromkeys(value))

    return check


def _rules(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is no list of rules; write each one under an [[idle.rules]] line of its own")
    return tuple(value)


class IdleRule(BaseModel):
    """Who is meant, when, and what holds for them instead of the plain keys. A key that a rule leaves out is decided by
    the rules after it, and at last by the plain one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    profiles: Names = Field((), description="Profiles that it is about; without, all.")
    classes: Annotated[tuple[str, ...], BeforeValidator(_some_of(get_args(ServiceClassName), "service classes"))] = (
        Field((), description="Service classes that it is about, as profiles have them; without, all.")
    )
    groups: Names = Field((), description="Groups whose members it is about; without, everybody.")
    between: Annotated[Window | None, BeforeValidator(_window)] = Field(
        None,
        description="Time of day, in the site's zone, in which it holds; without, always.",
        json_schema_extra=UNSET,
    )
    days: Annotated[tuple[str, ...], BeforeValidator(_some_of(DAYS, "days"))] = Field(
        (), description='Days on which it holds, or on which its time of day begins, e.g. ["sat", "sun"]; without, all.'
    )
    with_gpu: DurationOrOff = Field(None, description="As in [idle].", json_schema_extra=UNSET)
    without_gpu: DurationOrOff = Field(None, description="As in [idle].", json_schema_extra=UNSET)
    gpu_idle: DurationOrOff = Field(None, description="As in [idle].", json_schema_extra=UNSET)
    max_age: DurationOrOff = Field(None, description="As in [idle].", json_schema_extra=UNSET)
    notice: Duration = Field(timedelta(minutes=10), description="As in [idle].", json_schema_extra=UNSET)

    @model_validator(mode="after")
    def _sets_something(self) -> IdleRule:
        if not self.values():
            raise ValueError(f"it sets nothing; add at least one of {', '.join(VALUES)}")
        return self

    def values(self) -> dict[str, timedelta | None]:
        """What it sets; None is off."""
        return {name: getattr(self, name) for name in VALUES if name in self.model_fields_set}


class Idle(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    with_gpu: DurationOrOff = Field(
        timedelta(minutes=30),
        description='After this time without use a server with a GPU is stopped; "off" never stops it.',
    )
    without_gpu: DurationOrOff = Field(timedelta(hours=2), description="The same for a server without a GPU.")
    gpu_idle: DurationOrOff = Field(
        None,
        description="After this time in which its GPU did not compute and no cell ran, a server is stopped, though its "
        "programs use the CPU; where the use of its GPU can be measured.",
    )
    max_age: DurationOrOff = Field(
        None, description="After this time since its start any server is stopped, whatever it does."
    )
    notice: Duration = Field(
        timedelta(minutes=10), description="How long before it is stopped its user is told; once more 2 min before."
    )
    keep_most: DurationOrOff = Field(
        timedelta(hours=3),
        description="So far ahead its user may wish it kept though unused, if there is credit for that; "
        '"off": nobody may.',
    )
    check_every: Duration = Field(timedelta(seconds=30), description="Time between two looks at all servers.")
    rules: Annotated[tuple[IdleRule, ...], BeforeValidator(_rules)] = Field(
        (), description="Other times for some profiles, service classes, groups, times of day; the first that fits."
    )


def rule_fault(rules: Iterable[IdleRule], profiles: Collection[str]) -> str:
    """Which rule is about a profile that there is not; "" if none is."""
    for number, rule in enumerate(rules, 1):
        missing = next((name for name in rule.profiles if name not in profiles), None)
        if missing is not None:
            there = ", ".join(sorted(profiles))
            return f"idle.rules[{number}].profiles: there is no profile {missing!r}; there are {there}"
    return ""
