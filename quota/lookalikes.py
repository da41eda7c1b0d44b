"""Names that a person takes for one another: "ada" and "аda" (Cyrillic а), "tom1" and "toml", "arnold" and "amold".

After the skeletons of Unicode's Technical Standard 39, section 4: two names are confusable when they are equal once
each sign is replaced by the one that stands for all that look like it. The signs come from the library's copy of
Unicode's `confusables.txt`.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import cache, lru_cache

from confusable_homoglyphs import confusables

#: Alike in most typefaces, though the standard tells them apart (it maps 0 to the capital, and names have none).
_ALSO = (("0", "o"), ("vv", "w"))


@lru_cache(maxsize=16_384)
def skeleton(name: str) -> str:
    """The same text for all names that look alike."""
    of = _representatives()
    signs = unicodedata.normalize("NFD", name)
    for pair in ("rn", "vv"):
        signs = signs.replace(pair, of[pair])
    return "".join(of.get(sign, sign) for sign in signs)


def pairs(known: Iterable[tuple[str, datetime]], since: datetime) -> list[tuple[str, str]]:
    """Each name that came at or after `since` with the oldest name that it can be taken for, by the newer's name."""
    alike: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for name, created in known:
        alike[skeleton(name)].append((created, name))
    found = []
    for names in alike.values():
        (_, oldest), *others = sorted(names)
        found += [(name, oldest) for created, name in others if created >= since]
    return sorted(found)


def spelled(name: str) -> str:
    """The name for people who must see the difference: what is not ASCII is named, as "а (CYRILLIC SMALL LETTER A)"."""
    odd = dict.fromkeys(sign for sign in name if not sign.isascii())
    told = ", ".join(f"{sign} is {unicodedata.name(sign, f'U+{ord(sign):04X}')}" for sign in odd)
    return f"{name} ({told})" if told else name


@cache
def _representatives() -> dict[str, str]:
    """Each sign (and "rn", "vv") that looks like another, with the one that stands for its class, ASCII if there is."""
    parent: dict[str, str] = {}

    def root(sign: str) -> str:
        while (above := parent.setdefault(sign, sign)) != sign:
            sign = above
        return sign

    listed = ((sign, other["c"]) for sign, others in confusables.confusables_data.items() for other in others)
    for sign, other in (*listed, *_ALSO):
        one, two = sorted((root(sign), root(other)), key=lambda text: (not text.isascii(), len(text), text))
        parent[two] = one
    return {sign: root(sign) for sign in tuple(parent)}
