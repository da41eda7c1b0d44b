"""Every address of REST, below `/services/berth/api/v1/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from quota.api.appeals import AppealOf, DecideAppeal, OpenAppeals
from quota.api.base import ApiHandler
from quota.api.groups import Groups, GroupUsage, OneGroup
from quota.api.held import Leases, OneLease, RefundLease, StopLease
from quota.api.kit import KitSignals
from quota.api.kit_farewell import KitFarewell, KitUsed
from quota.api.notices import HowToTell, MyNotice, MyNotices, ReadAll, ReadNotice, TestNotice
from quota.api.own import Account, Accounts, Grants, LimitsOf, Me, MonthlyGrantOf, MyUsage
from quota.api.site import Fleet, Prices, Profiles, TheDocument
from quota.api.starts import OneStart, Starts
from quota.api.wishes import KeepIt, ShutDown, WhenDone, WishOf

#: What stands in an address: how it is matched, and how the document tells it.
PATH_PARAMETERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lease_id": (
        r"([A-Za-z0-9_-]{1,64})",
        {"description": "The id of a lease.", "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}},
    ),
    "start_id": (
        r"(s[0-9a-f]{16})",
        {"description": "The id of a scheduled start.", "schema": {"type": "string", "pattern": "^s[0-9a-f]{16}$"}},
    ),
    "notice_id": (
        r"([1-9][0-9]{0,17})",
        {"description": "The id of a notice.", "schema": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1}},
    ),
    "name": (
        r"([^/]+)",
        {
            "description": 'The name of an account; "*" is everybody where an operation says so.',
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[^\u0000-\u001f\u007f/]+$"},
        },
    ),
    "group": (
        r"([^/]+)",
        {
            "description": "The name of a group, as the Hub has it.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^\u0000-\u001f\u007f/:]+$"},
        },
    ),
}

ADDRESSES: Mapping[str, type[ApiHandler]] = {
    "me": Me,
    "me/usage": MyUsage,
    "profiles": Profiles,
    "leases": Leases,
    "leases/{lease_id}": OneLease,
    "leases/{lease_id}/stop": StopLease,
    "leases/{lease_id}/refund": RefundLease,
    "leases/{lease_id}/wish": WishOf,
    "leases/{lease_id}/keep": KeepIt,
    "leases/{lease_id}/shutdown": ShutDown,
    "leases/{lease_id}/when-done": WhenDone,
    "leases/{lease_id}/appeal": AppealOf,
    "leases/{lease_id}/appeal/decision": DecideAppeal,
    "appeals": OpenAppeals,
    "scheduled-starts": Starts,
    "scheduled-starts/{start_id}": OneStart,
    "notices": MyNotices,
    "notices/read": ReadAll,
    "notices/preferences": HowToTell,
    "notices/test": TestNotice,
    "notices/{notice_id}": MyNotice,
    "notices/{notice_id}/read": ReadNotice,
    "accounts": Accounts,
    "accounts/{name}": Account,
    "accounts/{name}/grants": Grants,
    "accounts/{name}/limits": LimitsOf,
    "accounts/{name}/monthly-grant": MonthlyGrantOf,
    "groups": Groups,
    "groups/{group}": OneGroup,
    "groups/{group}/usage": GroupUsage,
    "prices": Prices,
    "fleet": Fleet,
    "kit/signals": KitSignals,
    "kit/farewell": KitFarewell,
    "kit/used": KitUsed,
    "openapi.json": TheDocument,
}


def pattern_of(address: str) -> str:
    """The regular expression that tornado matches for an address."""
    parts = re.split(r"\{(\w+)\}", address)
    return "".join(PATH_PARAMETERS[part][0] if number % 2 else re.escape(part) for number, part in enumerate(parts))


API_ROUTES: list[tuple[str, type[ApiHandler]]] = [(pattern_of(path), kind) for path, kind in ADDRESSES.items()]
