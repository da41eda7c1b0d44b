"""Who else could pay, and whom to ask where a group cannot: what the site's groups add to a refusal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from quota.errors import Reason, Refused
from quota.groups import Group, find_group, leads_of, payers_of

_MONEY: Final = frozenset({Reason.NO_CREDIT, Reason.MONTHLY_LIMIT})


def explained(refused: Refused, groups: Sequence[Group], names: Collection[str]) -> Refused:
    """The refusal of a start of somebody in the groups of these names, with more facts: `ask` (the leads) where it is
    on a group's account, `payers` where one's own balance does not do and a group could pay, `unpaid` for a group of
    theirs that does not pay at all."""
    more: dict[str, object] = {}
    group = find_group(groups, str(refused.facts.get("account", "")))
    if refused.reason is Reason.ACCOUNT_FORBIDDEN:
        if group is not None and group.name in names and not group.pays:
            more["unpaid"] = group.name
    elif group is not None:
        more["ask"] = ", ".join(leads_of(groups, [group.name]))
    elif refused.reason in _MONEY:
        more["payers"] = ", ".join(payers_of(groups, names))
    if not more:
        return refused
    fuller = Refused(refused.reason, **{**refused.facts, **more})
    fuller.__cause__ = refused.__cause__
    return fuller
