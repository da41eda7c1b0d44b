"""Reading what people and programs send: JSON bodies and form fields, checked one by one. Pure but for `Problem`.

Every function raises `Problem` (400) with the name of the field and what it should be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any

from quota.i18n import _
from quota.units import MicroCredits, parse_credits
from quota.web.problem import Problem, Why

#: The largest amount in one posting: 10⁹ credits. The ledger's integers have 64 bits.
LARGEST_AMOUNT = 10**15
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_PLAIN = re.compile(r"[+-]?[0-9]{1,13}(\.[0-9]{0,6})?")
_KEY = re.compile(r"[!-~]{1,128}")
_NAME = re.compile(r"[^\x00-\x1f\x7f/\ud800-\udfff]{1,255}")


def wrong(name: str, words: str) -> Problem:
    return Problem(400, Why.FIELD_INVALID, _("%(name)s: %(what)s", name=name, what=words))


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _decimal(text: str) -> Decimal:
    """Raises `ValueError` for an exponent that is beyond even a `Decimal`."""
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:40]} is beyond counting") from None


#: How JSON is read: decimals as they stand, and nothing that is not JSON.
_EXACT: Mapping[str, Any] = {"parse_float": _decimal, "parse_constant": _no_constant}


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two fields of one name some readers take the first and some the last: nobody could say what was asked."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Problem(400, Why.JSON_INVALID, _("A field is there twice."))
    return found


def json_object(raw: bytes) -> dict[str, Any]:
    """A JSON object with each name once; decimals stay exact. An empty body is an empty object."""
    if not raw.strip():
        return {}
    try:
        content = json.loads(raw.decode("utf-8"), object_pairs_hook=_each_once, **_EXACT)
    except (ValueError, RecursionError):
        raise Problem(400, Why.JSON_INVALID, _("The body is not JSON in UTF-8.")) from None
    if not isinstance(content, dict):
        raise Problem(400, Why.JSON_INVALID, _("The body is not a JSON object."))
    return content


def integer(content: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """A whole number (JSON integer; no boolean, no 1.0, no text) in low..high."""
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise wrong(name, _("a whole number from %(low)s to %(high)s is needed", low=low, high=high))
    return value


def text(content: Mapping[str, Any], name: str, longest: int) -> str:
    """Text without control characters, "" where it is absent."""
    value = content.get(name, "")
    if not isinstance(value, str) or len(value) > longest or _CONTROL.search(value):
        raise wrong(name, _("text of at most %(number)s characters is needed", number=longest))
    return value.strip()


def credits_of(value: object, name: str) -> MicroCredits:
    """Credits as a person writes them: "12.5", in JSON also 12 or 12.5."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise wrong(name, _("a number of credits such as 12.5 is needed"))
    text = "" if isinstance(value, int) and abs(value) > LARGEST_AMOUNT else str(value).strip()
    if not _PLAIN.fullmatch(text):
        raise wrong(name, _("a plain number of credits such as 12.5, with at most six places, is needed"))
    amount = parse_credits(text)
    if abs(amount) > LARGEST_AMOUNT:
        raise wrong(name, _("at most %(amount)s credits are possible", amount=LARGEST_AMOUNT // 10**6))
    return amount


def amount(content: Mapping[str, Any], *, optional: bool = False) -> MicroCredits | None:
    """A positive amount: `amount_micro_credits` (integer) or `credits` ("12.5"), one of them."""
    given = [name for name in ("amount_micro_credits", "credits") if content.get(name) is not None]
    if len(given) != 1:
        if optional and not given:
            return None
        raise wrong("amount_micro_credits", _("give either this (an integer) or credits (such as 12.5)"))
    if given == ["credits"]:
        found = credits_of(content["credits"], "credits")
    else:
        found = MicroCredits(integer(content, "amount_micro_credits", 1, LARGEST_AMOUNT))
    if found <= 0:
        raise wrong(given[0], _("an amount above zero is needed"))
    return found


def moment(found: str, name: str, zone: tzinfo) -> datetime:
    """A time on the site's clock, as a browser's field for one sends it; with a zone of its own where it has one."""
    try:
        read = datetime.fromisoformat(found)
        return (read if read.tzinfo else read.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise wrong(name, _("a day and a time of the site's clock are needed")) from None


def key(header: str | None, content: Mapping[str, Any]) -> str | None:
    """The idempotency key of the header or the body; both must agree. None where there is none."""
    found = {value for value in (header, content.get("key")) if value is not None}
    if len(found) > 1:
        raise wrong("key", _("the Idempotency-Key header says another one"))
    value = found.pop() if found else None
    if value is not None and (not isinstance(value, str) or not _KEY.fullmatch(value)):
        raise wrong("key", _("1 to 128 printable ASCII characters without spaces are needed"))
    return value


def is_name(name: str) -> bool:
    """Whether it could be an account's name at all."""
    return _NAME.fullmatch(name) is not None
