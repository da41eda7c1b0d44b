"""Who gets in, and that no write can be forged: the Hub's OAuth, XSRF tokens, headers, the log."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import httpx
import pytest

from quota.leases import Target
from tests.contract.service_reading import CREDIT, words, xsrf
from tests.fakes.book import Desk, open_desk
from tests.fakes.hub import BROWSER
from tests.fakes.service import PREFIX, Service, open_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk, image_titles={"env": "This environment"}) as found:
            found.hub.add_user("alice")
            found.hub.add_user("boss", admin=True)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


async def logged_in(service: Service, user: str) -> httpx.AsyncClient:
    client = service.browser(user)
    assert (await client.get("")).status_code == 200
    return client


async def test_a_page_leads_through_the_hubs_log_in_and_back(service: Service) -> None:
    client = service.browser("alice")
    answer = await client.get("board?q=x")
    assert answer.status_code == 200
    assert [step.status_code for step in answer.history] == [302, 302, 302]
    assert str(answer.url).endswith("/services/berth/board?q=x")
    cookie = [header for header in answer.history[-1].headers.get_list("set-cookie") if "service-berth=" in header]
    assert "HttpOnly" in cookie[0] and f"Path={PREFIX}" in cookie[0]


async def test_without_a_log_in_at_the_hub_nothing_is_shown(service: Service) -> None:
    answer = await service.browser().get("")
    assert answer.status_code == 403
    assert answer.url.path == "/hub/api/oauth2/authorize"


async def test_a_forged_callback_logs_nobody_in(service: Service) -> None:
    client = service.browser("alice")
    answer = await client.get("oauth_callback?code=x&state=y")
    assert answer.status_code == 403
    assert "The log-in could not be finished." in words(answer)
    assert "service-berth" not in client.cookies


async def test_nobody_is_logged_in_by_a_cookie_of_the_hub_alone(service: Service) -> None:
    client = service.browser("alice")
    client.cookies.set(BROWSER, "nobody")
    answer = await client.get("")
    assert answer.status_code == 502  # the fake knows no such user
    assert "The log-in could not be finished." in words(answer)


async def test_pages_cannot_be_framed_or_cached_and_load_nothing_foreign(service: Service) -> None:
    answer = await service.browser("alice").get("")
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    sources = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert sources and all(source.startswith(("/", "#")) for source in sources)
    assert "<script>" not in answer.text and "style=" not in answer.text


FORGERIES = (
    {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Mode": "websocket", "Sec-Fetch-Site": "same-origin"},
)


async def test_a_forged_post_changes_nothing(service: Service, desk: Desk) -> None:
    lease = desk.run(profile="test")
    client = await logged_in(service, "boss")
    other = await logged_in(service, "alice")
    stolen = xsrf(await other.get(f"lease/{lease.id}/stop"))  # a token of somebody else's session
    tokens: tuple[dict[str, str], ...] = ({}, {"_xsrf": "x"}, {"_xsrf": stolen})
    forms: tuple[tuple[str, dict[str, str]], ...] = (
        ("admin/grant", {"account": "alice", "credits": "5"}),
        ("admin/prices", {"gpu_hour": "0", "cpu_hour": "0"}),
        ("admin/limits", {"account": "*", "max_servers": "9"}),
        (f"lease/{lease.id}/stop", {}),
    )
    for headers, token, (path, fields) in product(FORGERIES, tokens, forms):
        answer = await client.post(path, data={**fields, **token}, headers=headers)
        assert answer.status_code in (400, 403), (path, token, headers)
    assert desk.bank.account("alice").available + desk.bank.account("alice").held == 100 * CREDIT
    assert desk.bank.price().gpu_hour == CREDIT
    assert desk.bank.limits("*").max_servers == 2
    assert desk.book.lease(lease.id).target is Target.RUN


async def test_rest_by_cookie_needs_its_xsrf_token(service: Service, desk: Desk) -> None:
    client = await logged_in(service, "boss")
    desk.bank.ensure_account("alice")
    script = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    refused = await client.post("api/v1/accounts/alice/grants", json={"credits": "5"}, headers=script)
    assert (refused.status_code, refused.json()["reason"]) == (403, "xsrf")
    assert (await client.get("api/v1/me", headers=script)).json()["reason"] == "xsrf"
    token = xsrf(await client.get("admin"))
    allowed = script | {"X-XSRFToken": token}
    answer = await client.post("api/v1/accounts/alice/grants", json={"credits": "5"}, headers=allowed)
    assert answer.status_code == 201
    assert desk.bank.account("alice").available == 105 * CREDIT


async def test_the_log_holds_no_token_and_no_query(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    client = service.browser("alice")
    await client.get("board?q=hidden-word")
    await client.get("oauth_callback?code=hidden-code&state=1")
    token = service.hub.add_user("bob")
    await service.api(token).get("me")
    lines = [record for record in caplog.records if record.name == "berth.web.access"]
    asked = [(getattr(line, "path", ""), getattr(line, "by", None)) for line in lines]
    assert ("/services/berth/board", "alice") in asked
    assert not any(secret in str(vars(line)) for line in lines for secret in ("hidden", token))
    for secret in ("hidden", token, *service.hub.tokens, service.hub.service_token):
        assert not any(secret in record.getMessage() for record in caplog.records if record.name != "httpx")
    assert "xsrf cookie" not in caplog.text
