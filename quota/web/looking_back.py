"""What pages draw of the past: an account's balance day by day, and how much of the devices was held. Blocks."""

from __future__ import annotations

from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from quota.past import changes, stretches
from quota.store import Store
from quota.web.daily import balances, day_ends
from quota.web.held import Held, held, last_days
from quota.web.parts import ServiceParts
from quota.web.period import Period

#: A month that began longer ago has no line: all that happened since would have to be read for it.
FAR_BACK = timedelta(days=100)
#: The last week is read again after this time, whoever looks: it is the same for everybody.
KEPT = timedelta(minutes=5)

_weeks: WeakKeyDictionary[Store, tuple[datetime, Held]] = WeakKeyDictionary()


def balance_days(parts: ServiceParts, name: str, period: Period) -> tuple[int, ...]:
    """Micro-credits of the account, held ones included, at the end of each day of a month that has begun; empty where
    that is too long ago. Raises `NotFound`."""
    account, now = parts.bank.account(name), parts.clock.now()
    if now - period.start > FAR_BACK or period.start >= now:
        return ()
    found = ((change.at, change.amount) for change in changes(parts.book.store, account.account.id, period.start))
    return balances(account.available + account.held, found, day_ends(period, now, parts.tz))


def last_week(parts: ServiceParts) -> Held:
    """The last seven days of the devices that there are now."""
    now, known = parts.clock.now(), _weeks.get(parts.book.store)
    if known is not None and timedelta(0) <= now - known[0] < KEPT:
        return known[1]
    edges, names = last_days(now, parts.tz)
    parts_held = ((each.device, each.share, each.begin, each.end) for each in stretches(parts.book.store, edges[0]))
    week = held(parts.rows.devices(), parts_held, edges, names)
    _weeks[parts.book.store] = (now, week)
    return week
