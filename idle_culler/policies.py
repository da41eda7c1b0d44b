"""[P] Which times hold for one server now: the site's rules by profile, service class, group, day and time of day.

For each value the first rule that fits and sets it holds, else the plain one. A rule may set a value to *off* (None);
one that does not name a value leaves it to the rules after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from idle_culler.decide import KEYS, Policy
from quota.leases import Lease

#: The fields of `Policy` by the last part of their key.
FIELDS = {key.partition(".")[2]: name for name, key in KEYS.items()}


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One `[[idle.rules]]` table, the `number`-th. Empty sets are about everybody and every day; `between` is minutes
    after midnight, from and to. `values` are seconds by the keys' names (None: off)."""

    number: int
    values: Mapping[str, float | None]
    profiles: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    days: frozenset[int] = field(default=frozenset())  # Monday is 0
    between: tuple[int, int] | None = None


def policy_of(plain: Policy, rules: Sequence[PolicyRule], lease: Lease, local: datetime) -> Policy:
    """The policy of a lease at a moment on the clock of the site's zone."""
    values: dict[str, float | None] = {}
    sources: dict[str, str] = {}
    for rule in rules:
        if not (is_about(rule, lease) and holds(rule, local)):
            continue
        for key, value in rule.values.items():
            name = FIELDS[key]
            if name not in values:
                values[name], sources[name] = value, f"idle.rules[{rule.number}].{key}"
    return replace(plain, **values, sources=sources) if values else plain  # type: ignore[arg-type]


def is_about(rule: PolicyRule, lease: Lease) -> bool:
    """Whether a rule is about a lease. Where the groups of its user are not on record, no rule for groups is."""
    return (
        (not rule.profiles or lease.profile in rule.profiles)
        and (not rule.classes or lease.service_class.value in rule.classes)
        and (not rule.groups or not rule.groups.isdisjoint(lease.groups or ()))
    )


def holds(rule: PolicyRule, local: datetime) -> bool:
    """Whether a rule holds at a moment of the wall clock: from its first minute on, up to its last and without it. A
    time of day that goes beyond midnight belongs to the day on which it begins. An hour that the clock shows twice
    counts twice, one that it leaves out not at all."""
    day, minute = local.weekday(), local.hour * 60 + local.minute
    if rule.between is not None:
        begin, end = rule.between
        if begin < end:
            if not begin <= minute < end:
                return False
        elif minute < end:
            day = (day - 1) % 7
        elif minute < begin:
            return False
    return not rule.days or day in rule.days
