"""What a site's own rules are told about a person, and what a rule of the menu may answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from spawner.profiles import Profile


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom a server starts, whoever asks: the Hub's groups they are in at this moment, and whether they are an
    administrator of the Hub."""

    user: str
    groups: frozenset[str] = frozenset()
    admin: bool = False


#: The profiles of the site as one person is offered them. Raises `quota.errors.Refused(RULE_FAILED)`. Blocks.
Offer = Callable[[Sequence[Profile], Asker], tuple[Profile, ...]]


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
