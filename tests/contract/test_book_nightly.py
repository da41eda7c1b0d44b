"""The nightly audit on a real book, its alert, and `berth audit`."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from hub_config import cli
from hub_config.services import keep_auditing
from quota.bank import Defaults
from quota.nightly import ALERT, Nightly, last_audit
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import FakeClock
from tests.harness import until

START = datetime(2026, 3, 7, 20, 0, tzinfo=UTC)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path, FakeClock(START), Defaults(zone="America/New_York")) as opened:
        opened.devices(1)
        opened.session(100)
        yield opened


@pytest.fixture
def nightly(desk: Desk) -> Nightly:
    return Nightly(desk.bank, desk.rows, desk.alerts, desk.clock, time(2, 30))


def spoil(desk: Desk, by: int) -> None:
    with desk.store.write() as connection:
        connection.execute(sa.text(f"UPDATE balance SET amount = amount + {by} WHERE sub = 'platform:revenue'"))


def test_it_raises_an_alert_and_clears_it_when_all_is_well_again(desk: Desk, nightly: Nightly) -> None:
    spoil(desk, 5)
    assert nightly.look()
    (alert,) = desk.alerts.open()
    assert (alert.key, alert.kind) == (ALERT, "audit")
    assert "balance platform:revenue is" in alert.words
    assert alert.detail["findings"] == [alert.words.split("a difference: ")[1].split(". Run:")[0]]
    since = alert.since
    desk.clock.advance(86_400)
    assert nightly.look()
    assert [alert.since for alert in desk.alerts.open()] == [since]
    spoil(desk, -5)
    desk.clock.advance(86_400)
    assert nightly.look()
    assert desk.alerts.open() == []


def test_once_a_night_whoever_is_up(desk: Desk, nightly: Nightly) -> None:
    """Over the night in which New York has no 02:30, by the hour, with a restart in each."""
    audited = []
    for _ in range(72):
        again = Nightly(desk.bank, desk.rows, desk.alerts, desk.clock, time(2, 30))
        if again.look():
            audited.append(last_audit(desk.rows)["night"])
        assert not again.look()
        desk.clock.advance(3600)
    assert audited == ["2026-03-07", "2026-03-08", "2026-03-09", "2026-03-10"]
    told = last_audit(desk.rows)
    assert (told["findings"], told["first"]) == (0, None)
    assert told["postings"] > 0


def test_one_that_was_not_finished_is_made_again(desk: Desk, nightly: Nightly) -> None:
    def stop(name: str, number: int, most: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nightly.look(stop)
    assert last_audit(desk.rows) == {}
    assert nightly.look()


def test_it_reads_one_snapshot_while_others_write(desk: Desk) -> None:
    """Every look sees a whole book, whatever is posted between its checks."""
    running = desk.run("bob")

    def write_on(name: str, number: int, most: int) -> None:
        desk.clock.advance(61)
        desk.book.meter(desk.book.lease(running.id), desk.now)

    assert desk.bank.audited(write_on).findings == ()


def test_the_service_looks_off_its_loop_and_ends_at_once(desk: Desk, nightly: Nightly) -> None:
    stop = keep_auditing(nightly, every=0.01)
    until(lambda: last_audit(desk.rows), 20, "the night is audited")
    stop()
    assert not any(thread.name == "audit" for thread in threading.enumerate())
    keep_auditing(None)()


def test_a_book_that_cannot_be_read_is_tried_again(
    desk: Desk, nightly: Nightly, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = desk.bank.audited, [RuntimeError("no disk")]

    def audited(tell: object = None) -> object:
        if failures:
            raise failures.pop()
        return real()

    monkeypatch.setattr(desk.bank, "audited", audited)
    with caplog.at_level(logging.ERROR):
        stop = keep_auditing(nightly, every=0.01)
        until(lambda: last_audit(desk.rows), 20, "the night is audited")
        stop()
    assert "could not be made" in caplog.text


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, sqlite_only: None, desk: Desk) -> Path:
    """A data folder whose book is the desk's."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "berth.toml").write_text(
        f'[site]\ntime_zone = "America/New_York"\n[book]\nurl = "sqlite:///{desk.store.file}"\n', encoding="utf-8"
    )
    return data


def test_the_command_says_that_all_is_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "--data", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("The book is in order: ")


def test_the_command_names_the_first_difference_and_counts_the_rest(
    desk: Desk, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(desk, 5)
    with desk.store.write() as connection:
        connection.execute(sa.text("UPDATE lease SET usage = usage + 1"))
    assert cli.main(["audit", "--data", str(folder)]) == 1
    first, rest = capsys.readouterr().out.splitlines()
    assert first.startswith("First difference: balance platform:revenue is ")
    assert rest.endswith("1 more: berth audit --all")
    assert cli.main(["audit", "--all", "--data", str(folder)]) == 1
    assert "milli-GPU-seconds, its time makes" in capsys.readouterr().out
    assert cli.main(["audit", "--json", "--data", str(folder)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["clean"] is False
    assert [finding["check"] for finding in told["findings"]] == ["balances_agree", "leases_cost_what_their_time_costs"]
    assert told["findings"][0]["said"] - told["findings"][0]["truth"] == 5


def test_the_night_is_counted_in_the_sites_zone(desk: Desk, nightly: Nightly) -> None:
    nightly.look()
    desk.clock.set(datetime(2026, 3, 8, 7, 29, tzinfo=UTC))
    assert not nightly.look()
    desk.clock.set(datetime(2026, 3, 8, 7, 30, tzinfo=UTC) + timedelta(seconds=1))
    assert nightly.look()
