"""Passwords kept by Berth: what one must be, how often one may be tried, and who gets the first."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from jupyterhub import orm
from sqlalchemy.orm import Session
from tornado import web
from traitlets import Any as Any_
from traitlets.config import Configurable

from hub_config.auth_passwords import PasswordRules
from hub_config.cli import main
from hub_config.datafolder import DataFolder
from hub_config.first_passwords import FirstPasswords, admins_of
from hub_config.password_rules import MOST_KEYS, Attempts, fault
from hub_config.password_table import hashed, is_it, opened
from hub_config.patience import Patience


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("short one", "at least 10 characters"),
        ("ä" * 37, "beyond 72 bytes"),
        ("with a\0nul in it", "cannot be typed"),
        ("half a \ud800 pair here", "cannot be typed"),
        ("this is ada alone", "your user name"),
        ("Common-Password", "first that anybody would try"),
        ("aaaaaaaaaaaaaaa", "first that anybody would try"),
    ],
)
def test_what_is_no_password_is_told_with_the_reason(password: str, words: str) -> None:
    assert words in fault(password, "ada", lambda tried: tried == "common-password")


@given(st.text(min_size=10, max_size=18))
def test_what_passes_the_rules_can_be_hashed(password: str) -> None:
    if not fault(password, "ada", lambda _tried: False):
        password.encode("utf-8")
        assert len(password.encode("utf-8")) <= 72
        assert "\0" not in password


def test_a_hash_is_of_its_password_alone_and_odd_ones_are_no_fault() -> None:
    kept = hashed("correct horse battery")
    assert is_it("correct horse battery", kept)
    for other in ("correct horse batterY", "", "x" * 100, "a\0b", "\ud800" * 12):
        assert not is_it(other, kept)


def test_attempts_are_counted_by_key_and_forgotten_with_time() -> None:
    tried = Attempts(most=3, seconds=60)
    for moment in (0, 1, 2):
        assert tried.wait("ada", moment) == 0
        tried.count("ada", moment)
    assert tried.wait("ada", 2.5) == 60
    assert tried.wait("bob", 2.5) == 0
    assert tried.wait("ada", 62) == 0
    tried.count("ada", 62)
    assert tried.wait("ada", 63) == 0, "the old ones do not count any more"
    for _ in range(5):
        tried.count("ada", 63)
    tried.forgive("ada")
    assert tried.wait("ada", 63) == 0


def test_made_up_names_do_not_fill_the_memory() -> None:
    tried = Attempts(most=1, seconds=60)
    for number in range(MOST_KEYS + 500):
        tried.count(number, 0)
    assert len(tried._kept) == MOST_KEYS
    assert tried.wait(MOST_KEYS + 499, 1) > 0


def test_first_passwords_are_private_stay_and_are_forgotten(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    data.make()
    first = FirstPasswords(data)
    one = first.of("ada")
    assert len(one) >= 16
    assert FirstPasswords(data).of("ada") == one != first.of("bob")
    file = data.secrets / "first-passwords.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first.forget("ada")
    assert set(first.kept()) == {"bob"}
    assert admins_of(()) == ("admin",)
    assert admins_of(("lea",)) == ("lea",)


class Hub(Configurable):
    """As much of the Hub as an authenticator asks of it."""

    db = Any_()


@pytest.fixture
def hub() -> Iterator[Hub]:
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    orm.Base.metadata.create_all(engine)
    with Session(engine) as session:
        made = Hub()
        made.db = session
        yield made
    engine.dispose()


def test_x9_a_restart_keeps_what_an_admin_chose_and_lets_in_nobody_else_by_the_name(hub: Hub, tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    data.make()

    def started(*admins: str) -> PasswordRules:
        return PasswordRules(parent=hub, data_of=lambda: data, admin_users=set(admins))

    rules = started("lea")
    first = FirstPasswords(data).kept()["lea"]
    assert is_it(first, rules.table.find("lea").password)
    kept = rules.table.find("lea").password
    assert started("lea").table.find("lea").password == kept, "the same after a restart"
    asyncio.run(rules.give("lea", "seven grey boats at dawn"))
    assert FirstPasswords(data).kept() == {}
    again = started("lea")
    assert is_it("seven grey boats at dawn", again.table.find("lea").password)
    assert FirstPasswords(data).kept() == {}, "no other password was made up"
    again.table.add("max", hashed("somebody who signed up"), is_open=False)
    row = started("lea", "max").table.find("max")
    assert row.is_authorized and is_it(FirstPasswords(data).kept()["max"], row.password), "and not who signed up"
    assert again.get_authed_users() == set(), "nobody is let in by a name"


def test_too_many_attempts_wait_whether_the_name_is_there_or_not() -> None:
    patience = Patience()
    here, there = (SimpleNamespace(request=SimpleNamespace(remote_ip=place)) for place in ("192.0.2.1", "192.0.2.2"))
    for name in ("ada", "nobody-here"):
        for _ in range(5):
            patience.demand(here, name)
        with pytest.raises(web.HTTPError, match="Try again in 5 minutes") as told:
            patience.demand(here, name)
        assert told.value.status_code == 429
        patience.demand(there, name)
    patience.forgive(here, "ada")
    patience.demand(here, "ada")


@pytest.fixture
def site(tmp_path: Path) -> DataFolder:
    data = DataFolder(tmp_path / "data")
    data.make()
    data.settings_file.write_text('[auth]\nkind = "passwords"\nadmins = ["lea"]\n', encoding="utf-8")
    return data


def test_the_command_adds_closes_opens_and_gives_anew(site: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    def berth(*words: str, code: int = 0) -> str:
        assert main(["user", *words, "--data", str(site.root)]) == code
        out = capsys.readouterr()
        return out.out + out.err

    assert "start Berth once" in berth("add", "ada", code=2)
    site.hub_database.touch()
    engine = sa.create_engine(f"sqlite:///{site.hub_database}")
    orm.Base.metadata.tables["users"].create(engine)
    engine.dispose()

    first = berth("add", "ada").split()[1]
    assert "has an account already" in berth("add", "ada", code=1)
    assert "cannot be used here" in berth("add", "Ada", code=1)
    second = berth("password", "ada").split()[1]
    assert "berth user add bob" in berth("password", "bob", code=1)
    with opened(site.hub_database) as table:
        row = table.find("ada")
        assert row.is_authorized and is_it(second, row.password) and not is_it(first, row.password)
        assert table.waiting() == 0
    berth("close", "ada")
    with opened(site.hub_database) as table:
        assert not table.find("ada").is_authorized
        assert table.waiting() == 1
    berth("open", "ada")
    berth("add", "lea")
    assert "admin by berth.toml" in berth("close", "lea", code=1)
    site.settings_file.write_text("", encoding="utf-8")
    assert "Berth keeps no passwords" in berth("add", "bob", code=1)
