"""Log-in by a real OpenID provider (Canaille) on a real hub: who gets in, and that it is asked anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.harness import Stack, free_port, until
from tests.harness.provider import PASSWORD, Member, Provider, log_in

pytestmark = pytest.mark.hub

TOML = """
[[auth.groups]]
id = "gpu lab"
group = "lab-a"
[[auth.groups]]
id = "operators"
admin = true
[[groups]]
name = "lab-a"
leads = ["lea"]
[[profiles]]
name = "lab"
share = "1/4"
groups = ["lab-a"]
[[profiles]]
name = "open"
share = 0
"""
PEOPLE = {"ada": "gpu lab", "bob": "gpu lab", "olga": "operators", "uma": "", "eve": "", "guest": "another lab"}


class Site:
    def __init__(self, stack: Stack, provider: Provider) -> None:
        self.stack, self.provider = stack, provider
        self.members: dict[str, Member] = {}

    def member(self, name: str) -> Member:
        if name not in self.members:
            self.members[name] = Member(self.stack.url, name, PASSWORD)
        return self.members[name]

    def try_to_log_in(self, name: str) -> httpx.Response:
        with httpx.Client(base_url=self.stack.url, follow_redirects=True, timeout=60) as browser:
            return log_in(browser, name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    stack = Stack(tmp_path_factory.mktemp("sign-in") / "data")
    provider = Provider(free_port(), stack.url)
    toml = provider.toml('admins = ["root"]\nusers = ["ada", "uma", "vic"]\nlabel = "the institute"\n') + TOML
    (stack.data / "berth.toml").write_text(toml, encoding="utf-8")
    provider.write_secret(stack.data)
    with provider:
        for name, group in PEOPLE.items():
            provider.do("user", name=name)
            if group:
                provider.do("join", name=name, to=group)
        with stack:
            made = Site(stack, provider)
            yield made
            for member in made.members.values():
                member.close()


def test_the_log_in_page_and_the_screen_name_the_provider(site: Site) -> None:
    page = httpx.get(f"{site.stack.url}/hub/login")
    assert "Log in with the institute" in page.text
    screen = site.stack.screen
    until(lambda: "Log in with the institute" in screen.read_text(encoding="utf-8"), 30, "the screen tells it")
    assert not (site.stack.data / "secrets" / "passwords.json").exists()


def test_s17_x9_a_group_by_its_id_opens_its_profile_and_a_name_does_not(site: Site) -> None:
    ada, uma = site.member("ada"), site.member("uma")
    assert ada.model()["groups"] == ["lab-a"]
    ada.start("lab")
    ada.stop()
    assert uma.refused({"profile": "lab"}).status == 403
    uma.start("open")  # provisioned at the first log-in, with the default grant
    uma.stop()
    site.provider.do("join", name="uma", to="lab-a")  # the name of our group; its id at the provider is "gpu lab"
    assert uma.refused({"profile": "lab"}).status == 403
    assert uma.model()["groups"] == []


def test_whoever_is_not_listed_is_told_so_and_is_no_user(site: Site) -> None:
    for name in ("eve", "guest"):
        answer = site.try_to_log_in(name)
        assert answer.status_code == 403
        assert "Ask an admin to let you in" in answer.text
    known = [user["name"] for user in site.member("olga").hub("GET", "/users").json()]
    assert "eve" not in known and "guest" not in known


def test_s17_s19_a_removed_member_loses_the_profile_at_once_whoever_starts(site: Site) -> None:
    ada, admin = site.member("ada"), site.member("olga")
    site.provider.do("leave", name="ada", of="gpu lab")
    refusal = ada.refused({"profile": "lab"})
    assert refusal.status == 403 and "lea or an admin" in refusal.words
    assert admin.refused({"profile": "lab"}, user="ada").status == 403
    assert ada.model()["groups"] == []
    site.provider.do("join", name="ada", to="gpu lab")
    ada.start("lab")  # back in the group, without a new log-in
    ada.stop()


def test_whoever_is_in_no_listed_group_any_more_starts_nothing(site: Site) -> None:
    bob = site.member("bob")
    site.provider.do("leave", name="bob", of="gpu lab")
    refusal = bob.refused({"profile": "open"})
    assert refusal.status == 403 and "may use this site" in refusal.words
    assert bob.model()["groups"] == []
    assert site.try_to_log_in("bob").status_code == 403
    site.provider.do("join", name="bob", to="gpu lab")
    bob.start("open")
    bob.stop()


def test_an_admin_is_one_as_long_as_the_group_says_so(site: Site) -> None:
    olga = site.member("olga")
    assert olga.model()["admin"] is True
    site.provider.do("join", name="ada", to="operators")
    ada = site.member("ada")
    ada.start("open")
    assert ada.model()["admin"] is True
    ada.stop()
    site.provider.do("leave", name="ada", of="operators")
    ada.start("open")
    assert ada.model()["admin"] is False
    ada.stop()


def test_a_new_name_at_the_provider_is_the_same_user_and_the_old_one_is_not_free(site: Site) -> None:
    site.provider.do("user", name="vic")
    vic = site.member("vic")
    site.provider.do("rename", name="vic", to="victor")
    with httpx.Client(base_url=site.stack.url, follow_redirects=True, timeout=60) as browser:
        assert log_in(browser, "victor").status_code == 200
        assert "vic" in browser.get("/hub/home").text
    vic.start("open")
    vic.stop()
    site.provider.do("user", name="vic")  # somebody else, who got the name
    answer = site.try_to_log_in("vic")
    assert answer.status_code == 403
    assert "belongs to somebody else here" in answer.text


def test_an_access_token_that_ran_out_is_renewed_and_a_log_in_that_ran_out_is_told(site: Site) -> None:
    uma = site.member("uma")
    site.provider.do("expire", name="uma", refresh=False)
    with ThreadPoolExecutor(2) as both:  # the first of two spends a refresh token that rotates
        answers = list(both.map(lambda server: uma.ask_start({"profile": "open"}, server=server), ("", "two")))
    assert [answer.status_code in (201, 202) for answer in answers] == [True, True], [each.text for each in answers]
    for server in ("", "two"):
        until(lambda server=server: uma.ready(server), 60, "it is ready")  # type: ignore[misc]
        uma.stop(server=server)
    site.provider.do("expire", name="uma", refresh=True)
    refusal = uma.refused({"profile": "open"})
    assert refusal.status == 403 and "log in again" in refusal.words
    assert uma.hub("GET", "/user").status_code == 200  # what needs no membership goes on, a server's reports included


def test_tokens_of_the_provider_are_kept_encrypted(site: Site) -> None:
    site.member("ada")
    with sqlite3.connect(f"file:{site.stack.data / 'hub' / 'jupyterhub.sqlite'}?mode=ro", uri=True) as hub:
        kept = [row[0] for row in hub.execute("select encrypted_auth_state from users") if row[0]]
    assert kept
    assert not any(b"access_token" in bytes(each) for each in kept)
    assert "the client's secret" not in site.stack.logs(10_000)


def test_a_provider_that_is_down_refuses_a_start_uncharged_and_ends_nothing(site: Site) -> None:
    ada = site.member("ada")
    ada.start("lab", server="two")
    before = ada.leases()
    site.provider.stop()
    answer = ada.ask_start({"profile": "open"})
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["message"]
    assert len(ada.leases()) == len(before), "nothing was held"
    assert ada.ready("two"), "what runs goes on"
    assert ada.hub("GET", "/user").status_code == 200
    ada.stop(server="two")
    site.stack.wait_for_new("hub", site.stack.kill("hub"))  # a Hub that starts anew meanwhile knows where it is
