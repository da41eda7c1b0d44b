"""Accounts of this machine: what PAM's answers mean, and what counts of an account."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from typing import Any

import pamela
import pytest

from hub_config.auth_directory import Account, Silent
from hub_config.auth_pam import PamRules
from hub_config.pam_accounts import Accounts
from hub_config.settings import SettingsError, parse

ADA = pwd.struct_passwd(("ada", "x", 1200, 1300, "Ada", "/home/ada", "/bin/sh"))
PASSWORD = "a long enough password"


class Machine:
    """The seam: PAM and the system's accounts. `errors` has what PAM raises for authentication and for accounts."""

    def __init__(self) -> None:
        self.people = {"ada": ADA}
        self.errors: dict[str, int] = {}
        self.calls: list[str] = []

    def authenticate(self, name: str, password: str, service: str, encoding: str) -> None:
        self._tell("authenticate", 0 if password == PASSWORD else 7)

    def check_account(self, name: str, service: str, encoding: str) -> None:
        self._tell("account", 0)

    def _tell(self, what: str, otherwise: int) -> None:
        self.calls.append(what)
        errno = self.errors.get(what, otherwise)
        if errno:
            raise pamela.PAMError(errno=errno)

    def getpwuid(self, uid: int) -> Any:
        return {each.pw_uid: each for each in self.people.values()}[uid]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    monkeypatch.setattr(pamela, "authenticate", made.authenticate)
    monkeypatch.setattr(pamela, "check_account", made.check_account)
    monkeypatch.setattr(pwd, "getpwnam", made.people.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", made.getpwuid)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 4711])
    yield made


def test_an_account_is_its_uid_and_its_groups_are_gids(machine: Machine) -> None:
    account = Account("1200", "ada", frozenset({"1300", "4711"}))
    assert Accounts().check("ada", PASSWORD) == Accounts().known("1200") == Accounts().named("ada") == account
    assert machine.calls[0] == "authenticate"


@pytest.mark.parametrize(
    ("name", "password"), [("ada", "wrong"), ("ada", ""), ("ada", f"{PASSWORD}\0"), ("bob", PASSWORD)]
)
def test_no_is_no(machine: Machine, name: str, password: str) -> None:
    assert Accounts().check(name, password) is None


@pytest.mark.parametrize("errno", [6, 7, 10, 11, 12, 13])
def test_an_account_that_ran_out_may_not_be_used_though_its_password_is_right(machine: Machine, errno: int) -> None:
    machine.errors["account"] = errno
    assert Accounts().check("ada", PASSWORD) is None
    assert Accounts().known("1200") is None


@pytest.mark.parametrize("what", ["authenticate", "account"])
@pytest.mark.parametrize("errno", [1, 3, 4, 9])
def test_a_broken_pam_is_no_answer_about_a_person(machine: Machine, what: str, errno: int) -> None:
    machine.errors[what] = errno
    with pytest.raises(Silent):
        Accounts().check("ada", PASSWORD)


def test_who_is_gone_is_gone_and_a_new_uid_is_somebody_else(machine: Machine) -> None:
    del machine.people["ada"]
    assert Accounts().known("1200") is None and Accounts().named("ada") is None
    machine.people["ada"] = pwd.struct_passwd(("ada", "x", 1201, 1300, "Ada", "/home/ada", "/bin/sh"))
    assert Accounts().known("1200") is None


@pytest.mark.parametrize(("uid", "ordinary"), [(0, False), (33, False), (999, False), (1000, True), (65534, False)])
def test_the_systems_own_accounts_are_no_people(machine: Machine, uid: int, ordinary: bool) -> None:
    machine.people["ada"] = pwd.struct_passwd(("ada", "x", uid, 1300, "Ada", "/", "/bin/sh"))
    account = Accounts().named("ada")
    assert account is not None and account.ordinary is ordinary


@pytest.mark.parametrize(
    ("toml", "ordinary", "listed", "welcome"),
    [
        ('people = "all"', True, False, True),
        ('people = "all"', False, False, False),
        ('people = "listed"', True, False, False),
        ('people = "listed"', True, True, True),
        ('people = "listed"\nusers = ["ada"]', False, False, True),
    ],
)
async def test_who_is_welcome(toml: str, ordinary: bool, listed: bool, welcome: bool) -> None:
    table = parse(f'[auth]\nkind = "pam"\nadmins = ["root"]\n{toml}').auth
    rules = PamRules(table_of=lambda: table, allowed_users={*table.users, *table.admins})
    model = {"auth_state": {"berth": {"ordinary": ordinary, "listed": listed}}}
    assert await rules.check_allowed("ada", model) is welcome


def test_a_group_of_this_machine_is_a_number() -> None:
    with pytest.raises(SettingsError, match="is no gid"):
        parse('[auth]\nkind = "pam"\nadmins = ["a"]\n[[auth.groups]]\nid = "wheel"\nadmin = true')
    assert parse('[auth]\nkind = "pam"\n[[auth.groups]]\nid = 10\nadmin = true').auth.groups[0].id == "10"
