"""Appeals against stops: making and deciding them, and why one is refused, in words."""

from __future__ import annotations

from collections.abc import Callable

from quota.appeals import OPEN_FOR, Appeal, AppealRefused, Code
from quota.errors import Conflict
from quota.i18n import _
from quota.web.actions import lease_for
from quota.web.base import Handler
from quota.web.problem import STATUS, Problem, Why

_REASONS: dict[Code, Why] = {
    "not-yours": Why.FORBIDDEN,
    "not-ended": Why.APPEAL_IMPOSSIBLE,
    "own-stop": Why.APPEAL_IMPOSSIBLE,
    "too-late": Why.APPEAL_IMPOSSIBLE,
    "made-before": Why.APPEAL_MADE,
    "decided": Why.APPEAL_MADE,
    "not-settled": Why.NOT_SETTLED,
    "no-words": Why.WORDS_NEEDED,
}


async def make(handler: Handler, lease_id: str, words: str) -> Appeal:
    """The viewer says that the end of their server was wrong. Raises `Problem`."""
    await lease_for(handler, lease_id)
    return await _told(handler, handler.parts.appeals.make, lease_id, handler.viewer.name, words)


async def decide(handler: Handler, lease_id: str, amount: int | None, answer: str) -> Appeal:
    """An administrator grants it with so many micro-credits, or (None) does not. Raises `Problem`."""
    appeals, by = handler.parts.appeals, handler.viewer.name
    if amount is None:
        return await _told(handler, appeals.deny, lease_id, answer, by)
    return await _told(handler, appeals.grant, lease_id, amount, answer, by)


async def _told(handler: Handler, call: Callable[..., Appeal], *args: object) -> Appeal:
    try:
        return await handler.in_thread(call, *args)
    except AppealRefused as error:
        reason = _REASONS[error.code]
        raise Problem(STATUS[reason], reason, _words(error.code)) from None
    except Conflict:
        words = _("It was refunded before, with another amount. Nothing was changed.")
        raise Problem(409, Why.CONFLICT, words) from None


def _words(code: Code) -> str:
    if code == "not-yours":
        return _("Only its user can say that the end of a server was wrong.")
    if code == "not-ended":
        return _("This server has not ended.")
    if code == "own-stop":
        return _("This server was not ended by the site's rules or an administrator, so there is nothing to decide.")
    if code == "too-late":
        return _("That can be said within %(days)s days after the end.", days=OPEN_FOR.days)
    if code == "made-before":
        return _("You have said so already. An administrator decides, and you are told.")
    if code == "decided":
        return _("It was decided before, the other way. Nothing was changed.")
    if code == "not-settled":
        return _("Its final bill is not made yet. Try again in a moment.")
    return _("A sentence is needed.")
