"""What people are told about their servers while they look elsewhere: values, made where the thing is decided. Pure.

Words are in the language of the context that makes them (the site's, where nobody asked). How a notice reaches
somebody is behind `quota.ports.Notifier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

from quota.i18n import _
from quota.leases import Lease
from quota.told import retold
from quota.units import show_credits

#: Below the site's address: the receipt, which says why a server ended and offers the next step.
LINK = "/services/berth/lease/{lease}"


class NoticeKind(StrEnum):
    IDLE_WARNING = "idle-warning"
    IDLE_STOP = "idle-stop"
    CREDIT_LOW = "credit-low"
    CREDIT_STOP = "credit-stop"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell `user` (the Hub's name). `words` are one or two whole sentences; `when` is the moment it was
    decided, in UTC; `link` is a path below the site's address. `data` repeats the facts for programs: `lease`, `server`
    ("" is the default one), `profile`, and by kind `deadline` (ISO 8601), `percent`, `left_micro_credits`."""

    user: str
    kind: NoticeKind
    words: str
    when: datetime
    link: str
    data: Mapping[str, str | int] = field(default_factory=dict)


def idle_warning(lease: Lease, why: str, deadline: datetime, now: datetime) -> Notice:
    """It will be stopped at `deadline` unless it is used before; `why` is the verdict's words as the book has them."""
    words = _(
        "Your server with the profile %(profile)s is idle and will be stopped at %(deadline)s unless it is used "
        "before. %(why)s.",
        profile=lease.profile,
        deadline=_moment(deadline),
        why=retold(why),
    )
    return _notice(lease, NoticeKind.IDLE_WARNING, words, now, deadline=deadline.isoformat())


def idle_stop(lease: Lease, why: str, now: datetime) -> Notice:
    words = _(
        "Your server with the profile %(profile)s is being stopped. %(why)s.", profile=lease.profile, why=retold(why)
    )
    return _notice(lease, NoticeKind.IDLE_STOP, words, now)


def credit_low(lease: Lease, percent: int, left: int, now: datetime) -> Notice:
    """So much per cent of what its account can pay for this server is used; `left` in micro-credits."""
    words = _(
        "%(percent)s %% of the credits for your server with the profile %(profile)s are used; %(left)s are left. "
        "Save your work in time.",
        percent=percent,
        profile=lease.profile,
        left=show_credits(left),
    )
    return _notice(lease, NoticeKind.CREDIT_LOW, words, now, percent=percent, left_micro_credits=left)


def credit_stop(lease: Lease, why: str, deadline: datetime, now: datetime) -> Notice:
    words = _(
        "Your server with the profile %(profile)s will be stopped at %(deadline)s: %(why)s. Save your work now.",
        profile=lease.profile,
        deadline=_moment(deadline),
        why=retold(why),
    )
    return _notice(lease, NoticeKind.CREDIT_STOP, words, now, deadline=deadline.isoformat())


def _notice(lease: Lease, kind: NoticeKind, words: str, now: datetime, **data: str | int) -> Notice:
    facts = {"lease": lease.id, "server": lease.holder.server, "profile": lease.profile, **data}
    return Notice(lease.holder.user, kind, words, now, LINK.format(lease=lease.id), MappingProxyType(facts))


def _moment(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
