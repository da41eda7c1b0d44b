"""Berth's cards on the Hub's home page: balance, what is free, what runs, notices, why the last servers stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from quota.account_views import AccountView
from quota.appeals import Appeals
from quota.bank import Bank
from quota.book import Book
from quota.farewells import Farewells
from quota.i18n import _
from quota.leases import Lease, State, Target
from quota.ports import Nobody
from quota.rows import Rows
from quota.schedules import OPEN, Schedules
from quota.units import show_credits
from quota.web.card import JUDGED, Card, card
from quota.web.figures import figures, segments_of
from quota.web.lasting import Purse, outlook, outlook_words
from quota.web.lines import burn, lease_row
from quota.web.period import month_of
from quota.web.room import Room, rooms
from quota.web.snapshot import Snapshot
from quota.web.wish_words import steps_within
from quota.web.words import clock_words, credits_words, instant, server_words, share_words, stop_words
from quota.wishes import Wishes

RECENT = 5


@dataclass(frozen=True, slots=True)
class HomeNotice:
    """What is about to happen to a server, in words; `deadline` on the site's clock, `deadline_iso` for programs."""

    kind: str
    title: str
    words: str
    server: str
    deadline: str = ""
    deadline_iso: str = ""
    lease: str = ""  # whose end its user may still put off; "" where not


@dataclass(frozen=True, slots=True)
class HomeServer:
    """What a running server has and costs; the key in `HomeView.servers` is the Hub's server name."""

    lease: str
    profile: str
    share: str
    devices: tuple[str, ...]
    simulated: bool
    state: str
    since: str
    charged: str
    per_hour: str
    wishes: tuple[str, ...]
    can_wish: bool
    steps: tuple[tuple[int, str], ...] = ()  # for so many seconds it may be kept by a button with these words


@dataclass(frozen=True, slots=True)
class HomeEnded:
    """One of the last servers that ended: why, and what was charged. `name` is the Hub's."""

    lease: str
    name: str
    server: str
    share: str
    ended: str
    words: str
    charged: str
    card: Card | None = None


@dataclass(frozen=True, slots=True)
class HomeView:
    """Everything in words; the Hub's templates know none of our filters. `burn` says until when the balance lasts,
    `asof` when all this was so; `newcomer` has never had a server. `starts` are those that wait for their time, None
    where this site schedules none."""

    available: str
    held: str
    month: str
    per_hour: str
    burn: str
    running: int
    rooms: tuple[Room, ...]
    newcomer: bool
    asof: str
    zone: str
    notices: tuple[HomeNotice, ...]
    servers: Mapping[str, HomeServer]
    ended: tuple[HomeEnded, ...]
    starts: tuple[str, ...] | None = ()


def home_view(
    book: Book,
    bank: Bank,
    rows: Rows,
    user_name: str,
    now: datetime,
    zone: str | None = None,
    *,
    most_starts: int = 10,
    keep_most: timedelta | None = timedelta(hours=3),
) -> HomeView:
    """The cards of one user. Blocks: call it in a thread. Makes the account on the first look; `zone` is by default
    the bank's, `most_starts` is how many starts somebody may have waiting, `keep_most` for how long a server may be
    kept (None: not at all). Raises `Refused(BOOK_UNAVAILABLE)`."""
    bank.ensure_account(user_name)
    account = bank.account(user_name)
    leases = book.leases(user=user_name, limit=50)
    live = [lease for lease in leases if lease.live]
    tz = ZoneInfo(zone or bank.zone)
    seen = _snapshot(book, rows, leases, now, tz)
    own = [lease_row(lease, seen) for lease in live if lease.account == user_name]
    return HomeView(
        available=show_credits(account.available),
        held=show_credits(account.held),
        month=show_credits(account.month_charged),
        per_hour=credits_words(burn(own)),
        burn=_burn(account, live, burn(own), now, tz),
        running=len(live),
        rooms=rooms(list(seen.devices.values())),
        newcomer=not leases,
        asof=clock_words(now, tz),
        zone=tz.key,
        notices=_notices(live, seen, tz),
        servers={lease.holder.server: _server(lease, seen, tz, keep_most) for lease in live},
        ended=_newest(book, bank, rows, [lease for lease in leases if not lease.live][:RECENT], seen, tz),
        starts=_starts(book, user_name, tz) if most_starts else None,
    )


def _snapshot(book: Book, rows: Rows, leases: Sequence[Lease], now: datetime, tz: ZoneInfo) -> Snapshot:
    """What is known of these leases now; verdicts and wishes of those that live."""
    live = [lease.id for lease in leases if lease.live]
    segments = book.segments([lease.id for lease in leases])
    return Snapshot(
        now=now,
        devices={device.uuid: device for device in rows.devices()},
        parts={lease.id: segments_of(lease, segments[lease.id]) for lease in leases},
        verdicts=rows.verdicts() if live else {},
        wishes=Wishes(book.store, book.clock).of(live),
        zone=tz,
    )


def _starts(book: Book, user_name: str, tz: ZoneInfo) -> tuple[str, ...]:
    """Starts that wait for their time, the soonest first."""
    found = Schedules(book.store, book.clock).of(user_name)
    return tuple(
        f"{clock_words(each.start_at, tz)} · {server_words(each.server)} · {each.profile}"
        for each in found
        if each.state in OPEN
    )


def _newest(
    book: Book, bank: Bank, rows: Rows, ended: list[Lease], seen: Snapshot, tz: ZoneInfo
) -> tuple[HomeEnded, ...]:
    """The last servers that ended, the newest with its card."""
    found = [_ended(lease, seen, tz) for lease in ended]
    if ended:
        lease = ended[0]
        verdict = rows.verdict(lease.id) if lease.stop_reason in JUDGED else None
        told = Farewells(book.store, book.clock).of(lease.id)
        said = Appeals(bank, Nobody()).of([lease.id]).get(lease.id)
        evidence = verdict.evidence if verdict else {}
        found[0] = replace(found[0], card=card(lease, evidence, told, said, lease.holder.user, seen.now, tz))
    return tuple(found)


def _burn(account: AccountView, live: list[Lease], rate: int, now: datetime, tz: ZoneInfo) -> str:
    """Until when this account carries what it pays for; what a group pays for does not count."""
    if rate:
        most = account.limits.monthly_micro
        purse = Purse(account.held, account.buckets, account.debt, account.month_charged, most)
        return outlook_words(outlook(purse, rate, now, month_of(now, tz)), now, tz)
    if not live:
        return _("Nothing is running")
    if any(lease.state is not State.RUNNING for lease in live):
        return _("Nothing is charged at the moment")
    own = any(lease.account == account.account.name for lease in live)
    return _("What runs now costs nothing") if own else _("A group pays for what runs")


def _notices(live: list[Lease], seen: Snapshot, tz: ZoneInfo) -> tuple[HomeNotice, ...]:
    found = []
    for lease in live:
        notice = lease_row(lease, seen).notice
        if notice is not None:
            server = server_words(lease.holder.server)
            moment = notice.deadline
            times = (clock_words(moment, tz), instant(moment)) if moment else ("", "")
            mine = lease.id if lease.target is Target.RUN else ""
            found.append(HomeNotice(notice.kind, notice.title, notice.words, server, *times, lease=mine))
    return tuple(found)


def _server(lease: Lease, seen: Snapshot, tz: ZoneInfo, keep_most: timedelta | None) -> HomeServer:
    row = lease_row(lease, seen)
    runs = lease.state is State.RUNNING and lease.target is Target.RUN
    return HomeServer(
        lease=lease.id,
        profile=row.profile,
        share=row.share,
        devices=row.devices,
        simulated=row.simulated,
        state=row.state,
        since=clock_words(row.since, tz) if row.since else "",
        charged=credits_words(row.charged_micro),
        per_hour=row.per_hour,
        wishes=row.wishes,
        can_wish=runs,
        steps=steps_within(keep_most) if runs else (),
    )


def _ended(lease: Lease, seen: Snapshot, tz: ZoneInfo) -> HomeEnded:
    moment = lease.ended_at or lease.started_at or lease.requested_at
    return HomeEnded(
        lease=lease.id,
        name=lease.holder.server,
        server=server_words(lease.holder.server),
        share=f"{lease.profile}, {share_words(lease)}",
        ended=clock_words(moment, tz),
        words=stop_words(lease) or _("It ended"),
        charged=credits_words(figures(lease, seen.segments(lease), seen.now).charged),
    )
