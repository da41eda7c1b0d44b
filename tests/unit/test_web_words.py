"""Words, figures, periods and fields of the pages: pure functions, by example and by property."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Price, Segment, StopReason
from quota.pricing import cost
from quota.said import STOP_WORDS
from quota.units import MicroCredits, MilliGpu, parse_credits
from quota.web import fields, words
from quota.web.export import safe_cell, to_csv
from quota.web.figures import gpu_hours, line
from quota.web.period import month, month_of, months, parse_moment, parse_month
from quota.web.problem import Problem
from quota.web.render import asset_hash, month_words

BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def plain(text: str) -> str:
    return text.replace(words.THIN_SPACE, " ").replace(words.NO_BREAK, " ")


def test_every_stop_reason_and_state_has_words() -> None:
    assert set(STOP_WORDS) == set(StopReason)
    assert len(set(STOP_WORDS.values())) == len(StopReason)


@pytest.mark.parametrize(
    ("number", "said"),
    [("3612.4", "3 612.4"), ("1200", "1 200"), ("0.000001", "0.000001"), ("-1234567.50", "-1 234 567.5"), ("0", "0")],
)
def test_digits_are_grouped_and_exact(number: str, said: str) -> None:
    assert plain(words.digits(Decimal(number))) == said


@pytest.mark.parametrize(
    ("amount", "said"),
    [(250861, "0.250861"), (1_000_000, "1.00"), (0, "0.00"), (-5, "-0.000005"), (1_234_567_800_000, "1 234 567.80")],
)
def test_credits_show_all_places_that_matter(amount: int, said: str) -> None:
    assert plain(words.credits_words(amount)) == said


@given(st.integers(-(10**15), 10**15))
def test_credits_can_be_read_back_exactly(amount: int) -> None:
    assert parse_credits(words.credits_words(amount).replace(words.THIN_SPACE, "")) == amount


@pytest.mark.parametrize(
    ("share", "count", "said"),
    [(250, 1, "1/4"), (1000, 1, "1"), (1000, 2, "2"), (250, 2, "2 × 1/4"), (300, 1, "0.3"), (333, 1, "0.333")],
)
def test_factors(share: int, count: int, said: str) -> None:
    assert words.factor_words(share, count) == said


@pytest.mark.parametrize(
    ("milli", "said"), [(0, "nothing"), (875, "7/8 GPU"), (1000, "1 GPU"), (333, "0.333 GPU"), (-5, "nothing")]
)
def test_parts_of_a_device(milli: int, said: str) -> None:
    assert words.part_words(milli) == said


def test_numbers_of_gpus_as_a_limit() -> None:
    assert [words.gpus_words(milli) for milli in (0, 500, 1000, 4000, 1500)] == [
        "no GPU",
        "1/2 GPU",
        "1 GPU",
        "4 GPUs",
        "1.5 GPU",
    ]


def test_memory_and_durations() -> None:
    assert [words.memory_words(mib) for mib in (None, 512, 1024, 24576, 1536)] == [
        "memory unknown",
        "512 MB",
        "1 GB",
        "24 GB",
        "1.5 GB",
    ]
    spans = (-5, 42, 130, 7200, 11_100, 187_200)
    said = [words.duration_words(timedelta(seconds=seconds)) for seconds in spans]
    assert said == ["0 s", "42 s", "2 min", "2 h 00 min", "3 h 05 min", "2 d 4 h"]


def test_times_are_rfc_3339_in_utc_and_on_the_sites_clock() -> None:
    moment = datetime(2026, 7, 1, 23, 30, 5, tzinfo=BERLIN)
    assert words.instant(moment) == "2026-07-01T21:30:05Z"
    assert words.clock_words(moment.astimezone(UTC), BERLIN) == "1 Jul 2026, 23:30:05"
    assert words.instant_or_none(None) is None


# ---- the arithmetic ----


def segment(weight: int, gpu_hour: int = 1_000_000, cpu_hour: int = 0) -> Segment:
    return Segment(1, MilliGpu(weight), Price(1, MicroCredits(gpu_hour), MicroCredits(cpu_hour)), AT)


def test_a_line_says_seconds_times_share_times_rate() -> None:
    found = line(segment(250), timedelta(seconds=3612.4), 250, 1)
    assert plain(str(found)) == "3 612.4 s × 1/4 × 1.00 credit/h = 0.250861"
    cpu = line(segment(0, cpu_hour=20_000), timedelta(microseconds=1), 0, 0)
    assert plain(str(cpu)) == "0.000001 s × 1 server × 0.02 credits/h = 0.000000"


@given(
    st.sampled_from([(125, 1), (250, 1), (333, 1), (500, 1), (1000, 1), (1000, 2), (1000, 8)]),
    st.integers(0, 10**13),
    st.integers(0, 10**9),
)
def test_a_lines_own_numbers_multiply_to_its_amount(shape: tuple[int, int], micro: int, price: int) -> None:
    share, count = shape
    part, duration = segment(share * count, price), timedelta(microseconds=micro)
    found = line(part, duration, share, count)
    seconds = Fraction(plain(found.seconds).removesuffix(" s").replace(" ", ""))
    rate = Fraction(plain(found.rate).rpartition(" ")[0].replace(" ", ""))
    factor = Fraction(1)
    for piece in found.factor.split(" × "):
        factor *= Fraction(piece)
    exact = seconds * factor * rate / 3600
    assert exact == cost(part.price, part.weight, duration) / 10**6
    assert abs(Fraction(found.amount) - exact) <= Fraction(1, 2 * 10**6)


def test_gpu_hours_are_cut() -> None:
    assert [gpu_hours(amount) for amount in (0, 35_999, 36_000, 3_599_999, 45_000_000)] == [
        "0.00",
        "0.00",
        "0.01",
        "0.99",
        "12.50",
    ]


# ---- periods ----


def test_moments_are_read_in_utc_or_as_a_day_of_the_site() -> None:
    assert parse_moment("2026-03-01T12:00:00+02:00", BERLIN) == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert parse_moment("2026-03-01T12:00:00 02:00", BERLIN) == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert parse_moment("2026-03-01t12:00:00z", BERLIN) == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert parse_moment("2026-03-01", BERLIN) == datetime(2026, 2, 28, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "x", "2026-03-01T12:00:00", "2026-02-30", "1999-12-31", "9999-12-31T23:59:59-14:00"]
)
def test_other_moments_are_refused_with_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|does not say"):
        parse_moment(text, BERLIN)


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_of_moments(text: str) -> None:
    try:
        assert parse_moment(text, BERLIN).tzinfo is UTC
    except ValueError as error:
        assert str(error)


@given(st.integers(2000, 2998), st.integers(1, 12), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Shanghai"]))
def test_months_follow_each_other_without_a_gap(year: int, number: int, zone: str) -> None:
    tz = ZoneInfo(zone)
    this = month(year, number, tz)
    assert month_of(this.start, tz) == this
    assert month_of(this.end - timedelta(microseconds=1), tz) == this
    assert month_of(this.end, tz).start == this.end
    assert parse_month(this.name, tz) == this


def test_months_are_listed_newest_first() -> None:
    found = months(datetime(2025, 11, 30, 23, 30, tzinfo=UTC), AT, BERLIN)
    assert found == ("2026-03", "2026-02", "2026-01", "2025-12")
    assert len(months(datetime(2000, 1, 1, tzinfo=UTC), AT, BERLIN)) == 36
    assert month_words("2026-03") == "March 2026"


# ---- fields ----


def refused(read: object, *args: object) -> str:
    with pytest.raises(Problem) as caught:
        read(*args)  # type: ignore[operator]
    assert caught.value.status == 400
    return caught.value.reason


@pytest.mark.parametrize(
    "value", ["1e3", "", "0x1", "1_0", "--1", "NaN", "1.0000000", "٣", None, 1.5, True, 10**20, "9" * 14]
)
def test_what_is_no_amount_of_credits(value: object) -> None:
    assert refused(fields.credits_of, value, "credits") == "field-invalid"


def test_amounts_are_exact() -> None:
    assert fields.credits_of(" 12.5 ", "credits") == 12_500_000
    assert fields.credits_of(Decimal("0.000001"), "credits") == 1
    assert fields.amount({"amount_micro_credits": 7}) == 7
    assert fields.amount({}, optional=True) is None
    assert refused(fields.amount, {}) == "field-invalid"


@given(st.binary(max_size=200))
def test_no_body_breaks_the_reading_of_json(raw: bytes) -> None:
    try:
        assert isinstance(fields.json_object(raw), dict)
    except Problem as problem:
        assert problem.reason == "json-invalid"


def test_keys_of_header_and_body_must_agree() -> None:
    assert fields.key("a", {}) == fields.key(None, {"key": "a"}) == fields.key("a", {"key": "a"}) == "a"
    assert fields.key(None, {}) is None
    assert refused(fields.key, "a", {"key": "b"}) == "field-invalid"
    assert refused(fields.key, "with space", {}) == "field-invalid"


# ---- tables ----


@given(st.text())
def test_no_cell_begins_as_a_formula(text: str) -> None:
    cell = safe_cell(text)
    assert isinstance(cell, str)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert cell in (text, f"'{text}")


def test_csv_quotes_what_must_be_quoted() -> None:
    assert to_csv(("a", "b"), [("x,y", None), ('"', 5)]) == 'a,b\r\n"x,y",\r\n"""",5\r\n'


def test_assets_are_named_by_their_content() -> None:
    assert len({asset_hash(name) for name in ("berth.css", "berth.js", "berth.svg")}) == 3
