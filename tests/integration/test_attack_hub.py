"""Attacks on a real site, from outside and by its own users: through the proxy, at the Hub, at a user's server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from tests.harness import Stack
from tests.integration.hub_attacks import naked, writes_of_the_hub

pytestmark = pytest.mark.hub

EVIL = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("attacks") / "data", '[gpus]\nsource = "simulated"\n') as stack:
        stack.researcher.start("cpu")
        yield stack


# ---- headers and cookies -----------------------------------------------------------------------------------------

PAGES = (
    "/",
    "/hub/login",
    "/hub/home",
    "/hub/spawn",
    "/hub/token",
    "/hub/admin",
    "/hub/nothing",
    "/hub/error/404",
    "/hub/user/admin/",
    "/hub/spawn-pending/researcher",
    "/hub/api/",
    "/hub/api/users",
    "/hub/metrics",
    "/services/berth/",
    "/services/berth",
    "/services/berth/usage",
    "/services/berth/usage.csv",
    "/services/berth/board",
    "/services/berth/admin",
    "/services/berth/lease/l0/stop",
    "/services/berth/nothing",
    "/services/berth/health",
    "/services/berth/static/berth.css",
    "/services/berth/static/nothing",
    "/services/berth/api/v1/me",
    "/services/berth/api/v1/nothing",
)


@pytest.mark.parametrize("who", ["nobody", "researcher", "admin"])
def test_no_page_can_be_framed_or_sniffed_and_none_that_is_personal_is_kept(stack: Stack, who: str) -> None:
    client = httpx.Client(base_url=stack.url, timeout=30)
    if who != "nobody":
        client = naked(stack.admin if who == "admin" else stack.researcher)
    with client:
        for path in PAGES:
            answer = client.get(path)
            headers = answer.headers
            assert "frame-ancestors 'none'" in headers.get("content-security-policy", ""), path
            assert headers.get("x-content-type-options") == "nosniff", path
            if "/static/" not in path and path != "/services/berth":
                assert headers.get("cache-control") == "no-store", path
            if headers.get("content-type", "").startswith("text/html") and answer.status_code == 200:
                assert headers.get("referrer-policy") == "same-origin", path
            # The Hub's own number, which it tells everybody.
            assert "access-control-allow-origin" not in headers or path == "/hub/api/", path


def test_another_site_cannot_read_an_answer(stack: Stack) -> None:
    """No CORS for any origin, credentials or not, preflight or not."""
    with naked(stack.admin) as client:
        for path in ("/hub/home", "/hub/api/users", "/services/berth/", "/services/berth/api/v1/me"):
            for origin in ("https://evil.example", "null", stack.url):
                for method in ("GET", "OPTIONS"):
                    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
                    headers = client.request(method, path, headers=asked).headers
                    assert "access-control-allow-origin" not in headers, (path, origin, method)
                    assert "access-control-allow-credentials" not in headers


def test_every_cookie_is_kept_from_scripts_and_from_other_sites(stack: Stack) -> None:
    client = httpx.Client(base_url=stack.url, timeout=30)
    found: dict[str, set[str]] = {}

    def keep(answer: httpx.Response) -> None:
        for header in answer.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(header).items():
                if not morsel.value:
                    continue  # taken back
                found.setdefault(name, set()).add(morsel["path"])
                # The token of a user's server alone has none: it is worth nothing without the cookie beside it.
                assert morsel["samesite"] == "Lax" or (name, morsel["path"][:6]) == ("_xsrf", "/user/"), header
                assert morsel["httponly"] or name == "_xsrf", header
                assert not morsel["domain"], header
                assert morsel["path"] != "/" or name == "jupyterhub-session-id", header

    client.event_hooks["response"] = [keep]
    login = stack.passwords()["researcher"]
    client.get("/hub/login")
    xsrf = next(c.value for c in client.cookies.jar if c.name == "_xsrf")
    form = {"username": login["name"], "password": login["password"], "_xsrf": xsrf}
    client.post("/hub/login", data=form, follow_redirects=True)
    client.get("/services/berth/", follow_redirects=True)
    client.get("/user/researcher/lab", follow_redirects=True)
    client.close()
    assert {"jupyterhub-hub-login", "service-berth", "jupyterhub-user-researcher", "_xsrf"} <= set(found)
    assert found["jupyterhub-hub-login"] == {"/hub/"} and found["service-berth"] == {"/services/berth/"}


# ---- redirects ---------------------------------------------------------------------------------------------------

AWAY = (
    "//evil.example",
    "///evil.example",
    "////evil.example//",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "\t//evil.example",
    "https:evil.example",
    "https:/evil.example",
    "https://evil.example/",
    "HTTPS://EVIL.EXAMPLE/",
    "http:///evil.example",
    "%2f%2fevil.example",
    "/%2fevil.example",
    "/%5cevil.example",
    "/.evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    "//HOST@evil.example/",
    "http://HOST@evil.example/",
    "http://HOST.evil.example/",
    "http://evil.example#HOST",
    "http://evil.example?http://HOST/",
    "/hub/../..//evil.example",
    "/hub/\r\nLocation: https://evil.example",
    "〱evil.example",
    "https://evil。example",
)


def stays(stack: Stack, location: str) -> bool:
    """Whether a browser that reads this header stays on the site: a backslash is a slash, leading spaces go."""
    seen = re.sub(r"[\t\r\n]", "", location).strip().replace("\\", "/")
    parts = urlsplit(seen)
    if parts.scheme or parts.netloc:
        return f"{parts.scheme}://{parts.netloc}" == stack.url
    return seen.startswith("/") and not seen.startswith("//")


@pytest.mark.parametrize("away", AWAY)
def test_no_address_leads_to_another_site(stack: Stack, away: str) -> None:
    away = away.replace("HOST", urlsplit(stack.url).netloc)
    asked = (
        "/hub/login?next=",
        "/hub/spawn?next=",
        "/hub/?next=",
        "/hub/logout?next=",
        "/hub/user-redirect/x?next=",
        "/services/berth/?next=",
        "/services/berth/board?redirect_uri=",
        "/services/berth/oauth_callback?next=",
        "/user/researcher/login?next=",
        "/hub",
        "/",
        "/services/berth",
        "/user/researcher",
    )
    with naked(stack.researcher) as me, httpx.Client(base_url=stack.url) as nobody:
        for client in (me, nobody):
            for start in asked:
                if client is me and "logout" in start:
                    continue
                answer = client.get(f"{start}{quote(away, safe='%')}")
                assert stays(stack, answer.headers.get("location", "/")), (start, answer.headers["location"])
                assert "x-injected" not in answer.headers


def test_a_log_in_goes_on_to_nowhere_else(stack: Stack) -> None:
    login = stack.passwords()["researcher"]
    for away in ("//evil.example", "/\\evil.example", "https://evil.example/"):
        with httpx.Client(base_url=stack.url) as client:
            answer = log_in(client, login["name"], login["password"], f"?next={quote(away)}")
            assert answer.status_code == 302 and stays(stack, answer.headers["location"])


def log_in(client: httpx.Client, name: str, password: str, query: str = "") -> httpx.Response:
    """Send the log-in form as its page does."""
    client.get("/hub/login")
    xsrf = next(c.value for c in client.cookies.jar if c.name == "_xsrf")
    return client.post(f"/hub/login{query}", data={"username": name, "password": password, "_xsrf": xsrf})


@pytest.mark.parametrize(
    "back",
    [
        "https://evil.example/oauth_callback",
        "//evil.example/services/berth/oauth_callback",
        "/services/berth/oauth_callback/../../../user/researcher/",
        "/services/berth/oauth_callback?x=1",
        "/services/berth/oauth_callback#x",
        "/user/researcher/oauth_callback",
        "/services/berth/oauth_callback\\@evil.example",
    ],
)
def test_a_code_is_sent_to_the_services_own_address_alone(stack: Stack, back: str) -> None:
    query = f"client_id=service-berth&response_type=code&state=x&redirect_uri={quote(back, safe='')}"
    with naked(stack.researcher) as me:
        answer = me.get(f"/hub/api/oauth2/authorize?{query}")
        assert answer.status_code == 400, answer.headers.get("location")


# ---- what another site could have a browser do -------------------------------------------------------------------

#: What takes no cookie at all: a browser's own reports, and the exchange of a code, which needs the client's secret.
NO_COOKIE = {("POST", "/hub/security/csp-report"), ("POST", "/hub/api/oauth2/token")}
#: An address that the Hub gave up: there is nothing behind it but an error.
GONE = {("POST", "/hub/api/authorizations/token/researcher")}


def shape_of_the_hub(stack: Stack) -> Any:
    """What a write could have changed: users with their servers and rights, groups, tokens."""
    users = [
        {key: user.get(key) for key in ("name", "admin", "groups", "server", "roles")}
        for user in stack.admin.hub("GET", "/users").json()
    ]
    tokens = stack.admin.hub("GET", "/users/researcher/tokens").json()["api_tokens"]
    groups = stack.admin.hub("GET", "/groups").json()
    return users, groups, sorted(token["id"] for token in tokens if not token["note"].startswith("Server at"))


def test_nothing_of_the_hub_changes_by_cookie_alone(stack: Stack) -> None:
    """Every write in the Hub's own table, with an administrator's cookies and without (or with somebody else's) token
    against forged forms, in every dress that another site can give it."""
    stack.admin.browser.get("/hub/admin")
    stolen = stack.researcher.xsrf
    before = shape_of_the_hub(stack)
    asked = [write for write in writes_of_the_hub() if write not in NO_COOKIE | GONE]
    assert len(asked) > 30 and ("POST", "/hub/spawn") in asked and ("POST", "/hub/api/shutdown") in asked
    dresses: tuple[dict[str, Any], ...] = (
        {"json": {"usernames": ["planted"], "name": "planted", "admin": True}, "headers": EVIL},
        {"content": '{"usernames": ["planted"]}', "headers": {**EVIL, "Content-Type": "text/plain"}},
        {"data": {"profile": "cpu", "_xsrf": stolen, "username": "admin", "password": "x"}, "headers": EVIL},
        {"data": {"_xsrf": stolen}, "headers": {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}},
        {"json": {}, "headers": {"X-XSRFToken": stolen, "Referer": f"{stack.url}/hub/home"}},
    )
    with naked(stack.admin) as client:
        for method, path in asked:
            for dress in dresses:
                answer = client.request(method, path, **dress)
                assert answer.status_code in (302, 400, 403, 404, 405), (method, path, answer.status_code, dress)
                assert answer.status_code != 302 or "login" in answer.headers["location"], (method, path)
    assert shape_of_the_hub(stack) == before
    assert stack.answers()


LINKED: dict[str, dict[str, str]] = {
    "link": EVIL,
    "picture": {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
    "script of ours": {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"},
    "typed": {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"},
    "old browser": {},
}


@pytest.mark.parametrize("marks", LINKED.values(), ids=LINKED)
def test_s16_a_link_starts_no_server(stack: Stack, marks: dict[str, str]) -> None:
    """The Hub starts a server for options in the address of its start page: a picture would spend a user's credits."""
    admin = stack.admin
    before = admin.leases()
    with naked(admin) as client:
        for query in ("opt-profile=cpu", "profile=gpu-1", "opt-profile=cpu&next=/hub/home", "opt-x=1", "x=1"):
            answer = client.get(f"/hub/spawn?{query}", headers=marks)
            assert answer.status_code in (200, 403), answer.headers
            assert "A link cannot start a server" in answer.text or answer.status_code == 403
    assert admin.server() is None and admin.leases() == before


def test_s17_what_was_taken_away_is_refused_at_once_by_every_way(stack: Stack) -> None:
    """A profile that an admin takes from somebody: their browser stays logged in, their token good, their form open."""
    person = stack.add("demoted")
    form = person.browser.get("/hub/spawn").text
    assert "gpu-1-8" in form, "the control"
    xsrf = person.xsrf
    stack.admin.berth("/accounts/demoted/limits", "PUT", {"profiles": ["cpu"]}).raise_for_status()
    assert person.refused({"profile": "gpu-1-8"}).status == 403
    assert person.refused({"profile": "gpu-1-8"}, server="named").status == 403
    posted = person.browser.post("/hub/spawn", params={"_xsrf": xsrf}, data={"profile": "gpu-1-8"})
    assert posted.status_code == 403
    assert person.hub("PUT", "/users/demoted/servers/kept", {"user_options": {"profile": "gpu-1-8"}}).status_code < 500
    person.hub("PATCH", "/users/demoted/servers/kept", {"user_options": {"profile": "gpu-1-8"}})
    assert stack.admin.ask_start({"profile": "gpu-1-8"}, user="demoted").status_code == 403, "nor for them by an admin"
    assert person.server() is None and all(lease["profile"] != "gpu-1-8" for lease in person.leases())


def test_another_site_logs_nobody_out(stack: Stack) -> None:
    person = stack.add("quitter")
    for marks in (EVIL, LINKED["picture"]):
        with naked(person) as client:
            answer = client.get("/hub/logout", headers=marks)
            assert answer.headers["location"] == "/hub/" and not answer.headers.get_list("set-cookie")
            assert client.get("/hub/home").status_code == 200


def test_a_cookie_that_was_copied_is_worth_nothing_after_logging_out(stack: Stack) -> None:
    person = stack.add("leaver")
    person.browser.get("/services/berth/").raise_for_status()
    with naked(person) as stolen:
        for path in ("/hub/home", "/services/berth/"):
            assert stolen.get(path).status_code == 200, "the control"
        person.browser.get("/hub/logout")
        for path in ("/hub/home", "/hub/spawn", "/hub/token"):
            answer = stolen.get(path)
            assert answer.status_code == 302 and "/hub/login" in answer.headers["location"], path
        assert stolen.get("/hub/api/user").status_code == 403
    assert person.hub("GET", "/user").status_code == 200, "a token that was asked for is no session, and stays"


def test_the_hubs_own_cookie_cannot_be_made_or_bent(stack: Stack) -> None:
    mine = {cookie.name: cookie.value or "" for cookie in stack.admin.browser.cookies.jar if cookie.path == "/hub/"}
    good = mine["jupyterhub-hub-login"]
    other = next(c.value or "" for c in stack.researcher.browser.cookies.jar if c.name == "jupyterhub-hub-login")
    parts = good.strip('"').split("|")
    bent = {
        "cut": good[:-2],
        "half": good[: len(good) // 2],
        "another's value under this signature": "|".join([*parts[:-1], other.strip('"').split("|")[-1]]),
        "a user's name": "admin",
        "an id": "1",
        "empty": "",
        "long": "x" * 7_000,
    }
    for what, value in bent.items():
        with httpx.Client(base_url=stack.url) as client:
            client.cookies.set("jupyterhub-hub-login", value, path="/hub/")
            answer = client.get("/hub/home")
            assert answer.status_code == 302 and "login" in answer.headers["location"], what


# ---- names -------------------------------------------------------------------------------------------------------

NAMES = (
    *("a`b", "a'b", 'a"b', "a\\b", "`) || PathPrefix(`/", "a b", "a|b", "a,b", "a;b", "a#b", "a?b", "a&b", "a=b"),
    *("{{7*7}}", "{username}", "{0}", "%s", "${jndi:ldap://x}", "$(id)", "<script>alert(1)</script>", "a';--"),
    *("%00", "a\x00b", "../a", "..", ".", "a/b", "a\\..\\b", "a\r\nX-Evil: 1", "a\nb", "\u202eevil", "a\u200b"),
    *("x" * 81, "x" * 10_000, "\U0001f600", "*", "~root", "=cmd()", "+1", "a\x7f", "\x1b[2J", "_", "--"),
)


@pytest.mark.parametrize("name", NAMES, ids=[ascii(name)[:24] for name in NAMES])
def test_s20_a_name_that_could_leave_its_place_is_refused_everywhere(stack: Stack, name: str) -> None:
    admin = stack.admin
    before = {user["name"] for user in admin.hub("GET", "/users").json()}
    escaped = quote(name, safe="")
    assert admin.hub("POST", "/users", {"usernames": [name]}).status_code == 400
    assert admin.hub("PATCH", "/users/researcher", {"name": name}).status_code in (400, 409)
    if name.strip("."):  # dots are steps to the proxy as well, so that such an address is another one
        assert admin.hub("POST", f"/users/{escaped}").status_code in (400, 404, 405)
        assert admin.hub("POST", f"/users/researcher/servers/{escaped}", {"profile": "cpu"}).status_code in (400, 404)
        assert admin.hub("PUT", f"/users/researcher/servers/{escaped}", {}).status_code in (400, 404, 405)
        assert admin.berth(f"/accounts/{escaped}").status_code in (400, 404)
        assert admin.berth(f"/accounts/{escaped}/grants", "POST", {"credits": "5"}).status_code in (400, 404)
    with httpx.Client(base_url=stack.url) as client:
        answer = log_in(client, name, stack.passwords()["researcher"]["password"])
        assert answer.status_code in (400, 403), answer.status_code
        assert "<script>alert(1)" not in answer.text and "x-evil" not in answer.headers
    assert {user["name"] for user in admin.hub("GET", "/users").json()} == before


LOOK_ALIKES = ("\u0430dmin", "adm\u0456n", "a.dmin", "admin.", "admin-", "\u0251dmin", "adm1n", "con", "nul.txt", "0")


@pytest.mark.parametrize("name", LOOK_ALIKES, ids=[ascii(name) for name in LOOK_ALIKES])
def test_x09_a_name_alone_gives_no_right(stack: Stack, name: str) -> None:
    """Names that look like an administrator's, contain it, or are odd in other ways: another user, with a home of
    their own and nobody's rights."""
    person = stack.add(name)
    model = person.model()
    assert model["name"] == name and not model["admin"]
    assert person.hub("GET", "/users").status_code == 403
    assert person.berth("/accounts").status_code == 403
    assert person.berth("/accounts/admin").status_code in (403, 404)
    assert person.account()["name"] == name
    assert person.hub("POST", "/users/admin/server", {"profile": "cpu"}).status_code in (403, 404)


@pytest.mark.parametrize("name", ["ADMIN", "Admin", " admin", "admin ", "\uff41\uff44\uff4d\uff49\uff4e"])
def test_x09_another_spelling_is_the_same_person_or_nobody(stack: Stack, name: str) -> None:
    """The users' password opens no administrator's account in whatever letters its name is written."""
    with httpx.Client(base_url=stack.url) as client:
        answer = log_in(client, name, stack.passwords()["researcher"]["password"])
        assert answer.status_code == 403, answer.headers.get("location")


def test_x09_a_group_of_a_promising_name_gives_no_right(stack: Stack) -> None:
    person = stack.add("member")
    for group in ("admin", "admins", "AUP", "TEST", "berth", "idle-culler", "{username}", "a`b"):
        path = f"/groups/{quote(group, safe='')}"
        made = stack.admin.hub("POST", path, {"users": ["member"]})
        assert made.status_code in (201, 400, 404), group
    assert person.hub("GET", "/users").status_code == 403
    assert not person.model()["admin"]
    assert person.refused({"profile": "admin"}).status == 400
    assert person.refused({"profile": "cpu", "payer": "admins"}).status == 403
    for group in ("admin", "admins", "AUP", "TEST", "berth", "idle-culler"):
        stack.admin.hub("DELETE", f"/groups/{quote(group, safe='')}")


def test_a_note_is_text_wherever_it_is_shown(stack: Stack) -> None:
    """Markup, templates, formulas and line ends in the note of a grant: shown as they are, run by nobody."""
    notes = ("<script>alert(1)</script>", "{{7*7}}{%raw%}", "=HYPERLINK(1)", "@x", "a\u2028b", "'\"><img src=x>")
    for note in notes:
        answer = stack.admin.berth("/accounts/researcher/grants", "POST", {"credits": "0.000001", "note": note})
        assert answer.status_code == 201, answer.text
    for line_end in ("a\x00b", "a\x1b[2Jb", "a\rb"):
        refused = stack.admin.berth("/accounts/researcher/grants", "POST", {"credits": "1", "note": line_end})
        assert refused.status_code == 400
    for path in ("/services/berth/", "/services/berth/admin?account=researcher", "/services/berth/usage"):
        page = stack.admin.browser.get(path).text
        assert (
            "<script>alert(1)" not in page
            and "<img src=x>" not in page
            and "49" not in re.findall(r">\s*(49)\s*<", page)
        )
