"""Wishes about the end of a server in words. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from quota.i18n import _
from quota.said import duration_said, sentences
from quota.web.words import clock_words, duration_words
from quota.wish import Wish
from quota.wishing import STEPS, Bounded, Wished, WishRefused


def wish_lines(wish: Wish, now: datetime, zone: tzinfo) -> tuple[str, ...]:
    """What is wished, a sentence each; a wish to be kept that is over is none."""
    found = []
    if wish.keep_until is not None and wish.keep_until > now:
        found.append(_("It is kept though unused until %(time)s.", time=clock_words(wish.keep_until, zone)))
    if wish.shutdown_at is not None:
        found.append(_("It is stopped at %(time)s, as was set.", time=clock_words(wish.shutdown_at, zone)))
    if wish.when_done:
        found.append(_("It is stopped as soon as its work is done."))
    return tuple(found)


def steps_within(most: timedelta | None) -> tuple[tuple[int, str], ...]:
    """What people may choose from: seconds, and the words of a button."""
    if most is None:
        return ()
    steps = [step for step in STEPS if step <= most] or [most]
    return tuple((int(step.total_seconds()), _("Keep it for %(span)s", span=short_span(step))) for step in steps)


def short_span(span: timedelta) -> str:
    """Whole hours without minutes."""
    hours, rest = divmod(int(span.total_seconds()), 3600)
    return _("%(hours)s h", hours=hours) if hours and not rest else duration_words(span)


def bounded_words(bounded: Bounded) -> str:
    """What cut a wish to be kept short; "" where nothing did."""
    if bounded == "max-age":
        return _("Not for longer, as it then reaches the longest time it may run.")
    return _("Not for longer, as its end is set for then.") if bounded == "shutdown" else ""


def kept_words(wished: Wished, zone: tzinfo) -> str:
    """What came of a wish to be kept."""
    time = clock_words(wished.wish.keep_until, zone) if wished.wish.keep_until else ""
    kept = _("It is kept until %(time)s; what that costs is held.", time=time)
    return sentences(kept, bounded_words(wished.bounded))


def refused_words(error: WishRefused, zone: tzinfo) -> str:
    """Why a wish is not granted, and what would be."""
    span = "" if error.offer is None else duration_said(error.offer)
    latest = "" if error.latest is None else clock_words(error.latest, zone)
    if error.code == "off":
        return _("This site does not let unused servers be kept: the idle rules hold for everybody.")
    if error.code == "too-long":
        return _("A server can be kept for %(span)s from now at most.", span=span)
    if error.code == "no-credit" and span:
        return _("There is not enough credit to keep it for so long. It suffices for %(span)s.", span=span)
    if error.code == "no-credit":
        return _("There is not enough credit to keep it. Ask an administrator for credit, or save your work now.")
    if error.code == "too-soon":
        return _("The end must be at least one minute from now.")
    if error.code == "too-late":
        return _("It is stopped at %(time)s anyway, as it reaches the longest time it may run.", time=latest)
    return _("Only a server that runs, and is not being stopped, can be kept or given an end.")
