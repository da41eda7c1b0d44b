"""How often a name and password may be tried: told in words, the same for a name that is there and one that is not."""

from __future__ import annotations

import time
from typing import Any, Final

from tornado import web

from hub_config.password_rules import Attempts
from quota.i18n import _n

_SECONDS: Final = 300.0
_FROM_ONE_PLACE, _IN_ALL = 5, 50  # attempts for one name in that time


class Patience:
    """Of one Hub process; a restart forgets."""

    def __init__(self) -> None:
        self._from_one_place, self._in_all = Attempts(_FROM_ONE_PLACE, _SECONDS), Attempts(_IN_ALL, _SECONDS)

    def demand(self, handler: Any, name: str) -> None:
        """Count an attempt. Raises `HTTPError` 429 where there were too many."""
        now, (name, place) = time.monotonic(), _keys(handler, name)
        wait = max(self._from_one_place.wait((name, place), now), self._in_all.wait(name, now))
        if wait:
            minutes = -(-wait // 60)
            raise web.HTTPError(
                429,
                _n(
                    "Too many attempts for this name. Try again in %(n)s minute, or ask an admin.",
                    "Too many attempts for this name. Try again in %(n)s minutes, or ask an admin.",
                    minutes,
                ),
            )
        self._from_one_place.count((name, place), now)
        self._in_all.count(name, now)

    def forgive(self, handler: Any, name: str) -> None:
        """It was the right password."""
        name, place = _keys(handler, name)
        self._from_one_place.forgive((name, place))
        self._in_all.forgive(name)


def _keys(handler: Any, name: str) -> tuple[str, str]:
    return name[:100], str(handler.request.remote_ip)
