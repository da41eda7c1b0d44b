"""The admin's page: health, who runs what, accounts, and the fields of its forms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from quota.alerts import Alert
from quota.bank import EVERYBODY, INHERIT, AccountView, Limits
from quota.errors import NotFound
from quota.i18n import N_, _, _n
from quota.leases import Device, DeviceState, Lease, State
from quota.rows import Heartbeat
from quota.told import retold
from quota.units import show_credits
from quota.web import fields
from quota.web.lines import LeaseRow, rows_of, sentence
from quota.web.lists import Pages, cut
from quota.web.parts import HubUnavailable, HubUser, ServiceParts
from quota.web.snapshot import snapshot
from quota.web.words import credits_words, device_state_words, device_words, duration_words, gpus_words

#: Names of the limits form's fields; `max_gpus` and `monthly_credits` are in whole units for people.
LIMIT_FIELDS = ("max_servers", "max_gpus", "monthly_credits", "profiles")
#: Rows of one page of accounts, of the table of running servers, and names that forms suggest.
ACCOUNTS, RUNNING, NAMES = 50, 50, 200
NO_LIMIT = ("none", "no limit", "unlimited")

#: Processes that must be alive, and after how long a silence one is thought dead.
ROLES: tuple[tuple[str, str, timedelta], ...] = (
    ("hub", N_("Hub"), timedelta(seconds=30)),
    ("agent", N_("Agent"), timedelta(seconds=30)),
    ("idle-culler", N_("Idle culler"), timedelta(seconds=120)),
)
#: A running server that the agent has not seen for this long is an alarm: nobody meters it.
UNSEEN = timedelta(seconds=60)
#: A host whose agent has been silent for this long, and that holds nothing, was taken away on purpose.
FORGOTTEN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pulse:
    """The latest sign of life of one process. `kind` is good, bad or unknown."""

    role: str
    kind: str
    words: str
    name: str  # which process, and where


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One user or account in the table; amounts in words, "–" for somebody who has no account yet."""

    name: str
    admin: bool
    note: str
    available: str
    held: str
    month: str
    limits: tuple[str, ...]
    running: int


@dataclass(frozen=True, slots=True)
class LimitWords:
    """The limits in force of the chosen account, as a form's hints."""

    max_servers: str
    max_gpus: str
    monthly: str
    profiles: str


@dataclass(frozen=True, slots=True)
class AlertLine:
    """A trouble that stands: words, and since when."""

    key: str
    words: str
    since: datetime


@dataclass(frozen=True, slots=True)
class AdminView:
    alarms: tuple[str, ...]
    alerts: tuple[AlertLine, ...]
    pulses: tuple[Pulse, ...]
    running: tuple[LeaseRow, ...]
    more_running: int
    accounts: tuple[AccountRow, ...]
    pages: Pages
    names: tuple[str, ...]
    filter: str
    chosen: str
    limits: LimitWords
    monthly_grant: str
    profile_names: tuple[str, ...]
    gpu_hour: str
    cpu_hour: str
    hub_silent: bool
    form_key: str


async def hub_users(parts: ServiceParts) -> tuple[HubUser, ...] | None:
    """The Hub's users, None where it does not answer: the page works without."""
    try:
        return await parts.hub.users()
    except HubUnavailable:
        return None


def admin(
    parts: ServiceParts, users: Sequence[HubUser] | None, wanted: str, chosen: str, form_key: str, page: str = ""
) -> AdminView:
    """One page of accounts with all around it. Blocks; what it reads in full are names, not accounts."""
    live = parts.book.holdings()
    running = parts.book.some([lease.id for lease in live[:RUNNING]])
    seen = snapshot(parts, running)
    beats = pulses(parts.rows.boots(), seen.now)
    groups = (group.account for group in parts.groups if group.pays)
    names = sorted({*parts.bank.names(), *groups, *(user.name for user in users or ())})
    found, pages = cut([name for name in names if wanted.casefold() in name.casefold()], page, ACCOUNTS)
    views = parts.bank.views_of(found)
    holding = Counter(lease.holder.user for lease in live)
    paying = Counter(lease.account_id for lease in live)
    holding |= {name: paying[view.account.id] for name, view in views.items() if view.account.kind == "group"}
    admins = {user.name for user in users or () if user.admin}
    known = None if users is None else {user.name for user in users}
    price = parts.bank.price()
    silent = alarms(beats)
    return AdminView(
        alarms=(*silent, *unseen(parts.book.unseen(seen.now - UNSEEN), seen.now), *troubled(seen.devices.values())),
        alerts=standing(parts.alerts.open(), {pulse.role for pulse, _age in beats if _is_silent(pulse, _age)}),
        pulses=tuple(pulse for pulse, _ in beats),
        running=rows_of(running, seen),
        more_running=max(0, len(live) - RUNNING),
        accounts=tuple(account_row(name, views.get(name), name in admins, known, holding[name]) for name in found),
        pages=pages,
        names=tuple(names[:NAMES]),
        filter=wanted,
        chosen=chosen if chosen in names else "",
        limits=limit_words(_limits_of(parts, chosen)),
        monthly_grant=_plain(_monthly_grant_of(parts, chosen)),
        profile_names=tuple(profile.name for profile in parts.profiles()),
        gpu_hour=_plain(price.gpu_hour),
        cpu_hour=_plain(price.cpu_hour),
        hub_silent=users is None,
        form_key=form_key,
    )


def _plain(amount: int) -> str:
    """Credits as a form takes them back: "1.00", no thin spaces."""
    return credits_words(amount).replace("\u202f", "")


def _limits_of(parts: ServiceParts, chosen: str) -> Limits:
    try:
        return parts.bank.limits(chosen or EVERYBODY)
    except NotFound:
        return parts.bank.limits(EVERYBODY)


def _monthly_grant_of(parts: ServiceParts, chosen: str) -> int:
    try:
        return parts.bank.monthly_grant(chosen or EVERYBODY)
    except NotFound:
        return parts.bank.monthly_grant(EVERYBODY)


# ---- health ----


def pulses(boots: Iterable[Heartbeat], now: datetime) -> list[tuple[Pulse, timedelta | None]]:
    """The freshest beat of each role (of an agent: on each host), with its age; None where none was ever seen."""
    freshest: dict[tuple[str, str], Heartbeat] = {}
    for boot in boots:
        key = (boot.role, boot.host if boot.role == "agent" else "")
        if key not in freshest or freshest[key].beat_at < boot.beat_at:
            freshest[key] = boot
    found: list[tuple[Pulse, timedelta | None]] = []
    for role, name, late in ROLES:
        beats = [beat for (found_role, _), beat in sorted(freshest.items()) if found_role == role]
        if role == "agent" and len(beats) > 1:
            beats = [beat for beat in beats if now - beat.beat_at < FORGOTTEN] or beats[:1]
        if not beats:
            found.append((Pulse(role, "unknown", _("%(name)s: never seen", name=_(name)), _(name)), None))
        for beat in beats:
            age = max(now - beat.beat_at, timedelta(0))
            kind = "good" if age <= late else "bad"
            who = _process(name, beat.host if role == "agent" else "")
            words = _("%(name)s: %(duration)s ago", name=who, duration=duration_words(age))
            found.append((Pulse(role, kind, words, who), age))
    return found


def _process(name: str, host: str) -> str:
    return _("%(name)s on %(host)s", name=_(name), host=host) if host else _(name)


_SILENT = {
    "hub": N_("nobody can log in or start a server"),
    "agent": N_("servers there are neither watched nor charged until it is back; none of them is stopped for it"),
    "idle-culler": N_("idle servers are not reclaimed until it is back"),
}


#: Alerts that say what the alarm of a silent process says already.
_SAME = {"agent-silent": "agent", "culler-silent": "idle-culler"}


def standing(alerts: Iterable[Alert], silent: Collection[str]) -> tuple[AlertLine, ...]:
    """The alerts that are open, the oldest first, without those about roles that are told as `silent` already."""
    return tuple(
        AlertLine(alert.key, sentence(retold(alert.words)), alert.since)
        for alert in alerts
        if _SAME.get(alert.key.partition(":")[0]) not in silent
    )


def _is_silent(pulse: Pulse, age: timedelta | None) -> bool:
    return pulse.role == "agent" if age is None else pulse.kind == "bad"


def alarms(beats: Iterable[tuple[Pulse, timedelta | None]]) -> list[str]:
    """What an administrator must know about processes that are silent."""
    found = []
    for pulse, age in beats:
        if not _is_silent(pulse, age):
            continue
        effect = _(_SILENT[pulse.role])
        if age is None:
            found.append(_("%(name)s never seen: %(effect)s.", name=pulse.name, effect=effect))
        else:
            silent = duration_words(age)
            found.append(
                _("%(name)s silent for %(duration)s: %(effect)s.", name=pulse.name, duration=silent, effect=effect)
            )
    return found


def unseen(leases: Iterable[Lease], now: datetime) -> list[str]:
    """Running servers that nobody has seen for a while: an unbilled one must not go unnoticed."""
    lost = [
        lease
        for lease in leases
        if lease.state is State.RUNNING and now - (lease.last_seen or lease.started_at or now) > UNSEEN
    ]
    if not lost:
        return []
    users = ", ".join(sorted({lease.holder.user for lease in lost})[:5])
    return [
        _n(
            "%(n)s running server not seen for more than %(duration)s: %(users)s.",
            "%(n)s running servers not seen for more than %(duration)s: %(users)s.",
            len(lost),
            duration=duration_words(UNSEEN),
            users=users,
        )
    ]


def troubled(devices: Iterable[Device]) -> list[str]:
    """Devices that are out of service."""
    return [
        sentence(_("%(what)s: %(why)s", what=device_words(device), why=device_state_words(device)))
        for device in devices
        if device.state is not DeviceState.OK
    ]


# ---- accounts ----


def account_row(
    name: str, view: AccountView | None, is_admin: bool, known: set[str] | None, running: int
) -> AccountRow:
    """One row; `known` are the Hub's users, None where it did not answer."""
    if view is None:
        return AccountRow(name, is_admin, _("has not used Berth yet"), "–", "–", "–", (), running)
    gone = known is not None and name not in known and view.account.kind == "user"
    note = _("not known to the Hub") if gone else "" if view.account.kind == "user" else _("group")
    return AccountRow(
        name=name,
        admin=is_admin,
        note=note,
        available=show_credits(view.available),
        held=show_credits(view.held),
        month=show_credits(view.month_charged),
        limits=limits_words(view.limits),
        running=running,
    )


def limits_words(limits: Limits) -> tuple[str, ...]:
    """Limits as short lines; what is not limited is left out."""
    found = []
    if limits.max_servers is not None:
        found.append(_n("%(n)s server", "%(n)s servers", limits.max_servers))
    if limits.max_gpu_milli is not None:
        found.append(gpus_words(limits.max_gpu_milli))
    if limits.monthly_micro is not None:
        found.append(_("%(amount)s credits a month", amount=show_credits(limits.monthly_micro)))
    if limits.profiles is not None:
        names = ", ".join(sorted(limits.profiles))
        found.append(_("only %(names)s", names=names) if names else _("no profile"))
    return tuple(found) or (_("no limits"),)


def limit_words(limits: Limits) -> LimitWords:
    """The limits in force, as hints in the form's fields."""
    none = _("no limit")
    return LimitWords(
        max_servers=none if limits.max_servers is None else str(limits.max_servers),
        max_gpus=none if limits.max_gpu_milli is None else f"{Decimal(limits.max_gpu_milli) / 1000:f}",
        monthly=none if limits.monthly_micro is None else _plain(limits.monthly_micro),
        profiles=_("all") if limits.profiles is None else ", ".join(sorted(limits.profiles)) or _("none of them"),
    )


# ---- the limits form ----


def read_limits(texts: Mapping[str, str], known: set[str]) -> dict[str, object]:
    """The changes that a form asks for, in the book's words: an empty field changes nothing, "none" is no limit,
    "default" is what everybody has. Raises `Problem`."""
    changes: dict[str, object] = {}
    for name, read in (
        ("max_servers", _servers),
        ("max_gpus", _milli),
        ("monthly_credits", _monthly),
        ("profiles", lambda text: _profiles(text, known)),
    ):
        text = texts[name].strip()
        word = {"max_gpus": "max_gpu_milli", "monthly_credits": "monthly_micro"}.get(name, name)
        if text.lower() == "default":
            changes[word] = INHERIT
        elif text.lower() in NO_LIMIT or (name == "profiles" and text.lower() == "all"):
            changes[word] = None
        elif text:
            changes[word] = read(text)
    if not changes:
        raise fields.wrong("limits", _("fill in at least one field"))
    return changes


def _servers(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise fields.wrong(_("servers at once"), _("a whole number, none or default is needed"))
    return int(text)


def _milli(text: str) -> int:
    try:
        milli = Decimal(text) * 1000
        if not milli.is_finite() or not 0 <= milli <= 10**7 or milli != milli.to_integral_value():
            raise ValueError
        return int(milli)
    except (InvalidOperation, ValueError):
        raise fields.wrong(_("GPUs at once"), _("a number such as 2 or 0.5, none or default is needed")) from None


def _monthly(text: str) -> int:
    amount = fields.credits_of(text, _("credits per month"))
    if amount < 0:
        raise fields.wrong(_("credits per month"), _("a limit cannot be below zero"))
    return amount


def _profiles(text: str, known: set[str]) -> frozenset[str]:
    names = {name for part in text.split(",") if (name := part.strip())}
    strange = sorted(names - known)
    if strange:
        raise fields.wrong(
            _("profiles"),
            _("%(name)s is no profile; known: %(names)s", name=repr(strange[0]), names=", ".join(sorted(known))),
        )
    return frozenset(names)


def set_limits(parts: ServiceParts, name: str, changes: Mapping[str, object], by: str) -> None:
    """Write them. "default" means nothing for everybody's own limits. Raises `Problem`."""
    if name == EVERYBODY and INHERIT in changes.values():
        raise fields.wrong("limits", _("“default” is for one user; everybody's own limits have no default"))
    parts.bank.set_limits(name, changes, by=by)
