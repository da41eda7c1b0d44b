"""[S] Seams of the idle culler: the Hub as it sees it, and the rows of the book that it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from quota.errors import BerthError
from quota.leases import Holder, Lease, StopReason
from quota.verdicts import Told, Verdict
from quota.wish import NO_WISH, Wish

#: What the culler's token must be able to do, nothing more (DESIGN: processes).
SCOPES = ("list:users", "read:users:activity", "read:servers", "delete:servers")


class HubUnavailable(BerthError):
    """The Hub gave no usable answer: try again later."""


class HubForbidden(HubUnavailable):
    """The Hub answers, and says that the token may not."""


class Stopped(StrEnum):
    """What became of a request to stop a server."""

    STOPPED = "stopped"
    STOPPING = "stopping"  # under way; the Hub did not wait for its end
    ABSENT = "absent"  # the Hub knows no such user or server


@dataclass(frozen=True, slots=True)
class HubServer:
    """An active server as the Hub lists it. `last_activity` is moved by open tabs and pollers: for people only."""

    user: str
    server: str
    ready: bool
    last_activity: datetime | None


class HubApi(Protocol):
    """The Hub. All calls raise `HubUnavailable` (`HubForbidden`)."""

    async def scopes(self) -> frozenset[str]:
        """What the token may do, expanded."""
        ...

    async def servers(self) -> Sequence[HubServer]:
        """All active servers, over all pages."""
        ...

    async def stop(self, user: str, server: str) -> Stopped:
        """Stop one server; "" is the default one. Never removes it: its name and data stay."""
        ...

    async def close(self) -> None: ...


class CullerBook(Protocol):
    """The leases (`quota.book.Book`). Calls block."""

    def live(self) -> list[Lease]: ...

    def lease(self, lease_id: str) -> Lease: ...

    def live_of(self, holder: Holder) -> Lease | None: ...

    def request_stop(
        self, lease_id: str, reason: StopReason, *, detail: str = "", by: str = "", stop_after: datetime | None = None
    ) -> Lease: ...


class CullerRows(Protocol):
    """Signals, verdicts, history, heartbeats (`quota.rows.Rows`). Calls block."""

    def watched(self) -> Mapping[str, Mapping[str, tuple[datetime, Any]]]:
        """The signals of every live lease by source; None in place of a payload that cannot be read."""
        ...

    def signals(self, lease_id: str) -> Mapping[str, tuple[datetime, Mapping[str, Any]]]: ...

    def verdicts(self, of: Sequence[str] | None = None) -> Mapping[str, Verdict]:
        """The latest verdict on every live lease, or on some."""
        ...

    def verdict(self, lease_id: str) -> Verdict | None: ...

    def put_verdicts(self, verdicts: Sequence[Verdict], told: Sequence[Told] = ()) -> None:
        """All of them, and what of it becomes history, in one transaction."""
        ...

    def beat(self, boot: str, role: str, host: str, note: str = "") -> None: ...

    def drop_beat(self, boot: str) -> None: ...


class CullerWishes(Protocol):
    """What users want of the end of their servers (`quota.wishes.Wishes`). Blocks."""

    def of(self, lease_ids: Sequence[str]) -> Mapping[str, Wish]: ...


class NoWishes:
    """Where nobody can wish anything."""

    def of(self, lease_ids: Sequence[str]) -> Mapping[str, Wish]:
        return dict.fromkeys(lease_ids, NO_WISH)


class Standing(Protocol):
    """An alert that stands (`quota.alerts.Alert`)."""

    @property
    def key(self) -> str: ...

    @property
    def kind(self) -> str: ...


class CullerAlerts(Protocol):
    """What administrators should look at (`quota.alerts.Alerts`). Calls block."""

    def put(self, key: str, kind: str, words: str, detail: Mapping[str, Any] | None = None) -> bool: ...

    def clear(self, key: str) -> bool: ...

    def open(self) -> Sequence[Standing]: ...
