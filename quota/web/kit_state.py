"""What the kit in a server is told of its own lease, as JSON.

Everything in it is the lease's own: its share and what it uses of it, its price and how long its payer's credits last,
what the idle rules say of it, and whether it is to stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from quota import i18n
from quota.kit_reads import Look, Said, Told, Use, Whole
from quota.leases import Lease, Target
from quota.notices import NoticeKind
from quota.told import retold
from quota.web.figures import figures, segments_of
from quota.web.lasting import Purse, outlook
from quota.web.period import month_of
from quota.web.words import instant, instant_or_none
from quota.wish import NO_WISH, Wish

#: What somebody can do about a notice, by its kind.
_END = ("save", "stop")
_KEEP = ("keep-1h", "keep-3h", *_END)
_ACTIONS: Mapping[str, tuple[str, ...]] = {
    NoticeKind.IDLE_WARNING: _KEEP,
    NoticeKind.SHUTDOWN_WARNING: _END,
    NoticeKind.MAX_AGE_WARNING: _END,
    NoticeKind.CREDIT_STOP: _END,
    NoticeKind.OVER_SHARE: _END,
}


def state(
    lease: Lease, whole: Whole, look: Look, now: datetime, zone: ZoneInfo, most: timedelta | None
) -> dict[str, Any]:
    """`most` is how long a server may run at all; None is no limit."""
    figure = figures(lease, segments_of(lease, whole.segments.get(lease.id, ())), now)
    payer = whole.payers.get(lease.account)
    use = look.uses.get(lease.id, Use())
    oldest = None if most is None or lease.started_at is None else lease.started_at + most
    return {
        "lease_id": lease.id,
        "profile": lease.profile,
        "share_milli": int(lease.share),
        "count": lease.count,
        "simulated": lease.simulated,
        "gpu_util": use.util,
        "gpu_memory_mib": use.memory_mib,
        "gpu_memory_total_mib": _memory(lease, whole),
        "rate_micro_per_hour": figure.per_hour,
        "balance_micro": None if payer is None else int(payer.available),
        "payer": lease.account,
        "credit_ends_at": instant_or_none(_credit_ends(lease, whole, now, zone)),
        "charged_micro": figure.charged,
        "started_at": instant_or_none(lease.started_at),
        "max_age_ends_at": instant_or_none(oldest),
        "verdict": _verdict(look.verdicts.get(lease.id)),
        "wish": _wish(look.wishes.get(lease.id, NO_WISH)),
        "target": lease.target.value,
        "stop": _stop(lease),
        "now": instant(now),
    }


def stopping(lease: Lease) -> dict[str, Any] | None:
    """That this server is to stop, and until when it may save; None while it is to run."""
    stop = _stop(lease)
    if stop is None:
        return None
    return {**stop, "detail_in": in_other_languages(stop["detail"]), "save_until": stop["stop_after"]}


def notice(told: Told) -> dict[str, Any]:
    """A notice as the kit passes it on to the browser."""
    return {
        "id": told.id,
        "kind": told.kind,
        "words": told.words,
        "words_in": in_other_languages(told.words),
        "when": instant(told.at),
        "expires_at": instant_or_none(told.expires_at),
        "link": told.link,
        "actions": list(_ACTIONS.get(told.kind, ())),
    }


def in_other_languages(words: str) -> dict[str, str]:
    """Words of the book, by the tag of each language but that of the book: the kit does not know who reads them."""
    found = {}
    for tag in list(i18n.LANGUAGES)[1:]:
        with i18n.speaking(tag):
            found[tag] = retold(words)
    return found


def _memory(lease: Lease, whole: Whole) -> int | None:
    """MiB of this lease's part of its devices; None where one is not known."""
    found = [whole.devices.get(str(slot.device)) for slot in lease.slots if slot.device is not None]
    sizes = [None if device is None else device.memory_for(int(lease.share)) for device in found]
    if not sizes or any(size is None for size in sizes):
        return None
    return sum(size for size in sizes if size is not None)


def _credit_ends(lease: Lease, whole: Whole, now: datetime, zone: ZoneInfo) -> datetime | None:
    """When the payer can pay no longer for all that it pays for now; None where that is far away, or not known."""
    payer = whole.payers.get(lease.account)
    paid = [each for each in whole.leases.values() if each.account == lease.account]
    rate = sum(figures(each, segments_of(each, whole.segments.get(each.id, ())), now).per_hour for each in paid)
    if payer is None or rate <= 0:
        return None
    purse = Purse(payer.held, payer.buckets, payer.debt, payer.month_charged, payer.limits.monthly_micro)
    return outlook(purse, rate, now, month_of(now, zone)).until


def _verdict(said: Said | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "kind": said.kind,
        "rule": said.rule,
        "words": said.words,
        "words_in": in_other_languages(said.words),
        "deadline": instant_or_none(said.deadline),
    }


def _wish(wish: Wish) -> dict[str, Any]:
    return {
        "keep_until": instant_or_none(wish.keep_until),
        "shutdown_at": instant_or_none(wish.shutdown_at),
        "when_done": wish.when_done,
    }


def _stop(lease: Lease) -> dict[str, Any] | None:
    if lease.target is not Target.STOP:
        return None
    return {
        "reason": None if lease.stop_reason is None else lease.stop_reason.value,
        "detail": lease.stop_detail,
        "stop_after": instant_or_none(lease.stop_after),
    }
