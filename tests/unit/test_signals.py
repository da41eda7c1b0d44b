"""Rows to signals: what is known, since when, and why not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from idle_culler.signals import NOTHING, Known, NotApplicable, Unknown, moment, read, recall, remember
from tests.fakes.use import NOW, ago, gpu, host, kernel, kit, lease, quiet, watched

EAST = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-03-02T08:00:00Z", datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ("2026-03-02T08:00:00", datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ("2026-03-02T17:00:00+09:00", datetime(2026, 3, 2, 8, tzinfo=UTC)),
        (datetime(2026, 3, 2, 8, tzinfo=UTC).replace(tzinfo=None), datetime(2026, 3, 2, 8, tzinfo=UTC)),
        (datetime(2026, 3, 2, 17, tzinfo=EAST), datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ("2026-03-02T19:00:00Z", NOW),
        ("0001-01-01T00:00:00+23:59", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1772438400, None),
        (True, None),
    ],
    ids=str,
)
def test_i21_stamps_of_every_kind(value: Any, expected: datetime | None) -> None:
    assert moment(value, NOW) == expected


def test_known_signals() -> None:
    signals = read(lease(), {**kit(kernel(True, 9, 10), terminals=2), **host(3.5, 60), **gpu(0, 120)}, NOTHING, NOW)
    assert isinstance(signals.kit, Known) and isinstance(signals.host, Known) and isinstance(signals.gpu, Known)
    (found,) = signals.kit.value.kernels
    assert (found.busy, found.last_execute_at, found.busy_since) == (True, ago(9), ago(10))
    assert signals.kit.value.terminals == 2
    assert (signals.host.value.cpu_percent, signals.host.value.cpu_active_at) == (3.5, ago(60))
    assert (signals.gpu.value.util, signals.gpu.value.active_at) == (0, ago(120))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({}, "the notebook server's kit has not reported"),
        (kit(age=130), "the notebook server's kit last reported 130 s ago"),
        ({"kit": (NOW, None)}, "the report of the notebook server's kit cannot be read"),
        ({"kit": ("?", {"kernels": []})}, "the report of the notebook server's kit cannot be read"),
        ({"kit": (NOW, {"kernels": "none"})}, "its list of kernels cannot be read"),
        ({"kit": (NOW, {})}, "its list of kernels cannot be read"),
    ],
    ids=["absent", "old", "no-payload", "no-stamp", "no-list", "empty"],
)
def test_x16_absent_is_unknown_with_the_reason(row: dict[str, Any], why: str) -> None:
    assert read(lease(), row, NOTHING, NOW).kit == Unknown(why)


@pytest.mark.parametrize("percent", [None, -1, True, "3", float("nan"), float("inf")])
def test_a_cpu_reading_that_is_none_is_unknown_never_zero(percent: Any) -> None:
    assert isinstance(read(lease(), host(percent), NOTHING, NOW).host, Unknown)


@pytest.mark.parametrize("util", [None, -1, 101, False, "0"])
def test_i07_a_gpu_reading_that_is_none_is_unknown_never_zero(util: Any) -> None:
    assert isinstance(read(lease(), gpu(util), NOTHING, NOW).gpu, Unknown)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (lease(0), "no GPU"),
        (lease(1, simulated=True), "simulated"),
        (lease(1, share=500), "shared"),
    ],
    ids=["cpu", "simulated", "shared"],
)
def test_where_a_gpu_cannot_tell_of_one_lease(of: Any, why: str) -> None:
    assert read(of, gpu(None, reason=why), NOTHING, NOW).gpu == NotApplicable(why)


@pytest.mark.parametrize(
    "raw",
    [None, 3, {}, {"id": "k"}, {"id": "k", "busy": "no"}, {"id": "k", "busy": False, "last_execute_at": "soon"}],
    ids=str,
)
def test_a_kernel_that_cannot_be_read_is_unknown(raw: Any) -> None:
    signals = read(lease(), {"kit": (NOW, {"kernels": [raw]})}, NOTHING, NOW)
    assert isinstance(signals.kit, Known) and signals.kit.value.kernels[0].busy is None


@pytest.mark.parametrize("ahead", [121, 86400])
def test_a_report_of_a_time_far_ahead_is_of_unknown_age(ahead: int) -> None:
    """A clock that went back must not keep a row fresh until it has caught up."""
    signals = read(lease(), {"kit": (NOW + timedelta(seconds=ahead), {"kernels": []})}, NOTHING, NOW)
    why = f"the last report of the notebook server's kit bears a time {ahead} s ahead, so its age is not known"
    assert signals.kit == Unknown(why)


def test_a_report_of_a_clock_that_is_a_little_ahead_counts_as_now() -> None:
    signals = read(lease(), {"kit": (NOW + timedelta(seconds=119), {"kernels": []})}, NOTHING, NOW)
    assert isinstance(signals.kit, Known) and signals.kit.at == NOW


class TestWatch:
    """Since when a server is watched without a gap."""

    def test_from_the_start_when_seen_soon_after(self) -> None:
        assert read(lease(started=90), quiet(), NOTHING, NOW).watched_since == ago(90)

    def test_from_now_when_first_seen_late(self) -> None:
        assert read(lease(started=130), quiet(), NOTHING, NOW).watched_since == NOW

    def test_goes_on_while_looks_follow_each_other(self) -> None:
        assert read(lease(), quiet(), watched(since=5000, looked=120), NOW).watched_since == ago(5000)

    def test_begins_anew_after_a_gap_between_looks(self) -> None:
        assert read(lease(), quiet(), watched(since=5000, looked=121), NOW).watched_since == NOW

    def test_is_broken_while_a_source_is_silent(self) -> None:
        assert read(lease(), {**quiet(), **host(age=200)}, watched(), NOW).watched_since is None


def test_a_memory_survives_in_the_evidence() -> None:
    memory = watched(since=10, looked=20, active=30, warned=40)
    assert recall({"memory": remember(memory)}, NOW) == memory
    assert recall({"memory": remember(NOTHING)}, NOW) == NOTHING


@pytest.mark.parametrize("evidence", [None, 3, {}, {"memory": None}, {"memory": {"warned_at": 3}}], ids=str)
def test_a_mangled_memory_is_none(evidence: Any) -> None:
    assert recall(evidence, NOW) == NOTHING
