"""What the home page tells at a glance: until when the balance lasts, and what is free of which model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Device, DeviceState
from quota.ledger import Bucket
from quota.units import CREDIT
from quota.web.lasting import FAR, Outlook, Purse, about_words, outlook, outlook_words
from quota.web.period import month
from quota.web.room import number_words, rooms

NOW = datetime(2026, 3, 4, 9, 2, tzinfo=UTC)  # a Wednesday
BERLIN = ZoneInfo("Europe/Berlin")
MARCH = month(2026, 3, BERLIN)


def hours(count: float) -> datetime:
    return NOW + timedelta(hours=count)


def bucket(number: int, credits: int, expires: datetime | None = None) -> Bucket:
    return Bucket(number, str(number), credits * CREDIT, credits * CREDIT, NOW, expires)


# ---- how long ----


def test_held_credits_and_grants_are_burnt_one_after_the_other() -> None:
    purse = Purse(3 * CREDIT, (bucket(1, 4), bucket(2, 5)))
    assert outlook(purse, CREDIT, NOW, MARCH) == Outlook(hours(12))
    assert outlook(purse, 2 * CREDIT, NOW, MARCH) == Outlook(hours(6))


def test_what_expires_meanwhile_is_not_counted_on() -> None:
    purse = Purse(0, (bucket(1, 100, hours(10)), bucket(2, 5)))
    assert outlook(purse, CREDIT, NOW, MARCH).until == hours(15)
    assert outlook(Purse(0, (bucket(1, 100, hours(10)),)), CREDIT, NOW, MARCH).until == hours(10)


def test_debt_is_paid_first() -> None:
    assert outlook(Purse(0, (bucket(1, 4), bucket(2, 5)), -6 * CREDIT), CREDIT, NOW, MARCH).until == hours(3)
    assert outlook(Purse(0, (bucket(1, 4),), -6 * CREDIT), CREDIT, NOW, MARCH).until == NOW


def test_a_monthly_limit_that_comes_first_is_told_as_such() -> None:
    purse = Purse(0, (bucket(1, 9999),), spent=8 * CREDIT, most=10 * CREDIT)
    assert outlook(purse, CREDIT, NOW, MARCH) == Outlook(hours(2), limited=True)
    # This month has room enough, the next one begins with none charged.
    late = MARCH.end - timedelta(hours=1)
    assert outlook(purse, CREDIT, late, MARCH) == Outlook(MARCH.end + timedelta(hours=10), limited=True)
    assert outlook(Purse(0, (bucket(1, 1),), most=10 * CREDIT), CREDIT, NOW, MARCH) == Outlook(hours(1))


def test_more_than_a_year_is_no_date() -> None:
    found = outlook(Purse(0, (bucket(1, 10**9),)), 1, NOW, MARCH)
    assert found == Outlook(None)
    assert outlook_words(found, NOW, BERLIN) == "At this rate it lasts for more than a year"


@given(st.lists(st.integers(0, 10**15), max_size=4), st.integers(0, 10**15), st.integers(1, 10**12), st.booleans())
def test_it_never_lasts_longer_than_all_the_money_there_is(
    grants: list[int], held: int, rate: int, expiring: bool
) -> None:
    buckets = tuple(
        Bucket(number, str(number), amount + 1, amount, NOW, hours(number + 1) if expiring else None)
        for number, amount in enumerate(grants)
    )
    until = outlook(Purse(held, buckets), rate, NOW, MARCH).until
    seconds = (sum(grants) + held) * 3600 / rate
    assert until is None or NOW <= until <= NOW + FAR
    assert until is None or (until - NOW).total_seconds() <= seconds + 1
    assert expiring or (until is None) == (seconds > FAR.total_seconds()) or abs(seconds - FAR.total_seconds()) < 5


def test_the_nearer_the_end_the_more_exactly_it_is_told_and_never_too_late() -> None:
    assert about_words(hours(0.3), NOW, BERLIN) == "Wed 10:20"
    assert about_words(hours(30), NOW, BERLIN) == "Thu 16:00"
    assert about_words(hours(24 * 20), NOW, BERLIN) == "24 Mar 2026"
    assert outlook_words(Outlook(hours(30)), NOW, BERLIN) == "At this rate until about Thu 16:00"
    limited = outlook_words(Outlook(hours(30), limited=True), NOW, BERLIN)
    assert limited == "At this rate the monthly limit is reached about Thu 16:00"
    assert outlook_words(Outlook(NOW), NOW, BERLIN) == "Nothing is left"


# ---- what is free ----


def gpu(number: int, used: int = 0, state: DeviceState = DeviceState.OK, name: str = "A100") -> Device:
    return Device("h", f"GPU-{number}", number, name, 40960, "time-slice", False, state, used=used)


def test_each_model_says_how_much_of_it_is_free_and_what_that_means() -> None:
    one, two = rooms([gpu(0, 250), gpu(1, 1000), gpu(2), gpu(3, name="T4", used=1000)])
    assert (one.words, one.free, one.note) == ("3 × A100, 40 GB", "1 3/4 of 3 GPUs free", "1 GPU is wholly free")
    assert (two.words, two.free, two.note) == ("T4, 40 GB", "0 of 1 GPU free", "All of it is held")
    assert [cell.used > 0 for cell in one.cells] == [True, True, False]
    assert one.cells[-1].start + one.cells[-1].width <= 1000


def test_no_whole_gpu_free_names_the_largest_part() -> None:
    assert rooms([gpu(0, 250), gpu(1, 625)])[0].note == "The largest free part is 3/4 GPU"


def test_what_is_out_of_service_is_not_free() -> None:
    (room,) = rooms([gpu(0, state=DeviceState.LOST)])
    assert (room.free, room.note, room.cells[0].off) == ("0 of 1 GPU free", "Not in service now", True)


def test_a_house_full_of_devices_is_one_bar() -> None:
    (room,) = rooms([gpu(number, 500 if number < 20 else 0) for number in range(40)])
    assert [(cell.width, cell.used) for cell in room.cells] == [(1000, 250)]
    assert room.free == "30 of 40 GPUs free"
    assert rooms([]) == ()


def test_numbers_of_gpus() -> None:
    assert [number_words(milli) for milli in (0, 875, 1500, 2000, 333)] == ["0", "7/8", "1 1/2", "2", "0.33"]
