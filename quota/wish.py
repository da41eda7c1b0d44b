"""What the user of a server wants of its end. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Wish:
    """Not stopped for want of use before `keep_until`; stopped at `shutdown_at`, whatever it does; stopped once nothing
    runs (`when_done`). Times are aware."""

    keep_until: datetime | None = None
    shutdown_at: datetime | None = None
    when_done: bool = False


NO_WISH = Wish()
