"""Log-in by name and password where somebody else keeps both: a directory (LDAP), or this machine (PAM). Berth's rules
are here, as for providers: a person is (source, id there), groups count by their ids, and both are read anew at every
start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

from jupyterhub.utils import maybe_future
from tornado import web

from hub_config.auth_people import PeopleRules
from hub_config.fresh import refusal, remember
from hub_config.identities import Taken
from hub_config.membership import Identity, membership
from hub_config.patience import Patience
from hub_config.settings_auth import home
from quota.errors import Reason, Refused
from spawner.messages import words
from spawner.names import check_username

_THREADS: Final = 4
_SECONDS: Final = 25.0  # the source has time-outs of its own; this is for one that has not


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody at the source: the id that stays, the log-in name, the ids of all groups. `ordinary` is False for
    accounts that are no person's, which only their own name in `berth.toml` lets in."""

    subject: str
    name: str
    groups: frozenset[str] = frozenset()
    ordinary: bool = True


class Silent(Exception):
    """The source does not answer, or not usefully: nothing is known about anybody."""


class Source(Protocol):
    """Who is there. All calls may wait, and are made in threads. They raise `Silent`."""

    def check(self, name: str, password: str) -> Account | None:
        """The account of that name and password."""

    def named(self, name: str) -> Account | None:
        """The account that has the name now."""

    def known(self, subject: str) -> Account | None:
        """The account of an id, if it may still be used."""


class DirectoryRules(PeopleRules):
    """Stands before an authenticator of the Hub in the list of bases."""

    @cached_property
    def source(self) -> Source:
        raise NotImplementedError

    @cached_property
    def _patience(self) -> Patience:
        return Patience()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, thread_name_prefix="accounts")

    async def _ask(self, question: Callable[..., Account | None], *values: str) -> Account | None:
        """Raises `Silent`."""
        asked = asyncio.get_running_loop().run_in_executor(self._threads, question, *values)
        try:
            return await asyncio.wait_for(asked, _SECONDS)
        except TimeoutError:
            raise Silent(f"no answer within {_SECONDS:g} s") from None

    # ---- log-in --------------------------------------------------------------------------------------------------

    async def authenticate(self, handler: Any, data: dict[str, str]) -> Any:
        """As the Hub's; who may not use the site is told so, and so is everybody while the source is silent."""
        name, password = self.normalize_username(data.get("username", "")), data.get("password", "")
        try:
            check_username(name)
        except Refused as refused:
            raise web.HTTPError(400, words(refused)) from None
        if not password:  # a directory takes an empty one for "as nobody", and says yes
            return None
        self._patience.demand(handler, name)
        try:
            account = await self._ask(self.source.check, name, password)
        except Silent as silent:
            self.log.warning("The log-in of %s could not be looked at: %s", name, silent)
            raise refusal(Reason.PROVIDER_SILENT) from None
        if account is None:
            return None
        self._patience.forgive(handler, name)
        try:
            model = self._model(account)
        except Taken:
            raise refusal(Reason.NAME_TAKEN, name=account.name) from None
        if not await self._is_welcome(model):
            raise refusal(Reason.NOT_A_MEMBER)
        return model

    def _model(self, account: Account) -> dict[str, Any]:
        """Name, admin and groups by Berth's rules. Raises `Taken` where the name is another person's."""
        found = membership(self.table.groups, account.groups)
        name = self.identities.name(Identity(home(self.table), account.subject), self.normalize_username(account.name))
        state = {"subject": account.subject, "listed": found.listed, "ordinary": account.ordinary}
        return {
            "name": name,
            "admin": name in self.table.admins or found.admin,
            "groups": list(found.groups),
            "auth_state": {"berth": state},
        }

    async def _is_welcome(self, model: dict[str, Any]) -> bool:
        name = model["name"]
        return await maybe_future(self.check_blocked_users(name, model)) and await self.check_allowed(name, model)

    async def check_allowed(self, username: str, authentication: dict[str, Any] | None = None) -> bool:
        """Whether the person may use the site at all; asked at every log-in and at every refresh."""
        if authentication is None or await maybe_future(super().check_allowed(username, authentication)):
            return True
        berth = authentication["auth_state"]["berth"]
        return bool(berth["listed"]) or (self.table.people == "all" and bool(berth["ordinary"]))

    # ---- membership, read anew -----------------------------------------------------------------------------------

    async def refresh_user(self, user: Any, handler: Any = None, **more: Any) -> Any:
        """Who the person is by now. What came of it is kept on the request for `hub_config.fresh`."""
        who = self.identities.of(user.orm_user.id)
        try:
            if who is None:
                account = await self._ask(self.source.named, user.name)
            else:
                account = await self._ask(self.source.known, who.subject) if who.issuer == home(self.table) else None
        except Silent as silent:
            self.log.warning("Nothing can be told about %s: %s", user.name, silent)
            remember(handler, user.name, Reason.PROVIDER_SILENT)
            return True
        model = self._model_of(user, account)
        if model is not None and await self._is_welcome(model):
            remember(handler, user.name, None)
            return model
        user.sync_groups([])  # at once, and whoever asks: the Hub keeps the groups of whom it cannot refresh
        self.parent.db.commit()
        remember(handler, user.name, Reason.NOT_A_MEMBER)
        return False

    def _model_of(self, user: Any, account: Account | None) -> dict[str, Any] | None:
        try:
            model = self._model(account) if account is not None else None
        except Taken:
            return None
        return model if model and model["name"] == user.name else None
