"""People whom somebody else knows: a provider, a directory, this machine. A person is (issuer, subject)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from traitlets import Any as AnyTrait

from hub_config.auth import HouseRules
from hub_config.fresh import refusal
from hub_config.identities import Identities, Taken
from hub_config.membership import Identity
from hub_config.settings_auth import AuthTable, home
from quota.errors import Reason


class PeopleRules(HouseRules):
    """What holds for all of them. Stands before an authenticator of the Hub in the list of bases."""

    table_of = AnyTrait(help="Returns the table `[auth]`: a function, since traitlets copies values.").tag(config=True)

    @property
    def table(self) -> AuthTable:
        made: Callable[[], AuthTable] = self.table_of
        return made()

    @cached_property
    def identities(self) -> Identities:
        return Identities(lambda: self.parent.db)

    def delete_user(self, user: Any) -> None:
        self.identities.forget(user.orm_user.id)
        super().delete_user(user)


def bind(authenticator: PeopleRules, model: dict[str, Any], before: Any) -> Any:
    """The Hub's `reconcile_auth_state_hook`, called once the user is there: from now on it is this person's."""
    who = Identity(home(authenticator.table), model["auth_state"]["berth"]["subject"])
    try:
        authenticator.identities.bind(who, model["name"])
    except Taken:  # two people of one name logged in for the first time at the same moment
        raise refusal(Reason.NAME_TAKEN, name=model["name"]) from None
    return model["auth_state"]
