"""Options of a start as a form sends them, and what the Hub keeps of them when a start was refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quota.errors import Reason

#: What is closed now and may be open again; everything else that is wrong with options stays wrong.
_PASSES: Final = frozenset(
    {Reason.PROFILE_FORBIDDEN, Reason.ACCOUNT_FORBIDDEN, Reason.RULE_FAILED, Reason.BOOK_UNAVAILABLE}
)


def flat(form_data: Mapping[str, Any]) -> dict[str, Any]:
    """A form's lists of one as plain values. What came twice stays a list, and is refused as such."""
    return {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in form_data.items()}


def kept_after(reason: Reason, asked: Mapping[str, object], last: Mapping[str, Any]) -> dict[str, Any]:
    """The Hub stores what is asked before anybody checks it, and takes it again for every start that brings no options.
    So after a refusal it gets the `last` ones back, those that the form and such a start had before; or none, where the
    last ones are what was refused and will never be granted."""
    return {} if dict(asked) == dict(last) and reason not in _PASSES else dict(last)
