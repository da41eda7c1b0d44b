"""How long an account carries what it is charged for now, and until when in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from quota.i18n import N_, _
from quota.ledger import Bucket, burn_order
from quota.web.period import Period
from quota.web.words import MONTHS

#: What is further away than this is no forecast.
FAR = timedelta(days=365)
WEEKDAYS = (N_("Mon"), N_("Tue"), N_("Wed"), N_("Thu"), N_("Fri"), N_("Sat"), N_("Sun"))


@dataclass(frozen=True, slots=True)
class Purse:
    """What can still be spent, in micro-credits: `held` for what runs, the grants, less `debt` (not positive). `most`
    is the monthly limit, None for none, and `spent` what counts towards it already."""

    held: int
    buckets: Sequence[Bucket] = ()
    debt: int = 0
    spent: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Until when it lasts at a rate: None is longer than `FAR`. `limited` where the monthly limit comes first."""

    until: datetime | None
    limited: bool = False


def outlook(purse: Purse, per_hour: int, now: datetime, month: Period) -> Outlook:
    """When credits or the monthly limit run out at `per_hour` micro-credits, which must be more than 0. Grants that
    expire meanwhile lose what is left of them then; grants to come are not counted on."""
    broke, capped = _broke(purse, per_hour, now), _capped(purse, per_hour, now, month)
    if capped is not None and (broke is None or capped < broke):
        return Outlook(capped if capped - now <= FAR else None, limited=True)
    return Outlook(broke)


def _broke(purse: Purse, per_hour: int, now: datetime) -> datetime | None:
    """Held credits first, then the grants in the order in which they are burnt."""
    moment, debt = now + _lasts(purse.held, per_hour), -purse.debt
    for bucket in burn_order(purse.buckets, now):
        left = max(0, bucket.balance - debt)
        debt = max(0, debt - bucket.balance)
        if moment - now > FAR:
            return None
        spent = moment + _lasts(left, per_hour)
        moment = max(moment, spent if bucket.expires_at is None else min(spent, bucket.expires_at))
    return moment if moment - now <= FAR else None


def _capped(purse: Purse, per_hour: int, now: datetime, month: Period) -> datetime | None:
    """When the monthly limit is reached: in this month, or in the one after it, which begins with none charged."""
    if purse.most is None:
        return None
    this = now + _lasts(purse.most - purse.spent, per_hour)
    if this < month.end:
        return this
    following = month.end + _lasts(purse.most, per_hour)
    return following if following - month.end < timedelta(days=31) else None


def _lasts(amount: int, per_hour: int) -> timedelta:
    """Never so long that a date could not hold it."""
    return timedelta(seconds=min(max(0, amount) * 3600 // per_hour, int(2 * FAR.total_seconds())))


def outlook_words(found: Outlook, now: datetime, zone: tzinfo) -> str:
    """ "At this rate until about Fri 18:00"; what is nearer is told more exactly."""
    if found.until is None:
        return _("At this rate it lasts for more than a year")
    if found.until <= now:
        return _("The monthly limit is reached") if found.limited else _("Nothing is left")
    about = about_words(found.until, now, zone)
    if found.limited:
        return _("At this rate the monthly limit is reached about %(time)s", time=about)
    return _("At this rate until about %(time)s", time=about)


def about_words(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """A moment to come, cut to 5 minutes within a day, to the hour within 6, else to the day: never made later."""
    local, away = moment.astimezone(zone), moment - now
    if away > timedelta(days=6):
        return _("%(day)s %(month)s %(year)s", day=local.day, month=_(MONTHS[local.month - 1]), year=local.year)
    minute = local.minute // 5 * 5 if away <= timedelta(days=1) else 0
    return f"{_(WEEKDAYS[local.weekday()])} {local.hour:02}:{minute:02}"
