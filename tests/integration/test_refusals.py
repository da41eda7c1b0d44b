"""What a real hub must refuse: with a reason, at once, and with nothing created and nothing charged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness import Person, Stack, until
from tests.harness.waiting import PATIENCE

pytestmark = pytest.mark.hub

TOML = """
[gpus]
source = "simulated"
simulated = 1

[first_start]
monthly_credits = 0.05
max_servers = 2
max_gpus = 1
"""
EXTRA = "c.Spawner.consecutive_failure_limit = 5\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("refusals") / "data", TOML, EXTRA) as stack:
        yield stack


@pytest.fixture(autouse=True)
def tidy(stack: Stack) -> Iterator[None]:
    yield
    stack.tidy()


def nothing_happened(person: Person, before: int) -> None:
    """No server, no lease that holds anything, not a micro-credit."""
    assert person.server() is None
    assert all(lease["state"] == "SETTLED" for lease in person.leases())
    assert (person.available(), person.held()) == (before, 0)


WRONG: dict[str, Any] = {
    "unknown profile": {"profile": "gpu-8"},
    "unknown selection of X1": {"profile": "gpu-1", "gpu_selection": "zzz"},
    "selection alone": {"gpu_selection": "zzz"},
    "foreign image": {"profile": "cpu", "image": "evil/image:latest"},
    "image of S16": {"gpu": 8, "image": "evil"},
    "share below zero": {"profile": "gpu-1-4", "share": -1},
    "share zero": {"profile": "gpu-1-4", "share": 0},
    "share huge": {"profile": "gpu-1-4", "share": 1e9},
    "share as text": {"profile": "gpu-1-4", "share": "1e3"},
    "share empty": {"profile": "gpu-1-4", "share": ""},
    "share alone": {"share": 1000},
    "foreign account": {"profile": "cpu", "payer": "admin"},
    "extra key": {"profile": "cpu", "privileged": True},
    "profile as a number": {"profile": 1},
    "profile as null": {"profile": None, "image": ["this-environment"]},
    "profile as a list": {"profile": ["cpu"]},
    "profile in other letters": {"profile": "CPU"},
    "profile with a path": {"profile": "../cpu"},
    "profile of 10,000 letters": {"profile": "a" * 10_000},
}


@pytest.mark.parametrize("options", WRONG.values(), ids=WRONG)
def test_s16_x01_x03_wrong_options_are_refused_and_nothing_happens(stack: Stack, options: dict[str, Any]) -> None:
    me = stack.researcher
    before = me.available()
    refusal = me.refused(options)
    assert refusal.status in (400, 403)
    nothing_happened(me, before)


def test_s16_the_same_options_are_refused_for_a_named_server_and_inside_user_options(stack: Stack) -> None:
    me = stack.researcher
    me.refused({"user_options": {"profile": "gpu-1-4", "share": 1}}, server="work")
    me.refused({"display_name": "x", "user_options": {"profile": "zzz"}}, server="work")
    assert me.gone("work")
    assert all(lease["holder"]["server"] != "work" for lease in me.leases())


def test_s16_options_of_a_stopped_server_cannot_be_smuggled_in_by_patch(stack: Stack) -> None:
    """The Hub lets users write user_options of a stopped server; the start checks them again."""
    me = stack.researcher
    assert me.hub("PUT", "/users/researcher/servers/patched", {}).status_code < 400
    me.hub("PATCH", "/users/researcher/servers/patched", {"user_options": {"profile": "gpu-1", "share": 1}})
    me.refused(None, server="patched")
    assert me.gone("patched")
    me.hub("DELETE", "/users/researcher/servers/patched", {"remove": True})


def test_x15_no_option_at_all_is_the_default_profile(stack: Stack) -> None:
    me = stack.researcher
    assert me.ask_start({}).status_code in (201, 202)
    until(me.ready, 30, "the default profile is ready")
    lease = me.lease()
    assert (lease["profile"], lease["share_milli"]) == ("cpu", 0)
    me.stop()
    assert me.settled(lease["id"])["charged_micro_credits"] == 0


def test_somebody_elses_server_is_out_of_reach(stack: Stack) -> None:
    me, other = stack.researcher, stack.add("mallory")
    for method in ("POST", "DELETE"):
        assert other.hub(method, "/users/researcher/server", {"profile": "cpu"}).status_code in (403, 404)
    assert other.berth("/accounts/researcher").status_code in (403, 404)
    assert other.berth("/accounts/mallory/grants", "POST", {"amount_micro_credits": 10}).status_code == 403
    assert me.server() is None
    assert other.leases() == []


def test_s15_x28_refusals_never_count_as_failures_and_the_metric_tells_the_reason(stack: Stack) -> None:
    me = stack.researcher
    hub = stack.pid("hub")
    before = me.available()
    for _ in range(6):
        refusal = me.refused({"profile": "gpu-2"})
        assert refusal.status == 409
        assert "GPU" in refusal.words
    assert stack.pid("hub") == hub
    assert stack.answers()
    metrics = stack.admin.api.get("/hub/metrics").text
    lines = [line for line in metrics.splitlines() if "server_spawn_duration_seconds_count" in line]
    (counted,) = (line for line in lines if 'reason="too-many-gpus"' in line)
    assert 'status="failure"' in counted
    assert float(counted.rpartition(" ")[2]) >= 6
    nothing_happened(me, before)


def test_credit_for_one_server_and_two_parallel_starts_make_one(stack: Stack) -> None:
    """Each start must be covered for its first quarter of an hour: 1/8 of a GPU needs 0.03125 credits."""
    poor = stack.add("poor")
    assert poor.available() == 50_000
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(poor.ask_start, {"profile": "gpu-1-8"}, server=server) for server in ("", "two")]
        answers = sorted((job.result() for job in asked), key=lambda answer: answer.status_code)
    assert answers[0].status_code in (201, 202)
    assert answers[1].status_code == 409
    assert "The balance is 0.01 credits" in answers[1].json()["message"]
    until(lambda: [lease for lease in poor.leases() if lease["state"] == "RUNNING"], 30, "one server runs")
    assert len([lease for lease in poor.leases() if lease["state"] != "SETTLED"]) == 1
    running = "" if poor.ready() else "two"
    poor.stop(server=running)


def test_a_refusal_takes_a_blink(stack: Stack) -> None:
    started = time.monotonic()
    stack.researcher.refused({"profile": "gpu-2"})
    assert time.monotonic() - started < PATIENCE * 1


def test_x15_refused_options_do_not_come_back_at_a_start_that_sends_none(stack: Stack) -> None:
    """The Hub stores the options of a start before they are looked at, and uses them for the next one."""
    me = stack.researcher
    me.refused({"profile": "zzz"})
    assert stack.admin.ask_start(None, user="researcher").status_code in (201, 202)
    until(me.ready, 30, "the default profile is ready")
    assert me.lease()["profile"] == "cpu"
    me.stop()
