"""Pages of lists: a cursor says where a page ended, by a key that its items keep for ever.

Keyset paging: the next page is what comes after that key, so new items move nothing, and none comes twice or is lost.
A cursor is opaque and signed; it fits the list and the filters that it was made for, and nothing else. Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from quota.i18n import _
from quota.web.problem import Problem, Why

_SIGNED = 16  # bytes of the signature

T = TypeVar("T")
Key = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Cursors:
    """Makes and reads the cursors of one list. `scope` names the list with its filters."""

    secret: bytes
    scope: str

    def _sign(self, content: bytes) -> bytes:
        message = b"berth cursor\0" + self.scope.encode("utf-8", "surrogatepass") + b"\0" + content
        return hmac.digest(self.secret, message, "sha256")[:_SIGNED]

    def write(self, key: Key) -> str:
        content = json.dumps(key, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._sign(content) + content).decode().rstrip("=")

    def read(self, cursor: str) -> Key:
        """The key. Raises `Problem` (400) for a cursor that was not made here for this list and these filters."""
        try:
            raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise _no_cursor() from None
        signature, content = raw[:_SIGNED], raw[_SIGNED:]
        if not hmac.compare_digest(signature, self._sign(content)) or self.write(tuple(json.loads(content))) != cursor:
            raise _no_cursor()
        return tuple(json.loads(content))


def _no_cursor() -> Problem:
    words = _("This cursor does not belong to this list with these parameters. Begin again without it.")
    return Problem(400, Why.CURSOR, words)


def scope_of(path: str, **filters: object) -> str:
    """The name of a list with its filters."""
    plain = json.dumps([path, {name: value for name, value in filters.items() if value is not None}], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def cut(items: Iterable[T], key: Callable[[T], Key], after: Key | None, limit: int) -> tuple[Sequence[T], Key | None]:
    """One page of a list that is in memory anyway, in the order of `key`, and the key where it ends (None: at the end
    of the list)."""
    ordered = sorted(items, key=key)
    rest = ordered if after is None else [item for item in ordered if key(item) > after]
    page = rest[:limit]
    return page, key(page[-1]) if len(rest) > limit else None


def newest_first(moment: datetime) -> tuple[int, int]:
    """The beginning of a key that puts later moments first."""
    seconds = -int(moment.timestamp())
    return seconds, -moment.microsecond
