"""What each page shows, read from the book in one go. Blocks: handlers call these in threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from itertools import chain
from urllib.parse import urlencode

from quota.bank import StatementLine
from quota.groups import group_of
from quota.i18n import _, _n
from quota.leases import Lease, Segment, State, Target
from quota.leaving import TAKEN_BACK
from quota.metering import clip, microseconds, span
from quota.metering import usage as used_in
from quota.pricing import charge_due
from quota.units import show_credits
from quota.web.daily import Daily, daily
from quota.web.figures import Line, Receipt, gpu_hours, line, receipt, segments_of
from quota.web.history import Step, evidence_words, steps
from quota.web.lines import DeviceCard, LeaseRow, burn, device_card, lease_row, rows_of
from quota.web.parts import ServiceParts
from quota.web.period import Period, months
from quota.web.snapshot import Snapshot, snapshot
from quota.web.wish_words import steps_within, wish_lines
from quota.web.words import credits_words, digits, duration_words, instant_or_none, share_words, stop_words

#: Leases that are read in one go.
RECENT = 500

USAGE_COLUMNS = (
    "lease",
    "profile",
    "environment",
    "share",
    "count",
    "simulated",
    "started_at",
    "ended_at",
    "seconds",
    "milli_gpu_seconds",
    "credits",
    "how_it_ended",
)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One lease's part of a month, with the arithmetic of that part."""

    id: str
    profile: str
    share: str
    simulated: bool
    started_at: datetime
    ended_at: datetime | None
    lines: tuple[Line, ...]
    charged_micro: int
    corrected: str
    ended_words: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class GroupPart:
    """What one group paid for somebody in a month; `charged_micro` is the exact sum."""

    group: str
    charged_micro: int
    sessions: tuple[SessionRow, ...]


@dataclass(frozen=True, slots=True)
class UsageView:
    """ "My usage": amounts in words, `charged_micro` the exact sum of the month. What groups paid is in `by_groups`
    alone."""

    account: str
    own: bool
    month: str
    months: tuple[str, ...]
    csv: str
    available: str
    held: str
    lasts: str
    per_hour: str
    running_words: str
    charged: str
    charged_micro: int
    gpu_hours: str
    running: tuple[LeaseRow, ...]
    sessions: tuple[SessionRow, ...]
    by_groups: tuple[GroupPart, ...]
    daily: Daily


Told = tuple[StatementLine, Lease, tuple[Segment, ...]]


def statement(parts: ServiceParts, name: str, period: Period, user: str | None = None) -> list[Told]:
    """The leases that the account paid for in a period (those of one user, or all), newest first, each with its lease
    and segments. The book's own lines reach to where it was charged last; those of leases that are not settled are
    brought up to now here."""
    now = parts.clock.now()
    lines = parts.bank.statement(name, period.start, period.end, user)
    ids = [row.lease_id for row in lines]
    chunks = (parts.book.some(ids[start : start + RECENT]) for start in range(0, len(ids), RECENT))
    found = list(zip(lines, chain.from_iterable(chunks), strict=True))
    read = parts.book.segments([lease.id for _, lease in found])
    told = [(row, lease, segments_of(lease, read[lease.id])) for row, lease in reversed(found)]
    return [(live_line(row, lease, segments, period, now), lease, segments) for row, lease, segments in told]


def live_line(
    row: StatementLine, lease: Lease, segments: Sequence[Segment], period: Period, now: datetime
) -> StatementLine:
    """A line as of now. Differences of cumulative values, as the book's own, so that adjacent months sum exactly."""
    if lease.state is State.SETTLED:
        return row
    end = min(period.end, now)
    inside = clip(segments, period.start, end)
    return replace(
        row,
        seconds=sum(microseconds(span(part, end)) for part in inside),
        milli_gpu_seconds=used_in(segments, end) - used_in(segments, min(period.start, end)),
        charged=charge_due(segments, end) - charge_due(segments, min(period.start, end)),
    )


def usage(parts: ServiceParts, name: str, period: Period, *, own: bool) -> UsageView:
    """One account's month and what it has running now. The account is made on the first look at one's own."""
    if own:
        parts.bank.ensure_account(name)
    account, now = parts.bank.account(name), parts.clock.now()
    found = statement(parts, name, period)
    recent = parts.book.leases(user=name, limit=RECENT)
    live = [lease for lease in recent if lease.live]
    rows = rows_of(live, snapshot(parts, live))
    sessions = [session_row(row, lease, segments, period, now) for row, lease, segments in found]
    sessions += [failed_row(lease) for lease in recent if never_ready(lease, period)]
    mine = burn([row for row, lease in zip(rows, live, strict=True) if lease.account == name])
    charged = sum(row.charged for row, _, _ in found)
    return UsageView(
        account=name,
        own=own,
        month=period.name,
        months=_choice(months(account.account.created_at, now, parts.tz), period.name),
        csv=_csv_path(parts, name, period, own),
        available=show_credits(account.available),
        held=show_credits(account.held),
        lasts=lasting(account.available + account.held, mine),
        per_hour=credits_words(mine),
        running_words=_n("%(n)s running", "%(n)s running", len(rows)) if rows else _("nothing is running"),
        charged=show_credits(charged),
        charged_micro=charged,
        gpu_hours=gpu_hours(sum(row.milli_gpu_seconds for row, _, _ in found)),
        running=rows,
        sessions=tuple(sorted(sessions, key=lambda session: session.started_at, reverse=True)),
        by_groups=tuple(by_groups(parts, name, period)),
        daily=daily(((lease.profile, segments) for _, lease, segments in found), period, now, parts.tz),
    )


def by_groups(parts: ServiceParts, user: str, period: Period) -> Iterator[GroupPart]:
    """What groups paid for this user's servers in the period, group by group."""
    now = parts.clock.now()
    for account in parts.bank.paid_for(user, period.start, period.end):
        found = statement(parts, account, period, user)
        rows = tuple(session_row(row, lease, segments, period, now) for row, lease, segments in found)
        if rows:
            yield GroupPart(group_of(account) or account, sum(row.charged for row, _, _ in found), rows)


def _choice(names: Sequence[str], chosen: str) -> tuple[str, ...]:
    return tuple(sorted({*names, chosen}, reverse=True))


def _csv_path(parts: ServiceParts, name: str, period: Period, own: bool) -> str:
    asked = {"month": period.name} if own else {"month": period.name, "account": name}
    return f"{parts.prefix}usage.csv?{urlencode(asked)}"


def lasting(balance: int, per_hour: int) -> str:
    """How long the balance carries what is running: "lasts about 3 h 20 min at this rate"."""
    if per_hour <= 0:
        return ""
    if balance <= 0:
        return _("nothing is left")
    seconds = balance * 3600 // per_hour
    if seconds > 86400 * 365:
        return _("lasts more than a year at this rate")
    return _("lasts about %(duration)s at this rate", duration=duration_words(timedelta(seconds=seconds)))


def session_row(
    row: StatementLine, lease: Lease, segments: Sequence[Segment], period: Period, now: datetime
) -> SessionRow:
    """A line of the statement with its arithmetic; it says so where less was charged than the time would cost."""
    end = min(period.end, now)
    inside = clip(segments, period.start, end)
    lines = tuple(line(part, span(part, end), lease.share, lease.count) for part in inside)
    cost = charge_due(inside, end)
    corrected = ""
    if row.charged < 0:
        corrected = _("refunded in this month")
    elif lease.state is State.SETTLED and row.charged < cost - 1:
        corrected = _("refunded in part") if row.charged else _("not charged: refunded, or the start had failed")
    return SessionRow(
        id=row.lease_id,
        profile=row.profile,
        share=share_words(lease),
        simulated=row.simulated,
        started_at=row.started_at,
        ended_at=row.ended_at,
        lines=lines,
        charged_micro=row.charged,
        corrected=corrected,
        user=row.user,
        ended_words=stop_words(lease) or (_("running") if lease.live else ""),
    )


def never_ready(lease: Lease, period: Period) -> bool:
    """Whether it was asked for in this period and ended before its server ever answered."""
    return lease.started_at is None and not lease.live and period.start <= lease.requested_at < period.end


def failed_row(lease: Lease) -> SessionRow:
    """A start that came to nothing: no time, no charge, but a reason."""
    return SessionRow(
        id=lease.id,
        profile=lease.profile,
        share=share_words(lease),
        simulated=lease.simulated,
        started_at=lease.requested_at,
        ended_at=None,
        lines=(),
        charged_micro=0,
        corrected="",
        ended_words=stop_words(lease),
    )


def usage_table(parts: ServiceParts, name: str, period: Period) -> list[tuple[object, ...]]:
    """The rows of the month for a spreadsheet; columns as `USAGE_COLUMNS`."""
    return [usage_row(row, lease) for row, lease, _ in statement(parts, name, period)]


def usage_row(row: StatementLine, lease: Lease) -> tuple[object, ...]:
    """One lease for a spreadsheet."""
    return (
        row.lease_id,
        row.profile,
        row.image,
        row.share,
        row.count,
        "simulated" if row.simulated else "",
        instant_or_none(row.started_at),
        instant_or_none(row.ended_at),
        f"{row.seconds // 10**6}.{row.seconds % 10**6:06d}",
        row.milli_gpu_seconds,
        show_credits(row.charged, 6),
        stop_words(lease),
    )


# ---- one lease ----


@dataclass(frozen=True, slots=True)
class WishesView:
    """What is wished of a running server's end, and what may be: buttons to keep it as seconds and words; `soonest`
    and `latest` bound a time on the site's clock, `latest` is "" where nothing does."""

    lines: tuple[str, ...]
    kept: bool
    shutdown: bool
    when_done: bool
    steps: tuple[tuple[int, str], ...]
    soonest: str
    latest: str


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """One lease from request to bill."""

    row: LeaseRow
    receipt: Receipt
    correction: str
    used: str
    held: str
    refundable: str
    ended: bool
    ended_words: str
    evidence: tuple[tuple[str, str], ...]
    image: str
    devices: tuple[DeviceCard, ...]
    account: str
    group: str
    requested_at: datetime
    requested_by: str
    ended_at: datetime | None
    timeline: tuple[Step, ...]
    wishes: WishesView | None


def one_row(parts: ServiceParts, lease: Lease) -> LeaseRow:
    """One lease as a table row."""
    return lease_row(lease, snapshot(parts, [lease]))


def receipt_of(parts: ServiceParts, lease: Lease) -> ReceiptView:
    """The receipt of one lease."""
    seen = snapshot(parts, [lease])
    bill = receipt(lease, seen.segments(lease), seen.now)
    settled = lease.state is State.SETTLED
    untouched = settled and lease.charged > 0 and bill.refunded == 0
    used = used_in(seen.segments(lease), seen.now)
    held = [device for slot in lease.slots if (device := seen.devices.get(slot.device or ""))]
    verdict = parts.rows.verdict(lease.id)  # the latest stays after the end
    return ReceiptView(
        row=lease_row(lease, seen),
        receipt=bill,
        correction=_("Refunded") if lease.charged else _("Not charged: refunded, or the start had failed"),
        used=_used_words(lease, used),
        held=credits_words(lease.held) if lease.held else "",
        refundable=credits_words(lease.charged) if untouched else "",
        ended=not lease.live,
        ended_words=stop_words(lease),
        evidence=evidence_words(verdict.evidence, parts.tz) if verdict and lease.stop_reason else (),
        image=_(parts.image_titles.get(lease.image, lease.image)),
        devices=tuple(device_card(device, (), parts.isolation_words(device.mode)) for device in held),
        account=lease.account,
        group=group_of(lease.account) or "",
        requested_at=lease.requested_at,
        requested_by=lease.requested_by,
        ended_at=lease.ended_at,
        timeline=steps(parts.rows.events(lease_id=lease.id, limit=100)),
        wishes=_wishes(parts, lease, seen),
    )


def _wishes(parts: ServiceParts, lease: Lease, seen: Snapshot) -> WishesView | None:
    """None for a server that nothing can be wished of any more."""
    idle = lease.target is Target.STOP and lease.stop_reason in TAKEN_BACK
    if lease.state is not State.RUNNING or (lease.target is Target.STOP and not idle):
        return None
    wish, longest = seen.wish(lease), parts.longest(lease)
    latest = None if longest is None or lease.started_at is None else lease.started_at + longest
    return WishesView(
        lines=wish_lines(wish, seen.now, parts.tz),
        kept=wish.keep_until is not None and wish.keep_until > seen.now,
        shutdown=wish.shutdown_at is not None,
        when_done=wish.when_done,
        steps=steps_within(parts.keep_most),
        soonest=_field_time(seen.now + timedelta(minutes=2), parts.tz),
        latest="" if latest is None else _field_time(latest, parts.tz),
    )


def _field_time(moment: datetime, zone: tzinfo) -> str:
    """As a browser's field for a time has it."""
    return f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"


def _used_words(lease: Lease, used: int) -> str:
    """What it took of GPUs, exactly and at a glance."""
    if not lease.share:
        return _("No GPU was used.")
    exact = digits(Decimal(used))
    return _("%(exact)s milli-GPU-seconds, that is %(hours)s GPU-hours.", exact=exact, hours=gpu_hours(used))
