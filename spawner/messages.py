"""Refusals in words for people: what is wrong and what to do about it, one sentence or two. Made once, at the edge.

Facts are optional: a message is whole without any of them, so a new caller can never break one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quota.errors import Reason, Refused
from quota.groups import group_of
from quota.i18n import _
from quota.units import show_credits, show_share

Facts = Mapping[str, object]

#: HTTP status of each refusal: 400 the request is wrong, 403 not allowed, 409 not now, 5xx not the user's doing.
STATUS: Final[Mapping[Reason, int]] = {
    Reason.PROFILE_UNKNOWN: 400,
    Reason.PROFILE_FORBIDDEN: 403,
    Reason.IMAGE_UNKNOWN: 400,
    Reason.ACCOUNT_UNKNOWN: 400,
    Reason.ACCOUNT_FORBIDDEN: 403,
    Reason.OPTION_UNKNOWN: 400,
    Reason.OPTION_INVALID: 400,
    Reason.USER_NAME_INVALID: 400,
    Reason.TOO_MANY_SERVERS: 409,
    Reason.TOO_MANY_GPUS: 409,
    Reason.MONTHLY_LIMIT: 409,
    Reason.NO_CREDIT: 409,
    Reason.NO_ROOM: 409,
    Reason.NO_DEVICES: 409,
    Reason.ALREADY_HELD: 409,
    Reason.STOPPING: 409,
    Reason.RULE_FAILED: 500,
    Reason.START_FAILED: 500,
    Reason.START_TIMEOUT: 504,
    Reason.STOP_REQUESTED: 409,
    Reason.BOOK_UNAVAILABLE: 503,
    Reason.LOG_IN_AGAIN: 403,
    Reason.NOT_A_MEMBER: 403,
    Reason.NAME_TAKEN: 403,
    Reason.PROVIDER_SILENT: 503,
}


def words(refused: Refused) -> str:
    """The refusal as a person should read it. Total: every reason has words, whatever facts came along."""
    told = _GROUP_WORDS.get(refused.reason) if _group(refused.facts) else None
    return (told or _WORDS[refused.reason])(refused.facts)


def status(reason: Reason) -> int:
    """The HTTP status that goes with a reason."""
    return STATUS[reason]


# ---- facts ------------------------------------------------------------------------------------------------------


def _text(facts: Facts, key: str) -> str:
    """A fact in quotes with a space before it, or nothing."""
    value = facts.get(key)
    return f" “{_short(value)}”" if value not in (None, "") else ""


def _short(value: object, most: int = 60) -> str:
    """One printable line of at most `most` signs."""
    text = "".join(sign if sign.isprintable() else "?" for sign in str(value))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _number(facts: Facts, key: str) -> int | None:
    value = facts.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _known(facts: Facts, before: str) -> str:
    known = facts.get("known")
    return f"{before} {_short(known, 300)}." if isinstance(known, str) and known else ""


def _gpus(milli: int) -> str:
    return "no GPU" if milli == 0 else show_share(milli, 1)


# ---- one function for each reason that has facts ----------------------------------------------------------------


def _profile_unknown(facts: Facts) -> str:
    remedy = _known(facts, " Choose one of:") or " Choose one on the start page."
    return f"There is no profile{_text(facts, 'profile')}.{remedy}"


def _profile_forbidden(facts: Facts) -> str:
    allowed = facts.get("allowed")
    remedy = f"Choose one of: {_short(allowed, 300)}" if allowed not in (None, "", "none") else "Choose another one"
    groups, ask = facts.get("groups"), facts.get("ask")
    if groups:
        who = f"{_short(ask, 200)} or an admin" if ask else "an admin"
        return (
            f"The profile{_text(facts, 'profile')} is for members of {_short(groups, 200)} only. "
            f"{remedy}, or ask {who} to add you."
        )
    return f"The profile{_text(facts, 'profile')} is not open to you. {remedy}, or ask an admin to allow it."


def _image_unknown(facts: Facts) -> str:
    remedy = _known(facts, " Choose one of:") or " Choose one on the start page."
    return f"The image{_text(facts, 'image')} cannot be started with this profile.{remedy}"


def _account_unknown(facts: Facts) -> str:
    return f"There is no account{_text(facts, 'account')}. Leave the payer out to be charged yourself."


def _account_forbidden(facts: Facts) -> str:
    allowed, unpaid = facts.get("allowed"), facts.get("unpaid")
    remedy = _("Leave the payer out to be charged yourself.")
    if allowed:
        remedy = _("Who can pay for you: %(allowed)s. Without a payer it is you.", allowed=_short(allowed, 300))
    if unpaid:
        why = _("The group %(group)s does not pay for servers; an admin can change that.", group=_short(unpaid))
    else:
        account = facts.get("account")
        why = _("You may not charge the account %(account)s.", account=f"“{_short(account)}”" if account else "")
    return f"{why} {remedy}"


def _option_unknown(facts: Facts) -> str:
    remedy = _known(facts, " A start takes only:") or " Leave it out."
    return f"A start has no option{_text(facts, 'option')}.{remedy}"


def _option_invalid(facts: Facts) -> str:
    why = facts.get("why")
    return (
        f"The option{_text(facts, 'option')} cannot be used{f': it is {_short(why)}' if why else ''}."
        " Send one short text, or leave it out."
    )


def _user_name_invalid(facts: Facts) -> str:
    why = facts.get("why")
    return (
        f"The user name{_text(facts, 'name')} cannot be used here{f': {_short(why)}' if why else ''}. "
        "Names have letters, digits and the signs . _ - @, up to 80 of them; ask an admin for one that fits."
    )


def _too_many_servers(facts: Facts) -> str:
    limit = _number(facts, "limit")
    if limit == 0:
        return "You may not run servers at present. Ask an admin to raise your limit."
    allowed = f"as many servers as you may at once ({limit})" if limit is not None else "as many servers as you may"
    return f"You are running {allowed}. Stop one and try again, or ask an admin to raise the limit."


def _too_many_gpus(facts: Facts) -> str:
    limit, asked, held = (_number(facts, key) for key in ("limit", "asked", "held"))
    have = f" You may hold {_gpus(limit)} at once" if limit is not None else " You may not hold so many GPUs at once"
    have += f" and hold {_gpus(held)} now." if held else "."
    wanted = f"This needs {_gpus(asked)}." if asked else "This is more than your GPU limit."
    return f"{wanted}{have} Choose a smaller profile or stop another server; an admin can raise the limit."


def _monthly_limit(facts: Facts) -> str:
    limit, used = _number(facts, "limit"), _number(facts, "used")
    of = f" of {show_credits(limit)} credits" if limit is not None else ""
    so_far = f" ({show_credits(used)} used so far)" if used is not None else ""
    return (
        f"Your monthly limit{of} is reached{so_far}. It starts afresh next month; a CPU profile may still be free of "
        "charge, and an admin can raise the limit."
    )


def _no_credit(facts: Facts) -> str:
    available, needed = _number(facts, "available"), _number(facts, "needed")
    have = f"The balance is {show_credits(available)} credits" if available is not None else "The balance is too low"
    need = f", and this start needs {_credits_up(needed)} set aside" if needed is not None else " for this start"
    payers = facts.get("payers")
    if payers:
        return f"{have}{need}. Choose another payer ({_short(payers, 200)}) or a smaller profile, or ask for a grant."
    return f"{have}{need}. Choose a smaller profile, or ask an admin for a grant."


def _credits_up(amount: int) -> str:
    """Micro-credits rounded up to what is shown, so that nobody is told that 0.00 would do."""
    step = 10_000
    return show_credits(-(-amount // step) * step)


def _no_room(facts: Facts) -> str:
    asked, largest, whole = (_number(facts, key) for key in ("asked", "largest", "whole"))
    simulated = " (simulated)" if facts.get("simulated") is True else ""
    wanted = f"{_gpus(asked)}{simulated} is not free right now" if asked else "There is no room for this profile now"
    left = ""
    if asked is not None and asked > 1000 and whole is not None:
        left = f" (whole GPUs free on one machine: {whole})"
    elif largest is not None:
        left = f" (the most on one device: {_gpus(largest)})" if largest else " (every device is taken)"
    broken = _number(facts, "out_of_service")
    lost = f" {broken} of the devices {'is' if broken == 1 else 'are'} out of service." if broken else ""
    return f"{wanted}{left}.{lost} Choose a smaller profile, or try again when somebody stops."


def _no_devices(facts: Facts) -> str:
    asked, devices = _number(facts, "asked"), _number(facts, "devices")
    wanted = f"This profile needs {_gpus(asked)}" if asked else "This profile needs a GPU"
    kind = "simulated GPU" if facts.get("simulated") is True else "GPU"
    has = "has none" if not devices else f"cannot give that with its {devices} {kind}{'s' if devices != 1 else ''}"
    return f"{wanted}, and this site {has}. Choose another profile."


def _already_held(facts: Facts) -> str:
    return "This server holds a place already. Stop it, wait until it has ended, and start it again."


def _stopping(facts: Facts) -> str:
    return "The last run of this server is still being stopped. Try again in a minute; if it stays, tell an admin."


def _rule_failed(facts: Facts) -> str:
    which = f" ({_short(facts['rule'])})" if facts.get("rule") else ""
    return (
        f"A rule of this site{which} failed, so nothing was started or charged. Tell an administrator: the hub's log "
        "says why. Then try again."
    )


def _start_failed(facts: Facts) -> str:
    code, tail = facts.get("exit_code"), facts.get("tail")
    how = f" (exit code {_short(code)})" if code is not None else ""
    last = f" The last thing it wrote: {_short_tail(tail)}" if tail else ""
    return (
        f"The server ended while it was starting{how}. Nothing is charged. Start it again; if it fails again, an admin "
        f"finds the reason in its log.{last}"
    )


def _short_tail(tail: object) -> str:
    text = "".join(sign if sign.isprintable() else " " for sign in str(tail)).strip()
    return text if len(text) <= 300 else f"…{text[-299:]}"


def _start_timeout(facts: Facts) -> str:
    seconds = _number(facts, "seconds")
    within = f" within {seconds} s" if seconds is not None else " in time"
    return f"The server did not answer{within} and was given up. Nothing is charged. Start it again, or tell an admin."


def _stop_requested(facts: Facts) -> str:
    who = facts.get("by")
    return f"The server was told to stop while it was starting{f', by {_short(who)}' if who else ''}. Start it again."


def _book_unavailable(facts: Facts) -> str:
    return "Berth cannot write its book right now, so nothing can be started. Try again in a minute, or tell an admin."


def _log_in_again(facts: Facts) -> str:
    return (
        "Your log-in has run out, so nobody can tell whether you are still a member. Nothing was started or charged. "
        "Log out, log in again, and start once more."
    )


def _not_a_member(facts: Facts) -> str:
    who = _text(facts, "name") or " you"
    return (
        f"The log-in provider knows{who}, but neither that name nor its groups may use this site. "
        "Ask an admin to let you in."
    )


def _name_taken(facts: Facts) -> str:
    return (
        f"The name{_text(facts, 'name')} belongs to somebody else here, whom the log-in provider knew by it before. "
        "Ask an admin: either that user is renamed here, or you are at the provider."
    )


def _provider_silent(facts: Facts) -> str:
    return (
        "The log-in provider does not answer, so nobody can log in or be looked up. Nothing was started "
        "or charged, and servers that run go on. Try again in a few minutes, or tell an admin."
    )


# ---- where a group pays ------------------------------------------------------------------------------------------


def _group(facts: Facts) -> str:
    """The group whose account a refusal is about; "" where it is about the user's own."""
    account = facts.get("account")
    return _short(group_of(account) or "") if isinstance(account, str) else ""


def _whom(facts: Facts) -> str:
    ask = facts.get("ask")
    return _("%(leads)s or an admin", leads=_short(ask, 200)) if ask else _("an admin")


def _group_no_credit(facts: Facts) -> str:
    available, needed = _number(facts, "available"), _number(facts, "needed")
    return _(
        "The group %(group)s pays for this server, and has %(left)s credits left where %(needed)s must be set aside. "
        "Choose another payer or a smaller profile, or ask %(who)s for a grant.",
        group=_group(facts),
        left="0.00" if available is None else show_credits(available),
        needed="0.01" if needed is None else _credits_up(needed),
        who=_whom(facts),
    )


def _group_monthly_limit(facts: Facts) -> str:
    return _(
        "The group %(group)s has reached what it may spend this month (%(limit)s credits). Choose another payer, or "
        "ask %(who)s to raise the limit.",
        group=_group(facts),
        limit=show_credits(_number(facts, "limit") or 0),
        who=_whom(facts),
    )


def _group_profile_forbidden(facts: Facts) -> str:
    return _(
        "The group %(group)s does not pay for the profile %(profile)s. Choose another payer or another profile, or ask "
        "%(who)s to allow it.",
        group=_group(facts),
        profile=_short(facts.get("profile") or ""),
        who=_whom(facts),
    )


def _group_too_many(facts: Facts) -> str:
    return _(
        "The group %(group)s pays already for as much as it may at once. Choose another payer, wait until a member "
        "stops a server, or ask %(who)s to raise its limit.",
        group=_group(facts),
        who=_whom(facts),
    )


_GROUP_WORDS: Final[Mapping[Reason, Callable[[Facts], str]]] = {
    Reason.NO_CREDIT: _group_no_credit,
    Reason.MONTHLY_LIMIT: _group_monthly_limit,
    Reason.PROFILE_FORBIDDEN: _group_profile_forbidden,
    Reason.TOO_MANY_SERVERS: _group_too_many,
    Reason.TOO_MANY_GPUS: _group_too_many,
}

_WORDS: Final[Mapping[Reason, Callable[[Facts], str]]] = {
    Reason.PROFILE_UNKNOWN: _profile_unknown,
    Reason.PROFILE_FORBIDDEN: _profile_forbidden,
    Reason.IMAGE_UNKNOWN: _image_unknown,
    Reason.ACCOUNT_UNKNOWN: _account_unknown,
    Reason.ACCOUNT_FORBIDDEN: _account_forbidden,
    Reason.OPTION_UNKNOWN: _option_unknown,
    Reason.OPTION_INVALID: _option_invalid,
    Reason.USER_NAME_INVALID: _user_name_invalid,
    Reason.TOO_MANY_SERVERS: _too_many_servers,
    Reason.TOO_MANY_GPUS: _too_many_gpus,
    Reason.MONTHLY_LIMIT: _monthly_limit,
    Reason.NO_CREDIT: _no_credit,
    Reason.NO_ROOM: _no_room,
    Reason.NO_DEVICES: _no_devices,
    Reason.ALREADY_HELD: _already_held,
    Reason.STOPPING: _stopping,
    Reason.RULE_FAILED: _rule_failed,
    Reason.START_FAILED: _start_failed,
    Reason.START_TIMEOUT: _start_timeout,
    Reason.STOP_REQUESTED: _stop_requested,
    Reason.BOOK_UNAVAILABLE: _book_unavailable,
    Reason.LOG_IN_AGAIN: _log_in_again,
    Reason.NOT_A_MEMBER: _not_a_member,
    Reason.NAME_TAKEN: _name_taken,
    Reason.PROVIDER_SILENT: _provider_silent,
}
