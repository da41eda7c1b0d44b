"""Forged requests against service `berth`: no form and no write of REST happens without the will of who is logged in.

Attempts that a naive service obeys: a form of another site, a picture, a script, a stolen token, a cookie that somebody
else signed, planted or kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import product
from pathlib import Path

import httpx
import pytest
from tornado.web import create_signed_value

from quota.leases import Lease, StopReason
from quota.notices import NoticeKind, stopped, stops_now
from quota.outbox import Outbox
from quota.routing import MAIL
from quota.schedules import Schedules
from quota.telling import Telling
from tests.contract.service_attacks import (
    FORMS,
    ONES_OWN,
    WRITES,
    everything,
    forms,
    forms_there_are,
    logged_in,
    token_of,
    writes_there_are,
)
from tests.contract.service_reading import FORM
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import PREFIX, Service, open_service

Ids = dict[str, str]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        channels = {MAIL}
        put = Outbox(desk.store, desk.clock, channels).put
        telling = Telling(frozenset(channels), True, lambda user, _: f"{user}@example.org", put=put)
        async with open_service(desk, telling=telling) as found:
            for name in ("alice", "mallory"):
                found.hub.add_user(name)
            found.hub.add_user("boss", admin=True)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


@pytest.fixture
def ids(desk: Desk) -> Ids:
    """A running lease of alice's, one that has ended, and one of boss's that was stopped, of which boss is told;
    a start that waits for each of the two."""
    ended: Lease = desk.session(3600, profile="test")
    for name in ("boss", "mallory"):
        desk.bank.ensure_account(name)
    morning, starts = desk.now + timedelta(days=1), Schedules(desk.store, desk.clock)
    theirs, mine = (starts.add(user, "", {"profile": "cpu"}, morning, user).id for user in ("alice", "boss"))
    doubted = desk.end(desk.run("boss", profile="test"), StopReason.IDLE)
    Outbox(desk.store, desk.clock).put(stopped(doubted, desk.now))
    running = desk.run(profile="test")
    told = Outbox(desk.store, desk.clock).put(stops_now(running, NoticeKind.IDLE_STOP, "no code ran", desk.now))
    leases = {"lease": running.id, "ended": ended.id, "doubted": doubted.id}
    return {**leases, "start": theirs, "mine": mine, "notice": str(told)}


def test_every_form_and_every_write_is_attacked_here() -> None:
    assert forms_there_are() == set(FORMS)
    assert writes_there_are() == set(WRITES)


#: How a browser marks what it sends for another site, or for a script of this one; None are old browsers.
MARKS: dict[str, dict[str, str]] = {
    "form of another site": {
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Site": "cross-site",
        "Origin": "https://evil.example",
        "Referer": "https://evil.example/",
    },
    "form of a neighbour": {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-site"},
    "picture": {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
    "picture of this site": {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "same-origin"},
    "script": {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"},
    "web socket": {"Sec-Fetch-Mode": "websocket", "Sec-Fetch-Site": "same-origin"},
    "web socket in capitals": {"Sec-Fetch-Mode": "WEBSOCKET", "Sec-Fetch-Site": "none"},
    "typed in": {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"},
    "empty mark": {"Sec-Fetch-Mode": "", "Sec-Fetch-Site": ""},
    "old browser": {},
}


async def bare_browser(service: Service, user: str) -> httpx.AsyncClient:
    """A logged-in browser that adds no marks of its own and follows nothing."""
    client = await logged_in(service, user)
    for name in ("Sec-Fetch-Mode", "Sec-Fetch-Site"):
        del client.headers[name]
    client.follow_redirects = False
    return client


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
async def test_no_form_is_obeyed_without_its_own_token(
    service: Service, desk: Desk, ids: Ids, mark: dict[str, str]
) -> None:
    boss, other = await bare_browser(service, "boss"), await logged_in(service, "mallory")
    stolen = other.cookies.get("_xsrf") or ""
    assert stolen
    before = everything(desk)
    for token, (path, fields, _) in product(({}, {"_xsrf": "\x00é"}, {"_xsrf": stolen}), forms(ids)):
        answer = await boss.post(path, data={**fields, **token}, headers=mark)
        assert answer.status_code in (400, 403), (path, token)
    for path, fields, _ in forms(ids):
        in_address = await boss.post(path, params={**fields, "_xsrf": stolen}, headers=mark)
        assert in_address.status_code in (400, 403), path
        header = await boss.post(path, data=fields, headers={**mark, "X-XSRFToken": stolen})
        assert header.status_code in (400, 403), path
    assert everything(desk) == before
    assert service.hub.stopped == []


async def test_the_same_forms_with_their_token_do_work(service: Service, desk: Desk, ids: Ids) -> None:
    """The control: the attempts above fail for want of the token, not for a mistake in them."""
    boss = await logged_in(service, "boss")
    for path, fields, page in forms(ids):
        before = everything(desk)
        token = await token_of(boss, page)
        answer = await boss.post(path, data={**fields, "_xsrf": token}, headers=FORM)
        assert answer.status_code == 200 and everything(desk) != before, path


async def test_a_form_is_nothing_that_a_link_can_send(service: Service, desk: Desk, ids: Ids) -> None:
    """By GET, with the right token and all fields in the address: nothing changes, whatever the method says it is."""
    boss = await logged_in(service, "boss")
    token = await token_of(boss)
    before = everything(desk)
    for path, fields, _ in forms(ids):
        for method, more in (("GET", {}), ("HEAD", {}), ("GET", {"X-HTTP-Method-Override": "POST"})):
            query = {**fields, "_xsrf": token, "_method": "POST"}
            answer = await boss.request(method, path, params=query, headers=more)
            assert answer.status_code < 500
    assert everything(desk) == before


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/json", "", "*/*"])
async def test_a_form_in_another_dress_is_none(service: Service, desk: Desk, ids: Ids, kind: str) -> None:
    """What another site's form can send beside a urlencoded one; here even with the right token in the body."""
    boss = await logged_in(service, "boss")
    token = await token_of(boss)
    before = everything(desk)
    for path, fields, _ in forms(ids):
        text = "&".join(f"{name}={value}" for name, value in {**fields, "_xsrf": token}.items())
        parts = "".join(
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in {**fields, "_xsrf": token}.items()
        )
        for body in (text, parts + "--x--\r\n"):
            answer = await boss.post(path, content=body, headers={**FORM, "Content-Type": kind})
            assert answer.status_code in (400, 403, 415), path
    assert everything(desk) == before


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
async def test_no_write_of_rest_is_obeyed_by_cookie_alone(
    service: Service, desk: Desk, ids: Ids, mark: dict[str, str]
) -> None:
    boss, other = await bare_browser(service, "boss"), await logged_in(service, "mallory")
    stolen = other.cookies.get("_xsrf") or ""
    before = everything(desk)
    for method, path, body in WRITES.values():
        for more in ({}, {"X-XSRFToken": stolen}, {"Authorization": "token x"}):
            answer = await boss.request(method, f"api/v1/{path.format(**ids)}", json=body, headers={**mark, **more})
            assert answer.status_code in (400, 401, 403), (method, path, more)
        plain = await boss.request(
            method, f"api/v1/{path.format(**ids)}", content="{}", headers={**mark, "Content-Type": "text/plain"}
        )
        assert plain.status_code in (400, 401, 403, 415), path
    assert everything(desk) == before


async def test_no_write_of_rest_is_open_to_another_user(service: Service, desk: Desk, ids: Ids) -> None:
    """Whoever is no administrator, with a good token of their own, gets at nobody else's lease or money."""
    mallory = service.api(service.hub.add_token("mallory", ("access:services!service=berth",)))
    before = everything(desk)
    for name, (method, path, body) in WRITES.items():
        if name in ONES_OWN:
            continue
        answer = await mallory.request(method, path.format(**ids), json=body)
        hidden = "{start}" in path or "{notice}" in path  # whether somebody has one is nobody's business
        allowed = (404,) if hidden else (401, 403)
        assert answer.status_code in allowed, (method, path, answer.text)
    assert everything(desk) == before


async def test_another_account_in_the_body_or_the_address_changes_nothing(
    service: Service, desk: Desk, ids: Ids
) -> None:
    """Whose account it is comes from the token, and from nothing that is sent beside it."""
    mallory = service.api(service.hub.add_token("mallory", ("access:services!service=berth",)))
    before = everything(desk)
    for query in ("user=alice", "account=alice", "user=mallory&user=alice", "user=ALICE", "user=alice%00", "user=*"):
        for path in ("me", "me/usage", "leases"):
            answer = await mallory.get(f"{path}?{query}")
            assert answer.status_code in (400, 403, 404) or "alice" not in answer.text, (path, query)
    forged = {
        "X-Forwarded-User": "boss",
        "X-Remote-User": "boss",
        "Remote-User": "boss",
        "X-JupyterHub-User": "boss",
        "X-Original-URL": f"{PREFIX}admin",
        "X-Rewrite-URL": f"{PREFIX}admin",
    }
    assert (await mallory.get("me", headers=forged)).json()["name"] == "mallory"
    assert (await mallory.get("accounts", headers=forged)).status_code == 403
    assert everything(desk) == before


# ---- cookies -----------------------------------------------------------------------------------------------------


def cookies_of(client: httpx.AsyncClient) -> dict[str, str]:
    return {cookie.name: cookie.value or "" for cookie in client.cookies.jar}


async def opens(service: Service, **cookies: str) -> bool:
    """Whether a browser with these cookies alone, and no log-in at the Hub, sees a page."""
    client = service.browser()
    for name, value in cookies.items():
        client.cookies.set(name.replace("_", "-") if name != "_xsrf" else name, value, path=PREFIX)
    answer = await client.get("", follow_redirects=False)
    return answer.status_code == 200


async def test_only_the_cookie_that_we_signed_opens_a_page(service: Service) -> None:
    mine = cookies_of(await logged_in(service, "boss"))["service-berth"]
    token = service.hub.add_token("boss", ("access:services!service=berth",))
    assert await opens(service, service_berth=mine), "the control"
    version, key, moment, name, value, _ = mine.split("|")
    secret = b"a secret of this test"
    forged = {
        "the bare token": token,
        "signed with a guess": create_signed_value(b"secret", "service-berth", token).decode(),
        "signed with nothing": create_signed_value(b"", "service-berth", token).decode(),
        "of another name": create_signed_value(secret, "berth-flash", token).decode(),
        "of another service": create_signed_value(secret, "service-other", token).decode(),
        "a made-up token, well signed": create_signed_value(secret, "service-berth", "0" * 32).decode(),
        "cut": mine[:-1],
        "half": mine[: len(mine) // 2],
        "without a signature": "|".join((version, key, moment, name, value, "")),
        "another's value under this signature": "|".join((version, key, moment, name, value[:-4] + "AAAA", mine[-64:])),
        "later": "|".join((version, key, "10:9999999999", name, value, mine[-64:])),
        "twice": mine + mine,
        "empty": "",
        "long": "x" * 20_000,
    }
    for what, cookie in forged.items():
        assert not await opens(service, service_berth=cookie), what


async def test_a_cookie_kept_after_logging_out_is_worth_nothing(service: Service) -> None:
    """The Hub deletes the session's tokens; the service keeps its word for `IDENTITY_SECONDS` at most."""
    client = await logged_in(service, "alice")
    kept = cookies_of(client)
    for token in [token for token, model in service.hub.tokens.items() if model["name"] == "alice"]:
        del service.hub.tokens[token]  # what logging out does
    assert service.parts.hub_auth is not None
    service.parts.hub_auth.cache.clear()
    assert not await opens(service, service_berth=kept["service-berth"], _xsrf=kept["_xsrf"])


async def test_planted_cookies_make_no_token_good(service: Service, desk: Desk, ids: Ids) -> None:
    """A page below /user/x shares our origin: it can set cookies for our path, its own user's XSRF cookie for one, and
    then send a form with the token that fits that cookie. The token is bound to the log-in, so it does not fit."""
    boss, mallory = await bare_browser(service, "boss"), await logged_in(service, "mallory")
    theirs = cookies_of(mallory)
    bare_client = service.browser()
    bare_client.follow_redirects = False
    before = everything(desk)
    for path, fields, _ in forms(ids):
        for plant in ("_xsrf", "service-berth-oauth-state", "jupyterhub-session-id", "berth-flash"):
            mine = cookies_of(boss) | {plant: theirs.get(plant, theirs["_xsrf"])}
            header = "; ".join(f"{name}={value}" for name, value in mine.items())
            doubled = f"{header}; _xsrf={theirs['_xsrf']}"
            for cookies in (header, doubled):
                sent = {**fields, "_xsrf": theirs["_xsrf"]}
                headers = {**FORM, "Cookie": cookies}
                answer = await bare_client.post(path, data=sent, headers=headers)
                assert answer.status_code in (302, 400, 403), (path, plant)
                assert "oauth_callback" in answer.headers.get("location", "oauth_callback")
    assert everything(desk) == before


async def test_a_log_in_that_somebody_else_began_is_not_finished_here(service: Service) -> None:
    """Session fixation and log-in CSRF: the attacker's code and state in the victim's browser, with and without the
    attacker's state cookie planted there."""
    mallory = service.browser("mallory")
    mallory.follow_redirects = False
    begun = await mallory.get("")
    at_hub = await mallory.get(service.url + begun.headers["location"])
    callback = at_hub.headers["location"]
    victim = service.browser("boss")
    answer = await victim.get(service.url + callback, follow_redirects=False)
    assert answer.status_code == 403 and "service-berth" not in cookies_of(victim)
    fixed = service.browser("boss")
    fixed.cookies.set("jupyterhub-session-id", "0" * 32, path="/")
    assert (await fixed.get("admin")).status_code == 200
    assert "0" * 32 not in {token for token in service.hub.tokens}


async def test_a_message_for_the_next_page_cannot_be_forged(service: Service) -> None:
    client = await logged_in(service, "alice")
    for secret in (b"secret", b"another secret of this test"):
        forged = create_signed_value(secret, "berth-flash", '{"kind":"danger","words":"Pay here: evil.example"}')
        client.cookies.set("berth-flash", forged.decode(), path=PREFIX)
        assert "evil.example" not in (await client.get("")).text
    client.cookies.set("berth-flash", "{}", path=PREFIX)
    assert (await client.get("")).status_code == 200
