"""Which notice goes by which channel and when: choices, quiet hours over midnight, digests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from hub_config.settings import SettingsError, parse
from quota.notices import FRESH, TO_ADMINS, Notice, NoticeKind
from quota.routing import NO_PREFERENCE, Preference, due_at, from_choices, is_email, route, to_choices

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = datetime(2026, 3, 2, 22, 30, tzinfo=UTC)  # 23:30 in Berlin
MORNING = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)  # 07:00
QUIET = Preference(quiet=(time(22, 0), time(7, 0)), chat="sealed")
ENDED = Notice("ada", NoticeKind.STOPPED, "It ended.", NIGHT, "/x", {}, "k", NIGHT + FRESH)
WARNED = replace(ENDED, kind=NoticeKind.IDLE_WARNING, expires_at=NIGHT + timedelta(minutes=10))


def test_what_nobody_chose_goes_by_what_can_be_used() -> None:
    assert route(ENDED, NO_PREFERENCE, ("mail", "chat"), NIGHT, BERLIN) == {"mail": NIGHT}  # no chat is known
    assert set(route(ENDED, Preference(chat="x"), ("mail", "chat"), NIGHT, BERLIN)) == {"mail", "chat"}
    assert route(replace(ENDED, kind=NoticeKind.IDLE_STOP), NO_PREFERENCE, ("mail", "site"), NIGHT, BERLIN) == {
        "site": NIGHT
    }
    assert set(route(replace(ENDED, user=TO_ADMINS), NO_PREFERENCE, ("chat", "site"), NIGHT, BERLIN)) == {"chat"}


def test_in_quiet_hours_a_stop_waits_for_the_morning_and_a_warning_is_left_to_the_pages() -> None:
    assert route(ENDED, QUIET, ("mail",), NIGHT, BERLIN) == {"mail": MORNING}
    assert route(WARNED, QUIET, ("mail",), NIGHT, BERLIN) == {}
    assert route(WARNED, NO_PREFERENCE, ("mail",), NIGHT, BERLIN) == {"mail": NIGHT}


@pytest.mark.parametrize(
    ("clock", "wanted"),
    [
        ((21, 59), (21, 59)),
        ((22, 0), (7, 0)),
        ((0, 0), (7, 0)),
        ((6, 59), (7, 0)),
        ((7, 0), (7, 0)),
        ((12, 0), (12, 0)),
    ],
)
def test_quiet_hours_are_half_open_on_the_site_s_clock(clock: tuple[int, int], wanted: tuple[int, int]) -> None:
    at = datetime(2026, 3, 28, *clock, tzinfo=BERLIN)  # the night in which summer begins
    assert due_at(NoticeKind.STOPPED, QUIET, at, BERLIN).astimezone(BERLIN).time() == time(*wanted)


def test_a_digest_keeps_what_is_not_urgent() -> None:
    daily, hourly = Preference(digest="daily"), Preference(digest="hourly")
    assert due_at(NoticeKind.STOPPED, daily, NIGHT, BERLIN) == datetime(2026, 3, 3, 7, 0, tzinfo=UTC)
    assert due_at(NoticeKind.STOPPED, hourly, NIGHT, BERLIN) == datetime(2026, 3, 2, 23, 0, tzinfo=UTC)
    assert due_at(NoticeKind.CREDIT_LOW, daily, NIGHT, BERLIN) == NIGHT


def test_choices_are_read_as_they_were_written_and_what_is_strange_is_left_out() -> None:
    chosen = Preference("a@b.example", "zh-CN", {"stopped": ("mail",)}, (time(22), time(7)), "daily", "sealed")
    assert from_choices(chosen.email, to_choices(chosen), chosen.chat) == chosen
    strange = {
        "kinds": {"stopped": ["mail", "pigeon"], "new": ["mail"]},
        "quiet": ["25:00", "07:00"],
        "digest": "yearly",
    }
    assert from_choices("", strange, "") == Preference(kinds={"stopped": ("mail",)})


@pytest.mark.parametrize(
    "text", ["", "a", "a@b", "a@b.c\nBcc: x@y.z", "a b@c.d", "a@b.c,d@e.f", "<a@b.c>", "a@" + "b" * 300 + ".c"]
)
def test_what_is_no_plain_address_is_none(text: str) -> None:
    assert not is_email(text)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[mail]\nhost = "m.example"', "mail: sender: a mail needs one"),
        ('[mail]\nsender = "nobody"', "mail.sender: 'nobody' is no mail address"),
        ('[mail]\ndomain = "@x"', "mail.domain: '@x' is no domain"),
        ('[mail]\nhost = "m.x.y"\nsender = "a@b.cd"\nuser = "u"\nsecurity = "none"', "in the clear"),
        ('[chat]\nhosts = ["https://x.y"]', "is no name of a host"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said_with_its_remedy(table: str, words: str) -> None:
    with pytest.raises(SettingsError, match=r"berth\.toml: (mail|chat)") as wrong:
        parse(table)
    assert words in str(wrong.value)
