"""What a password must be, and how often one may be tried. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import ceil
from typing import Final

from quota.i18n import _

LEAST: Final = 10
#: bcrypt reads no further.
MOST_BYTES: Final = 72
#: Keys that are kept at most: names that somebody makes up must not fill the memory.
MOST_KEYS: Final = 10_000


def rules() -> str:
    """The rules for a password, for whoever is about to choose one."""
    return _(
        "At least %(least)s characters, and none of the common passwords. A few words that belong to nobody make a good"
        " one.",
        least=LEAST,
    )


def fault(password: str, name: str, is_common: Callable[[str], bool]) -> str:
    """Why this cannot be the password of that user, in words; empty where it can."""
    if len(password) < LEAST:
        return _("The password is too short: it needs at least %(least)s characters.", least=LEAST)
    if len(password.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        return _("The password is too long: beyond %(most)s bytes nothing of it would count.", most=MOST_BYTES)
    if any(sign < " " or "\ud800" <= sign <= "\udfff" for sign in password):
        return _("The password has signs in it that cannot be typed; choose another.")
    if name and name in password.lower():
        return _("The password has your user name in it; choose another.")
    if is_common(password) or is_common(password.lower()) or len(set(password)) < 4:
        return _("This password is among the first that anybody would try; choose another.")
    return ""


class Attempts:
    """Attempts that failed, by whatever they are counted by. Time is seconds of a clock that only goes forward."""

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.seconds = most, seconds
        self._kept: dict[Hashable, tuple[int, float]] = {}

    def wait(self, key: Hashable, now: float) -> int:
        """For how many seconds that key must wait; 0 where it may try."""
        count, until = self._kept.get(key, (0, 0.0))
        return ceil(until - now) if count >= self.most and until > now else 0

    def count(self, key: Hashable, now: float) -> None:
        """One attempt more; it counts as failed until it is forgiven, so that many at once are no way around."""
        count, until = self._kept.pop(key, (0, 0.0))
        self._kept[key] = (count + 1 if until > now else 1, now + self.seconds)
        if len(self._kept) > MOST_KEYS:
            self._kept.pop(next(iter(self._kept)))  # the one that was quiet for longest

    def forgive(self, key: Hashable) -> None:
        """It was the right password."""
        self._kept.pop(key, None)
