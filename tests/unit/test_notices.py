"""Notices: their words and facts, and that handing them over never waits, never fails and is counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hub_config import notifying
from hub_config.notifying import SiteNotifier
from quota import catalogues
from quota.i18n import speaking
from quota.leases import Holder, Lease, Price, Slot, State, Target
from quota.notices import Notice, NoticeKind, credit_low, credit_stop, idle_stop, idle_warning
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
            idle_stop(LEASE, "Not used since 08:30", NOW),
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
        said = retold(idle_stop(LEASE, "Last used just now", NOW).words)
    assert "gpu-1" in said and "Last used" not in said and "server" not in said


def numbered(number: int) -> Notice:
    return Notice("ada", NoticeKind.IDLE_STOP, str(number), NOW, "/")


def told(own: Callable[[Notice], object], notices: int, **more: Any) -> dict[str, int]:
    """What becomes of so many notices, once their notifier has been closed."""
    notifier = SiteNotifier(own, **more)
    for number in range(notices):
        notifier.deliver(numbered(number))
    notifier.close()
    return dict(notifier.counts())


def test_notices_come_one_after_another_and_the_end_waits_for_the_last() -> None:
    got: list[str] = []
    assert told(lambda notice: got.append(notice.words), 20) == outcome(delivered=20)
    assert got == [str(number) for number in range(20)]


def outcome(delivered: int = 0, failed: int = 0, dropped: int = 0) -> dict[str, int]:
    return {"notices_delivered": delivered, "notices_failed": failed, "notices_dropped": dropped}


def test_one_that_fails_is_logged_counted_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def own(notice: Notice) -> None:
        if notice.words == "1":
            raise ConnectionRefusedError("no mail server")

    with caplog.at_level(logging.WARNING):
        assert told(own, 3) == outcome(delivered=2, failed=1)
    assert "idle-stop to ada was not delivered: ConnectionRefusedError: no mail server" in caplog.text


def test_one_that_hangs_is_given_up_and_whoever_decides_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "MOST_WAITING", 3)
    go_on, began = threading.Event(), threading.Event()

    def own(notice: Notice) -> None:
        began.set()
        if notice.words == "0":
            go_on.wait(30)

    notifier = SiteNotifier(own, seconds=0.2)
    notifier.deliver(numbered(0))
    assert began.wait(10)
    for number in range(1, 6):  # three wait, two are too many; none of these calls blocks, or this would not end
        notifier.deliver(numbered(number))
    notifier.close()
    go_on.set()
    assert notifier.counts() == outcome(delivered=3, failed=1, dropped=2)
