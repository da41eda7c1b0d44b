"""The tables `[[groups]]` of `berth.toml`, and the rule that profiles name groups which exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _names(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f'{value!r} is not a list of names; write one such as ["lab-a", "lab-b"]')
    return tuple(dict.fromkeys(value))


#: A TOML list of names, each kept once.
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class GroupTable(BaseModel):
    """One group of the Hub that means something to Berth."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(
        pattern=r"^[^\x00-\x1f\x7f/:]{1,200}$",
        description="The Hub's name of the group, letter by letter, without a slash or a colon.",
    )
    leads: Names = Field((), description="Names of the users who answer for the group, told to whoever is refused.")
    pays: bool = Field(False, description="Whether its account may be charged for servers of its members.")


def group_fault(groups: Iterable[GroupTable], used: Iterable[tuple[str, Iterable[str]]]) -> str:
    """What is wrong with the groups and with those who name them (a profile's key and its groups); "" if nothing."""
    names = [group.name for group in groups]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"groups: the name {twice[0]!r} is used twice; give each group its own name"
    for key, wanted in used:
        missing = next((name for name in wanted if name not in names), None)
        if missing is not None:
            known = f"; there are {', '.join(names)}" if names else ""
            return f"{key}: there is no group {missing!r}; write a [[groups]] table with that name{known}"
    return ""
