"""Refusals in words for people: what is wrong and what to do about it, one sentence or two. Made once, at the edge.

Facts are optional: a message is whole without any of them, so a new caller can never break one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quota.errors import Reason, Refused
from quota.groups import group_of
from quota.i18n import _, _n
from quota.said import sentences, share_said
from quota.told import retold
from quota.units import show_credits

Facts = Mapping[str, object]

#: HTTP status of each refusal: 400 the request is wrong, 403 not allowed, 409 not now, 5xx not the user's doing.
STATUS: Final[Mapping[Reason, int]] = {
    Reason.PROFILE_UNKNOWN: 400,
    Reason.PROFILE_FORBIDDEN: 403,
    Reason.IMAGE_UNKNOWN: 400,
    Reason.IMAGE_MISSING: 503,
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


def _short(value: object, most: int = 60) -> str:
    """One printable line of at most `most` signs."""
    text = "".join(sign if sign.isprintable() else "?" for sign in str(value))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _named(facts: Facts, key: str, most: int = 60) -> str:
    """A fact as it can stand in a sentence; "" where there is none."""
    value = facts.get(key)
    return _short(value, most) if value not in (None, "") else ""


def _number(facts: Facts, key: str) -> int | None:
    value = facts.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _gpus(milli: int) -> str:
    return _("no GPU") if milli == 0 else share_said(milli, 1)


def _choose_known(facts: Facts) -> str:
    known = facts.get("known")
    if isinstance(known, str) and known:
        return _("Choose one of: %(names)s.", names=_short(known, 300))
    return _("Choose one on the start page.")


# ---- one function for each reason that has facts ----------------------------------------------------------------


def _profile_unknown(facts: Facts) -> str:
    profile = _named(facts, "profile")
    what = _("There is no profile “%(profile)s”.", profile=profile) if profile else _("There is no such profile.")
    return sentences(what, _choose_known(facts))


def _profile_forbidden(facts: Facts) -> str:
    profile, groups = _named(facts, "profile"), _named(facts, "groups", 200)
    if groups:
        what = (
            _("The profile “%(profile)s” is for members of %(groups)s only.", profile=profile, groups=groups)
            if profile
            else _("This profile is for members of %(groups)s only.", groups=groups)
        )
    else:
        what = (
            _("The profile “%(profile)s” is not open to you.", profile=profile)
            if profile
            else _("This profile is not open to you.")
        )
    return sentences(what, _other_profile(facts))


def _other_profile(facts: Facts) -> str:
    allowed = _named(facts, "allowed", 300)
    names = "" if allowed == "none" else allowed
    if facts.get("groups"):
        if names:
            return _("Choose one of: %(names)s, or ask %(who)s to add you.", names=names, who=_whom(facts))
        return _("Choose another one, or ask %(who)s to add you.", who=_whom(facts))
    if names:
        return _("Choose one of: %(names)s, or ask an admin to allow it.", names=names)
    return _("Choose another one, or ask an admin to allow it.")


def _image_unknown(facts: Facts) -> str:
    image = _named(facts, "image")
    what = (
        _("The image “%(image)s” cannot be started with this profile.", image=image)
        if image
        else _("This image cannot be started with this profile.")
    )
    return sentences(what, _choose_known(facts))


def _image_missing(facts: Facts) -> str:
    image, why = _named(facts, "image") or "?", _named(facts, "why", 200)
    what = _("The image “%(image)s” could not be made ready.", image=image)
    because = _("The reason: %(why)s.", why=why.rstrip(".")) if why else ""
    return sentences(what, because, _("Nothing was held or charged. Choose another image, or tell an administrator."))


def _account_unknown(facts: Facts) -> str:
    account = _named(facts, "account")
    what = _("There is no account “%(account)s”.", account=account) if account else _("There is no such account.")
    return sentences(what, _("Leave the payer out to be charged yourself."))


def _account_forbidden(facts: Facts) -> str:
    allowed, account = _named(facts, "allowed", 300), _named(facts, "account")
    remedy = _("Leave the payer out to be charged yourself.")
    if allowed:
        remedy = _("Who can pay for you: %(allowed)s. Without a payer it is you.", allowed=allowed)
    if facts.get("unpaid"):
        unpaid = _short(facts["unpaid"])
        why = _("The group %(group)s does not pay for servers; an admin can change that.", group=unpaid)
    elif account:
        why = _("You may not charge the account “%(account)s”.", account=account)
    else:
        why = _("You may not charge this account.")
    return sentences(why, remedy)


def _option_unknown(facts: Facts) -> str:
    option, known = _named(facts, "option"), facts.get("known")
    what = _("A start has no option “%(option)s”.", option=option) if option else _("A start has no such option.")
    if isinstance(known, str) and known:
        return sentences(what, _("A start takes only: %(names)s.", names=_short(known, 300)))
    return sentences(what, _("Leave it out."))


def _option_invalid(facts: Facts) -> str:
    option, why = _named(facts, "option"), retold(_named(facts, "why"))
    what = _("The option “%(option)s” cannot be used.", option=option) if option else _("An option cannot be used.")
    return sentences(what, _("It is %(why)s.", why=why) if why else "", _("Send one short text, or leave it out."))


def _user_name_invalid(facts: Facts) -> str:
    name, why = _named(facts, "name"), retold(_named(facts, "why"))
    if name and why:
        what = _("The user name “%(name)s” cannot be used here: %(why)s.", name=name, why=why)
    elif name:
        what = _("The user name “%(name)s” cannot be used here.", name=name)
    else:
        what = _("This user name cannot be used here.")
    rule = _("Names have letters, digits and the signs . _ - @, up to 80 of them; ask an admin for one that fits.")
    return sentences(what, rule)


def _too_many_servers(facts: Facts) -> str:
    limit = _number(facts, "limit")
    if limit == 0:
        return _("You may not run servers at present. Ask an admin to raise your limit.")
    what = (
        _("You are running as many servers as you may.")
        if limit is None
        else _("You are running as many servers as you may at once (%(limit)s).", limit=limit)
    )
    return sentences(what, _("Stop one and try again, or ask an admin to raise the limit."))


def _too_many_gpus(facts: Facts) -> str:
    limit, asked, held = (_number(facts, key) for key in ("limit", "asked", "held"))
    wanted = _("This needs %(share)s.", share=_gpus(asked)) if asked else _("This is more than your GPU limit.")
    if limit is None:
        have = _("You may not hold so many GPUs at once.")
    elif held:
        have = _("You may hold %(limit)s at once and hold %(held)s now.", limit=_gpus(limit), held=_gpus(held))
    else:
        have = _("You may hold %(limit)s at once.", limit=_gpus(limit))
    return sentences(wanted, have, _("Choose a smaller profile or stop another server; an admin can raise the limit."))


def _monthly_limit(facts: Facts) -> str:
    limit, used = _number(facts, "limit"), _number(facts, "used")
    if limit is not None and used is not None:
        what = _(
            "Your monthly limit of %(limit)s credits is reached (%(used)s used so far).",
            limit=show_credits(limit),
            used=show_credits(used),
        )
    elif limit is not None:
        what = _("Your monthly limit of %(limit)s credits is reached.", limit=show_credits(limit))
    else:
        what = _("Your monthly limit is reached.")
    more = _(
        "It starts afresh next month; a CPU profile may still be free of charge, and an admin can raise the limit."
    )
    return sentences(what, more)


def _no_credit(facts: Facts) -> str:
    available, needed, payers = _number(facts, "available"), _number(facts, "needed"), _named(facts, "payers", 200)
    if available is not None and needed is not None:
        what = _(
            "The balance is %(available)s credits, and this start needs %(needed)s set aside.",
            available=show_credits(available),
            needed=_credits_up(needed),
        )
    elif available is not None:
        what = _("The balance of %(available)s credits is too low for this start.", available=show_credits(available))
    elif needed is not None:
        what = _("The balance is too low: this start needs %(needed)s credits set aside.", needed=_credits_up(needed))
    else:
        what = _("The balance is too low for this start.")
    if payers:
        more = _("Choose another payer (%(payers)s) or a smaller profile, or ask for a grant.", payers=payers)
        return sentences(what, more)
    return sentences(what, _("Choose a smaller profile, or ask an admin for a grant."))


def _credits_up(amount: int) -> str:
    """Micro-credits rounded up to what is shown, so that nobody is told that 0.00 would do."""
    step = 10_000
    return show_credits(-(-amount // step) * step)


def _no_room(facts: Facts) -> str:
    asked, broken = _number(facts, "asked"), _number(facts, "out_of_service")
    if not asked:
        wanted = _("There is no room for this profile now.")
    elif facts.get("simulated") is True:
        wanted = _("%(share)s (simulated) is not free right now.", share=_gpus(asked))
    else:
        wanted = _("%(share)s is not free right now.", share=_gpus(asked))
    lost = (
        _n("%(n)s of the devices is out of service.", "%(n)s of the devices are out of service.", broken)
        if broken
        else ""
    )
    remedy = _("Choose a smaller profile, or try again when somebody stops.")
    return sentences(wanted, _what_is_left(facts), lost, remedy)


def _what_is_left(facts: Facts) -> str:
    asked, largest, whole = (_number(facts, key) for key in ("asked", "largest", "whole"))
    if asked is not None and asked > 1000 and whole is not None:
        return _("Whole GPUs free on one machine: %(number)s.", number=whole)
    if largest is None:
        return ""
    return _("The most on one device: %(share)s.", share=_gpus(largest)) if largest else _("Every device is taken.")


def _no_devices(facts: Facts) -> str:
    asked, devices = _number(facts, "asked"), _number(facts, "devices")
    wanted = _("This profile needs %(share)s.", share=_gpus(asked)) if asked else _("This profile needs a GPU.")
    if not devices:
        has = _("This site has none.")
    elif facts.get("simulated") is True:
        has = _n(
            "This site cannot give that with its %(n)s simulated GPU.",
            "This site cannot give that with its %(n)s simulated GPUs.",
            devices,
        )
    else:
        has = _n(
            "This site cannot give that with its %(n)s GPU.",
            "This site cannot give that with its %(n)s GPUs.",
            devices,
        )
    return sentences(wanted, has, _("Choose another profile."))


def _already_held(facts: Facts) -> str:
    return _("This server holds a place already. Stop it, wait until it has ended, and start it again.")


def _stopping(facts: Facts) -> str:
    return _("The last run of this server is still being stopped. Try again in a minute; if it stays, tell an admin.")


def _rule_failed(facts: Facts) -> str:
    rule = _named(facts, "rule")
    what = (
        _("A rule of this site (%(rule)s) failed, so nothing was started or charged.", rule=rule)
        if rule
        else _("A rule of this site failed, so nothing was started or charged.")
    )
    return sentences(what, _("Tell an administrator: the hub's log says why. Then try again."))


def _start_failed(facts: Facts) -> str:
    code, tail = facts.get("exit_code"), facts.get("tail")
    what = (
        _("The server ended while it was starting (exit code %(code)s).", code=_short(code))
        if code is not None
        else _("The server ended while it was starting.")
    )
    more = _("Nothing is charged. Start it again; if it fails again, an admin finds the reason in its log.")
    last = _("The last thing it wrote: %(tail)s", tail=_short_tail(tail)) if tail else ""
    return sentences(what, more, last)


def _short_tail(tail: object) -> str:
    text = "".join(sign if sign.isprintable() else " " for sign in str(tail)).strip()
    return text if len(text) <= 300 else f"…{text[-299:]}"


def _start_timeout(facts: Facts) -> str:
    seconds = _number(facts, "seconds")
    what = (
        _("The server did not answer within %(seconds)s s and was given up.", seconds=seconds)
        if seconds is not None
        else _("The server did not answer in time and was given up.")
    )
    return sentences(what, _("Nothing is charged. Start it again, or tell an admin."))


def _stop_requested(facts: Facts) -> str:
    who = _named(facts, "by")
    what = (
        _("The server was told to stop while it was starting, by %(name)s.", name=who)
        if who
        else _("The server was told to stop while it was starting.")
    )
    return sentences(what, _("Start it again."))


def _book_unavailable(facts: Facts) -> str:
    return _(
        "Berth cannot write its book right now, so nothing can be started. Try again in a minute, or tell an admin."
    )


def _log_in_again(facts: Facts) -> str:
    return _(
        "Your log-in has run out, so nobody can tell whether you are still a member. Nothing was started or charged. "
        "Log out, log in again, and start once more."
    )


def _not_a_member(facts: Facts) -> str:
    name = _named(facts, "name")
    what = (
        _("The log-in provider knows “%(name)s”, but neither that name nor its groups may use this site.", name=name)
        if name
        else _("The log-in provider knows you, but neither your name nor your groups may use this site.")
    )
    return sentences(what, _("Ask an admin to let you in."))


def _name_taken(facts: Facts) -> str:
    name = _named(facts, "name")
    what = (
        _("The name “%(name)s” belongs to somebody else here, whom the log-in provider knew by it before.", name=name)
        if name
        else _("This name belongs to somebody else here, whom the log-in provider knew by it before.")
    )
    return sentences(what, _("Ask an admin: either that user is renamed here, or you are at the provider."))


def _provider_silent(facts: Facts) -> str:
    return _(
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
    Reason.IMAGE_MISSING: _image_missing,
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
