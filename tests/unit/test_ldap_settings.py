"""What is told about a directory before anybody logs in, and when it may be asked in the clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub_config.auth_directory import Silent
from hub_config.datafolder import AUTH_SECRET, DataFolder
from hub_config.ldap_directory import Directory, canonical, meet
from hub_config.settings import SettingsError, parse

TOML = '[auth]\nkind = "ldap"\nserver = "ldaps://ldap.example"\nuser_base = "dc=example"\nadmins = ["a"]\n'


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('bind_dn = "berth"', "auth.bind_dn: 'berth' is no DN"),
        ('group_base = "groups"', "auth.group_base: 'groups' is no DN"),
        ('[[auth.groups]]\nid = "gpu-lab"\nadmin = true', "auth.groups: id: 'gpu-lab' is no DN"),
        ('bind_dn = "cn=berth,dc=example"', "auth.secret_file: the password of bind_dn is missing"),
    ],
)
def test_what_cannot_be_ends_the_start_in_one_line(
    more: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AUTH_SECRET, raising=False)
    with pytest.raises(SettingsError) as told:
        meet(DataFolder(tmp_path), parse(TOML + more), print)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_a_directory_that_is_down_is_told_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(_: Directory) -> None:
        raise Silent("LDAPSocketOpenError: Connection refused")

    monkeypatch.setattr(Directory, "meet", down)
    said: list[str] = []
    meet(DataFolder(tmp_path), parse(TOML), said.append)
    assert len(said) == 1 and "Connection refused" in said[0] and "Berth starts" in said[0]


@pytest.mark.parametrize(
    ("server", "clear"),
    [
        ("ldap://127.0.0.1", True),
        ("ldap://localhost:3389", True),
        ("ldap://[::1]", True),
        ("ldap://127.0.0.1.example.org", False),
        ("ldap://localhost.example.org", False),
        ("ldap://ldap.example.org", False),
        ("ldaps://127.0.0.1", False),
    ],
)
def test_only_this_machine_is_asked_in_the_clear(server: str, clear: bool) -> None:
    directory = Directory(parse(TOML.replace("ldaps://ldap.example", server)).auth)
    encrypted = directory._connection("", "").server.ssl or directory._starts_tls()
    assert encrypted is not clear


def test_one_dn_however_it_is_spelled() -> None:
    assert canonical("CN=Lab A, OU=Groups,dc=example") == canonical("cn=lab a,ou=groups,DC=Example")
    assert canonical("cn=a,dc=example") != canonical("cn=a,ou=x,dc=example")


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('kind = "passwords"\nusers = ["ada"]', "users: means nothing to kind = 'passwords'"),
        ('kind = "passwords"\npeople = "all"', "people: means nothing to kind = 'passwords'"),
        ('kind = "passwords"\nadmins = ["Ada"]', "names here are in lower case: 'ada'"),
        ('kind = "pam"\nserver = "ldaps://x"\nadmins = ["a"]', "server: means nothing to kind = 'pam'"),
        ('kind = "pam"', "nobody could log in"),
        ('kind = "ldap"\nadmins = ["a"]', "server: this key is needed"),
        ('kind = "ldap"\nserver = "ldaps://x"\nadmins = ["a"]', "user_base: this key is needed"),
        (
            'kind = "ldap"\nserver = "ldaps://x"\nuser_base = "dc=x"\nadmins = ["a"]\nuser_attribute = "uid)("',
            "pattern",
        ),
    ],
)
def test_the_table_of_each_kind_refuses_what_would_be_passed_over(toml: str, words: str) -> None:
    with pytest.raises(SettingsError) as told:
        parse(f"[auth]\n{toml}")
    assert words in str(told.value)
