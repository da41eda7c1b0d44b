"""What a site opens to those who choose how they are told: its channels, and how an address of theirs is checked and
sealed. A value of functions, made by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from quota.notices import Notice
from quota.routing import Preference

#: Test messages that somebody may ask for within `TESTS_WITHIN`: each is a mail, or a call of an address of theirs.
MOST_TESTS: Final = 5
TESTS_WITHIN: Final = timedelta(hours=1)


class NotUsable(Exception):
    """An address of a chat that is not called; the text says why, as the book has it (`quota.told.retold`)."""


def _nothing(_: str) -> str:
    return ""


def _closed(_: str) -> None:
    raise NotUsable("")


def _nobody(_user: str, _chosen: Preference) -> str:
    return ""


def _not_written(_: Notice) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Telling:
    """`channels` are those that the settings open to users; `own_addresses`: they may name a mail address. `mail_to`
    says where mails to a user go, "" where nobody knows. `check` raises `NotUsable` for a chat's address that would
    not be called; it asks the network, so it blocks. `seal` and `opened` keep such an address in the book; `opened` is
    "" for what this site did not seal. `put` writes a notice now and gives its id."""

    channels: frozenset[str] = frozenset()
    own_addresses: bool = False
    mail_to: Callable[[str, Preference], str] = _nobody
    check: Callable[[str], None] = _closed
    seal: Callable[[str], str] = _nothing
    opened: Callable[[str], str] = _nothing
    put: Callable[[Notice], int | None] = _not_written
