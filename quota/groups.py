"""Groups of the site. A group is the Hub's group of the same name. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """`leads` are the users to ask about it."""

    name: str
    leads: tuple[str, ...] = ()


def leads_of(groups: Sequence[Group], names: Collection[str]) -> tuple[str, ...]:
    """Whom to ask about the groups of these names, each once."""
    return tuple(dict.fromkeys(lead for group in groups if group.name in names for lead in group.leads))
