"""The table [auth]: what it takes, and in which words it refuses."""

from __future__ import annotations

import pytest

from hub_config.settings import SettingsError, parse
from hub_config.settings_auth import AuthTable, home

OIDC = '[auth]\nkind = "oidc"\nissuer = "https://id.example.org/realms/lab/"\nclient_id = "berth"\n'
GITHUB = '[auth]\nkind = "github"\nclient_id = "b"\n'
LDAP = '[auth]\nkind = "ldap"\nserver = "ldaps://ldap.example.org"\nuser_base = "ou=people,dc=example"\n'
GROUPS = '[[auth.groups]]\nid = 4711\ngroup = "lab-a"\n[[groups]]\nname = "lab-a"\n'


def auth(text: str) -> AuthTable:
    return parse(text).auth


def test_without_the_table_it_is_the_trial() -> None:
    assert auth("").kind == "trial"


def test_a_provider_in_a_few_lines() -> None:
    table = auth(f'{OIDC}admins = ["ada"]\n{GROUPS}')
    assert table.issuer == "https://id.example.org/realms/lab"
    assert [(group.id, group.group, group.admin) for group in table.groups] == [("4711", "lab-a", False)]
    assert home(table) == table.issuer
    assert home(auth(f'{GITHUB}admins = ["ada"]')) == "https://github.com"
    assert home(auth(f'{LDAP}admins = ["ada"]')) == "ldaps://ldap.example.org"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[auth]\nkind = "oidc"\nclient_id = "b"\nadmins = ["a"]', "issuer: this key is needed for kind = 'oidc'"),
        (f'{OIDC}admins = ["a"]\nserver = "ldaps://x"', "server: means nothing to kind = 'oidc'"),
        (f"{OIDC}", "nobody could log in"),
        (f'{OIDC}users = ["ada"]', "nobody could grant or limit anything"),
        (f'{OIDC}people = "all"', "nobody could grant or limit anything"),
        (f'{OIDC}admins = ["Ada"]', "names here are in lower case: 'ada'"),
        (f'{OIDC}admins = ["a"]\nclient_secret = "hunter2"', "a secret has no place in this file"),
        (f'{OIDC}admins = ["a"]\nbind_password = "hunter2"', "a secret has no place in this file"),
        (f'{GITHUB}people = "all"\nadmins = ["a"]', "whoever has an account there could use your GPUs"),
        (f'{GITHUB.replace("github", "google")}people = "all"\nadmins = ["a"]', "list users or domains"),
        (f'{OIDC.replace("https://id", "http://id")}admins = ["a"]', "must not travel in the clear"),
        (f'{OIDC.replace("https://id.example.org/realms/lab/", "id")}admins = ["a"]', "is not a web address"),
        (f'{OIDC}admins = ["a"]\n[[auth.groups]]\nid = "x"', "this group means nothing here"),
        (f'{OIDC}admins = ["a"]\n[[auth.groups]]\nid = "x"\ngroup = "lab-a"', "there is no group 'lab-a'"),
        (f'{OIDC}admins = ["a"]\n[[auth.groups]]\nid = "x"\ngrup = "lab-a"', "did you mean 'group'?"),
        (f'{OIDC}admins = ["a"]\n[[auth.groups]]\nid = 4711\ngroup = "lab-a"\n{GROUPS}', "stands there twice"),
        (f'{LDAP.replace("ldaps://", "https://")}admins = ["a"]', "is not the address of a directory"),
        ('[auth]\nkind = "keycloak"', "input should be 'trial'"),
    ],
)
def test_what_cannot_be_is_told_with_its_remedy(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=r"berth\.toml: ") as refused:
        parse(text)
    assert words in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_stays_within_the_machine_or_the_house_is_fine() -> None:
    """A plain address of this machine is fine without TLS, and a GitLab of one's own may let everybody in."""
    assert auth('[auth]\nkind="oidc"\nissuer="http://127.0.0.1:8080"\nclient_id="b"\nadmins=["a"]').issuer
    own = '[auth]\nkind="gitlab"\nissuer="https://git.example.org"\nclient_id="b"\nadmins=["a"]\npeople="all"'
    assert auth(own).people == "all"
