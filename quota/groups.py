"""Groups of the site. A group is the Hub's group of the same name; one that pays has an account, too. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

#: Of the name of a group's account. No user can have it: a user name has no colon.
PREFIX: Final = "group:"


@dataclass(frozen=True, slots=True)
class Group:
    """`leads` are the users to ask about it. `pays`: its account may be charged for servers of its members."""

    name: str
    leads: tuple[str, ...] = ()
    pays: bool = False

    @property
    def account(self) -> str:
        """The name of its account in the book."""
        return PREFIX + self.name


def group_of(account: str) -> str | None:
    """The group whose account that is; None for a user's."""
    return account.removeprefix(PREFIX) if account.startswith(PREFIX) else None


def kind_of(account: str) -> str:
    """The kind of an account, which its name tells: "user" or "group"."""
    return "user" if group_of(account) is None else "group"


def find_group(groups: Sequence[Group], account: str) -> Group | None:
    """The group of the site whose account that is."""
    return next((group for group in groups if group.account == account), None)


def no_payer(groups: Sequence[Group], account: str) -> str:
    """Why nothing can be given to the account of a group, in a sentence; "" where it pays."""
    group = find_group(groups, account)
    if group is None:
        known = ", ".join(each.account for each in groups if each.pays)
        return f"There is no group {group_of(account)!r} in the site's settings. Groups that pay: {known or 'none'}."
    return "" if group.pays else f"The group {group.name!r} does not pay: [[groups]] in berth.toml lacks pays = true."


def payers_of(groups: Sequence[Group], names: Collection[str]) -> tuple[str, ...]:
    """The accounts that a member of the groups of these names may charge, in the site's order."""
    return tuple(group.account for group in groups if group.pays and group.name in names)


def leads_of(groups: Sequence[Group], names: Collection[str]) -> tuple[str, ...]:
    """Whom to ask about the groups of these names, each once."""
    return tuple(dict.fromkeys(lead for group in groups if group.name in names for lead in group.leads))
