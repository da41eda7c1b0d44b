"""User names that are let in, and the names derived from them: homes, containers, volumes. All injective.

Two different (user, server) pairs must never meet in one home or volume, whatever their spelling; and every derived
name is legal where it is used, so that nothing has to escape again.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from quota.errors import Reason, Refused
from quota.i18n import N_
from quota.told import NAME_SIGN, NAME_TOO_LONG

MAX_USERNAME: Final = 80
#: Allowed in a user name besides Unicode letters and digits.
SIGNS: Final = "._-@"

#: The longest name that is a DNS label, and what Docker, volumes and most file systems take as well.
MAX_NAME: Final = 63

#: A part that may stand as it is. It has no "--" and no "-" at either end, so that "--" can join parts and "---" can
#: mark a hash, and neither can be imitated by a user.
_PLAIN: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PLAIN_HOME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@]|-(?!-))*")
_HASH_SIGNS: Final = 26  # 130 bits in base 32


def check_username(name: str) -> None:
    """Let a user name in or raise `Refused(USER_NAME_INVALID)` (facts `name`, shortened, and `why`).

    Unicode letters and digits, ".", "_", "-" and "@", at most 80 characters, lower-cased and in NFC, with at least one
    letter or digit. Anything else never reaches a route, a path or a rule: the traefik proxy pastes user names into
    its rules, where a backtick captured the log-in page.
    """
    why = _fault(name)
    if why:
        raise Refused(Reason.USER_NAME_INVALID, name=_shown(name), why=why)


def _fault(name: str) -> str:
    if not name:
        return N_("it is empty")
    if len(name) > MAX_USERNAME:
        return NAME_TOO_LONG % {"number": MAX_USERNAME}
    for sign in name:
        if not (sign.isalpha() or sign.isdecimal() or sign in SIGNS):
            return NAME_SIGN % {"sign": repr(sign)} if sign.isprintable() else N_("it contains an invisible character")
    if not any(sign.isalpha() or sign.isdecimal() for sign in name):
        return N_("it has no letter and no digit")
    if name != name.lower() or name != unicodedata.normalize("NFC", name):
        return N_("it is not in lower case")
    return ""


def _shown(name: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in name[:40])


def home_name(user: str) -> str:
    """The folder of a user's home: the name itself where that is plain ASCII, else a readable stem and a hash.

    At most 63 signs of [a-z0-9._@-], first a letter or digit.
    """
    if _PLAIN_HOME.fullmatch(user) and len(user) <= MAX_NAME and not user.endswith("."):
        return user
    return _hashed((user,))


def container_name(deployment: str, user: str, server: str = "") -> str:
    """The name of a server's container in one deployment: at most 63 signs of [a-z0-9-], first a letter."""
    return _joined(("berth", deployment, user, server) if server else ("berth", deployment, user))


def volume_name(deployment: str, user: str) -> str:
    """The name of the volume with a user's home: at most 63 signs of [a-z0-9-], first a letter."""
    return _joined(("berth-home", deployment, user))


def _joined(parts: Sequence[str]) -> str:
    plain = "--".join(parts)
    if len(plain) <= MAX_NAME and all(_PLAIN.fullmatch(part) for part in parts):
        return plain
    return _hashed(parts)


def _hashed(parts: Sequence[str]) -> str:
    """A stem for people, then "---" and a hash of all parts, each with its length so that they cannot run together."""
    exact = b"".join(b"%d:%s" % (len(raw), raw) for raw in (part.encode("utf-8", "surrogatepass") for part in parts))
    digest = int.from_bytes(hashlib.sha256(exact).digest())
    signs = "0123456789abcdefghijklmnopqrstuv"
    tail = "".join(signs[(digest >> (5 * place)) & 31] for place in range(_HASH_SIGNS))
    stem = re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
    stem = stem[: MAX_NAME - _HASH_SIGNS - 3].rstrip("-") or "x"
    return f"{stem}---{tail}"
