"""Sessions over nights in which the clock leaves hours out or repeats them, and over ends of months and years: real
elapsed time is charged, and what falls into the days and months of the site sums to all of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from quota.bank import Defaults
from quota.errors import Conflict
from quota.leases import Lease
from quota.metering import month_name
from quota.units import CREDIT
from quota.web.period import month_of, parse_moment, parse_month
from tests.fakes.book import Desk, open_desk
from tests.fakes.clock import FakeClock

MINUTE = timedelta(minutes=1)


def local(zone: str, text: str, fold: int = 0) -> datetime:
    """A moment on the site's clock, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


#: Zone, begin and end on its clock, and the hours that really pass.
NIGHTS = [
    pytest.param("America/New_York", "2026-03-08T00:30", "2026-03-08T04:30", 3, id="new-york-forward"),
    pytest.param("America/New_York", "2026-11-01T00:30", "2026-11-01T04:30", 5, id="new-york-back"),
    pytest.param("Australia/Lord_Howe", "2026-10-04T00:30", "2026-10-04T04:30", 3.5, id="lord-howe-forward"),
    pytest.param("Australia/Lord_Howe", "2026-04-05T00:30", "2026-04-05T04:30", 4.5, id="lord-howe-back"),
    pytest.param("America/Sao_Paulo", "2018-11-03T22:30", "2018-11-04T04:30", 5, id="sao-paulo-no-midnight"),
    pytest.param("America/Asuncion", "2017-09-30T22:30", "2017-10-01T04:30", 5, id="asuncion-no-first-midnight"),
    pytest.param("America/Havana", "2015-10-31T22:30", "2015-11-01T04:30", 7, id="havana-two-first-midnights"),
    pytest.param("Pacific/Apia", "2011-12-29T22:00", "2011-12-31T02:00", 4, id="apia-no-30-december"),
    pytest.param("America/New_York", "2026-03-31T22:30", "2026-04-01T02:30", 4, id="month-end"),
    pytest.param("America/New_York", "2028-02-29T22:30", "2028-03-01T02:30", 4, id="leap-day"),
    pytest.param("Pacific/Kiritimati", "2026-12-31T22:30", "2027-01-01T02:30", 4, id="year-end-14-hours-ahead"),
    pytest.param("Pacific/Niue", "2026-12-31T22:30", "2027-01-01T02:30", 4, id="year-end-11-hours-behind"),
    pytest.param("Asia/Kathmandu", "2026-12-31T22:30", "2027-01-01T02:30", 4, id="year-end-5-45-ahead"),
    pytest.param("UTC", "2016-12-31T22:30", "2017-01-01T02:30", 4, id="leap-second"),
]


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    zone, begin = request.node.callspec.params["zone"], request.node.callspec.params["begin"]
    with open_desk(tmp_path, FakeClock(local(zone, begin)), Defaults(zone=zone)) as opened:
        opened.devices(1)
        yield opened
        assert opened.bank.audit() == []


@pytest.mark.parametrize(("zone", "begin", "end", "hours"), NIGHTS)
def test_b07_x11_real_hours_are_charged_and_days_and_months_sum_to_them(
    desk: Desk, zone: str, begin: str, end: str, hours: float
) -> None:
    start, stop = local(zone, begin), local(zone, end)
    lease = desk.run(share=1000)
    while desk.now < stop:
        desk.clock.set(min(desk.now + 31 * MINUTE, stop))
        lease = desk.book.meter(desk.book.lease(lease.id), desk.now).lease
    lease = desk.end(lease)
    assert (lease.charged, lease.usage) == (hours * CREDIT, hours * 3_600_000)
    for cuts in (days(zone, start, stop), months(zone, start, stop)):
        lines = [line for a, b in pairwise(cuts) for line in desk.bank.statement("alice", a, b)]
        assert sum(line.charged for line in lines) == lease.charged
        assert sum(line.milli_gpu_seconds for line in lines) == lease.usage
        assert sum(line.seconds for line in lines) == hours * 3_600 * 10**6
        assert all(line.seconds > 0 and line.charged >= 0 for line in lines)


def days(zone: str, start: datetime, stop: datetime) -> list[datetime]:
    """Midnights of the site's clock around a stretch, as pages read a day."""
    tz = ZoneInfo(zone)
    first = start.astimezone(tz).date()
    found = [parse_moment((first + timedelta(days=number)).isoformat(), tz) for number in range(-1, 5)]
    assert found[0] <= start < stop <= found[-1]
    return sorted(set(found))


def months(zone: str, start: datetime, stop: datetime) -> list[datetime]:
    one, other = month_of(start, ZoneInfo(zone)), month_of(stop, ZoneInfo(zone))
    return sorted({one.start, one.end, other.start, other.end})


def test_b07_every_day_of_every_zone_follows_the_day_before() -> None:
    """Half-open days without a gap, whatever a zone left out: a day that there was not has no length."""
    for zone in ("America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "America/Havana"):
        tz = ZoneInfo(zone)
        first = date(2011, 1, 1).toordinal()
        cuts = [parse_moment(date.fromordinal(first + number).isoformat(), tz) for number in range(3 * 366)]
        assert cuts == sorted(cuts), zone
        lengths = {(b - a) / timedelta(hours=1) for a, b in pairwise(cuts)}
        assert lengths <= {0, 23, 23.5, 24, 24.5, 25}, zone


def test_b07_b08_months_of_the_bill_and_of_the_pages_are_the_same() -> None:
    for zone in ("America/Asuncion", "America/Havana", "Pacific/Kiritimati", "Asia/Kathmandu"):
        tz = ZoneInfo(zone)
        for number in range(12 * 25):
            name = f"{1993 + 7 + number // 12:04d}-{number % 12 + 1:02d}"
            period = parse_month(name, tz)
            assert month_name(period.start, zone) == name == month_name(period.end - MINUTE, zone), (zone, name)
            assert month_name(period.start - MINUTE, zone) != name


# ---- months: what is held, granted and refunded over their end -------------------------------------------------------


@pytest.fixture
def midnight(tmp_path: Path) -> Iterator[Desk]:
    """Ten minutes before New York's month ends."""
    clock = FakeClock(local("America/New_York", "2026-03-31T23:50"))
    with open_desk(tmp_path, clock, Defaults(zone="America/New_York", monthly_grant=CREDIT)) as opened:
        opened.devices(1)
        yield opened
        assert opened.bank.audit() == []


def test_n10_a_hold_over_the_end_of_a_month_is_charged_or_expires_and_is_never_left(midnight: Desk) -> None:
    desk = midnight
    lease = desk.run(share=1000)
    assert lease.held == CREDIT // 4
    desk.clock.advance(1200)
    lease = desk.book.meter(lease, desk.now).lease
    assert lease.charged == round(CREDIT * 1200 / 3600)
    assert lease.held == CREDIT // 4, "filled up from April's grant"
    assert desk.bank.account("alice").available == CREDIT - lease.charged, "March's hold was used up first"
    lease = desk.end(lease)
    view = desk.bank.account("alice")
    assert (lease.held, view.held) == (0, 0)
    assert view.available == CREDIT - (lease.charged - CREDIT // 4)
    assert [bucket.key.rpartition(":")[2] for bucket in view.buckets] == ["2026-04"]


@pytest.mark.parametrize("state", ["reserved", "starting", "running"])
def test_n10_what_comes_back_to_a_grant_that_expired_expires(midnight: Desk, state: str) -> None:
    desk = midnight
    lease = desk.reserve(share=1000)
    if state != "reserved":
        desk.beat()
        lease = desk.book.mark_starting(lease, desk.now + MINUTE)
    if state == "running":
        lease = desk.book.mark_running(lease, "boot-1", desk.now)
    desk.clock.advance(900)
    desk.book.request_stop(lease.id, "user")  # type: ignore[arg-type]
    ended = desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    view = desk.bank.account("alice")
    assert (ended.held, view.held) == (0, 0)
    assert view.available == CREDIT, "April's own grant, untouched by March's hold"


def settled_in_march(desk: Desk) -> Lease:
    lease = desk.session(360, share=1000)
    assert month_name(lease.ended_at or desk.now, desk.bank.zone) == "2026-03"
    return lease


def test_n06_a_refund_after_the_month_is_over_lands_in_the_open_one(midnight: Desk) -> None:
    desk = midnight
    lease = settled_in_march(desk)
    zone = ZoneInfo(desk.bank.zone)
    march, april = parse_month("2026-03", zone), parse_month("2026-04", zone)
    billed = desk.bank.statement("alice", march.start, march.end)
    desk.clock.advance(86_400)
    assert desk.bank.refund(lease.id, 10 * CREDIT, "admin", "slow disk") == lease.charged == CREDIT // 10
    assert desk.bank.statement("alice", march.start, march.end) == billed, "March stays as it was billed"
    (line,) = desk.bank.statement("alice", april.start, april.end)
    assert (line.lease_id, line.charged, line.seconds) == (lease.id, -CREDIT // 10, 0)
    view = desk.bank.account("alice")
    assert view.month_charged == -CREDIT // 10
    assert [bucket.balance for bucket in view.buckets if bucket.key.startswith("refund:")] == [CREDIT // 10]


def test_n06_a_refund_twice_or_larger_is_the_same_refund(midnight: Desk) -> None:
    desk = midnight
    lease = settled_in_march(desk)
    assert desk.bank.refund(lease.id, None, "admin", "") == CREDIT // 10
    desk.clock.advance(86_400)
    for amount in (None, CREDIT, CREDIT // 10):
        assert desk.bank.refund(lease.id, amount, "admin", "again") == CREDIT // 10
    with pytest.raises(Conflict):
        desk.bank.refund(lease.id, 5, "admin", "another one")
    assert sum(bucket.balance for bucket in desk.bank.account("alice").buckets) == CREDIT + CREDIT // 10
