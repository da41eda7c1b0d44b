"""What an operator sees of a real site: metrics of hub and service, one story for one request, status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse

from quota.clock import SystemClock
from quota.rows import Rows
from quota.store import Store
from tests.architecture.source import ROOT
from tests.harness import Stack, until

pytestmark = pytest.mark.hub

TOML = '[idle]\ncheck_every = "1 s"\n'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("observed") / "data", TOML) as stack:
        yield stack


def lines(stack: Stack, name: str = "") -> list[dict[str, Any]]:
    """All events of one process's log, or of all; asserts that each line is one JSON object."""
    found = []
    for path in sorted((stack.data / "logs").glob(f"{name or '*'}.log")):
        if not path.name.endswith(".out.log"):
            found += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return found


def story(stack: Stack, request_id: str) -> dict[str, list[dict[str, Any]]]:
    """`grep ID logs/*`: the events of one request by process."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines(stack):
        if line.get("request_id") == request_id:
            found.setdefault(line["process"], []).append(line)
    return found


def metrics(stack: Stack, path: str) -> dict[str, float]:
    """Samples by name and labels, as the scrape token sees them."""
    token = (stack.data / "secrets/metrics_token").read_text(encoding="ascii").strip()
    answer = httpx.get(stack.url + path, headers={"Authorization": f"Bearer {token}"}, timeout=20)
    assert answer.status_code == 200, answer.text
    found = {}
    for family in parse(answer.text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_one_request_is_one_story_through_all_processes(stack: Stack) -> None:
    person = stack.researcher
    headers = {"X-Request-Id": "start-42"}
    answer = person.api.post("/hub/api/users/researcher/server", json={"profile": "gpu-1-4"}, headers=headers)
    assert answer.status_code in (201, 202)
    assert answer.headers["X-Request-Id"] == "start-42"
    until(person.ready, 60, "the server is ready")
    lease = person.lease()
    answer = person.api.post(f"/services/berth/api/v1/leases/{lease['id']}/stop", headers={"X-Request-Id": "stop-43"})
    assert answer.status_code == 202
    assert answer.headers["X-Request-Id"] == "stop-43"
    person.settled(lease["id"])

    start = story(stack, "start-42")
    assert set(start) == {"hub"}
    events = {line["event"] for line in start["hub"]}
    assert {"request", "lease-reserved", "lease-running"} <= events
    assert {line["lease"] for line in start["hub"] if line["event"].startswith("lease-")} == {lease["id"]}
    stop = story(stack, "stop-43")
    assert {"berth", "hub"} <= set(stop)
    assert next(line for line in stop["berth"] if line["event"] == "lease-stop-requested")["lease"] == lease["id"]
    asked = [line for line in stop["hub"] if line["event"] == "request"]
    assert [(line["method"], line["path"]) for line in asked] == [("DELETE", "/hub/api/users/researcher/server")]
    with Store(f"sqlite:///{stack.data}/book.sqlite") as store:
        history = Rows(store, SystemClock()).events(lease_id=lease["id"])
    by_kind = {event.kind: event.detail.get("request_id") for event in history}
    assert by_kind["lease-reserved"] == by_kind["lease-running"] == "start-42"
    assert by_kind["stop-requested"] == "stop-43"


def test_the_culler_and_the_kit_have_ids_too(stack: Stack) -> None:
    until(lambda: [line for line in lines(stack, "hub") if line.get("by") == "idle-culler"], 20, "the culler has asked")
    asked = [line for line in lines(stack, "hub") if line.get("by") == "idle-culler" and line["event"] == "request"]
    assert all(re.fullmatch(r"[0-9a-f]{32}", line["request_id"]) for line in asked)
    reported = [line for line in lines(stack, "berth") if line.get("route") == "api/v1/kit/signals"]
    assert reported
    assert all(re.fullmatch(r"[0-9a-f]{32}", line["request_id"]) for line in reported)


PATHS = ["/hub/login", "/hub/api/", "/hub/nothing", "/services/berth/health", "/services/berth/x"]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_an_id_and_a_bad_one_is_replaced(stack: Stack, path: str) -> None:
    good = httpx.get(stack.url + path, headers={"X-Request-Id": "mine-1"})
    assert good.headers["X-Request-Id"] == "mine-1"
    for bad in ("a b", "x" * 65, '"quoted"', ""):
        made = httpx.get(stack.url + path, headers={"X-Request-Id": bad}).headers["X-Request-Id"]
        assert re.fullmatch(r"[0-9a-f]{32}", made)
    problem = httpx.get(f"{stack.url}/services/berth/api/v1/me", headers={"X-Request-Id": "mine-2"})
    assert problem.json()["request_id"] == "mine-2"


def test_logs_are_events_without_secrets(stack: Stack) -> None:
    httpx.get(f"{stack.url}/hub/api/users?token=SECRET99&code=SECRET99", headers={"Authorization": "token SECRET99"})
    httpx.get(f"{stack.url}/hub/api/authorizations/token/SECRET99")
    httpx.get(f"{stack.url}/hub/%0a%7b%22event%22:%22forged%22%7d")
    httpx.get(f"{stack.url}/services/berth/oauth_callback?code=SECRET99&state=SECRET99")
    events = lines(stack)
    assert {"up", "hub", "agent", "berth", "idle-culler"} <= {line["process"] for line in events}
    for line in events:
        assert set(line) >= {"ts", "level", "process", "logger", "event", "message"}
        assert line["event"] != "forged"
    everything = "\n".join(path.read_text(encoding="utf-8") for path in (stack.data / "logs").glob("*.log"))
    secrets = [path.read_text().strip() for path in (stack.data / "secrets").iterdir() if path.suffix != ".json"]
    passwords = [stack.passwords()[role]["password"] for role in ("admin", "researcher")]
    tokens = [stack.admin.token, stack.researcher.token]
    for secret in ("SECRET99", *secrets, *passwords, *tokens):
        assert secret not in everything
    assert "Setting new xsrf cookie" not in everything


def test_n08_metrics_are_for_the_scrape_token_and_admins(stack: Stack) -> None:
    for path in ("/hub/metrics", "/services/berth/metrics"):
        assert httpx.get(stack.url + path).status_code in (401, 403)
        assert stack.researcher.api.get(path).status_code == 403
        assert stack.admin.api.get(path).status_code == 200
    token = (stack.data / "secrets/metrics_token").read_text(encoding="ascii").strip()
    client = httpx.Client(base_url=stack.url, headers={"Authorization": f"Bearer {token}"})
    with client:
        assert client.get("/hub/api/users").status_code == 403
        assert client.post("/hub/api/users/researcher/server").status_code in (403, 404)
        assert client.get("/services/berth/api/v1/leases").status_code == 403


def test_both_pages_of_metrics_tell_of_what_happened(stack: Stack) -> None:
    assert stack.researcher.refused({"profile": "nonsense"}).status == 400
    hub = metrics(stack, "/hub/metrics")
    assert hub["berth_reservations_total{}"] >= 1
    assert hub["berth_refusals_total{reason=profile-unknown}"] == 1
    for phase in ("reserve", "start", "ready"):
        assert hub[f"berth_start_phase_duration_seconds_count{{phase={phase}}}"] >= 1
    assert any(name.startswith("jupyterhub_request_duration_seconds_count") for name in hub)

    def with_all_heartbeats() -> dict[str, float] | None:
        found = metrics(stack, "/services/berth/metrics")
        return found if any("role=berth" in name for name in found) else None

    service = until(with_all_heartbeats, 30, "the service is heard of")
    host = stack.data.joinpath("host").read_text().strip()
    assert service["berth_book_up{}"] == 1
    assert service[f"berth_agent_cycles_total{{host={host}}}"] >= 1
    assert service[f"berth_idle_culler_cycles_total{{host={host}}}"] >= 1
    assert service[f"berth_idle_culler_cycle_period_seconds{{host={host}}}"] == 1
    assert service[f"berth_idle_culler_last_success_age_seconds{{host={host}}}"] < 60
    assert service["berth_kit_signals_total{}"] >= 1
    assert service["berth_devices{simulated=true,state=ok}"] == 2
    assert {name for name in service if name.startswith("berth_alerts_open") and service[name]} == set()
    beating = {"hub", "agent", "idle-culler", "berth"}
    assert beating == {re.findall(r"role=([a-z-]+)", name)[0] for name in service if "berth_heartbeat_age" in name}


def test_the_example_scrapes_what_is_there(stack: Stack) -> None:
    shipped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    paths = [job["metrics_path"] for job in shipped["scrape_configs"]]
    assert [job["authorization"]["type"] for job in shipped["scrape_configs"]] == ["Bearer", "Bearer"]
    for path in paths:
        assert metrics(stack, path)


def test_status_tells_of_processes_and_findings_of_a_site_that_lives(stack: Stack) -> None:
    found = until(lambda: now if not (now := stack.status())["findings"] else None, 40, "no findings")
    assert found["healthy"] is True
    assert found["since"]
    assert found["proxy"]["routes"] >= 2
    for name in ("hub", "agent", "berth", "idle-culler", "proxy"):
        process = found["processes"][name]
        assert process["pid"]
        assert process["rss_bytes"] > 10**6
        assert process["uptime_s"] > 0
        assert process["restarts"] == 0, name
    assert found["processes"]["idle-culler"]["last_cycle_at"]
    text = stack.run("status")
    assert "No findings." in text
    stack.kill("agent")
    until(lambda: stack.status()["processes"]["agent"]["restarts"] == 1, 30, "the restart is counted")
    assert [line["code"] for line in lines(stack, "up") if line["event"] == "process-ended"] == [-9]
