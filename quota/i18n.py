"""Words in the language of the reader: English is in the code, other languages in `quota/locale`.

`_` and `_n` speak the language of the work under way, a context variable that goes along through tasks and threads as
the request's id does (`quota.tracing`). `quota/web/arrival.py` sets it for each request of the Hub and of service
`berth`; work that nobody asked for (the culler's notices, the agent) speaks the site's. Logs, machine reasons and the
command line stay English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from gettext import NullTranslations
from typing import Any, Final

__all__ = [
    "COOKIE",
    "LANGUAGES",
    "N_",
    "TEMPLATES",
    "_",
    "_n",
    "add",
    "language",
    "negotiate",
    "set_default",
    "speaking",
    "use",
]

#: What Berth speaks, by BCP 47 tag, each in its own words. The first is the language of the code.
LANGUAGES: Final[Mapping[str, str]] = {"en": "English", "zh-CN": "简体中文"}

#: A reader's choice; without it the browser's `Accept-Language` counts.
COOKIE: Final = "berth-language"

_SOURCE: Final = "en"
_RANGE = re.compile(r"\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*)?")
_MOST_RANGES = 20

_catalogues: dict[str, NullTranslations] = {_SOURCE: NullTranslations()}
_default: list[str] = [_SOURCE]
_language: ContextVar[str | None] = ContextVar("berth_language", default=None)


def add(tag: str, catalogue: NullTranslations) -> None:
    """Make a catalogue known to this process; see `quota.catalogues`."""
    _catalogues[tag] = catalogue


def set_default(tag: str) -> None:
    """The language of this process where no request says another. Raises `KeyError` for one that Berth has not."""
    _default[0] = {known: known for known in LANGUAGES}[tag]


def use(tag: str | None) -> None:
    """From now on this context speaks that language; None for the site's."""
    _language.set(tag)


@contextmanager
def speaking(tag: str | None) -> Iterator[None]:
    """That language inside the `with`, for words to somebody else than who asked."""
    token = _language.set(tag)
    try:
        yield
    finally:
        _language.reset(token)


def language() -> str:
    """The tag of the language that this context speaks."""
    return _language.get() or _default[0]


def _(message: str, /, **values: Any) -> str:
    """The message in this context's language, with its `%(name)s` filled in."""
    words = _catalogue().gettext(message) if message else ""  # "" is the catalogue's own head
    return words % values if values else words


def _n(one: str, many: str, n: int, /, **values: Any) -> str:
    """As `_`, in the form for that number; `%(n)s` is the number."""
    return _catalogue().ngettext(one, many, n) % {"n": n, **values}


def N_(message: str) -> str:
    """The message itself: marks it for the catalogues where it is written, to be translated where it is said."""
    return message


#: What every template can call, and the languages that a page offers.
TEMPLATES: Final[Mapping[str, Callable[..., str] | Mapping[str, str]]] = {
    "_": _,
    "_n": _n,
    "language": language,
    "languages": LANGUAGES,
}


def negotiate(chosen: str | None, accepted: str | None) -> str | None:
    """The language of a reader, by the cookie's value and the header `Accept-Language` (RFC 9110, 12.5.4): the best
    that Berth has, None where it has none of them. Total for any text."""
    if chosen in LANGUAGES:
        return chosen
    ranges = [match for part in (accepted or "").split(",")[:_MOST_RANGES] if (match := _RANGE.fullmatch(part))]
    weighed = sorted(ranges, key=lambda match: -float(match[2] or 1))
    known = (_known(match[1].lower()) for match in weighed if float(match[2] or 1) > 0)
    return next((tag for tag in known if tag), None)


def _known(wanted: str) -> str | None:
    """Whoever reads any Chinese is nearer to Simplified Chinese than to English."""
    return next((tag for tag in LANGUAGES if tag.split("-")[0].lower() == wanted.split("-")[0]), None)


def _catalogue() -> NullTranslations:
    return _catalogues.get(language()) or _catalogues[_SOURCE]
