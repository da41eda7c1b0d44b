"""What a site's own rules are told about a person, and what a rule of the menu may answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

from quota.leases import Quote
from quota.units import CREDIT, round_credits
from spawner.profiles import Profile

#: No rule asks more for an hour; a slip of the decimal point should not empty an account.
MOST_PER_HOUR: Final = 1_000_000 * CREDIT
_PLACES: Final = 30


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom a server starts, whoever asks: the Hub's groups they are in at this moment, and whether they are an
    administrator of the Hub."""

    user: str
    groups: frozenset[str] = frozenset()
    admin: bool = False


#: The profiles of the site as one person is offered them. Raises `quota.errors.Refused(RULE_FAILED)`. Blocks.
Offer = Callable[[Sequence[Profile], Asker], tuple[Profile, ...]]


@dataclass(frozen=True, slots=True)
class OwnPrice:
    """What a site's rule of prices answers: exact `credits` for an hour of the whole server, and the price's `name` for
    people. Never a float: 0.1 of a float is no tenth."""

    credits: int | Decimal | Fraction
    name: str


#: The site's own price of each of these profiles, by name, for one person at a moment; a profile without is at the
#: site's list. Raises `quota.errors.Refused(RULE_FAILED)`. Blocks.
Quotes = Callable[[Sequence[Profile], Asker, datetime], Mapping[str, Quote]]


def checked_quotes(answers: Iterable[tuple[Profile, object]]) -> dict[str, Quote]:
    """A rule's answers, rounded once to the micro-credit. Raises `ValueError`, in words for administrators."""
    return {profile.name: _quote(profile, answer) for profile, answer in answers if answer is not None}


def _quote(profile: Profile, answer: object) -> Quote:
    of = f"for the profile {profile.name!r} it gave"
    if not isinstance(answer, OwnPrice):
        raise ValueError(f"{of} {type(answer).__name__}, not an OwnPrice, nor None for the site's list")
    amount, name = answer.credits, answer.name
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal | Fraction):
        raise ValueError(f"{of} {type(amount).__name__} as credits; write an int, a Decimal or a Fraction")
    if isinstance(amount, Decimal) and (not amount.is_finite() or amount.adjusted() < -_PLACES):
        raise ValueError(f"{of} {amount}, which is no price")
    if not 0 <= amount * CREDIT <= MOST_PER_HOUR:
        raise ValueError(f"{of} {amount} credits an hour; a price is 0 to {MOST_PER_HOUR // CREDIT}")
    if not isinstance(name, str) or not name.strip() or len(name) > 80 or not name.isprintable():
        raise ValueError(f"{of} a price whose name is no line of 1 to 80 characters")
    return Quote(round_credits(Fraction(amount) * CREDIT), name)


def checked_menu(ours: Sequence[Profile], answer: object) -> tuple[Profile, ...]:
    """A rule's answer, if it is what a rule may say: some of the site's profiles in any order, each at most once, with
    other words for people, fewer images, or less CPU and memory.

    Name, share, number of GPUs, service class and groups stay as the site's settings have them: what is priced,
    counted and guarded is not a rule's to change unseen. Raises `ValueError`, in words for administrators.
    """
    if isinstance(answer, str | bytes) or not isinstance(answer, Sequence):
        raise ValueError(f"it gave {type(answer).__name__}, not a tuple of profiles")
    known = {profile.name: profile for profile in ours}
    menu: list[Profile] = []
    for each in answer:
        if not isinstance(each, Profile):
            raise ValueError(f"it gave {type(each).__name__} in place of a profile")
        if each.name not in known:
            raise ValueError(f"it gave a profile {each.name!r}, which the site has not")
        if any(each.name == earlier.name for earlier in menu):
            raise ValueError(f"it gave the profile {each.name!r} twice")
        _check(known[each.name], each)
        menu.append(each)
    return tuple(menu)


def _check(ours: Profile, theirs: Profile) -> None:
    same = replace(
        theirs,
        title=ours.title,
        description=ours.description,
        images=ours.images,
        cpu=ours.cpu,
        memory_mib=ours.memory_mib,
    )
    if same != ours:
        key = next(name for name in Profile.__slots__ if getattr(same, name) != getattr(ours, name))
        raise ValueError(f"it changed {key} of the profile {ours.name!r}, which only the site's settings may")
    for key in ("cpu", "memory_mib"):
        most, given = getattr(ours, key), getattr(theirs, key)
        if most is not None and (given is None or given > most):
            raise ValueError(f"it raised {key} of the profile {ours.name!r} over what the site's settings say ({most})")
    if ours.images and (not theirs.images or not set(theirs.images) <= set(ours.images)):
        raise ValueError(f"it gave the profile {ours.name!r} images that the site's settings do not")
    for key, longest in (("title", 80), ("description", 400)):
        text = getattr(theirs, key)
        if not isinstance(text, str) or len(text) > longest:
            raise ValueError(f"the {key} of the profile {ours.name!r} is no text of at most {longest} characters")
