"""The form on the start page: which profiles there are, what is free now, what it costs and what the balance buys.

`view` is pure and asks the same functions as the placement and the book do, so the page promises what a start gets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined, Template

from quota import i18n
from quota.entitlement import Limits
from quota.errors import NotFound
from quota.leases import Device, Price
from quota.pricing import hold_for, hourly
from quota.units import CREDIT, SECONDS_PER_HOUR, show_credits, show_share
from spawner.fleet import SHARED_MODES, free_now, offered
from spawner.profiles import Profile, images_of, memory_words, open_profiles, profile_memory
from spawner.sharing import isolation
from spawner.wiring import Wiring

#: What a start sets aside, as `LeaseRequest` has it by default: without it the book refuses.
HOLD_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Facts:
    """What the form is made of. `available` in micro-credits; `chosen` are the options of the last start."""

    profiles: Sequence[Profile]
    images: Mapping[str, str]
    devices: Sequence[Device]
    limits: Limits
    available: int
    price: Price
    backend_words: str
    chosen: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Card:
    """One profile. `share` is empty where the title says it already; `why_not` says why it cannot be started now and
    is empty where it can."""

    name: str
    title: str
    share: str
    description: str
    memory: str
    free: str
    price: str
    buys: str
    why_not: str
    simulated: bool
    images: tuple[str, ...]
    checked: bool = False


@dataclass(frozen=True, slots=True)
class View:
    cards: tuple[Card, ...]
    images: tuple[tuple[str, str], ...]
    image: str  # the one to be selected, "" for the first
    balance: str
    backend_words: str
    share_words: str  # what isolates those who share a GPU; empty where nobody can
    simulated: bool


def facts_of(
    wiring: Wiring, user: str, chosen: Mapping[str, object], groups: Collection[str], menu: Sequence[Profile]
) -> Facts:
    """What the book has to say to this user, who is offered `menu`, now. Blocks."""
    try:
        account = wiring.bank.account(user)
    except NotFound:
        wiring.bank.ensure_account(user)
        account = wiring.bank.account(user)
    return Facts(
        profiles=open_profiles(menu, groups),
        images=wiring.images,
        devices=wiring.rows.devices(),
        limits=account.limits,
        available=account.available,
        price=wiring.bank.price(),
        backend_words=wiring.backend_words,
        chosen=chosen,
    )


def view(facts: Facts) -> View:
    """All that the form shows, in words."""
    cards = [_card(facts, profile) for profile in facts.profiles]
    wanted = facts.chosen.get("profile")
    open_now = [card.name for card in cards if not card.why_not]
    checked = wanted if wanted in open_now else next(iter(open_now), None)
    image = facts.chosen.get("image")
    return View(
        cards=tuple(_checked(card) if card.name == checked else card for card in cards),
        images=tuple(facts.images.items()),
        image=image if isinstance(image, str) and image in facts.images else "",
        balance=show_credits(facts.available),
        backend_words=facts.backend_words,
        share_words=_share_words(facts),
        simulated=any(device.simulated for device in facts.devices),
    )


def _checked(card: Card) -> Card:
    return Card(**{**{name: getattr(card, name) for name in Card.__slots__}, "checked": True})


def _card(facts: Facts, profile: Profile) -> Card:
    per_hour = hourly(facts.price, profile.weight)
    simulated = bool(profile.share) and any(device.simulated for device in facts.devices)
    free = free_now(profile, facts.devices)
    return Card(
        name=profile.name,
        title=profile.title,
        share="" if profile.share_words == profile.title else profile.share_words,
        description=profile.description,
        memory=memory_words(profile_memory(facts.devices, profile)),
        free="" if free is None else f"{free} free now",
        price=_price(per_hour),
        buys=f"{show_credits(facts.available)} credits: {_hours(facts.available, per_hour)}" if per_hour else "",
        why_not=_why_not(facts, profile, free),
        simulated=simulated,
        images=images_of(profile, facts.images),
    )


def _why_not(facts: Facts, profile: Profile, free: int | None) -> str:
    """The first reason against it, in the order in which the book and the placement would find it."""
    limits, hold = facts.limits, hold_for(facts.price, profile.weight, HOLD_SECONDS)
    if not images_of(profile, facts.images):
        return "no image for it here"
    if limits.profiles is not None and profile.name not in limits.profiles:
        return "not open to you; an admin can allow it"
    if limits.max_servers == 0:
        return "you may not run servers at present"
    if profile.weight and limits.max_gpu_milli is not None and profile.weight > limits.max_gpu_milli:
        return (
            f"over your limit ({show_share(limits.max_gpu_milli)} at once)"
            if limits.max_gpu_milli
            else "no GPU for you"
        )
    if hold and hold > facts.available:
        return "your balance is too low"
    if not offered(profile, facts.devices):
        return "this site has no such GPU" if facts.devices else "this site has no GPU"
    if free == 0:
        return "none is free right now"
    return ""


def _share_words(facts: Facts) -> str:
    """What keeps apart those who share a device; the weakest promise where devices differ."""
    modes = sorted({device.mode for device in facts.devices if device.mode in SHARED_MODES})
    shares = [profile.share for profile in facts.profiles if profile.fractional]
    if not modes or not shares:
        return ""
    return isolation(modes[-1], min(shares)).sentence  # "time-slice" sorts last and promises least


def _price(per_hour: int) -> str:
    if not per_hour:
        return "free of charge"
    return f"{show_rate(per_hour)} credit{'' if per_hour == CREDIT else 's'} per hour"


def show_rate(per_hour: int) -> str:
    """A price exactly as it is, without needless zeros: "0.125", "1"."""
    text = f"{Decimal(per_hour) / CREDIT:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _hours(available: int, per_hour: int) -> str:
    """How long the balance lasts, cut, never rounded up: "787 h", "3.5 h", "12 min", "nothing"."""
    seconds = max(0, available) * SECONDS_PER_HOUR // per_hour
    if seconds >= 10 * SECONDS_PER_HOUR:
        return f"{seconds // SECONDS_PER_HOUR} h of this profile"
    if seconds >= SECONDS_PER_HOUR:
        return f"{seconds * 10 // SECONDS_PER_HOUR / 10:g} h of this profile"
    return f"{seconds // 60} min of this profile" if seconds >= 60 else "not a minute of this profile"


@cache
def _template(name: str) -> Template:
    """With the package's own template escaped by default: titles and descriptions come from a settings file."""
    text = (files("spawner") / "templates" / name).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(i18n.TEMPLATES)
    return environment.from_string(text)


def render(shown: View) -> str:
    """The form's inside as HTML; the Hub puts the form element and the button around it."""
    return _template("options_form.html").render(view=shown)


def render_trouble(words: str) -> str:
    """Instead of the form, when the book cannot be read."""
    return _template("options_trouble.html").render(words=words)
