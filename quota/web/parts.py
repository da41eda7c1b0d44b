"""What the service is made of: the parts that the composition root hands over, and the seam to the Hub."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

from quota.errors import BerthError, Refused
from quota.groups import Group
from quota.ports import Clock, Nobody, Notifier
from quota.telling import Telling

if TYPE_CHECKING:
    from jupyterhub.services.auth import HubOAuth

    from quota.alerts import Alerts
    from quota.answers import Answers
    from quota.appeals import Appeals
    from quota.bank import Bank
    from quota.book import Book
    from quota.farewells import Farewells
    from quota.inbox import Inbox
    from quota.leases import Lease
    from quota.rows import Rows
    from quota.schedules import Schedules
    from quota.way_out import WayOut
    from quota.web.throttle import Throttle
    from quota.wishes import Wishes
    from quota.wishing import Wishing


class HubUnavailable(BerthError):
    """The Hub gave no answer, or a refusal that is not about the request."""


@dataclass(frozen=True, slots=True)
class HubUser:
    """A user as the Hub knows them."""

    name: str
    admin: bool


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks, as the Hub says. `admin` is the Hub's own flag; `groups` are the Hub's as of some minutes ago, good for
    links but not for rights."""

    name: str
    admin: bool
    groups: frozenset[str] = frozenset()


class HubPort(Protocol):
    """What the service asks of the Hub. All raise `HubUnavailable`."""

    async def users(self) -> tuple[HubUser, ...]:
        """All users, in the Hub's order."""
        ...

    async def groups_of(self, user: str) -> frozenset[str]:
        """The groups that a user is in at this moment; none for somebody whom the Hub does not know."""
        ...

    async def members(self, group: str) -> tuple[str, ...]:
        """The users in a group at this moment; none where the Hub has no such group."""
        ...

    async def stop_server(self, user: str, server: str) -> None:
        """Ask for a server's end; one that is not there is fine. `server` is "" for the default one."""
        ...

    async def start_server(self, user: str, server: str, options: dict[str, str], language: str = "") -> None:
        """Begin to start a server; one that is being started already is fine. Raises `StartRefused` with words in that
        language, `StartForbidden`."""
        ...

    async def scopes(self) -> frozenset[str]:
        """What the service's own token may do."""
        ...


@dataclass(frozen=True, slots=True)
class ProfileView:
    """A profile as pages and REST show it. `free_now` is how many could start now, None where that is unknown."""

    name: str
    title: str
    share_milli: int
    count: int
    free_now: int | None
    price_per_hour_micro: int
    images: Sequence[str]
    simulated: bool
    description: str = ""


def _plain_refusal(refused: Refused) -> str:
    return f"Refused: {refused.reason.value}"


def _plain_mode(mode: str) -> str:
    return f"sharing mode {mode}"


def _no_log(lease_id: str, lines: int) -> Sequence[str]:
    return ()


def _no_end(lease: Lease) -> timedelta | None:
    return None


@dataclass(frozen=True)
class ServiceParts:
    """What `make_app` needs.

    `refusal_words` makes words of a `Refused`, `isolation_words` says what a device's sharing mode enforces; both
    live in packages this one may not import, and so does `log_tail`, the last lines that a lease's server wrote, which
    outlive it. `templates` is the folder of the site's own, `groups` are those of its settings. `offered` names the
    profiles that are open to a user in these groups of the Hub; None: all are to everybody. `longest` is how long the
    server of a lease may run, None is no limit. `way_out` is how a server is stopped; None gives it no time to save.
    `keep_most` is how far ahead a user may keep an unused server; None: not at all. `notifier` tells people,
    `telling` is what the site opens to them for that, and `sent` counts tries by channel and end.
    `most_starts`: of one user so many scheduled starts may wait at a time; 0: nobody schedules any.
    `cookie_secret` should outlive the process, or a restart logs everybody out. `hub_auth` None means: as the Hub's
    environment of a managed service says.
    """

    book: Book
    bank: Bank
    rows: Rows
    alerts: Alerts
    clock: Clock
    profiles: Callable[[], Sequence[ProfileView]]
    hub: HubPort
    cookie_secret: bytes
    prefix: str = "/services/berth/"
    zone: str = "UTC"
    site: str = "Berth"
    refusal_words: Callable[[Refused], str] = _plain_refusal
    isolation_words: Callable[[str], str] = _plain_mode
    image_titles: Mapping[str, str] = field(default_factory=dict)
    log_tail: Callable[[str, int], Sequence[str]] = _no_log
    templates: Path | None = None
    groups: Sequence[Group] = ()
    offered: Callable[[str, frozenset[str]], Collection[str]] | None = None
    longest: Callable[[Lease], timedelta | None] = _no_end
    way_out: WayOut | None = None
    keep_most: timedelta | None = timedelta(hours=3)
    notifier: Notifier = field(default_factory=Nobody)
    most_starts: int = 10
    telling: Telling = field(default_factory=Telling)
    sent: Callable[[], Mapping[tuple[str, str], int]] = dict
    hub_auth: HubOAuth | None = None

    @cached_property
    def answers(self) -> Answers:
        """Answers to requests with an idempotency key, in the same book."""
        from quota.answers import Answers

        return Answers(self.book.store, self.clock)

    @cached_property
    def reports(self) -> Throttle:
        """How often each server's kit may report. Used on the loop alone."""
        from quota.web.throttle import Throttle

        return Throttle()

    @cached_property
    def farewells(self) -> Farewells:
        """What kits say they saved, in the same book."""
        from quota.farewells import Farewells

        return Farewells(self.book.store, self.clock)

    @cached_property
    def out(self) -> WayOut:
        """How a server is stopped."""
        from quota.way_out import WayOut

        return self.way_out or WayOut(self.book, self.rows, self.farewells, self.clock)

    @cached_property
    def appeals(self) -> Appeals:
        """What users say of stops, in the same book."""
        from quota.appeals import Appeals

        return Appeals(self.bank, self.notifier)

    @cached_property
    def inbox(self) -> Inbox:
        """What people were told and how they want to be told, in the same book."""
        from quota.inbox import Inbox

        return Inbox(self.book.store, self.clock)

    @cached_property
    def wishes(self) -> Wishes:
        """What users want of the end of their servers, in the same book."""
        from quota.wishes import Wishes

        return Wishes(self.book.store, self.clock)

    @cached_property
    def wishing(self) -> Wishing:
        """How they say so."""
        from quota.wishing import Bounds, Wishing

        return Wishing(self.bank, Bounds(self.keep_most, self.longest))

    @cached_property
    def schedules(self) -> Schedules:
        """Starts that users asked for at a time, in the same book."""
        from quota.schedules import Schedules

        return Schedules(self.book.store, self.clock, self.most_starts)

    @cached_property
    def saves(self) -> Throttle:
        """How often each server's kit may tell of its saving. Used on the loop alone."""
        from quota.web.throttle import Throttle

        return Throttle()

    @cached_property
    def streamed(self) -> Throttle:
        """How often each server's kit may open its stream. Used on the loop alone."""
        from quota.web.throttle import Throttle

        return Throttle(rate=0.5, burst=20)

    @cached_property
    def tz(self) -> ZoneInfo:
        return ZoneInfo(self.zone)
