"""The pages of service berth over HTTP: log-in, what each one says, forms that cannot be forged, words for errors."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from quota.leases import StopReason, Target
from tests.fakes.book import Desk, open_desk
from tests.fakes.hub import BROWSER
from tests.fakes.service import PREFIX, Service, open_service

CREDIT = 1_000_000
FORM = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}


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


class Words(HTMLParser):
    """The visible words of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def words(answer: httpx.Response) -> str:
    """What a page says, with plain single spaces."""
    assert answer.headers["content-type"].startswith("text/html"), answer.text
    reader = Words()
    reader.feed(answer.text)
    return re.sub(r"[\s\u00a0\u202f]+", " ", " ".join(reader.found))


def xsrf(answer: httpx.Response) -> str:
    found = re.search(r'name="_xsrf" value="([^"]+)"', answer.text)
    assert found, answer.text
    return found[1]


async def post(client: httpx.AsyncClient, page: str, path: str, **fields: Any) -> httpx.Response:
    """Send a form of a page, as a browser does."""
    token = xsrf(await client.get(page))
    return await client.post(path, data={"_xsrf": token, **fields}, headers=FORM)


# ---- log-in ----


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


async def test_pages_cannot_be_framed_or_cached_and_load_nothing_foreign(service: Service) -> None:
    answer = await service.browser("alice").get("")
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    sources = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert sources and all(source.startswith(("/", "#")) for source in sources)
    assert "<script>" not in answer.text and "style=" not in answer.text


# ---- forged writes ----


async def logged_in(service: Service, user: str) -> httpx.AsyncClient:
    client = service.browser(user)
    assert (await client.get("")).status_code == 200
    return client


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


# ---- my usage ----


async def test_usage_shows_seconds_times_share_times_rate(service: Service, desk: Desk) -> None:
    desk.session(3612.4, share=250, profile="gpu-1-4")
    said = words(await service.browser("alice").get(""))
    assert "3 612.4 s × 1/4 × 1.00 credit/h = 0.250861" in said
    assert "In all 0.250861" in said
    assert "Stopped by its user" in said
    assert "1/4 GPU, simulated" in said
    assert "UTC" in said
    assert "No server is running" in said


async def test_usage_of_a_running_server_is_live_and_names_the_reason_of_the_last(service: Service, desk: Desk) -> None:
    desk.run(server="two", profile="test", share=1000)
    desk.clock.advance(1800)
    ended = desk.run(profile="cpu", share=0, count=0)
    desk.clock.advance(60)
    desk.book.request_stop(ended.id, StopReason.IDLE, detail="not used for 30 min (idle_gpu = 1800 s)")
    desk.wind_up(desk.book.acknowledge(ended.id, "boot-1"))
    said = words(await service.browser("alice").get(""))
    assert "1 860 s × 1 × 1.00 credit/h = 0.516667" in said
    assert "60 s × 1 server × 0.00 credits/h = 0.000000" in said
    assert "Reclaimed because it was idle: not used for 30 min (idle_gpu = 1800 s)" in said
    assert "1.00 credits per hour" in said


async def test_usage_of_a_start_that_failed_says_so_and_charges_nothing(service: Service, desk: Desk) -> None:
    lease = desk.reserve(profile="test")
    desk.book.request_stop(lease.id, StopReason.FAILED, detail="no answer within 30 s")
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    said = words(await service.browser("alice").get(""))
    assert "It never answered, so nothing was charged." in said
    assert "no answer within 30 s" in said
    receipt = words(await service.browser("alice").get(f"lease/{lease.id}"))
    assert "It never answered, so nothing was charged." in receipt


async def test_i20_an_idle_warning_is_shown_with_its_deadline_and_looking_does_not_move_it(
    service: Service, desk: Desk
) -> None:
    lease = desk.run(profile="test")
    deadline = desk.now + timedelta(minutes=5)
    desk.rows.put_verdict(lease.id, desk.now, "warn", "idle", "not used since nine", {}, deadline)
    client = service.browser("alice")
    for _ in range(5):
        said = words(await client.get(""))
        assert "Idle: default server. Not used since nine. Deadline: 2 Mar 2026, 09:05:00" in said
        await client.get("board")
        await client.get(f"lease/{lease.id}")
    assert desk.rows.verdict(lease.id).deadline == deadline  # type: ignore[union-attr]


async def test_b8_one_zone_is_printed_and_its_months_are_used(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        desk.session(10, profile="test")
        async with open_service(desk, zone="Asia/Shanghai") as service:
            service.hub.add_user("alice")
            client = service.browser("alice")
            said = words(await client.get(""))
            assert "Asia/Shanghai" in said and "2 Mar 2026, 17:00:00" in said
            assert "There was no session in February 2026." in words(await client.get("?month=2026-02"))


async def test_a_bad_month_is_a_page_in_words(service: Service) -> None:
    client = service.browser("alice")
    for path in ("?month=x", "?month=2026-13", "?month=0000-01", "usage.csv?month=9999999-01", "?month=٢٠٢٦-٠٣"):
        answer = await client.get(path)
        assert answer.status_code == 400
        assert "is not a month such as 2026-03" in words(answer)


async def test_the_csv_cannot_run_formulas(service: Service, desk: Desk) -> None:
    lease = desk.run(profile="=cmd()", image="+1", share=250)
    desk.clock.advance(100.25)
    desk.book.request_stop(lease.id, StopReason.ADMIN, by="boss", detail="x")
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    answer = await service.browser("alice").get("usage.csv?month=2026-03")
    assert answer.headers["content-disposition"] == 'attachment; filename="berth-usage-2026-03.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 1
    assert (rows[0]["profile"], rows[0]["environment"], rows[0]["simulated"]) == ("'=cmd()", "'+1", "simulated")
    assert (rows[0]["seconds"], rows[0]["milli_gpu_seconds"], rows[0]["credits"]) == ("100.250000", "25062", "0.006962")


async def test_text_of_users_is_escaped(service: Service, desk: Desk) -> None:
    desk.session(5, profile="<script>x</script>")
    answer = await service.browser("alice").get("")
    assert "<script>x" not in answer.text and "&lt;script&gt;x" in answer.text


async def test_somebody_elses_usage_is_for_administrators(service: Service, desk: Desk) -> None:
    desk.session(5, profile="test")
    assert (await service.browser("alice").get("?account=boss")).status_code == 403
    answer = await service.browser("boss").get("?account=alice")
    assert "Usage of alice" in words(answer)
    assert "account=alice" in re.findall(r'id="csv" href="([^"]+)"', answer.text)[0]
    assert (await service.browser("boss").get("?account=nobody")).status_code == 404


# ---- who holds what ----


async def test_p17_the_board_tells_user_share_since_use_and_idleness(service: Service, desk: Desk) -> None:
    one = desk.run(profile="test", share=250)
    desk.clock.advance(3600)
    desk.run("bob", profile="gpu-1", share=1000)
    desk.book.observe_all([one], desk.now)
    desk.rows.put_signal(one.id, "host", {"cpu_percent": 42.0, "cpu_active_at": None, "window_s": 10}, desk.now)
    desk.rows.put_verdict(one.id, desk.now, "keep", "busy-kernel", "in use: a kernel runs code", {}, None)
    said = words(await service.browser("alice").get("board"))
    assert (
        "alice default server · running test 1/4 GPU, simulated GPU 0 · simulated GPU · h1 2 Mar 2026, 09:00:00 60 min"
        in said
    )
    assert "GPU: no reading (simulated) CPU 42 %" in said
    assert "In use: a kernel runs code." in said
    assert "bob" in said and "not judged yet" in said
    assert "3/4 GPU free" in said and "nothing free" in said
    assert "credit" not in said and "Charged" not in said
    admin = words(await service.browser("boss").get("board"))
    assert "Charged so far" in admin and "0.25 per hour" in admin


async def test_the_board_filters(service: Service, desk: Desk) -> None:
    desk.run(profile="test")
    desk.run("bob", profile="test")
    client = service.browser("alice")
    page = (await client.get("board?q=BOB")).text
    assert 'data-user="bob"' in page and 'data-user="alice"' not in page
    assert "No running server matches" in words(await client.get("board?q=<b>"))


async def test_empty_pages_say_so(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        async with open_service(desk) as service:
            service.hub.add_user("boss", admin=True)
            client = service.browser("boss")
            assert "Nobody has a server running. All room is free." in words(await client.get("board"))
            assert "No GPU has been reported yet." in words(await client.get("board"))
            assert "There was no session in March 2026." in words(await client.get(""))
            said = words(await client.get("admin"))
            assert "Nobody has a server running." in said and "Agent never seen" in said


# ---- stop and receipt ----


async def test_stopping_asks_first_then_tells(service: Service, desk: Desk) -> None:
    lease = desk.run(server="two", profile="test")
    client = service.browser("alice")
    asked = await client.get(f"lease/{lease.id}/stop")
    assert "Stop your two?" in words(asked)
    assert desk.book.lease(lease.id).target is Target.RUN
    answer = await post(client, f"lease/{lease.id}/stop", f"lease/{lease.id}/stop")
    assert answer.history[0].status_code == 303
    assert "The server is being stopped." in words(answer)
    assert "To be stopped: stopped by its user, by alice" in words(answer)
    assert "The server is being stopped." not in words(await client.get(f"lease/{lease.id}"))  # said once
    found = desk.book.lease(lease.id)
    assert (found.target, found.stop_reason, found.stop_by) == (Target.STOP, StopReason.USER, "alice")
    assert service.hub.stopped == [("alice", "two")]
    assert "already on its way out" in words(await client.get(f"lease/{lease.id}/stop"))


async def test_a_receipt_is_for_its_user_and_administrators(service: Service, desk: Desk) -> None:
    lease = desk.session(50, "bob", profile="test", share=125)
    assert (await service.browser("alice").get(f"lease/{lease.id}")).status_code == 403
    assert (await service.browser("alice").get(f"lease/{lease.id}/stop")).status_code == 403
    assert (await service.browser("alice").get("lease/l0000")).status_code == 404
    said = words(await service.browser("boss").get(f"lease/{lease.id}"))
    assert "50 s × 1/8 × 1.00 credit/h 0.001736 Charged 0.001736" in said
    assert "6 250 milli-GPU-seconds" in said and "This environment" in said
    assert "Ready: the server answered, charging began" in said and "Settled" in said


async def test_a_refund_by_an_administrator(service: Service, desk: Desk) -> None:
    lease = desk.session(3600, profile="test")
    client = service.browser("boss")
    answer = await post(client, f"lease/{lease.id}", f"lease/{lease.id}/refund", credits="0.2", note="slow disk")
    said = words(answer)
    assert "Refunded 0.200000 credits to alice." in said and "Refunded 0.20 credits (slow disk), by boss" in said
    assert "Refunded -0.20" in said and 'action="' + PREFIX + f"lease/{lease.id}/refund" not in answer.text
    usage = words(await service.browser("alice").get(""))
    assert "refunded in part" in usage and "In all 0.30" in usage


async def test_a_stop_by_idleness_shows_what_was_seen(service: Service, desk: Desk) -> None:
    lease = desk.run(profile="test")
    seen = {"limit_s": 1800, "idle_since": "2026-03-02T08:30:00+00:00", "kernels": 0, "cpu_percent": "not reported"}
    desk.rows.put_verdict(lease.id, desk.now, "reclaim", "idle", "not used", seen, desk.now)
    desk.book.request_stop(lease.id, StopReason.IDLE, detail="not used for 30 min")
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    said = words(await service.browser("alice").get(f"lease/{lease.id}"))
    assert "Why it ended Reclaimed because it was idle: not used for 30 min." in said
    assert "Not used since 2 Mar 2026, 08:30:00" in said and "Limit 30 min" in said and "Kernels 0" in said
    assert "CPU of its programs not reported" in said


# ---- the admin's page ----


async def test_the_admin_page_is_for_administrators(service: Service) -> None:
    client = service.browser("alice")
    for path in ("admin", "admin/grant"):
        assert (await client.get(path)).status_code == 403
    answer = await client.get("")
    assert "Admin · Berth" not in answer.text
    token = {"_xsrf": answer.cookies.get("_xsrf") or client.cookies.get("_xsrf", path=PREFIX)}
    grant = await client.post("admin/grant", data={**token, "account": "alice", "credits": "5"}, headers=FORM)
    assert grant.status_code == 403


async def test_c_admin_grants_limits_prices_and_sees_it(service: Service, desk: Desk) -> None:
    desk.run(profile="test")
    desk.beat()
    desk.rows.beat("agent-1", "agent", "h1")
    client = service.browser("boss")
    granted = await post(client, "admin", "admin/grant", account="alice", credits="12.5", note="course", key="k1")
    assert "Granted 12.50 credits to alice." in words(granted)
    assert str(granted.url).endswith("admin?account=alice")
    await post(client, "admin", "admin/grant", account="alice", credits="12.5", note="course", key="k1")  # sent twice
    view = desk.bank.account("alice")
    assert view.available + view.held == 112_500_000
    limited = await post(client, "admin", "admin/limits", account="alice", max_servers="1", max_gpus="0.5")
    assert "1 server 1/2 GPU" in words(limited)
    assert desk.bank.limits("alice").max_gpu_milli == 500
    await post(client, "admin", "admin/limits", account="alice", max_servers="none", max_gpus="default")
    assert (desk.bank.limits("alice").max_servers, desk.bank.limits("alice").max_gpu_milli) == (None, 2000)
    await post(client, "admin", "admin/limits", account="*", monthly_credits="40", profiles="cpu, test")
    assert (desk.bank.limits("*").monthly_micro, desk.bank.limits("*").profiles) == (40 * CREDIT, {"cpu", "test"})
    await post(client, "admin", "admin/prices", gpu_hour="2.5", cpu_hour="0.01")
    assert (desk.bank.price().gpu_hour, desk.bank.price().cpu_hour) == (2_500_000, 10_000)
    said = words(await client.get("admin"))
    assert "Agent on h1: 0 s ago" in said and "Hub: 0 s ago" in said
    assert "alice default server · running" in said and "boss admin has not used Berth yet" in said


BAD_FIELDS = (
    ("admin/grant", {"account": "nobody", "credits": "5"}, "There is no user or account called 'nobody'"),
    ("admin/grant", {"account": "alice", "credits": "-5"}, "an amount above zero is needed"),
    ("admin/grant", {"account": "alice", "credits": "1e3"}, "a plain number of credits"),
    ("admin/grant", {"account": "", "credits": "5"}, "There is no user"),
    ("admin/limits", {"account": "alice"}, "fill in at least one field"),
    ("admin/limits", {"account": "alice", "max_gpus": "x"}, "GPUs at once"),
    ("admin/limits", {"account": "alice", "max_gpus": "-1"}, "GPUs at once"),
    ("admin/limits", {"account": "alice", "profiles": "cpu,nothing"}, "'nothing' is no profile"),
    ("admin/limits", {"account": "*", "max_servers": "default"}, "have no default"),
    ("admin/prices", {"gpu_hour": "-1", "cpu_hour": "0"}, "cannot be below zero"),
    ("admin/prices", {"gpu_hour": "", "cpu_hour": "0"}, "gpu_hour"),
)


async def test_bad_fields_come_back_in_words(service: Service, desk: Desk) -> None:
    desk.bank.ensure_account("alice")
    client = service.browser("boss")
    for path, fields, says in BAD_FIELDS:
        answer = await post(client, "admin", path, **fields)
        assert answer.status_code == 200, fields
        assert "Nothing was changed." in words(answer) and says in words(answer), fields
    assert desk.bank.account("alice").available == 100 * CREDIT
    assert desk.bank.price().plan_id == 1


async def test_a_silent_agent_and_an_unseen_server_are_alarms(service: Service, desk: Desk) -> None:
    desk.rows.beat("agent-1", "agent", "h1")
    desk.run(profile="test")
    desk.clock.advance(90)
    said = words(await service.browser("boss").get("admin"))
    assert "Agent on h1 silent for 90 s" in said
    assert "1 running server(s) not seen for more than 60 s: alice." in said


async def test_the_admin_page_works_without_the_hub(service: Service, desk: Desk) -> None:
    client = service.browser("boss")
    await client.get("admin")
    desk.bank.ensure_account("alice")
    service.hub.down = True
    said = words(await client.get("admin"))
    assert "The Hub did not answer" in said and "alice" in said


async def test_many_users_page_by_page_and_filtered(service: Service) -> None:
    service.hub.page_size = 50
    for number in range(230):
        service.hub.add_user(f"user{number:03d}")
    client = service.browser("boss")
    assert "32 more are not shown" in words(await client.get("admin"))
    page = (await client.get("admin?q=user22")).text
    assert page.count('data-account="user22') == 10


# ---- errors ----


async def test_an_unknown_page_says_so(service: Service) -> None:
    client = service.browser("alice")
    for path in ("nothing", "lease/", "lease/a/b", "board/x", "admin/x"):
        answer = await client.get(path)
        assert answer.status_code == 404
        assert "There is no page at this address." in words(answer)


async def test_a_large_form_is_refused_in_words(service: Service) -> None:
    client = service.browser("boss")
    token = xsrf(await client.get("admin"))
    answer = await client.post("admin/grant", data={"_xsrf": token, "note": "x" * 70_000}, headers=FORM)
    assert answer.status_code == 413
    assert "65536 bytes at most" in words(answer)


async def test_a_fault_of_ours_tells_nothing_but_that_it_happened(
    service: Service, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(desk.book, "live", broken)
    answer = await service.browser("alice").get("board")
    assert answer.status_code == 500
    assert "Something went wrong in Berth" in words(answer) and "secret inside" not in answer.text


async def test_the_log_holds_no_token_and_no_query(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    client = service.browser("alice")
    await client.get("board?q=hidden-word")
    await client.get("oauth_callback?code=hidden-code&state=1")
    token = service.hub.add_user("bob")
    await service.api(token).get("me")
    assert "GET /services/berth/board alice" in caplog.text
    for secret in ("hidden", token, *service.hub.tokens, service.hub.service_token):
        assert not any(secret in record.getMessage() for record in caplog.records if record.name != "httpx")
    assert "xsrf cookie" not in caplog.text


async def test_nobody_is_logged_in_by_a_cookie_of_the_hub_alone(service: Service) -> None:
    client = service.browser("alice")
    client.cookies.set(BROWSER, "nobody")
    answer = await client.get("")
    assert answer.status_code == 502  # the fake knows no such user
    assert "The log-in could not be finished." in words(answer)
