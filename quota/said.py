"""Small words that pages, the start form and messages all say in the reader's language. Pure."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

from quota.i18n import N_, _, _n
from quota.leases import StopReason
from quota.units import WHOLE_GPU, show_share

STOP_WORDS: dict[StopReason, str] = {
    StopReason.USER: N_("Stopped by its user"),
    StopReason.ADMIN: N_("Stopped by an administrator"),
    StopReason.PLATFORM: N_("Ended because Berth itself was stopped"),
    StopReason.SHUTDOWN: N_("Ended at the time its user had set"),
    StopReason.IDLE: N_("Reclaimed because it was idle"),
    StopReason.MAX_AGE: N_("Ended because it reached the longest time a server may run"),
    StopReason.QUOTA: N_("Ended because the credits or the monthly limit ran out"),
    StopReason.PREEMPTED: N_("Ended to make room for a server with a higher claim"),
    StopReason.WINDOW_END: N_("Ended with its booked window"),
    StopReason.RESIZE: N_("Ended to be resized"),
    StopReason.PARK: N_("Parked to be resumed later"),
    StopReason.NO_SHOW: N_("Given up because nobody came to claim it"),
    StopReason.OVER_SHARE: N_("Ended because it used more than its share of the GPU"),
    StopReason.LEAK: N_("Removed because it belonged to no lease any more"),
    StopReason.GPU_LOST: N_("Ended because its GPU was lost"),
    StopReason.DRAIN: N_("Ended because its machine or GPU is being taken out of service"),
    StopReason.FAILED: N_("It failed to start, or ended by itself"),
}


def share_said(share_milli: int, count: int = 1) -> str:
    """A share: "1/8 GPU", "1 GPU", "2 GPUs", "CPU only"."""
    if share_milli == 0 or count == 0:
        return _("CPU only")
    whole = Fraction(share_milli * count, WHOLE_GPU)
    if whole.denominator == 1:
        return _n("%(n)s GPU", "%(n)s GPUs", int(whole))
    return show_share(share_milli, count)  # "1/8 GPU" is the same everywhere


def duration_said(duration: timedelta) -> str:
    """A duration at a glance: "42 s", "12 min", "3 h 05 min", "2 d 4 h". A negative one counts as none."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < 120:
        return _("%(seconds)s s", seconds=seconds)
    minutes = seconds // 60
    if minutes < 120:
        return _("%(minutes)s min", minutes=minutes)
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return _("%(hours)s h %(minutes)s min", hours=hours, minutes=f"{minutes:02d}")
    return _("%(days)s d %(hours)s h", days=hours // 24, hours=hours % 24)


def sentences(*parts: str) -> str:
    """Whole sentences one after the other, those that are empty left out."""
    first, *rest = [part for part in parts if part] or [""]
    for part in rest:
        first = _("%(one)s %(more)s", one=first, more=part)
    return first
