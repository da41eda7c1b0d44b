"""What people are told about their servers while they look elsewhere: values, made where the thing is decided. Pure.

`words` stand in the book, so they are English, a sentence or two a line, from `quota.told`; whoever shows them tells
them again (`quota.told.retold`) in the reader's language. How a notice reaches somebody is behind a `Notifier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from quota import told
from quota.leases import Lease, StopReason
from quota.reported import Farewell
from quota.said import STOP_WORDS
from quota.units import show_credits

#: Below the site's address: the receipt, which says why a server ended and offers the next step.
LINK = "/services/berth/lease/{lease}"
#: Where administrators see alerts and appeals, and users their starts.
ADMIN_LINK: Final = "/services/berth/admin"
HOME_LINK: Final = "/hub/home"
NOTICES_LINK: Final = "/services/berth/notices"

#: As `Notice.user`: for the site's administrators, whoever they are. No user has this name.
TO_ADMINS: Final = ""

#: How long somebody should still be told of a thing that is over.
FRESH: Final = timedelta(days=3)


class NoticeKind(StrEnum):
    IDLE_WARNING = "idle-warning"
    IDLE_STOP = "idle-stop"
    CREDIT_LOW = "credit-low"
    CREDIT_STOP = "credit-stop"
    SHUTDOWN_WARNING = "shutdown-warning"
    SHUTDOWN_STOP = "shutdown-stop"
    MAX_AGE_WARNING = "max-age-warning"
    MAX_AGE_STOP = "max-age-stop"
    OVER_SHARE = "over-share"
    STOPPED = "stopped"
    OWN_STOP = "own-stop"
    APPEAL_MADE = "appeal-made"
    APPEAL_DECIDED = "appeal-decided"
    START_DONE = "start-done"
    START_FAILED = "start-failed"
    ALERT = "alert"
    TEST = "test"


#: What is told when a server is being stopped, by the reason.
STOPS: Final[Mapping[StopReason, NoticeKind]] = MappingProxyType(
    {
        StopReason.IDLE: NoticeKind.IDLE_STOP,
        StopReason.MAX_AGE: NoticeKind.MAX_AGE_STOP,
        StopReason.SHUTDOWN: NoticeKind.SHUTDOWN_STOP,
    }
)

#: What is told when a server has ended.
ENDS: Final = (NoticeKind.STOPPED, NoticeKind.OWN_STOP)

#: Of these only those count that can still be acted upon; they are never kept for a digest.
URGENT: Final = frozenset(
    {
        NoticeKind.IDLE_WARNING,
        NoticeKind.CREDIT_LOW,
        NoticeKind.CREDIT_STOP,
        NoticeKind.SHUTDOWN_WARNING,
        NoticeKind.MAX_AGE_WARNING,
        NoticeKind.OVER_SHARE,
    }
)


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell `user` (the Hub's name; `TO_ADMINS` for all administrators). `words` are whole sentences;
    `when` is the moment it was decided, in UTC; `link` is a path below the site's address. `data` repeats the facts
    for programs: `lease`, `server` ("" is the default one), `profile`, and by kind more (docs/extend/notifier.md).

    What has the same `key` is told once; "" makes one of the other fields. After `expires_at` nobody need be told."""

    user: str
    kind: NoticeKind
    words: str
    when: datetime
    link: str
    data: Mapping[str, str | int] = field(default_factory=dict)
    key: str = ""
    expires_at: datetime | None = None


# ---- warnings ----------------------------------------------------------------------------------------------------


def idle_warning(lease: Lease, why: str, deadline: datetime, now: datetime, stage: int = 10) -> Notice:
    """It will be stopped at `deadline` unless it is used before; `why` is the verdict's words as the book has them.
    `stage` is 10 or 2: about so many minutes before. Each stage of one deadline is told once."""
    words = told.WILL_BE_IDLE % _facts(lease, deadline=_moment(deadline), why=why)
    return _warning(lease, NoticeKind.IDLE_WARNING, words, deadline, now, stage, "warn")


def shutdown_warning(lease: Lease, deadline: datetime, now: datetime, stage: int = 10) -> Notice:
    """Its user has set this time for its end."""
    words = told.WILL_SHUT_DOWN % _facts(lease, deadline=_moment(deadline))
    return _warning(lease, NoticeKind.SHUTDOWN_WARNING, words, deadline, now, stage, "shutdown")


def max_age_warning(lease: Lease, why: str, deadline: datetime, now: datetime, stage: int = 10) -> Notice:
    """It reaches the longest time that a server may run; `why` names rule and value."""
    words = told.WILL_STOP % _facts(lease, deadline=_moment(deadline), why=why)
    return _warning(lease, NoticeKind.MAX_AGE_WARNING, words, deadline, now, stage, "max-age")


def credit_low(lease: Lease, percent: int, left: int, now: datetime) -> Notice:
    """So much per cent of what its account can pay for this server is used; `left` in micro-credits."""
    words = told.CREDITS_LOW % _facts(lease, percent=percent, left=show_credits(left))
    key = f"credit-low:{lease.id}:{percent}"
    return _notice(lease, NoticeKind.CREDIT_LOW, words, now, key, percent=percent, left_micro_credits=left)


def credit_stop(lease: Lease, why: str, deadline: datetime, now: datetime) -> Notice:
    words = told.WILL_STOP % _facts(lease, deadline=_moment(deadline), why=why)
    key = f"credit-stop:{lease.id}:{deadline.astimezone(UTC).isoformat()}"
    return _notice(lease, NoticeKind.CREDIT_STOP, words, now, key, deadline, deadline=deadline.isoformat())


def over_share(lease: Lease, why: str, deadline: datetime | None, now: datetime) -> Notice:
    """It uses more than its share of a GPU's memory; it is stopped at `deadline` (None: it is not) if it goes on."""
    key = f"over-share:{lease.id}:{now.astimezone(UTC).isoformat()}"
    if deadline is None:
        return _notice(lease, NoticeKind.OVER_SHARE, told.IS_OVER % _facts(lease, why=why), now, key)
    words = told.WILL_BE_OVER % _facts(lease, deadline=_moment(deadline), why=why)
    return _notice(lease, NoticeKind.OVER_SHARE, words, now, key, deadline, deadline=deadline.isoformat())


def _warning(
    lease: Lease, kind: NoticeKind, words: str, deadline: datetime, now: datetime, stage: int, key: str
) -> Notice:
    key = f"{key}:{lease.id}:{deadline.astimezone(UTC).isoformat()}:{stage}"
    return _notice(lease, kind, words, now, key, deadline, deadline=deadline.isoformat(), stage=stage)


# ---- what has happened -------------------------------------------------------------------------------------------


def stops_now(lease: Lease, kind: NoticeKind, why: str, now: datetime) -> Notice:
    """It is being stopped, and its kit saves; when it is gone `stopped` says what became of it. `kind` is one of
    `STOPS`. Told once of each stop: one that was taken back may be followed by another."""
    until = (lease.stop_after or now).astimezone(UTC)
    words = told.STOPS_NOW % _facts(lease, why=why)
    return _notice(lease, kind, words, now, f"{kind.value}:{lease.id}:{until.isoformat()}")


def stopped(lease: Lease, now: datetime, heard: Farewell | None = None) -> Notice:
    """The card of a lease that is settled: it has ended, when, why, what it cost and what was saved. `heard` is what
    its kit said of that, None where it said nothing; its words may be forged, and reach its own user alone."""
    lines = [_ended(lease)]
    facts: dict[str, str | int] = {
        "reason": lease.stop_reason.value if lease.stop_reason else "",
        "rule": lease.stop_detail,
        "cost_micro_credits": lease.charged,
    }
    if lease.started_at is not None and lease.ended_at is not None:
        ran = told.span(lease.ended_at - lease.started_at)
        lines.append(told.HAS_COST % {"span": ran, "amount": show_credits(lease.charged)})
    if heard is None:
        lines.append(told.NOTHING_HEARD)
    elif heard.done_at is None:
        lines.append(told.SAVING_CUT)
    else:
        facts |= {name: len(_rows(heard, name)) + _count(heard.report.get(f"{name}_left_out")) for name in _LISTS}
        lines += [told.WAS_SAVED % {"number": facts["saved"], "lost": facts["lost"]}, *_things(heard)]
    kind = NoticeKind.OWN_STOP if own_stop(lease) else NoticeKind.STOPPED
    return _notice(lease, kind, "\n".join(lines), now, f"stopped:{lease.id}", None, **facts)


def own_stop(lease: Lease) -> bool:
    """Whether its user ended it by hand, so that nothing of it is news to them."""
    return lease.stop_reason is StopReason.USER and lease.stop_by in ("", lease.holder.user)


_LISTS: Final = ("saved", "lost")
#: Of each list so many are named; the rest is on the receipt.
NAMED: Final = 5


def _ended(lease: Lease) -> str:
    why = " ".join(lease.stop_detail.split()).rstrip(".")
    words = told.HAS_ENDED_WHY if why else told.HAS_ENDED
    what = STOP_WORDS[lease.stop_reason or StopReason.FAILED]
    return words % _facts(lease, moment=_moment(lease.ended_at or lease.requested_at), what=what, why=why)


def _things(heard: Farewell) -> list[str]:
    names = [str(row.get("what") or row.get("path") or "") for row in _rows(heard, "saved")]
    named = ", ".join([name for name in names if name][:NAMED])
    lines = [told.THINGS_SAVED % {"what": named}] if named else []
    for row in _rows(heard, "lost")[:NAMED]:
        where, why = str(row.get("where") or ""), str(row.get("why") or "").rstrip(".")
        what = ", ".join(filter(None, (str(row.get("what") or ""), where)))
        if what:
            lines.append((told.THING_LOST if why else told.THING_LOST_SOMEHOW) % {"what": what, "why": why})
    return lines


def _rows(heard: Farewell, name: str) -> list[Mapping[str, object]]:
    rows = heard.report.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def appeal_made(lease: Lease, said: str, now: datetime, link: str = ADMIN_LINK) -> Notice:
    """To the administrators: its user says that its end was wrong. `said` are the user's own words."""
    words = told.APPEALED % {"user": lease.holder.user, "profile": lease.profile}
    facts = {"lease": lease.id, "server": lease.holder.server, "profile": lease.profile}
    data = MappingProxyType({**facts, "user": lease.holder.user, "said": said[:500]})
    key = f"appeal-made:{lease.id}"
    return Notice(TO_ADMINS, NoticeKind.APPEAL_MADE, words, now, link, data, key, now + FRESH)


def appeal_decided(lease: Lease, granted: bool, answer: str, refund: int, now: datetime) -> Notice:
    """`refund` in micro-credits; `answer` are the administrator's own words, perhaps none."""
    if granted:
        words = told.APPEAL_GRANTED % _facts(lease, amount=show_credits(refund))
    else:
        words = told.APPEAL_DENIED % _facts(lease)
    if answer:
        words += "\n" + told.APPEAL_ANSWER % {"words": " ".join(answer.split())}
    facts: dict[str, str | int] = {"granted": int(granted), "refund_micro_credits": refund}
    return _notice(lease, NoticeKind.APPEAL_DECIDED, words, now, f"appeal-decided:{lease.id}", None, **facts)


def start_done(user: str, server: str, profile: str, schedule: str, now: datetime, link: str = HOME_LINK) -> Notice:
    """A scheduled start was made; `schedule` is its id."""
    words = told.START_DONE % {"profile": profile}
    return _of_start(user, server, profile, schedule, now, link, NoticeKind.START_DONE, words)


def start_failed(
    user: str, server: str, profile: str, schedule: str, why: str, now: datetime, link: str = HOME_LINK
) -> Notice:
    """A scheduled start could not be made; `why` as the book has it, or in the user's language. Its full stop goes."""
    words = told.START_NOT_DONE % {"profile": profile, "why": why.rstrip(".。")}
    return _of_start(user, server, profile, schedule, now, link, NoticeKind.START_FAILED, words)


def _of_start(
    user: str, server: str, profile: str, schedule: str, now: datetime, link: str, kind: NoticeKind, words: str
) -> Notice:
    data = MappingProxyType({"schedule": schedule, "server": server, "profile": profile})
    return Notice(user, kind, words, now, link, data, f"{kind.value}:{schedule}", now + FRESH)


def alert(key: str, words: str, since: datetime, now: datetime) -> Notice:
    """To the administrators: a trouble of `quota.alerts` stands `since` then; told once as long as it stands."""
    data = MappingProxyType({"alert": key})
    once = f"alert:{since.astimezone(UTC).isoformat()}:{key}"
    said = told.BOOK_ALERT % {"words": words}
    return Notice(TO_ADMINS, NoticeKind.ALERT, said, now, ADMIN_LINK, data, once, now + FRESH)


def trial(user: str, now: datetime) -> Notice:
    """What somebody asked for to see that it comes."""
    expires = now + timedelta(minutes=30)
    return Notice(user, NoticeKind.TEST, told.TRIAL, now, NOTICES_LINK, MappingProxyType({}), "", expires)


def _notice(
    lease: Lease,
    kind: NoticeKind,
    words: str,
    now: datetime,
    key: str,
    until: datetime | None = None,
    /,
    **data: str | int,
) -> Notice:
    facts = {"lease": lease.id, "server": lease.holder.server, "profile": lease.profile, **data}
    link = LINK.format(lease=lease.id)
    return Notice(lease.holder.user, kind, words, now, link, MappingProxyType(facts), key, until or now + FRESH)


def _facts(lease: Lease, **more: str | int) -> dict[str, str | int]:
    return {"profile": lease.profile, **more}


def _moment(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
