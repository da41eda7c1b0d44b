"""Log-in by a real directory (slapd): what is asked of it, and who gets into a real hub."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import ldap3
import pytest

from hub_config.auth_directory import Silent
from hub_config.ldap_directory import Directory
from hub_config.settings import parse
from tests.harness import Person, Stack, free_port
from tests.harness.slapd import ELSEWHERE, GROUPS, PASSWORD, PEOPLE, SEARCHER, SECRET, Slapd, program
from tests.harness.waiting import PATIENCE

pytestmark = [
    pytest.mark.hub,
    pytest.mark.skipif(program() is None, reason="slapd is not installed (Debian: apt install slapd)"),
]

TABLE = f"""
[auth]
kind = "ldap"
server = "SERVER"
user_base = "{PEOPLE}"
bind_dn = "{SEARCHER}"
secret_file = "secrets/directory"
admins = ["root", "vic"]
users = ["uma"]
[[auth.groups]]
id = "CN=Lab-A, {GROUPS}"
group = "lab-a"
[[auth.groups]]
id = "cn=operators,{GROUPS}"
admin = true
[[auth.groups]]
id = "cn=posix,{GROUPS}"
group = "lab-b"
[[groups]]
name = "lab-a"
[[groups]]
name = "lab-b"
[[profiles]]
name = "lab"
share = "1/4"
groups = ["lab-a"]
[[profiles]]
name = "open"
share = 0
"""


def directory(server: str, more: str = "", secret: str = SECRET) -> Directory:
    toml = TABLE.replace("SERVER", server).replace('admins = ["root"', f'{more}\nadmins = ["root"')
    return Directory(parse(toml).auth, secret)


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with Slapd(tmp_path_factory.mktemp("slapd") / "directory", free_port(), free_port()) as running:
        for name in ("ada", "bob", "olga", "uma", "eve", "pia"):
            running.person(name)
        running.person("many", more=("manifold",))
        running.group("lab-a", "member", f"uid=ada,{PEOPLE}")
        running.change(f"cn=lab-a,{GROUPS}", ldap3.MODIFY_ADD, "member", f"uid=bob,{PEOPLE}")
        running.group("operators", "uniqueMember", f"uid=olga,{PEOPLE}")
        running.group("posix", "memberUid", "pia")
        running.group("another", "member", f"uid=eve,{PEOPLE}")
        yield running


# ---- the questions ----------------------------------------------------------------------------------------------


def test_a_person_is_found_by_name_and_password_and_stays_the_same_by_id(slapd: Slapd) -> None:
    asked = directory(slapd.ldap)
    ada = asked.check("ada", PASSWORD)
    assert ada is not None and ada.name == "ada"
    assert ada.groups == {f"CN=Lab-A, {GROUPS}"}
    assert ada.subject.startswith("entryUUID=")
    assert asked.named("ada") == asked.known(ada.subject) == ada
    assert asked.known("entryUUID=00000000-0000-0000-0000-000000000000") is None
    assert asked.known(f"dn=uid=ada,{PEOPLE}") == ada
    assert asked.check("ada", "another password") is None
    assert asked.check("nobody", PASSWORD) is None


@pytest.mark.parametrize("name", ["*", "ada)(uid=*", "a*", "ADA", "ada ", "\uff41da", "ada\\", "ada\0", ")(|(uid=*)"])
def test_a_name_is_a_name_and_no_question_of_its_own(slapd: Slapd, name: str) -> None:
    assert directory(slapd.ldap).check(name, PASSWORD) is None


def test_an_empty_password_is_nobodys(slapd: Slapd) -> None:
    assert directory(slapd.ldap).check("ada", "") is None


def test_groups_of_each_kind_count_with_a_base_and_without(slapd: Slapd) -> None:
    for more in ("", f'group_base = "{GROUPS}"'):
        asked = directory(slapd.ldap, more)
        for name, group in (("olga", "operators"), ("pia", "posix"), ("eve", ""), ("uma", "")):
            found = asked.named(name)
            assert found is not None
            assert found.groups == ({f"cn={group},{GROUPS}"} if group else set()), name


def test_two_entries_of_one_name_are_nobody(slapd: Slapd) -> None:
    other = slapd.person("twin", dn=f"cn=twin,{PEOPLE}")
    assert directory(slapd.ldap).check("twin", PASSWORD) is not None
    slapd.person("twin")
    assert directory(slapd.ldap).check("twin", PASSWORD) is None
    slapd.delete(other)


def test_each_of_several_names_is_the_same_person(slapd: Slapd) -> None:
    first, second = (directory(slapd.ldap).check(name, PASSWORD) for name in ("many", "manifold"))
    assert first is not None and second is not None
    assert (first.name, second.name) == ("many", "manifold")
    assert first.subject == second.subject


def test_tls_is_used_and_its_certificate_is_looked_at(slapd: Slapd, monkeypatch: pytest.MonkeyPatch) -> None:
    for server in (slapd.ldaps, slapd.starttls):
        with pytest.raises(Silent, match=r"(?i)certificate|tls"):
            directory(server).check("ada", PASSWORD)
    with monkeypatch.context() as trusting:
        trusting.setenv("SSL_CERT_FILE", str(slapd.authority))
        for server in (slapd.ldaps, slapd.starttls):
            assert directory(server).check("ada", PASSWORD) is not None
        with pytest.raises(Silent):  # the certificate is not this name's
            directory(slapd.ldaps.replace("127.0.0.1", "localhost")).check("ada", PASSWORD)
    assert ELSEWHERE in slapd.starttls


def test_what_the_directory_does_not_tell_is_not_nobody(slapd: Slapd) -> None:
    with pytest.raises(Silent, match="does not let in"):
        directory(slapd.ldap, secret="wrong").named("ada")
    with pytest.raises(Silent, match="noSuchObject"):
        directory(slapd.ldap, f'group_base = "ou=nowhere,{GROUPS}"').named("ada")
    with pytest.raises(Silent):
        directory(f"ldap://127.0.0.1:{free_port()}").named("ada")


# ---- a hub ------------------------------------------------------------------------------------------------------


class Site:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.people: dict[str, Person] = {}

    def person(self, name: str) -> Person:
        if name not in self.people:
            self.people[name] = Person(self.stack.url, name, PASSWORD)
        return self.people[name]

    def log_in(self, name: str, password: str = PASSWORD) -> httpx.Response:
        with httpx.Client(base_url=self.stack.url, follow_redirects=True, timeout=60) as browser:
            browser.get("/hub/login")
            xsrf = next(cookie.value for cookie in browser.cookies.jar if cookie.name == "_xsrf")
            return browser.post("/hub/login", data={"username": name, "password": password, "_xsrf": xsrf})


@pytest.fixture(scope="module")
def site(slapd: Slapd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    environment = {"SSL_CERT_FILE": str(slapd.authority)}
    stack = Stack(tmp_path_factory.mktemp("ldap") / "data", TABLE.replace("SERVER", slapd.ldaps), env=environment)
    (stack.data / "secrets").mkdir(mode=0o700)
    (stack.data / "secrets" / "directory").write_text(f"{SECRET}\n", encoding="utf-8")
    with stack:
        made = Site(stack)
        yield made
        for person in made.people.values():
            person.close()


def test_s17_x9_groups_by_dn_open_profiles_and_make_admins(site: Site) -> None:
    ada, olga, pia = (site.person(name) for name in ("ada", "olga", "pia"))
    assert (ada.model()["groups"], ada.model()["admin"]) == (["lab-a"], False)
    assert (olga.model()["groups"], olga.model()["admin"]) == ([], True)
    assert pia.model()["groups"] == ["lab-b"]
    ada.start("lab")
    ada.stop()
    assert olga.refused({"profile": "lab"}).status == 403, "an admin of Berth is no member for it"


def test_who_is_not_listed_and_who_is_wrong_are_told_apart(site: Site) -> None:
    assert site.person("uma").model()["groups"] == []
    eve = site.log_in("eve")
    assert eve.status_code == 403 and "Ask an admin to let you in" in eve.text
    assert "Invalid username or password" in site.log_in("ada", "wrong").text
    assert "cannot be used here" in site.log_in("a*").text
    for _ in range(5):
        site.log_in("mallory", "wrong")
    assert site.log_in("mallory", "wrong").status_code == 429


def test_s17_s19_a_removed_member_is_refused_at_once_whoever_starts(site: Site, slapd: Slapd) -> None:
    ada, olga = site.person("ada"), site.person("olga")
    slapd.change(f"cn=lab-a,{GROUPS}", ldap3.MODIFY_DELETE, "member", f"uid=ada,{PEOPLE}")
    for who in (ada, olga):
        refusal = who.refused({"profile": "lab"}, user="ada")
        assert refusal.status == 403 and "may use this site" in refusal.words
    assert ada.model()["groups"] == []
    slapd.change(f"cn=lab-a,{GROUPS}", ldap3.MODIFY_ADD, "member", f"uid=ada,{PEOPLE}")
    ada.start("lab")  # back, without a new log-in
    ada.stop()


def test_a_person_who_is_gone_is_refused_and_whoever_gets_the_name_is_somebody_else(site: Site, slapd: Slapd) -> None:
    bob = site.person("bob")
    bob.start("open")
    slapd.delete(f"uid=bob,{PEOPLE}")
    refusal = bob.refused({"profile": "open"}, server="two")
    assert refusal.status == 403
    assert bob.ready(), "what runs goes on"
    bob.stop()
    slapd.person("bob")  # somebody new of that DN
    answer = site.log_in("bob")
    assert answer.status_code == 403 and "belongs to somebody else here" in answer.text
    assert site.person("olga").refused({"profile": "open"}, user="bob").status == 403


def test_a_new_name_in_the_directory_is_the_same_user(site: Site, slapd: Slapd) -> None:
    slapd.person("vic")
    vic = site.person("vic")
    slapd.rename(f"uid=vic,{PEOPLE}", "uid=victor")
    answer = site.log_in("victor")
    assert answer.status_code == 200 and "vic" in answer.text
    assert site.person("olga").hub("GET", "/users/victor").status_code == 404
    assert "for members of" in vic.refused({"profile": "lab"}).words, "known, and in no group"


def test_a_directory_that_is_down_refuses_a_start_uncharged_and_ends_nothing(site: Site, slapd: Slapd) -> None:
    ada = site.person("ada")
    ada.start("open", server="two")
    before = ada.leases()
    slapd.stop()
    try:
        began = time.monotonic()
        answer = ada.ask_start({"profile": "lab"})
        assert answer.status_code == 503 and "does not answer" in answer.json()["message"]
        assert time.monotonic() - began < PATIENCE * 20
        assert site.log_in("uma").status_code == 503
        assert len(ada.leases()) == len(before), "nothing was held"
        assert ada.ready("two"), "what runs goes on"
    finally:
        slapd.start()
    ada.stop(server="two")
    assert "for members of" in site.person("uma").refused({"profile": "lab"}).words, "it answers again"


def test_no_password_is_in_a_log(site: Site) -> None:
    logs = site.stack.logs(100_000)
    assert PASSWORD not in logs and SECRET not in logs
