"""Notices: their words and facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quota import catalogues
from quota.i18n import speaking
from quota.leases import Holder, Lease, Price, Slot, State, Target
from quota.notices import Notice, NoticeKind, credit_low, credit_stop, idle_warning, stops_now
from quota.told import retold
from quota.units import MicroCredits, MilliGpu

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SOON = NOW + timedelta(minutes=5)
LEASE = Lease(
    id="l1",
    version=1,
    state=State.RUNNING,
    target=Target.RUN,
    holder=Holder("ada", "two"),
    account_id=1,
    account="lab",
    profile="gpu-1",
    image="here",
    share=MilliGpu(1000),
    count=1,
    slots=(Slot("h", "GPU-1", MilliGpu(1000)),),
    simulated=False,
    price=Price(1, MicroCredits(1), MicroCredits(0)),
    owner=None,
    requested_at=NOW,
    requested_by="ada",
)


@pytest.mark.parametrize(
    ("notice", "kind", "words", "data"),
    [
        (
            idle_warning(LEASE, "Not used since 08:35", SOON, NOW),
            NoticeKind.IDLE_WARNING,
            "Your server with the profile gpu-1 is idle and will be stopped at 2026-03-02 09:05 UTC unless it is used "
            "before. Not used since 08:35.",
            {"deadline": "2026-03-02T09:05:00+00:00", "stage": 10},
        ),
        (
            stops_now(LEASE, NoticeKind.IDLE_STOP, "Not used since 08:30", NOW),
            NoticeKind.IDLE_STOP,
            "Your server with the profile gpu-1 is being stopped. Not used since 08:30.",
            {},
        ),
        (
            credit_low(LEASE, 80, 1_500_000, NOW),
            NoticeKind.CREDIT_LOW,
            "80 % of the credits for your server with the profile gpu-1 are used; 1.50 are left. "
            "Save your work in time.",
            {"percent": 80, "left_micro_credits": 1_500_000},
        ),
        (
            credit_stop(LEASE, "the credit of lab is used up", SOON, NOW),
            NoticeKind.CREDIT_STOP,
            "Your server with the profile gpu-1 will be stopped at 2026-03-02 09:05 UTC: the credit of lab is used up. "
            "Save your work now.",
            {"deadline": "2026-03-02T09:05:00+00:00"},
        ),
    ],
)
def test_a_notice_is_whole_sentences_and_the_facts(
    notice: Notice, kind: NoticeKind, words: str, data: dict[str, Any]
) -> None:
    assert (notice.user, notice.kind, notice.words, notice.when) == ("ada", kind, words, NOW)
    assert notice.link == "/services/berth/lease/l1"
    assert dict(notice.data) == {"lease": "l1", "server": "two", "profile": "gpu-1", **data}
    with pytest.raises(TypeError):
        notice.data["lease"] = "l2"  # type: ignore[index]


def test_a_notice_is_told_in_its_reader_s_language_reason_and_all() -> None:
    catalogues.load("en")
    with speaking("zh-CN"):
        said = retold(stops_now(LEASE, NoticeKind.IDLE_STOP, "Last used just now", NOW).words)
    assert "gpu-1" in said and "Last used" not in said and "server" not in said
