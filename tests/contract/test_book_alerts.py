"""Alerts stand until they are cleared, and say since when."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.book import open_desk


def test_an_alert_stands_until_it_is_cleared(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        alerts = desk.alerts
        assert alerts.put("audit", "audit", "a balance differs", {"first": "x"})
        since = desk.clock.now()
        desk.clock.advance(60)
        assert not alerts.put("audit", "audit", "two balances differ")
        (one,) = alerts.open()
        assert (one.since, one.seen_at, one.words) == (since, desk.clock.now(), "two balances differ")
        assert alerts.clear("audit") and not alerts.clear("audit")
        assert alerts.open() == []


def test_one_that_comes_back_is_new(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        alerts = desk.alerts
        alerts.put("audit", "audit", "first")
        alerts.clear("audit")
        desk.clock.advance(60)
        assert alerts.put("audit", "audit", "again")
        assert [each.since for each in alerts.open()] == [desk.clock.now()]
        kinds = [event.kind for event in desk.rows.events(limit=10)]
        assert [kind for kind in kinds if kind.startswith("alert")] == ["alert-raised", "alert-cleared", "alert-raised"]
