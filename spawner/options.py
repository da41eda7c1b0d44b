"""Options of a start as a form sends them, and what the Hub keeps of them when a start was refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quota.errors import Reason

#: What the options themselves are refused for, as they make no sense or are closed to their user by now; all else, such
#: as want of room or credit, passes by itself.
_OF_THEMSELVES: Final = frozenset(
    {
        Reason.OPTION_UNKNOWN,
        Reason.OPTION_INVALID,
        Reason.PROFILE_UNKNOWN,
        Reason.IMAGE_UNKNOWN,
        Reason.PROFILE_FORBIDDEN,
        Reason.ACCOUNT_FORBIDDEN,
    }
)


def flat(form_data: Mapping[str, Any]) -> dict[str, Any]:
    """A form's lists of one as plain values. What came twice stays a list, and is refused as such."""
    return {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in form_data.items()}


def kept_after(reason: Reason, asked: Mapping[str, object], last: Mapping[str, Any]) -> dict[str, Any]:
    """The Hub stores what is asked before anybody checks it, selects it in its form and takes it again for every start
    that brings no options. So after a refusal it gets the `last` ones back, of a start that was granted; or none, where
    these are what was refused: else a start without options would ask for them for ever, instead of for the default."""
    return {} if dict(asked) == dict(last) and reason in _OF_THEMSELVES else dict(last)
