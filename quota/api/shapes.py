"""The JSON that REST answers: names and units that programs rely on, as models that serialise and describe themselves.

Times are RFC 3339 in UTC, GPU-time `milli_gpu_seconds`, money `micro_credits`, all integers; unknown is null. Fields
are added, never renamed or taken away, so readers must not mind new ones.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from quota.leases import DeviceState, HolderKind, State, StopReason, Target
from quota.web.words import instant

Instant = Annotated[
    datetime,
    PlainSerializer(instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-03-01T12:00:00.250000Z"]}),
]


class Shape(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(frozen=True)


class Verdict(Shape):
    """What the idle rule thinks of a running server, in its user's words. `deadline`: when it is stopped."""

    kind: Literal["keep", "warn", "reclaim"]
    rule: str
    words: str
    at: Instant
    deadline: Instant | None


class Holder(Shape):
    """Who holds a lease; `server` is "" for a user's default server."""

    user: str
    server: str
    kind: HolderKind


class HeldDevice(Shape):
    """A device that a lease is on; name and `simulated` are null where the device is not known any more."""

    uuid: str
    name: str | None
    host: str | None
    simulated: bool | None


class Price(Shape):
    """A price plan. A lease keeps the plan that it was made under."""

    plan_id: int
    gpu_hour_micro_credits: int
    cpu_hour_micro_credits: int


class PinnedPrice(Price):
    """The plan of a lease. Where a rule of the site made it, `own_hour_micro_credits` is the price of the whole server
    for an hour, and `rule` that price's name; else null and empty."""

    own_hour_micro_credits: int | None
    rule: str


class Lease(Shape):
    """The right of one holder to one share, from request to bill. Usage and charge are exact up to this moment while it
    is not settled. `target` STOP: somebody wants its end, at `stop_after`."""

    id: str
    state: State
    target: Target
    holder: Holder
    profile: str
    image: str
    account: str
    share_milli: int
    count: int
    devices: list[HeldDevice]
    simulated: bool
    requested_at: Instant
    requested_by: str
    started_at: Instant | None
    ended_at: Instant | None
    stop_reason: StopReason | None
    stop_detail: str
    stop_words: str
    stop_after: Instant | None
    milli_gpu_seconds: int
    charged_micro_credits: int
    held_micro_credits: int
    price: PinnedPrice
    idle: Verdict | None


class Limits(Shape):
    """What an account may at most; null is no limit."""

    max_servers: int | None
    max_gpu_milli: int | None
    monthly_micro_credits: int | None
    profiles: list[str] | None


class Account(Shape):
    """Who pays, as of now. `available` is what can still be spent, `held` what running servers have set aside."""

    name: str
    kind: Literal["user", "group"]
    created_at: Instant
    available_micro_credits: int
    held_micro_credits: int
    month_charged_micro_credits: int
    limits: Limits


class Grant(Shape):
    """One dated grant: given, left, until when it is good (null: for ever)."""

    id: int
    amount_micro_credits: int
    left_micro_credits: int
    granted_at: Instant
    expires_at: Instant | None
    by: str
    note: str


class Granted(Shape):
    """A grant that was made (or had been made with this key): its id, and the account as it is now."""

    bucket: int
    amount_micro_credits: int
    account: Account


class Refunded(Shape):
    """What went back to the account of a lease."""

    lease_id: str
    refunded_micro_credits: int


class MonthlyGrant(Shape):
    """What an account, or everybody ("*"), is given each month."""

    account: str
    micro_credits: int


class Me(Shape):
    """Who asks, what they have, and what they have running."""

    name: str
    admin: bool
    account: Account
    burn_micro_credits_per_hour: int
    time_zone: str
    leases: list[Lease]


class Session(Shape):
    """One lease inside the stretch that was asked for. `microseconds` is wall time; the times are the whole lease's."""

    lease_id: str
    user: str
    profile: str
    image: str
    share_milli: int
    count: int
    simulated: bool
    started_at: Instant
    ended_at: Instant | None
    microseconds: int
    milli_gpu_seconds: int
    charged_micro_credits: int


class Profile(Shape):
    """Something to start. `free_now`: how many could start now, null where that says nothing (no GPU)."""

    name: str
    title: str
    description: str
    share_milli: int
    count: int
    free_now: int | None
    price_per_hour_micro_credits: int
    images: list[str]
    simulated: bool


class DeviceHolder(Shape):
    """Who has a part of a device."""

    user: str
    server: str
    share_milli: int


class Device(Shape):
    """One GPU, how it is shared, and who holds parts of it; no money."""

    uuid: str
    name: str
    host: str
    position: int
    memory_mib: int
    mode: str
    isolation: str
    state: DeviceState
    why: str
    simulated: bool
    used_milli: int
    free_milli: int
    seen_at: Instant | None
    holders: list[DeviceHolder]


class Heard(Shape):
    """A report was taken: for which lease, when, and what the idle rule says of it."""

    lease_id: str
    at: Instant
    idle: Verdict | None


class Farewell(Shape):
    """What a kit said of its saving was taken. `stop_after`: until then the server is left to save."""

    lease_id: str
    began_at: Instant
    done_at: Instant | None
    stop_after: Instant | None


class Kept(Shape):
    """A server that was to stop and runs on."""

    lease_id: str
    target: Target


class Page(Shape):
    """A page of a list. `next` is the cursor of the page after it, null at the end."""

    next: str | None


class Leases(Page):
    """Leases, the newest first."""

    items: list[Lease]


class Accounts(Page):
    """Accounts by name."""

    items: list[Account]


class Grants(Page):
    """Grants that have not expired, in the order in which they are spent."""

    items: list[Grant]


class Profiles(Page):
    """The menu, in its order."""

    items: list[Profile]


class Fleet(Page):
    """Devices by host and UUID."""

    items: list[Device]


class Usage(Page):
    """Sessions inside [from, to), the newest first; the sums are of all of them, also of those on other pages."""

    account: str
    from_: Instant = Field(serialization_alias="from")
    to: Instant
    time_zone: str
    milli_gpu_seconds: int
    charged_micro_credits: int
    items: list[Session]


class Group(Shape):
    """A group that pays: its account, whom to ask, and who is in it at this moment."""

    name: str
    leads: list[str]
    members: list[str]
    account: Account


class Groups(Page):
    """Groups in the site's order."""

    items: list[Group]


class MemberUse(Shape):
    """What one person used of a group. `member`: whether they are in it at this moment."""

    user: str
    member: bool
    sessions: int
    milli_gpu_seconds: int
    charged_micro_credits: int


class GroupUsage(Usage):
    """Sessions that a group paid for inside [from, to), the newest first, and their sums by person. The sums are of all
    sessions, also of those on other pages: those of `members` make the whole."""

    members: list[MemberUse]


class Document(Shape):
    """The description of this interface itself, as OpenAPI 3.1."""

    model_config = ConfigDict(frozen=True, extra="allow")

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]


class Fault(Shape):
    """What every error says (RFC 9457). `reason` is for programs, `detail` for people; `offer_seconds`, where it is
    there, is for how long what was asked would be granted."""

    type: str
    title: str
    status: int
    reason: str
    detail: str
