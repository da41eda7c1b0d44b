"""How much of the devices was held, day by day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from quota.leases import Device, DeviceState
from quota.web.charts import balance_chart, held_chart, whole_month
from quota.web.daily import balances
from quota.web.held import held, last_days

NOW = datetime(2026, 3, 30, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def gpus(count: int, name: str = "A100") -> list[Device]:
    return [Device("h", f"G{n}", n, name, 1, "exclusive", False, DeviceState.OK) for n in range(count)]


def test_days_begin_at_midnight_and_one_has_23_hours() -> None:
    edges, names = last_days(NOW, BERLIN)
    assert (names[0], names[-1], len(names)) == ("2026-03-24", "2026-03-30", 7)
    hours = [(last - first) / timedelta(hours=1) for first, last in pairwise(edges)]
    assert hours == [24, 24, 24, 24, 24, 23, 14]


def test_a_stretch_counts_on_each_day_with_its_share() -> None:
    edges, names = last_days(NOW, ZoneInfo("UTC"))
    evening = datetime(2026, 3, 28, 22, tzinfo=UTC)
    found = held(
        gpus(2), [("G0", 250, evening, evening + timedelta(hours=6)), ("G1", 1000, evening, None)], edges, names
    )
    assert found.parts == {"GPU 0": (0, 0, 0, 0, 0.5, 1, 0), "GPU 1": (0, 0, 0, 0, 2, 24, 12)}
    assert found.rows[4] == ("2026-03-28", 2.5, 48)
    assert found.possible[-1] == 24


def test_many_devices_are_told_by_model_and_those_that_are_gone_not_at_all() -> None:
    edges, names = last_days(NOW, BERLIN)
    found = held(gpus(20), [("G3", 500, edges[0], None), ("gone", 500, edges[0], None)], edges, names)
    assert list(found.parts) == ["A100"]
    assert held(gpus(1), [], edges, names).parts == {}
    assert len(held(gpus(1), [], edges, names).rows) == 7


def test_the_charts_of_the_past_need_no_script_or_style() -> None:
    edges, names = last_days(NOW, BERLIN)
    week = held(gpus(2), [("G0", 250, edges[0], None)], edges, names)
    for drawn in (held_chart(week, "held"), balance_chart(["2026-03-01", "2026-03-02"], [5_000_000, -1], "balance")):
        assert drawn.startswith("<svg") and 'role="img"' in drawn
        for part in ("<script", "<style", "style=", "<title"):
            assert part not in drawn


def test_the_first_day_of_a_month_has_the_whole_months_room() -> None:
    assert whole_month(["2026-02-01"])[-1] == "28"
    assert whole_month([]) == []


def test_balances_are_counted_back_from_now() -> None:
    changed = [(NOW - timedelta(hours=2), 5), (NOW - timedelta(minutes=30), -2)]
    ends = [NOW - timedelta(hours=hours) for hours in (3, 1, 0)]
    assert balances(10, changed, ends) == (7, 12, 10)
