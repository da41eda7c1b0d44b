"""The culler of a real site is broken in all ways that a test can: it hangs, is killed, is forbidden to ask the Hub.

What must be seen each time: somebody is told, in words that name the remedy; nobody who works is stopped; who is idle
is stopped once, and for the reason that was announced. A missing scope at the start is in `test_idle_rows`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

import psutil
import pytest

from hub_config.compose import Parts, parts
from hub_config.datafolder import DataFolder
from hub_config.status import status
from quota.alerts import Alert
from tests.harness import Kernel, Person, Stack, until

pytestmark = pytest.mark.hub

IDLE, NOTICE = 24, 12
TOML = f"""
[gpus]
source = "simulated"
simulated = 2

[idle]
with_gpu = "{IDLE} s"
without_gpu = "2 h"
notice = "{NOTICE} s"
check_every = "1 s"

[save]
grace = "1 s"
by_hand = "off"
"""
#: A look of the watch every 20 s, and ten seconds until the culler counts as silent.
TOLD = 75


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("breaks") / "data", TOML) as stack:
        yield stack


@pytest.fixture(scope="module")
def site(stack: Stack) -> Iterator[Parts]:
    made = parts(stack.data)
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def worker(stack: Stack) -> Person:
    """Somebody whose cell runs all the time, silently."""
    person = stack.add("worker")
    person.start("gpu-1-8")
    kernel = Kernel(person)
    kernel.send("import time; time.sleep(3600)")
    until(kernel.busy, 30, "the cell runs")
    kernel.leave()
    return person


def silent(site: Parts) -> Alert | None:
    return next((alert for alert in site.alerts.open() if alert.kind == "culler-silent"), None)


def note(site: Parts) -> str:
    """What the culler last said of itself."""
    beats = sorted(site.rows.boots("idle-culler"), key=lambda beat: beat.beat_at)
    return beats[-1].note if beats else ""


def works(site: Parts) -> bool:
    return note(site).startswith('{"') and "unhealthy" not in note(site) and "last successful cycle: 20" in note(site)


def warned(person: Person) -> dict[str, Any] | None:
    idle = person.lease()["idle"]
    return dict(idle) if idle and idle["kind"] == "warn" else None


@contextmanager
def hanging(pid: int) -> Iterator[None]:
    """A process that is there and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_i12_a_culler_that_hangs_is_told_with_the_remedy_until_it_goes_on(
    stack: Stack, site: Parts, worker: Person
) -> None:
    until(lambda: "last successful cycle: 20" in note(site), 40, "the culler has done a cycle")
    pid = stack.pid("idle-culler")
    until(lambda: silent(site) is None, TOLD, "nobody is told anything")
    assert pid is not None
    with hanging(pid):
        alert = until(lambda: silent(site), TOLD, "administrators are told")
        assert "has not completed a cycle since 20" in alert.words and "logs/idle-culler.log" in alert.words
        assert "a restart of the hub starts it again" in alert.words
        page = stack.admin.browser.get("/services/berth/admin").text
        assert "has not completed a cycle since 20" in page
        found = status(DataFolder(stack.data))
        assert not found["healthy"] and any("idle culler" in finding for finding in found["findings"]), found
        assert psutil.Process(pid).status() == psutil.STATUS_STOPPED, "it did hang all the time"
    until(lambda: silent(site) is None, TOLD, "the alert is over")
    assert stack.pid("idle-culler") == pid
    assert worker.lease()["state"] == "RUNNING"


def test_i12_a_killed_culler_comes_back_and_keeps_to_what_it_announced(
    stack: Stack, site: Parts, worker: Person
) -> None:
    idler = stack.add("idler")
    idler.start("gpu-1-8")
    announced = until(lambda: warned(idler), IDLE + 40, "the idle server is warned", every=0.1)
    old = stack.kill("idle-culler")
    until(lambda: stack.pid("idle-culler") not in (None, old), 40, "another culler runs")
    ended = idler.settled(idler.lease()["id"], IDLE + 90)
    assert ended["stop_reason"] == "idle"
    kinds = [event.detail["kind"] for event in site.rows.events(ended["id"]) if event.kind == "idle-verdict"]
    assert kinds == ["reclaim", "warn"], "newest first: it was warned once, by the first, and stopped by the second"
    deadline, end = (datetime.fromisoformat(moment) for moment in (announced["deadline"], ended["ended_at"]))
    assert 0 <= (end - deadline).total_seconds() < 75
    assert worker.lease()["state"] == "RUNNING"


def forget_the_token(stack: Stack) -> int:
    """Take the culler's token out of the Hub's database, as an administrator may who revokes one too many."""
    with closing(sqlite3.connect(stack.data / "hub" / "jupyterhub.sqlite", timeout=30)) as database, database:
        words = "DELETE FROM api_tokens WHERE service_id = (SELECT id FROM services WHERE name = 'idle-culler')"
        return database.execute(words).rowcount


def test_i12_i19_a_hub_that_says_403_is_told_and_who_is_idle_goes_all_the_same(
    stack: Stack, site: Parts, worker: Person
) -> None:
    """The verdicts rest on the book; where the Hub does not stop a server, the agent does."""
    until(lambda: works(site), 40, "the culler works")
    idler = stack.add("left")
    idler.start("gpu-1-8")
    assert forget_the_token(stack) >= 1
    until(lambda: "unhealthy" in note(site) and "403" in note(site), 60, "the culler says what the Hub says")
    alert = until(lambda: silent(site), TOLD, "administrators are told")
    assert "403" in alert.words, "the alert says what the culler says"
    ended = idler.settled(idler.lease()["id"], IDLE + 60)
    assert (ended["stop_reason"], site.book.lease(ended["id"]).stop_by) == ("idle", "idle-culler")
    assert worker.lease()["state"] == "RUNNING" and worker.lease()["idle"]["rule"] == "busy-kernel"
    stack.wait_for_new("hub", stack.kill("hub"))
    until(lambda: works(site), 60, "a new hub knows the token again, and the culler goes on")
    until(lambda: silent(site) is None, TOLD, "the alert is over")
    assert worker.lease()["state"] == "RUNNING"
