"""Wishes about the end of a server in words. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from quota.i18n import _
from quota.web.words import clock_words, duration_words
from quota.wish import Wish
from quota.wishing import STEPS, Bounded


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
