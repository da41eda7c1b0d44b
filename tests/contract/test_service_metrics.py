"""/services/berth/metrics: who may look, what a scrape says, and what it leaves out."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from hub_config import roles
from quota.facts import unbilled
from quota.leases import StopReason
from quota.notices import Notice, NoticeKind
from quota.outbox import Deliveries, Outbox
from quota.vitals import Vitals, to_note
from quota.web import scrape
from spawner import metrics as spawner_metrics
from tests.architecture.source import ROOT
from tests.contract.service_reading import problem
from tests.fakes.book import Desk, open_desk
from tests.fakes.hub import ACCESS
from tests.fakes.service import PREFIX, Service, open_service

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
RULES = ROOT / "deploy/prometheus/berth-rules.yml"
DASHBOARD = ROOT / "deploy/grafana/berth.json"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk) as found:
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


def scraper(service: Service, *scopes: str) -> str:
    return service.hub.add_token("prometheus", scopes or (ACCESS, roles.METRICS_SCOPE), kind="service")


async def scraped(service: Service, token: str = "", **headers: str) -> httpx.Response:
    client = service.api(token or scraper(service), **headers)
    return await client.get(service.url + PREFIX + "metrics")


async def values(service: Service) -> Values:
    answer = await scraped(service)
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_plain(answer.text)
        for sample in family.samples
    }


def value(found: Values, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


async def test_n08_who_may_read_the_metrics(service: Service) -> None:
    service.hub.add_user("alice")
    url = service.url + PREFIX + "metrics"
    problem(await service.api().get(url), 401, "not-signed-in")
    problem(await service.api("nonsense").get(url), 401, "not-signed-in")
    problem(await service.api(service.hub.add_user("bob")).get(url), 403, "forbidden")
    problem(await scraped(service, scraper(service, ACCESS)), 403, "forbidden")
    problem(await scraped(service, scraper(service, "read:metrics")), 403, "forbidden")
    assert (await service.api(service.hub.add_user("boss", admin=True)).get(url)).status_code == 200
    client = service.api(Authorization=f"Bearer {scraper(service)}")
    assert (await client.get(url)).status_code == 200


async def test_the_scrape_token_reads_metrics_and_nothing_else(service: Service) -> None:
    client = service.api(scraper(service))
    for path in ("me", "leases", "accounts", "fleet"):
        problem(await client.get(path), 403, "forbidden")
    problem(
        await client.put("prices", json={"gpu_hour_micro_credits": 1, "cpu_hour_micro_credits": 1}), 403, "forbidden"
    )


async def test_what_waits_to_be_sent_and_what_became_of_tries_is_told_by_channel(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        box, deliveries = Outbox(desk.store, desk.clock, ["mail", "chat"]), Deliveries(desk.store, desk.clock)
        for number in range(3):
            box.put(Notice("ada", NoticeKind.STOPPED, "It ended.", desk.now, "/x", key=str(number)))
        deliveries.sent(deliveries.claim("mail", "w", most=1)[0])
        desk.clock.advance(90)
        zero = {("chat", "sent"): 0}
        async with open_service(desk, sent=lambda: {**zero, **deliveries.counts()}) as service:
            found = await values(service)
        assert value(found, "berth_notice_deliveries_waiting", channel="mail") == 2
        assert value(found, "berth_notice_oldest_waiting_seconds", channel="mail") == 90
        assert value(found, "berth_notice_deliveries_waiting", channel="chat") == 0
        assert value(found, "berth_notice_oldest_waiting_seconds", channel="chat") == 0
        assert value(found, "berth_notice_deliveries_total", channel="mail", outcome="sent") == 1
        assert value(found, "berth_notice_deliveries_total", channel="chat", outcome="sent") == 0


async def test_both_forms_are_valid(service: Service, desk: Desk) -> None:
    desk.run(profile="test")
    plain = await scraped(service)
    assert plain.headers["content-type"].startswith("text/plain")
    assert plain.headers["vary"] == "Accept"
    families = list(parse_plain(plain.text))
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    opened = await scraped(service, scraper(service), Accept=accept)
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    assert opened.text.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(opened.text)} - {"berth_build"}  # "info" is a type of its own
    assert {family.name.removesuffix("_total") for family in families} >= names
    for family in families:
        assert family.documentation, family.name
        assert family.type != "untyped", family.name


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=abc", "text/plain; version=x", ";;,=", "*/*;q=z"]
)
async def test_whoever_asks_for_no_known_form_gets_the_plain_one(service: Service, accept: str) -> None:
    answer = await scraped(service, Accept=accept)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_what_the_book_says(service: Service, desk: Desk) -> None:
    desk.run(profile="test")
    desk.run("bob", profile="test", share=250)
    ended = desk.run("carol", profile="test", share=250)
    desk.book.request_stop(ended.id, StopReason.USER)
    desk.book.release(desk.book.acknowledge(ended.id, ended.owner or ""), desk.now)
    desk.clock.advance(40)
    found = await values(service)
    assert value(found, "berth_book_up") == 1
    assert value(found, "berth_leases", state="RUNNING", profile="test") == 2
    assert value(found, "berth_leases", state="RELEASED", profile="test") == 1
    assert value(found, "berth_leases", state="RUNNING", profile="cpu") == 0
    assert value(found, "berth_leases_to_settle") == 1
    assert value(found, "berth_lease_settle_lag_seconds") == 40
    assert value(found, "berth_devices", state="ok", simulated="true") == 2
    assert value(found, "berth_devices", state="ok", simulated="false") == 0
    assert value(found, "berth_device_held_gpus", simulated="true") == 0.75
    assert value(found, "berth_device_free_gpus", simulated="true") == 1.25
    assert value(found, "berth_alerts_open", kind="audit") == 0
    desk.alerts.put("audit", "audit", "wrong")
    assert value(await values(service), "berth_alerts_open", kind="audit") == 1


async def test_balances_are_those_of_the_ledger(service: Service, desk: Desk) -> None:
    desk.session(3600, profile="test")
    desk.run("bob", profile="test")
    found = await values(service)
    views = desk.bank.accounts()
    assert value(found, "berth_balance_credits", kind="available") == sum(v.available for v in views) / 10**6
    assert value(found, "berth_balance_credits", kind="held") == sum(v.held for v in views) / 10**6 > 0
    assert value(found, "berth_balance_credits", kind="revenue") == 0.5
    assert value(found, "berth_balance_credits", kind="debt") == 0


async def test_x16_what_nobody_said_is_absent_and_never_zero(service: Service, desk: Desk) -> None:
    names = {name for name, _ in await values(service)}
    for absent in ("berth_agent_cycles_total", "berth_idle_culler_cycles_total", "berth_heartbeat_age_seconds"):
        assert absent not in names
    assert not [name for name in names if name.startswith(("berth_audit", "berth_backup", "berth_lease_settle"))]
    desk.rows.beat("a1", "agent", "h1", "words of an older release")
    found = await values(service)
    assert value(found, "berth_heartbeat_age_seconds", role="agent", host="h1") == 0
    assert "berth_agent_cycles_total" not in {name for name, _ in found}
    assert "berth_agent_last_success_age_seconds" not in {name for name, _ in found}


async def test_processes_without_a_port_tell_by_their_heartbeats(service: Service, desk: Desk) -> None:
    vitals = Vitals("ok", desk.now, {"cycles": 7, "errors": 1}, {"blind_devices": 2, "cycle_duration_seconds": 0.25})
    desk.rows.beat("a0", "agent", "h1", to_note(Vitals("old", desk.now, {"cycles": 900})))
    desk.clock.advance(5)
    desk.rows.beat("a1", "agent", "h1", to_note(vitals))
    desk.rows.beat("a2", "agent", "h2", to_note(Vitals("new", None, {"cycles": 0})))
    desk.clock.advance(10)
    found = await values(service)
    assert value(found, "berth_agent_cycles_total", host="h1") == 7
    assert value(found, "berth_agent_errors_total", host="h1") == 1
    assert value(found, "berth_agent_blind_devices", host="h1") == 2
    assert value(found, "berth_agent_cycle_duration_seconds", host="h1") == 0.25
    assert value(found, "berth_agent_last_success_age_seconds", host="h1") == 15
    assert value(found, "berth_agent_cycles_total", host="h2") == 0
    assert value(found, "berth_agent_last_success_age_seconds", host="h2") is None
    assert value(found, "berth_agent_errors_total", host="h2") is None


async def test_x15_leases_that_run_uncharged_are_found_on_every_database(desk: Desk) -> None:
    late, ended = desk.run(profile="test"), desk.run("bob", profile="test")
    desk.clock.advance(100)
    desk.end(ended)
    desk.run("carol", profile="test")
    assert [lease.id for lease in unbilled(desk.store, desk.now - timedelta(seconds=60))] == [late.id]
    desk.book.meter(desk.book.lease(late.id), desk.now)
    assert unbilled(desk.store, desk.now - timedelta(seconds=60)) == []


async def test_a_book_that_is_down_is_said_and_the_rest_is_absent(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(scrape, "read_facts", down)
    found = await values(service)
    assert value(found, "berth_book_up") == 0
    names = {name for name, _ in found}
    assert {"berth_build_info", "process_start_time_seconds"} <= names
    assert not [
        name for name in names if name.startswith(("berth_leases", "berth_devices", "berth_balance", "berth_hea"))
    ]


async def test_a_book_that_hangs_holds_up_no_other_request(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look at a time, however many scrape; the loop and the book's threads stay free."""
    going, calls = threading.Event(), []
    real = scrape.read_facts

    def slow(*given: Any) -> Any:
        calls.append(1)
        going.wait(20)
        return real(*given)

    monkeypatch.setattr(scrape, "read_facts", slow)
    monkeypatch.setattr(scrape, "PATIENCE_SECONDS", 0.2)
    try:
        for _ in range(6):
            assert value(await values(service), "berth_book_up") == 0
        assert len(calls) == 1
        assert (await service.api(service.hub.add_user("alice")).get("me")).status_code == 200
    finally:
        going.set()


async def test_requests_are_counted_by_pattern_and_never_by_name(service: Service, desk: Desk) -> None:
    alice = service.api(service.hub.add_user("alice"))
    lease = desk.run(profile="test")
    for path in (f"leases/{lease.id}", "accounts/alice", "accounts/alice/limits", "nothing/here"):
        await alice.get(path)
    await alice.request("BREW", "me")
    for number in range(20):
        await alice.get(f"leases/l{number}")
        await service.api().get(f"{service.url}{PREFIX}no-such-page-{number}")
    text = (await scraped(service)).text
    assert "alice" not in text
    assert lease.id not in text
    found = await values(service)
    route = {"route": "api/v1/leases/{}", "method": "GET"}
    assert value(found, "berth_http_requests_total", status="200", **route) == 1
    assert value(found, "berth_http_requests_total", status="404", **route) == 20
    routes = {dict(labels)["route"] for name, labels in found if name == "berth_http_requests_total"}
    assert {"unmatched", "api/v1/accounts/{}", "api/v1/accounts/{}/limits"} <= routes
    assert len(routes) < 10
    methods = {dict(labels)["method"] for name, labels in found if name == "berth_http_requests_total"}
    assert methods <= {"GET", "other"}
    assert (value(found, "berth_book_transaction_duration_seconds_count", access="read", outcome="committed") or 0) > 0


# ---- what is shipped uses only what there is -----------------------------------------------------------------------


def names_in(text: str) -> set[str]:
    """Names of metrics in an expression; label values and alert names are no metrics."""
    bare = re.sub(r'"[^"]*"', "", text)
    return set(re.findall(r"\bberth_[a-z_]+\b", bare))


def expressions() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            assert set(rule) >= {"alert", "expr", "labels", "annotations"}
            assert set(rule["annotations"]) == {"summary", "description"}
            yield rule["alert"], rule["expr"]
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


async def test_rules_and_dashboard_name_only_metrics_that_exist(service: Service, desk: Desk) -> None:
    full = {"cycles": 1, "errors": 0, "reclaims": 0}
    gauges = {"cycle_duration_seconds": 1, "cycle_period_seconds": 1, "blind_devices": 0, "blind_leases": 0}
    for role in ("agent", "idle-culler"):
        desk.rows.beat(role, role, "h1", to_note(Vitals("ok", desk.now, full, gauges)))
    desk.rows.set_meta("audit", json.dumps({"at": desk.now.isoformat(), "findings": 0}))
    ended = desk.run(profile="test")
    desk.book.request_stop(ended.id, StopReason.USER)
    desk.book.release(desk.book.acknowledge(ended.id, ended.owner or ""), desk.now)
    await scraped(service)
    there = {name for name, _ in await values(service)}
    assert spawner_metrics.REFUSALS
    hub = generate_latest(REGISTRY).decode()
    there |= {sample.name for family in parse_plain(hub) for sample in family.samples}
    unknown = [(title, name) for title, text in expressions() for name in sorted(names_in(text) - there)]
    assert unknown == []
    assert len({title for title, _ in expressions()}) > 25


def test_names_carry_base_units() -> None:
    hub = generate_latest(REGISTRY).decode()
    families = [family for family in parse_plain(hub) if family.name.startswith("berth_")]
    assert {"berth_start_phase_duration_seconds", "berth_reservations", "berth_refusals"} <= {f.name for f in families}
    for family in families:
        assert not re.search(r"_(milli|micro|ms|minutes|hours|percent|mib)(_|$)", family.name)
        assert family.documentation
