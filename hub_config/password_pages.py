"""Pages for passwords kept by Berth: sign up, change your own, and for admins who is there. The words for people are
here; who may what is in `hub_config.auth_passwords`. Nothing changes by a GET."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from jupyterhub import orm
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import Scope
from tornado import web

from hub_config.auth_passwords import MOST_WAITING, PasswordRules
from hub_config.first_passwords import made_up
from hub_config.password_rules import rules
from quota.errors import Refused
from quota.i18n import _
from quota.lookalikes import skeleton, spelled
from spawner.messages import words
from spawner.names import check_username

#: People on one page.
MOST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a form: words, whether it is done, and a password that is shown this once."""

    words: str
    good: bool = False
    password: str = ""


@dataclass(frozen=True, slots=True)
class Somebody:
    """A line of the admins' page. `state` is open, waiting, closed, or none (a user of the Hub without a password)."""

    name: str
    state: str
    is_admin: bool
    alike: str = ""


class _Page(BaseHandler):
    @property
    def rules(self) -> PasswordRules:
        made: PasswordRules = self.authenticator
        return made

    def field(self, name: str) -> str:
        """Passwords as they were typed: a space at an end counts."""
        return str(self.get_body_argument(name, "", strip=False))

    def name_typed(self) -> str:
        return self.rules.normalize_username(self.field("username"))

    async def show(self, template: str, **facts: Any) -> None:
        self.finish(await self.render_template(template, password_rules=rules(), **facts))


class SignUp(_Page):
    """Ask for an account. It grants nothing: an admin has to open it."""

    async def get(self) -> None:
        await self.show("signup.html", said=None, username="")

    async def post(self) -> None:
        name, password = self.name_typed(), self.field("password")
        fault = self._fault(name, password)
        if not fault and not await self.rules.sign_up(name, password):
            fault = _taken()
        if fault:
            self.set_status(400)
            await self.show("signup.html", said=Said(fault), username=name[:80])
            return
        self.log.info("Somebody signed up as %s; an admin has to open the account", name)
        done = _("Your account is asked for. You can log in once an admin has opened it.")
        await self.show("signup.html", said=Said(done, good=True), username="")

    def _fault(self, name: str, password: str) -> str:
        fault = _name_fault(name)
        if fault:
            return fault
        if self.rules.is_spoken_for(name):
            return _taken()
        if password != self.field("again"):
            return _("The two passwords differ; type them again.")
        if self.rules.table.waiting() >= MOST_WAITING:
            return _("Too many accounts wait for an admin already. Ask an admin to look at them, then try again.")
        return self.rules.fault(name, password)


class ChangePassword(_Page):
    """Everybody's own."""

    @web.authenticated
    async def get(self) -> None:
        self._mine()
        await self.show("change_password.html", said=None)

    @web.authenticated
    async def post(self) -> None:
        name, new = self._mine(), self.field("password")
        fault = ""
        if new != self.field("again"):
            fault = _("The two passwords differ; type them again.")
        fault = fault or self.rules.fault(name, new)
        if not fault and not await self.rules.is_password_of(self, name, self.field("old")):
            fault = _("That is not your present password.")
        if fault:
            self.set_status(400)
            await self.show("change_password.html", said=Said(fault))
            return
        await self.rules.give(name, new)
        self.rules.end_log_ins(name, but=self.get_session_cookie())
        self.set_hub_cookie(self.current_user)
        self.log.info("%s has a new password", name)
        done = _("Your password is changed. Log-ins in other browsers have ended.")
        await self.show("change_password.html", said=Said(done, good=True))

    def _mine(self) -> str:
        """The name of whoever asks: a user, not a service."""
        user = self.current_user
        if not isinstance(getattr(user, "orm_user", None), orm.User) or self.rules.table.find(user.name) is None:
            raise web.HTTPError(404)
        return str(user.name)


class People(_Page):
    """For admins: open what waits, add people, give new passwords, close accounts."""

    @web.authenticated
    async def get(self) -> None:
        self._admins_only()
        await self._show(None)

    @web.authenticated
    async def post(self) -> None:
        self._admins_only()
        name = self.name_typed()
        do = {"add": self._add, "password": self._password, "open": self._open, "close": self._close}
        act = do.get(self.field("do"), self._reject if self.field("do") == "reject" else None)
        if act is None:
            raise web.HTTPError(400)
        said = await act(name)
        if said.good:
            self.log.info("%s: %s of %s", self.current_user.name, self.field("do"), name)
        else:
            self.set_status(400)
        await self._show(said)

    def _admins_only(self) -> None:
        """The scope alone may be for a few users, and who gives an admin a password becomes one."""
        whole = self.parsed_scopes.get("admin:users") is Scope.ALL
        if not (whole and getattr(self.current_user, "admin", False)):
            raise web.HTTPError(403, _("This page is for admins."))

    async def _show(self, said: Said | None) -> None:
        wanted = self.get_query_argument("q", "").strip().lower()[:80]
        found = self._people(wanted)
        asked, count = self.get_query_argument("page", ""), max(1, -(-len(found) // MOST_SHOWN))
        number = min(max(int(asked), 1), count) if re.fullmatch(r"[0-9]{1,6}", asked) else 1
        shown = found[(number - 1) * MOST_SHOWN : number * MOST_SHOWN]
        facts = {"filter": wanted, "number": number, "count": count, "total": len(found)}
        await self.show("people.html", said=said, people=shown, **facts)

    def _people(self, wanted: str) -> list[Somebody]:
        """Who waits for an admin first."""
        known = {name for (name,) in self.db.query(orm.User.name)}
        states = {name: _state(name, is_open, known) for name, is_open in self.rules.table.states()}
        names = sorted(known | set(states))
        found = [
            Somebody(name, states.get(name, "none"), name in self.rules.admin_users, _alike(name, names, states))
            for name in names
            if wanted in name
        ]
        return sorted(found, key=lambda each: (each.state != "waiting", each.name))

    # ---- what an admin does --------------------------------------------------------------------------------------

    async def _add(self, name: str) -> Said:
        fault = _name_fault(name)
        if fault or self.rules.table.find(name) is not None:
            return Said(fault or _("%(name)s has an account already; give a new password below.", name=name))
        return await self._give(name, _("%(name)s can log in now.", name=name))

    async def _password(self, name: str) -> Said:
        if not self._is_known(name):
            return _nobody(name)
        said = await self._give(
            name, _("%(name)s has a new password; all log-ins by the old one have ended.", name=name)
        )
        if said.good and name != self.current_user.name:
            self.rules.end_log_ins(name)
        return said

    async def _give(self, name: str, done: str) -> Said:
        typed = self.field("password")
        fault = self.rules.fault(name, typed) if typed else ""
        if fault:
            return Said(fault)
        password = typed or made_up()
        await self.rules.give(name, password)
        return Said(done, good=True, password="" if typed else password)

    async def _open(self, name: str) -> Said:
        if self.rules.table.find(name) is None:
            return _nobody(name)
        self.rules.table.let_in(name, is_open=True)
        return Said(_("%(name)s can log in now.", name=name), good=True)

    async def _close(self, name: str) -> Said:
        if name in self.rules.admin_users:
            return Said(_("%(name)s is an admin by berth.toml; take the name out there first.", name=name))
        if self.rules.table.find(name) is None:
            return _nobody(name)
        self.rules.table.let_in(name, is_open=False)
        self.rules.end_log_ins(name)
        return Said(_("%(name)s cannot log in or start anything any more. What runs goes on.", name=name), good=True)

    async def _reject(self, name: str) -> Said:
        row = self.rules.table.find(name)
        if row is None or row.is_authorized or self._is_user(name):
            return _nobody(name)
        self.rules.table.remove(name)
        return Said(_("The account that was asked for by the name %(name)s is gone.", name=name), good=True)

    def _is_user(self, name: str) -> bool:
        return self.db.query(orm.User).filter(orm.User.name == name).first() is not None

    def _is_known(self, name: str) -> bool:
        return self._is_user(name) or self.rules.table.find(name) is not None


# ---- words ------------------------------------------------------------------------------------------------------


def _name_fault(name: str) -> str:
    try:
        check_username(name)
    except Refused as refusal:
        return words(refusal)
    return ""


def _taken() -> str:
    return _("This name is spoken for. Choose another; if it is yours, ask an admin for a password.")


def _nobody(name: str) -> Said:
    return Said(_("There is nobody called %(name)s who could be meant; look at the list below.", name=name[:80]))


def _state(name: str, is_open: bool, known: Collection[str]) -> str:
    return "open" if is_open else "closed" if name in known else "waiting"


def _alike(name: str, names: list[str], states: dict[str, str]) -> str:
    """For somebody who waits: whom the name can be taken for, spelled out."""
    if states.get(name) != "waiting":
        return ""
    other = next((each for each in names if each != name and skeleton(each) == skeleton(name)), None)
    return _("Looks like %(other)s: this is %(spelled)s", other=other, spelled=spelled(name)) if other else ""


HANDLERS: Final = [("/signup", SignUp), ("/change-password", ChangePassword), ("/people", People)]
