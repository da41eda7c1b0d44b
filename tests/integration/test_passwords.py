"""Per-user passwords kept by Berth, on a real hub: who gets in by whose leave, and every way around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.harness import Person, Stack, until

pytestmark = pytest.mark.hub

TOML = '[auth]\nkind = "passwords"\nadmins = ["lea", "max"]\n[[profiles]]\nname = "open"\nshare = 0\n'
SHOWN = re.compile(r'<code class="user-select-all[^"]*">([^<]+)</code>')
GOOD = "seven grey boats at dawn"


class Site:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        first = json.loads(stack.run("passwords", "--json"))["admins"]
        self.first = {each["name"]: each["password"] for each in first}
        self.lea = Person(stack.url, "lea", self.first["lea"])

    @contextmanager
    def browser(self) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=self.stack.url, follow_redirects=True, timeout=60) as browser:
            yield browser

    def log_in(self, browser: httpx.Client, name: str, password: str) -> httpx.Response:
        return send(browser, "/hub/login", username=name, password=password)

    def tries(self, name: str, password: str) -> httpx.Response:
        with self.browser() as browser:
            return self.log_in(browser, name, password)

    def sign_up(self, name: str, password: str = GOOD) -> httpx.Response:
        with self.browser() as browser:
            return send(browser, "/hub/signup", username=name, password=password, again=password)

    def does(self, do: str, name: str, password: str = "", who: Person | None = None) -> httpx.Response:
        return send((who or self.lea).browser, "/hub/people", do=do, username=name, password=password)

    def added(self, name: str) -> str:
        """The password that Berth made for somebody new."""
        page = self.does("add", name)
        assert page.status_code == 200, page.text
        found = SHOWN.search(page.text)
        assert found, page.text
        return found[1]


def send(browser: httpx.Client, path: str, **fields: str) -> httpx.Response:
    page = browser.get(path)
    found = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
    assert found, f"{path}: {page.status_code} {page.text[-500:]}"
    return browser.post(path, data={**fields, "_xsrf": found[1]})


def is_in(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and not answer.url.path.startswith("/hub/login")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Stack(tmp_path_factory.mktemp("passwords") / "data", TOML) as stack:
        made = Site(stack)
        yield made
        made.lea.close()


def test_the_admins_of_the_file_have_first_passwords_that_the_screen_shows(site: Site) -> None:
    screen = site.stack.screen
    until(lambda: site.first["max"] in screen.read_text(encoding="utf-8"), 30, "the screen tells it")
    assert site.lea.model()["admin"] is True
    assert 'href="/hub/people"' in site.lea.browser.get("/hub/home").text
    assert 'href="/hub/change-password"' in site.lea.browser.get("/hub/home").text
    assert 'data-name="max"' in site.lea.browser.get("/hub/people?q=MA").text
    assert 'data-name="lea"' not in site.lea.browser.get("/hub/people?q=MA").text
    assert "No name contains" in site.lea.browser.get("/hub/people?q=nobody&page=99").text
    assert 'href="/hub/signup"' in httpx.get(f"{site.stack.url}/hub/login").text
    assert not is_in(site.tries("admin", site.first["lea"]))


def test_whoever_signs_up_waits_for_an_admin(site: Site) -> None:
    assert "once an admin has opened it" in site.sign_up("  Ada ").text
    refused = site.tries("ada", GOOD)
    assert refused.status_code == 403 and "it waits for an admin" in refused.text
    assert site.lea.hub("GET", "/users/ada").status_code == 404, "nobody became a user"
    site.sign_up("аda")  # with a Cyrillic а
    page = site.lea.browser.get("/hub/people").text
    assert "CYRILLIC SMALL LETTER A" in page
    site.does("reject", "аda")
    assert site.does("open", "ada").status_code == 200
    with Person(site.stack.url, "ada", GOOD) as ada:
        assert ada.model()["admin"] is False
        ada.start("open")  # with the default grant, as everybody at the first log-in
        ada.stop()


@pytest.mark.parametrize("name", ["max", " MAX", "lea", "\uff4dax", "idle-culler"])
def test_x9_no_sign_up_by_a_name_that_grants_rights(site: Site, name: str) -> None:
    answer = site.sign_up(name)
    if answer.status_code == 200:  # a name of nobody's: it waits like any other
        assert "once an admin has opened it" in answer.text
        site.does("reject", name)
    else:
        assert "spoken for" in answer.text
    assert not is_in(site.tries(name, GOOD))


def test_nobody_takes_over_a_user_who_has_no_password_yet(site: Site) -> None:
    assert site.lea.hub("POST", "/users", {"usernames": ["vera"]}).status_code == 201
    assert "spoken for" in site.sign_up("vera").text
    assert not is_in(site.tries("vera", GOOD))
    shown = SHOWN.search(site.does("password", "vera").text)
    assert shown and is_in(site.tries("vera", shown[1]))


@pytest.mark.parametrize(
    ("name", "password", "words"),
    [
        ("bob", "too short", "at least 10 characters"),
        ("bob", "password123", "first that anybody would try"),
        ("bob", "x" * 73, "beyond 72 bytes"),
        ("../bob", GOOD, "cannot be used here"),
        ("a`) || HostRegexp(`.*", GOOD, "cannot be used here"),
    ],
)
def test_a_sign_up_tells_what_is_wrong(site: Site, name: str, password: str, words: str) -> None:
    answer = site.sign_up(name, password)
    assert answer.status_code == 400 and words in answer.text.replace("&#39;", "'")


def test_one_changes_the_own_password_and_other_browsers_are_out(site: Site) -> None:
    first = site.added("carl")
    with site.browser() as here, site.browser() as there:
        for browser in (here, there):
            assert is_in(site.log_in(browser, "carl", first))
            page = browser.get("/services/berth/")
            assert page.status_code == 200, page.text
        wrong = send(here, "/hub/change-password", old="not this one", password=GOOD, again=GOOD)
        assert wrong.status_code == 400 and "not your present password" in wrong.text
        two = send(here, "/hub/change-password", old=first, password=GOOD, again=GOOD + "!")
        assert "differ" in two.text
        done = send(here, "/hub/change-password", old=first, password=GOOD, again=GOOD)
        assert done.status_code == 200 and "is changed" in done.text
        assert here.get("/hub/home").url.path == "/hub/home", "this one stays"
        assert there.get("/hub/home").url.path == "/hub/login"
    assert not is_in(site.tries("carl", first))
    assert is_in(site.tries("carl", GOOD))


def test_s19_a_closed_account_starts_nothing_and_is_logged_out(site: Site) -> None:
    with Person(site.stack.url, "dora", site.added("dora")) as dora:
        dora.start("open")
        assert site.does("close", "dora").status_code == 200
        assert dora.ready(), "what runs goes on"
        refusal = dora.refused({"profile": "open"}, server="two")
        assert refusal.status == 403 and "Ask an admin" in refusal.words
        assert site.lea.refused({"profile": "open"}, server="two", user="dora").status == 403
        assert dora.browser.get("/hub/home").url.path == "/hub/login"
        dora.stop()
        site.does("open", "dora")
        assert "There is no profile" in dora.refused({"profile": "none"}).words, "and not that it is closed"
    assert "by berth.toml" in site.does("close", "max").text


def test_pages_of_admins_are_for_admins_and_nothing_changes_by_a_link(site: Site) -> None:
    password = site.added("eve")
    with Person(site.stack.url, "eve", password) as eve:
        assert eve.browser.get("/hub/people").status_code == 403
        site.sign_up("friend")
        for do in ("open", "add", "password", "close", "reject"):
            answer = eve.browser.post("/hub/people", data={"do": do, "username": "friend", "_xsrf": eve.xsrf})
            assert answer.status_code == 403
        for path in ("authorize/friend", "discard/friend", "change-password/friend", "confirm/friend"):
            assert site.lea.browser.get(f"/hub/{path}").status_code == 404, "the library's own pages are not there"
        forged = site.lea.browser.post("/hub/people", data={"do": "open", "username": "friend"})
        assert forged.status_code == 403
        assert not is_in(site.tries("friend", GOOD))
    site.does("reject", "friend")


def test_too_many_attempts_are_told_and_are_not_anothers(site: Site) -> None:
    password = site.added("finn")
    with site.browser() as browser:
        for _ in range(5):
            assert "Invalid username or password" in site.log_in(browser, "finn", "a wrong password").text
        told = site.log_in(browser, "finn", password)
        assert told.status_code == 429 and "Try again in 5 minutes" in told.text
    assert is_in(site.tries("carl", GOOD))


def test_the_command_line_gives_a_password_beside_a_running_hub(site: Site) -> None:
    made = json.loads(site.stack.run("user", "add", "gus", "--json"))["password"]
    assert is_in(site.tries("gus", made))
    site.stack.run("user", "close", "gus")
    assert site.tries("gus", made).status_code == 403


def test_a_first_password_is_forgotten_once_another_is_chosen(site: Site) -> None:
    with Person(site.stack.url, "max", site.first["max"]) as max_:
        done = send(max_.browser, "/hub/change-password", old=site.first["max"], password=GOOD, again=GOOD)
        assert "is changed" in done.text
    shown = {each["name"]: each["password"] for each in json.loads(site.stack.run("passwords", "--json"))["admins"]}
    assert shown == {"lea": site.first["lea"], "max": None}
    assert not is_in(site.tries("max", site.first["max"]))


def test_a_deleted_user_is_gone_and_passwords_are_nowhere(site: Site) -> None:
    password = site.added("hans")
    assert is_in(site.tries("hans", password))
    assert site.lea.hub("DELETE", "/users/hans").status_code == 204
    assert not is_in(site.tries("hans", password))
    logs = site.stack.logs(100_000)
    assert GOOD not in logs and password not in logs
    assert password.encode() not in (site.stack.data / "hub" / "jupyterhub.sqlite").read_bytes()
