"""The form on the start page: which profiles there are, what is free now, what it costs and what the balance buys.

`view` is pure and asks the same functions as the placement and the book do, so the page promises what a start gets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined, Template

from quota import i18n
from quota.entitlement import Limits
from quota.errors import NotFound
from quota.groups import group_of, payers_of
from quota.i18n import _
from quota.leases import Device, Price, Quote
from quota.pricing import hold_for, hourly
from quota.said import share_said
from quota.units import CREDIT, SECONDS_PER_HOUR, show_credits
from spawner.fleet import PARTED_MODES, free_now, offered
from spawner.profiles import Profile, images_of, memory_words, open_profiles, profile_memory
from spawner.sharing import isolation
from spawner.wiring import Wiring

#: What a start sets aside, as `LeaseRequest` has it by default: without it the book refuses.
HOLD_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Purse:
    """An account that may pay: its name, what it can spend, and what it pays for at most."""

    account: str
    available: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class Facts:
    """What the form is made of. `available` (in micro-credits) and `limits` are the user's own, `groups` those that may
    pay in their place; `chosen` are the options of the last start, `quotes` the prices by the site's own rule. `fenced`
    tells that the backend hides other devices from a server."""

    profiles: Sequence[Profile]
    images: Mapping[str, str]
    devices: Sequence[Device]
    limits: Limits
    available: int
    price: Price
    backend_words: str
    chosen: Mapping[str, object]
    user: str = ""
    groups: Sequence[Purse] = ()
    quotes: Mapping[str, Quote] = field(default_factory=dict)
    fenced: bool = False

    def price_of(self, profile: Profile) -> Price:
        """What this user pays for it: by the site's own rule where that asks something, else by its list."""
        quote = self.quotes.get(profile.name)
        return self.price if quote is None else replace(self.price, per_hour=quote.per_hour, rule=quote.rule)

    @property
    def purses(self) -> tuple[Purse, ...]:
        """All who may pay, the user first. What the user may have at all is asked before, whoever pays."""
        return (Purse(self.user, self.available, Limits()), *self.groups)


@dataclass(frozen=True, slots=True)
class Offer:
    """One profile, paid by `payer`: what the balance of that buys, and why it cannot be started, "" where it can."""

    payer: str
    buys: str
    why_not: str


@dataclass(frozen=True, slots=True)
class Card:
    """One profile. `share` is empty where the title says it already. `offers` has one for each who may pay; `buys` and
    `why_not` are those of the payer who is selected, `closed` tells that nobody can pay or start it."""

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
    offers: tuple[Offer, ...]
    checked: bool = False
    rule: str = ""  # the name of a price that is this user's own

    @property
    def closed(self) -> bool:
        return all(offer.why_not for offer in self.offers)


@dataclass(frozen=True, slots=True)
class View:
    cards: tuple[Card, ...]
    images: tuple[tuple[str, str], ...]
    image: str  # the one to be selected, "" for the first
    balance: str
    backend_words: str
    share_words: str  # what isolates those who share a GPU; empty where nobody can
    simulated: bool
    payers: tuple[tuple[str, str], ...]  # accounts and titles; one has no choice
    payer: str


def facts_of(
    wiring: Wiring,
    user: str,
    chosen: Mapping[str, object],
    groups: Collection[str],
    menu: Sequence[Profile],
    quotes: Mapping[str, Quote],
) -> Facts:
    """What the book has to say to this user, who is offered `menu` at the prices of `quotes`, now. Blocks."""
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
        user=user,
        groups=[_purse(wiring, name) for name in payers_of(wiring.groups, groups)],
        quotes=quotes,
        fenced=wiring.docker is not None,
    )


def _purse(wiring: Wiring, account: str) -> Purse:
    """The account of a group, which is made when it is first used."""
    try:
        found = wiring.bank.account(account)
    except NotFound:
        return Purse(account, 0, Limits())
    return Purse(account, found.available, found.limits)


def view(facts: Facts) -> View:
    """All that the form shows, in words."""
    offers = [_offers(facts, profile) for profile in facts.profiles]
    payer = _payer(facts, offers)
    cards = [_card(facts, profile, found, payer) for profile, found in zip(facts.profiles, offers, strict=True)]
    wanted = facts.chosen.get("profile")
    open_now = [card.name for card in cards if not card.why_not]
    checked = wanted if wanted in open_now else next(iter(open_now), None)
    image = facts.chosen.get("image")
    return View(
        cards=tuple(_checked(card) if card.name == checked else card for card in cards),
        images=tuple((name, _(title)) for name, title in facts.images.items()),
        image=image if isinstance(image, str) and image in facts.images else "",
        balance=show_credits(facts.available),
        backend_words=_(facts.backend_words) if facts.backend_words else "",
        share_words=_share_words(facts),
        simulated=any(device.simulated for device in facts.devices),
        payers=tuple((purse.account, _title(purse)) for purse in facts.purses),
        payer=payer,
    )


def _payer(facts: Facts, offers: Sequence[Sequence[Offer]]) -> str:
    """Who is selected: who paid last, else the first, beginning with the user, who could pay for something that costs
    something, else the user."""
    accounts = [purse.account for purse in facts.purses]
    last = facts.chosen.get("payer")
    if last in accounts:
        return str(last)
    able = {offer.payer for profile in offers for offer in profile if offer.buys and not offer.why_not}
    return next((account for account in accounts if account in able), facts.user)


def _title(purse: Purse) -> str:
    group, amount = group_of(purse.account), show_credits(purse.available)
    if group is None:
        return _("Yourself (%(amount)s credits)", amount=amount)
    return _("Group %(group)s (%(amount)s credits)", group=group, amount=amount)


def _offers(facts: Facts, profile: Profile) -> tuple[Offer, ...]:
    per_hour, free = hourly(facts.price_of(profile), profile.weight), free_now(profile, facts.devices)
    return tuple(
        Offer(
            purse.account,
            _buys(purse.available, per_hour) if per_hour else "",
            _why_not(facts, profile, free, purse),
        )
        for purse in facts.purses
    )


def _checked(card: Card) -> Card:
    return replace(card, checked=True)


def _card(facts: Facts, profile: Profile, offers: tuple[Offer, ...], payer: str) -> Card:
    price = facts.price_of(profile)
    offer = next(each for each in offers if each.payer == payer)
    simulated = bool(profile.share) and any(device.simulated for device in facts.devices)
    free = free_now(profile, facts.devices)
    return Card(
        name=profile.name,
        title=_(profile.title),
        share="" if profile.share_words == profile.title else share_said(profile.share, profile.count),
        description=_(profile.description) if profile.description else "",
        memory=memory_words(profile_memory(facts.devices, profile)),
        free="" if free is None else _("%(number)s free now", number=free),
        price=_price(hourly(price, profile.weight)),
        rule=price.rule,
        buys=offer.buys,
        why_not=offer.why_not,
        simulated=simulated,
        images=images_of(profile, facts.images),
        offers=offers,
    )


def _why_not(facts: Facts, profile: Profile, free: int | None, purse: Purse) -> str:
    """The first reason against it, in the order in which the book and the placement would find it."""
    limits, hold = facts.limits, hold_for(facts.price_of(profile), profile.weight, HOLD_SECONDS)
    if not images_of(profile, facts.images):
        return _("no image for it here")
    if limits.profiles is not None and profile.name not in limits.profiles:
        return _("not open to you; an admin can allow it")
    if limits.max_servers == 0:
        return _("you may not run servers at present")
    if profile.weight and limits.max_gpu_milli is not None and profile.weight > limits.max_gpu_milli:
        most = share_said(limits.max_gpu_milli)
        return _("over your limit (%(share)s at once)", share=most) if limits.max_gpu_milli else _("no GPU for you")
    if group_of(purse.account) is not None:
        unpaid = _unpaid(purse, profile, hold)
        if unpaid:
            return unpaid
    elif hold and hold > purse.available:
        return _("your balance is too low")
    if not offered(profile, facts.devices):
        return _("this site has no such GPU") if facts.devices else _("this site has no GPU")
    if free == 0:
        return _("none is free right now")
    return ""


def _unpaid(purse: Purse, profile: Profile, hold: int) -> str:
    """Why a group does not pay for it."""
    limits = purse.limits
    if limits.profiles is not None and profile.name not in limits.profiles:
        return _("the group does not pay for it")
    too_large = limits.max_gpu_milli is not None and profile.weight > limits.max_gpu_milli
    if limits.max_servers == 0 or too_large:
        return _("over what the group pays for at once")
    return _("the group's balance is too low") if hold and hold > purse.available else ""


def _parted(device: Device) -> bool:
    """Whether less than the whole of it may be had: a card that MIG divides is not, its parts are."""
    return device.mode in PARTED_MODES and (device.mode != "mig" or device.capacity > 0)


def _share_words(facts: Facts) -> str:
    """What keeps apart those who share a device; the weakest promise where devices differ."""
    modes = sorted({device.mode for device in facts.devices if _parted(device)})
    shares = [profile.share for profile in facts.profiles if profile.fractional]
    if not modes or not shares:
        return ""
    return isolation(modes[-1], min(shares), fenced=facts.fenced).sentence  # "time-slice" sorts last and promises least


def _price(per_hour: int) -> str:
    if not per_hour:
        return _("free of charge")
    if per_hour == CREDIT:
        return _("1 credit per hour")
    return _("%(amount)s credits per hour", amount=show_rate(per_hour))


def show_rate(per_hour: int) -> str:
    """A price exactly as it is, without needless zeros: "0.125", "1"."""
    text = f"{Decimal(per_hour) / CREDIT:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _buys(available: int, per_hour: int) -> str:
    """How long the balance lasts, cut, never rounded up: "787 h", "3.5 h", "12 min", not a minute."""
    seconds, credits = max(0, available) * SECONDS_PER_HOUR // per_hour, show_credits(available)
    if seconds < 60:
        return _("%(credits)s credits: not a minute of this profile", credits=credits)
    if seconds < SECONDS_PER_HOUR:
        return _("%(credits)s credits: %(minutes)s min of this profile", credits=credits, minutes=seconds // 60)
    tenths = seconds * 10 // SECONDS_PER_HOUR
    hours = f"{tenths // 10}" if tenths >= 100 else f"{tenths / 10:g}"
    return _("%(credits)s credits: %(hours)s h of this profile", credits=credits, hours=hours)


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
