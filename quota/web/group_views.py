"""What the page of a group shows: its balance, and who used what of it. Blocks: handlers call these in threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlencode

from quota.bank import AccountView
from quota.groups import Group, group_of
from quota.i18n import _
from quota.ledger import Bucket
from quota.units import show_credits
from quota.web.figures import gpu_hours
from quota.web.parts import ServiceParts, Viewer
from quota.web.period import Period, months
from quota.web.views import USAGE_COLUMNS, SessionRow, Told, session_row, statement, usage_row
from quota.web.words import credits_words

#: Sessions that the page lists; the file and REST have all of them.
SESSIONS = 200

GROUP_COLUMNS = ("user", *USAGE_COLUMNS)


@dataclass(frozen=True, slots=True)
class MemberUse:
    """What one person used of a group in a period. `member` tells whether they are in it now, None where the Hub did
    not say. Money and GPU-time are exact."""

    user: str
    member: bool | None
    sessions: int
    running: int
    milli_gpu_seconds: int
    charged_micro: int

    @property
    def gpu_hours(self) -> str:
        return gpu_hours(self.milli_gpu_seconds)


@dataclass(frozen=True, slots=True)
class GrantLine:
    """What is left of one grant of the group, and until when it is good (None: for ever)."""

    left: str
    expires_at: datetime | None
    note: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group's month: amounts in words, `charged_micro` the exact sum of all its members' sessions."""

    name: str
    leads: tuple[str, ...]
    month: str
    months: tuple[str, ...]
    csv: str
    available: str
    held: str
    charged: str
    charged_micro: int
    gpu_hours: str
    running: int
    grants: tuple[GrantLine, ...]
    members: tuple[MemberUse, ...]
    sessions: tuple[SessionRow, ...]
    more_sessions: int
    hub_silent: bool


def groups_for(groups: Sequence[Group], viewer: Viewer | None) -> tuple[Group, ...]:
    """Those that a page links to for this viewer: of those that pay, an administrator's all, else those they lead or
    are in."""
    return tuple(
        group
        for group in groups
        if group.pays
        and viewer is not None
        and (viewer.admin or viewer.name in group.leads or group.name in viewer.groups)
    )


def uses(found: Iterable[Told], members: Sequence[str] | None) -> tuple[MemberUse, ...]:
    """The sessions of a period by person, whoever used most first; members who used nothing are there too, and so is
    who used something and has left."""
    by_user: dict[str, list[Told]] = {name: [] for name in members or ()}
    for told in found:
        by_user.setdefault(told[0].user, []).append(told)
    rows = [
        MemberUse(
            user=user,
            member=None if members is None else user in members,
            sessions=len(theirs),
            running=sum(lease.live for _line, lease, _parts in theirs),
            milli_gpu_seconds=sum(line.milli_gpu_seconds for line, _lease, _parts in theirs),
            charged_micro=sum(line.charged for line, _lease, _parts in theirs),
        )
        for user, theirs in by_user.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.charged_micro, row.user)))


def account_of(parts: ServiceParts, group: Group) -> AccountView:
    """The account of a group, made on the first look."""
    parts.bank.ensure_account(group.account, "group")
    return parts.bank.account(group.account)


def group_view(parts: ServiceParts, group: Group, members: Sequence[str] | None, period: Period) -> GroupView:
    """One month of a group. `members` are the Hub's, None where it did not answer."""
    account, now = account_of(parts, group), parts.clock.now()
    found = statement(parts, group.account, period)
    rows = uses(found, members)
    charged = sum(row.charged_micro for row in rows)
    newest = [session_row(line, lease, segments, period, now) for line, lease, segments in found[:SESSIONS]]
    choice = {*months(account.account.created_at, now, parts.tz), period.name}
    return GroupView(
        name=group.name,
        leads=group.leads,
        month=period.name,
        months=tuple(sorted(choice, reverse=True)),
        csv=f"{address_of(parts, group.account)}/usage.csv?{urlencode({'month': period.name})}",
        available=show_credits(account.available),
        held=show_credits(account.held),
        charged=show_credits(charged),
        charged_micro=charged,
        gpu_hours=gpu_hours(sum(row.milli_gpu_seconds for row in rows)),
        running=sum(row.running for row in rows),
        grants=tuple(_grant(bucket) for bucket in account.buckets if bucket.balance),
        members=rows,
        sessions=tuple(newest),
        more_sessions=max(0, len(found) - SESSIONS),
        hub_silent=members is None,
    )


def _grant(bucket: Bucket) -> GrantLine:
    amounts = {"left": credits_words(bucket.balance), "given": credits_words(bucket.amount)}
    return GrantLine(_("%(left)s of %(given)s credits", **amounts), bucket.expires_at, bucket.note)


def address_of(parts: ServiceParts, account: str) -> str:
    """Where the page of the group of that account is."""
    return f"{parts.prefix}groups/{quote(group_of(account) or '', safe='')}"


def group_table(parts: ServiceParts, group: Group, period: Period) -> list[tuple[object, ...]]:
    """The rows of the month for a spreadsheet; columns as `GROUP_COLUMNS`."""
    account_of(parts, group)
    found = statement(parts, group.account, period)
    return [(line.user, *usage_row(line, lease)) for line, lease, _segments in found]
