"""The watch of service `berth`: silent culler, silent agents, servers that run unbilled; alerts come and go by it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from quota.alerts import Alert
from quota.vitals import Vitals, to_note
from quota.watch import Watch
from tests.fakes.book import HOST, Desk, open_desk

PERIOD = timedelta(seconds=30)


class Site:
    """A deployment on a clock of its own. `alive` roles beat and succeed with every step of ten seconds."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.ran = 0.0
        self.alive = {"agent", "idle-culler"}
        self.failing: set[str] = set()
        self.good: dict[str, datetime] = {}
        self.watch = self.new_watch()

    def new_watch(self) -> Watch:
        desk = self.desk
        return Watch(desk.rows, desk.alerts, desk.clock, "berth-1", HOST, PERIOD, lambda: self.ran)

    def live(self, seconds: float, *, look: bool = True) -> None:
        for _ in range(int(seconds // 10)):
            self.desk.clock.advance(10)
            self.ran += 10
            for role in sorted(self.alive):
                if role not in self.failing:
                    self.good[role] = self.desk.now
                note = to_note(Vitals(f"{role} says so", self.good.get(role)))
                self.desk.rows.beat(f"{role}-1", role, HOST, note)
            if look:
                self.watch.look()

    def sleep(self, seconds: float) -> None:
        """The machine is suspended: the wall clock goes on, nothing runs."""
        self.desk.clock.jump(seconds)

    def alerts(self) -> dict[str, Alert]:
        return {alert.key: alert for alert in self.desk.alerts.open()}

    def meter(self, seconds: float) -> None:
        """Time in which the agent charges, as it should."""
        for _ in range(int(seconds // 60)):
            self.live(60)
            for lease in self.desk.book.live():
                self.desk.book.meter(lease, self.desk.now)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        yield Site(desk)


def test_all_is_well_and_the_service_is_heard_of(site: Site) -> None:
    site.live(600)
    assert site.alerts() == {}
    (beat,) = site.desk.rows.boots("berth")
    assert beat.beat_at == site.desk.now
    site.watch.close()
    assert site.desk.rows.boots("berth") == []


def test_i12_a_silent_culler_is_an_alert_and_its_return_ends_it(site: Site) -> None:
    site.live(60)
    site.alive.discard("idle-culler")
    site.live(90)
    assert site.alerts() == {}, "three periods are its due"
    site.live(20)
    alert = site.alerts()["culler-silent"]
    assert "idle servers keep their GPUs" in alert.words
    assert "logs/idle-culler.log" in alert.words
    site.alive.add("idle-culler")
    site.live(10)
    assert site.alerts() == {}
    kinds = [event.kind for event in site.desk.rows.events()]
    assert kinds == ["alert-cleared", "alert-raised"]


def test_i12_a_culler_that_lives_and_never_succeeds_is_silent_too(site: Site) -> None:
    site.failing.add("idle-culler")
    site.live(120)
    assert "idle-culler says so" in site.alerts()["culler-silent"].words


def test_i12_restarts_again_and_again_do_not_hide_it(site: Site) -> None:
    site.live(60)
    site.failing.add("idle-culler")
    for number in range(15):
        site.alive.discard("idle-culler")
        site.desk.rows.beat(f"culler-{number}", "idle-culler", HOST, to_note(Vitals("starting")))
        site.live(10)
    assert "culler-silent" in site.alerts()


def test_a_culler_that_was_never_there_is_an_alert(site: Site) -> None:
    site.alive.discard("idle-culler")
    site.live(120)
    assert "since this service began" in site.alerts()["culler-silent"].words


@pytest.mark.parametrize("ever", [True, False], ids=["it was there", "it never was"])
def test_a_silent_agent_is_an_alert_of_its_host(site: Site, ever: bool) -> None:
    site.live(60 if ever else 0)
    site.alive.discard("agent")
    site.live(80)
    alert = site.alerts()[f"agent-silent:{HOST}"]
    assert alert.kind == "agent-silent"
    assert HOST in alert.words
    site.alive.add("agent")
    site.live(10)
    assert site.alerts() == {}


def test_an_agent_that_lives_and_completes_no_cycle_is_an_alert(site: Site) -> None:
    site.live(60)
    site.failing.add("agent")
    site.live(320)
    assert "completes no cycle (agent says so)" in site.alerts()[f"agent-silent:{HOST}"].words
    site.failing.clear()
    site.live(10)
    assert site.alerts() == {}


def test_an_alert_of_a_host_that_is_gone_ends(site: Site) -> None:
    site.desk.rows.beat("other-1", "agent", "h9", to_note(Vitals("", site.desk.now)))
    site.live(80)
    assert list(site.alerts()) == ["agent-silent:h9"]
    site.desk.rows.drop_beat("other-1")
    site.live(10)
    assert site.alerts() == {}


def test_a_new_service_neither_clears_what_it_cannot_judge_nor_accuses_anybody_at_once(site: Site) -> None:
    site.alive.clear()
    site.live(200)
    assert set(site.alerts()) == {"culler-silent", f"agent-silent:{HOST}"}
    for beat in site.desk.rows.boots():
        site.desk.rows.drop_beat(beat.boot)
    site.watch = site.new_watch()
    site.live(20)
    assert set(site.alerts()) == {"culler-silent", f"agent-silent:{HOST}"}
    site.alive |= {"agent", "idle-culler"}
    site.live(10)
    assert site.alerts() == {}


@pytest.mark.parametrize("seconds", [8 * 3600, 7200, -7200], ids=["suspended 8 h", "+2 h", "-2 h"])
def test_n01_a_jump_of_the_clock_accuses_nobody(site: Site, seconds: float) -> None:
    site.live(120)
    site.sleep(seconds)
    site.watch.look()
    assert site.alerts() == {}
    site.live(300)
    assert site.alerts() == {}


def test_x15_a_server_that_runs_unbilled_is_an_alert_until_it_is_charged(site: Site) -> None:
    site.live(60)
    desk = site.desk
    lease = desk.run(profile="test")
    site.meter(240)
    assert site.alerts() == {}
    site.live(290)
    assert site.alerts() == {}, "five minutes are not over"
    site.live(30)
    alert = site.alerts()[f"unbilled:{lease.id}"]
    assert (alert.kind, alert.detail["lease"]) == ("unbilled", lease.id)
    assert "alice" in alert.words
    desk.book.meter(desk.book.lease(lease.id), desk.now)
    site.live(10)
    assert site.alerts() == {}


def test_x15_a_server_that_was_never_charged_and_one_for_nothing(site: Site) -> None:
    """A CPU lease at price 0 is metered all the same: its clock must run."""
    site.live(60)
    free = site.desk.run("bob", profile="cpu", share=0, count=0)
    site.live(320)
    assert list(site.alerts()) == [f"unbilled:{free.id}"]
    site.desk.end(site.desk.book.lease(free.id))
    site.live(10)
    assert site.alerts() == {}


def test_x15_a_silent_agent_is_told_once_and_not_for_every_lease(site: Site) -> None:
    site.live(60)
    for number in range(3):
        site.desk.run(f"user{number}", profile="test", share=250)
    site.alive.discard("agent")
    site.live(600)
    assert list(site.alerts()) == [f"agent-silent:{HOST}"]


def test_a_newcomer_who_can_be_taken_for_somebody_is_pointed_out(site: Site) -> None:
    """A name that only looks like another's is let in, and an admin hears of it."""
    desk = site.desk
    desk.bank.ensure_account("ada")
    desk.clock.advance(8 * 86400)
    site.ran += 8 * 86400
    site.live(60)
    desk.bank.ensure_account("аda")
    desk.bank.ensure_account("bob")
    site.live(20)
    (alert,) = site.alerts().values()
    assert (alert.key, alert.kind) == ("look-alike:аda", "look-alike")
    assert "аda (а is CYRILLIC SMALL LETTER A) has a name that can be taken for ada." in alert.words
    desk.bank.rename("аda", "adele", "admin")
    site.live(20)
    assert site.alerts() == {}
    desk.bank.ensure_account("b0b")
    site.live(20)
    assert list(site.alerts()) == ["look-alike:b0b"]
