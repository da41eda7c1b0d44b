"""Credits per day: days sum to the month, days to come are absent, and the drawing needs no script or style."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from quota.leases import Segment
from quota.pricing import charge_due
from quota.web.charts import daily_chart
from quota.web.daily import Daily, daily
from quota.web.period import month
from tests.fakes.spawner_book import PRICE

BERLIN = ZoneInfo("Europe/Berlin")
MARCH = month(2026, 3, BERLIN)


def ran(begun: datetime, hours: int) -> tuple[Segment, ...]:
    return (Segment(1, 250, PRICE, begun, begun + timedelta(hours=hours)),)


def test_days_of_the_zone_sum_to_the_month_over_a_change_of_the_clock() -> None:
    segments = ran(datetime(2026, 3, 28, 12, tzinfo=UTC), 40)
    found = daily([("gpu", segments)], MARCH, datetime(2026, 4, 9, tzinfo=UTC), BERLIN)
    assert (found.days[0], found.days[-1], len(found.days)) == ("2026-03-01", "2026-03-31", 31)
    hours = [round(amount * 40 / charge_due(segments, MARCH.end), 3) for amount in found.profiles["gpu"][27:30]]
    assert hours == [11, 23, 6]  # 29 March has 23 hours
    assert sum(found.totals) == charge_due(segments, MARCH.end)


def test_days_to_come_are_absent_and_nothing_used_is_no_chart() -> None:
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    found = daily([("gpu", ran(now - timedelta(hours=2), 1)), ("cpu", ())], MARCH, now, BERLIN)
    assert found.days == ("2026-03-01", "2026-03-02")
    assert list(found.profiles) == ["gpu"]
    assert not daily([], MARCH, now, BERLIN).profiles


def test_the_drawing_has_no_script_style_or_raw_name() -> None:
    drawn = daily_chart(Daily(("2026-03-01",), {"<b>": (1_000_000,)}), 'Credits "per" day')
    for part in ("<script", "<style", "style=", "<b>", "<title"):
        assert part not in drawn
    assert drawn.startswith("<svg") and 'role="img"' in drawn and "&quot;per&quot;" in drawn and "<rect" in drawn
