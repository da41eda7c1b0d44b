"""Per-user passwords kept by Berth, for a site without a provider: the table and the list of common passwords of
`nativeauthenticator`, under the house rules. Nobody gets in without an admin: a sign-up waits for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Final

from jupyterhub import orm
from jupyterhub.auth import Authenticator
from jupyterhub.utils import new_token
from nativeauthenticator import NativeAuthenticator
from tornado import web
from traitlets import Any as AnyTrait

from hub_config import password_rules
from hub_config.auth import HouseRules
from hub_config.datafolder import DataFolder
from hub_config.first_passwords import FirstPasswords
from hub_config.fresh import remember
from hub_config.password_table import PasswordTable, hashed, is_it
from hub_config.patience import Patience
from quota.errors import Reason
from quota.i18n import _

_MOST_AT_ONCE: Final = 40  # passwords that wait to be looked at
#: Sign-ups that wait for an admin, at most.
MOST_WAITING: Final = 100


class _Library(NativeAuthenticator):
    """The library without its pages, some of which change things when they are merely looked at, and without its ways
    around an admin: whoever signs up by the name of somebody listed would be let in."""

    @property
    def db(self) -> Any:
        return self.parent.db

    def get_authed_users(self) -> set[str]:
        return set()

    def get_handlers(self, app: Any) -> list[tuple[str, Any]]:
        from hub_config.password_pages import HANDLERS

        return [*Authenticator.get_handlers(self, app), *HANDLERS]


class PasswordRules(HouseRules, _Library):
    """Names and passwords of the site's own."""

    data_of = AnyTrait(help="Returns the data folder: a function, since traitlets copies values.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="passwords")
        self._at_work = 0
        self._nobody = hashed(new_token())  # so that an unknown name takes as long as a known one
        self._patience = Patience()
        self._let_admins_in()

    @cached_property
    def table(self) -> PasswordTable:
        return PasswordTable(lambda: self.db)

    @cached_property
    def first_passwords(self) -> FirstPasswords:
        data: Callable[[], DataFolder] = self.data_of
        return FirstPasswords(data())

    def _let_admins_in(self) -> None:
        """Whom `berth.toml` names can always log in, and nobody else can have such a name."""
        for name in sorted(self.admin_users):
            row = self.table.find(name)
            if row is not None and row.is_authorized:
                continue
            self.table.remove(name)  # whoever signed up by the name, or was shut out, is not let in by it
            self.table.add(name, hashed(self.first_passwords.of(name)), is_open=True)

    # ---- log-in --------------------------------------------------------------------------------------------------

    async def authenticate(self, handler: Any, data: dict[str, str]) -> Any:
        """The user of that name and password; 429 for whoever tries too often, 403 for an account that is not open."""
        name = self.normalize_username(data.get("username", ""))
        if not await self.is_password_of(handler, name, data.get("password", "")):
            return None
        if not self.table.find(name).is_authorized:
            raise web.HTTPError(403, _("This account is not open: it waits for an admin, or an admin closed it."))
        return {"name": name, "admin": name in self.admin_users}

    async def is_password_of(self, handler: Any, name: str, password: str) -> bool:
        """Whether it is; counted, so that nobody can try for ever. Raises `HTTPError` 429."""
        self._patience.demand(handler, name)
        row = self.table.find(name)
        good = await self._in_thread(is_it, password, row.password if row else self._nobody)
        if not good or row is None:
            return False
        self._patience.forgive(handler, name)
        return True

    async def _in_thread(self, work: Callable[..., Any], *values: Any) -> Any:
        """Hashing would hold the Hub's one thread. Raises 503 where too many wait for it already."""
        if self._at_work >= _MOST_AT_ONCE:
            raise web.HTTPError(503, _("Too many people are logging in at this moment. Try again in a minute."))
        self._at_work += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *values)
        finally:
            self._at_work -= 1

    async def check_allowed(self, username: str, authentication: dict[str, Any] | None = None) -> bool:
        """Whether the account is open; whoever an admin adds gets a password later."""
        if authentication is None:
            return True
        row = self.table.find(username)
        return row is not None and bool(row.is_authorized)

    async def refresh_user(self, user: Any, handler: Any = None, **more: Any) -> Any:
        """Asked at every start as well: an account that was closed starts nothing more."""
        row = self.table.find(user.name)
        is_open = row is None or bool(row.is_authorized)
        remember(handler, user.name, None if is_open else Reason.NOT_A_MEMBER)
        return {"name": user.name, "admin": user.name in self.admin_users} if is_open else False

    # ---- changing ------------------------------------------------------------------------------------------------

    def fault(self, name: str, password: str) -> str:
        """Why it cannot be the password of that user, in words; empty where it can."""
        return password_rules.fault(password, name, self.is_password_common)

    def is_spoken_for(self, name: str) -> bool:
        """Whether nobody may sign up by that name: it has a password, is a user of the Hub, or is to be an admin."""
        user = self.db.query(orm.User).filter(orm.User.name == name).first()
        return name in self.admin_users or user is not None or self.table.find(name) is not None

    async def sign_up(self, name: str, password: str) -> bool:
        """An account that waits for an admin; False where somebody else got the name meanwhile."""
        kept = await self._in_thread(hashed, password)
        return not self.is_spoken_for(name) and self.table.add(name, kept, is_open=False)

    async def give(self, name: str, password: str) -> None:
        """That password from now on. A new user is let in: it is an admin who gives."""
        kept = await self._in_thread(hashed, password)
        if not self.table.add(name, kept, is_open=True):
            self.table.change(name, kept)
        self.first_passwords.forget(name)

    def end_log_ins(self, name: str, but: str | None = None) -> None:
        """All log-ins of that user, in whatever browser, are over; but for the session of that id. API tokens stay."""
        user = self.db.query(orm.User).filter(orm.User.name == name).first()
        if user is None:
            return
        user.cookie_id = new_token()
        for token in self.db.query(orm.APIToken).filter_by(user_id=user.id):
            if token.session_id and token.session_id != but:
                self.db.delete(token)
        self.db.commit()
