"""Errors of the service as values with a machine reason; every one becomes a problem+json answer or a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

from quota.errors import Conflict, NotFound, Reason, Refused, Stale
from quota.i18n import N_, _
from quota.web.parts import HubUnavailable, ServiceParts


class Why(StrEnum):
    """Reasons of the service itself; refusals of the book keep their own (`quota.errors.Reason`)."""

    NOT_SIGNED_IN = "not-signed-in"
    XSRF = "xsrf"
    LOG_IN = "log-in-failed"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    NO_LEASE = "no-lease"
    NOT_STOPPING = "not-stopping"
    METHOD = "method-not-allowed"
    JSON_INVALID = "json-invalid"
    FIELD_INVALID = "field-invalid"
    FIELD_UNKNOWN = "field-unknown"
    DATE_INVALID = "date-invalid"
    REQUEST_INVALID = "request-invalid"
    MEDIA_TYPE = "media-type"
    TOO_LARGE = "too-large"
    TOO_OFTEN = "too-often"
    CURSOR = "cursor-invalid"
    KEY_REUSED = "idempotency-key-reused"
    KEY_RUNNING = "idempotency-key-running"
    CONFLICT = "conflict"
    CHANGED = "changed-meanwhile"
    NOT_SETTLED = "not-settled"
    NOT_RUNNING = "not-running"
    APPEAL_IMPOSSIBLE = "appeal-impossible"
    APPEAL_MADE = "appeal-made"
    WORDS_NEEDED = "words-needed"
    NO_CHANNEL = "no-channel"
    KEEP_OFF = "keep-off"
    KEEP_TOO_LONG = "keep-too-long"
    KEEP_NO_CREDIT = "keep-no-credit"
    STARTS_OFF = "starts-off"
    STARTS_FULL = "starts-full"
    START_EXISTS = "start-exists"
    START_NOT_WAITING = "start-not-waiting"
    TIME_TOO_SOON = "time-too-soon"
    TIME_TOO_LATE = "time-too-late"
    BOOK_UNAVAILABLE = "book-unavailable"
    HUB_UNAVAILABLE = "hub-unavailable"
    INTERNAL = "internal"


TITLES = {
    400: N_("The request cannot be understood"),
    401: N_("Not signed in"),
    403: N_("Not allowed"),
    404: N_("Not found"),
    405: N_("Not possible here"),
    409: N_("Not possible now"),
    413: N_("Too large"),
    415: N_("Not in a form that is understood"),
    422: N_("Not the request that it says it is"),
    429: N_("Too often"),
    500: N_("Something went wrong in Berth"),
    502: N_("The Hub did not answer"),
    503: N_("Busy, try again in a moment"),
}


#: The status that goes with each reason of the service; the document of the REST interface is made of it.
STATUS: Mapping[Why, int] = {
    Why.NOT_SIGNED_IN: 401,
    Why.XSRF: 403,
    Why.LOG_IN: 403,
    Why.FORBIDDEN: 403,
    Why.NOT_FOUND: 404,
    Why.NO_LEASE: 404,
    Why.NOT_STOPPING: 409,
    Why.METHOD: 405,
    Why.JSON_INVALID: 400,
    Why.FIELD_INVALID: 400,
    Why.FIELD_UNKNOWN: 400,
    Why.DATE_INVALID: 400,
    Why.REQUEST_INVALID: 400,
    Why.MEDIA_TYPE: 415,
    Why.TOO_LARGE: 413,
    Why.TOO_OFTEN: 429,
    Why.CURSOR: 400,
    Why.KEY_REUSED: 422,
    Why.KEY_RUNNING: 409,
    Why.CONFLICT: 409,
    Why.CHANGED: 409,
    Why.NOT_SETTLED: 409,
    Why.NOT_RUNNING: 409,
    Why.APPEAL_IMPOSSIBLE: 409,
    Why.APPEAL_MADE: 409,
    Why.WORDS_NEEDED: 409,
    Why.NO_CHANNEL: 409,
    Why.KEEP_OFF: 409,
    Why.KEEP_TOO_LONG: 409,
    Why.KEEP_NO_CREDIT: 409,
    Why.STARTS_OFF: 409,
    Why.STARTS_FULL: 409,
    Why.START_EXISTS: 409,
    Why.START_NOT_WAITING: 409,
    Why.TIME_TOO_SOON: 409,
    Why.TIME_TOO_LATE: 409,
    Why.BOOK_UNAVAILABLE: 503,
    Why.HUB_UNAVAILABLE: 502,
    Why.INTERNAL: 500,
}


class Problem(Exception):
    """An answer that is an error. `detail` is a sentence for a person; it never holds a secret. `offer` says in seconds
    for how long what was asked would be granted."""

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str = "",
        headers: Mapping[str, str] | None = None,
        offer: int | None = None,
    ) -> None:
        super().__init__(f"{status} {reason} {detail}".strip())
        self.status = status
        self.reason = str(reason)
        self.detail = detail
        self.headers = dict(headers or {})
        self.offer = offer

    @property
    def title(self) -> str:
        return _(TITLES.get(self.status, N_("The request failed")))


#: Refusals that are about who asks, and those about what was asked; the rest are about the moment (409).
_FORBIDDEN = {Reason.PROFILE_FORBIDDEN, Reason.ACCOUNT_FORBIDDEN}
_ASKED_WRONG = {
    Reason.PROFILE_UNKNOWN,
    Reason.IMAGE_UNKNOWN,
    Reason.ACCOUNT_UNKNOWN,
    Reason.OPTION_UNKNOWN,
    Reason.OPTION_INVALID,
    Reason.USER_NAME_INVALID,
}


def status_of(reason: Why | Reason) -> int:
    """The status of an answer with this reason."""
    if isinstance(reason, Why):
        return STATUS[reason]
    if reason is Reason.BOOK_UNAVAILABLE:
        return STATUS[Why.BOOK_UNAVAILABLE]
    if reason is Reason.RULE_FAILED:
        return STATUS[Why.INTERNAL]  # nobody's doing who asks
    return 403 if reason in _FORBIDDEN else 400 if reason in _ASKED_WRONG else 409


def problem_text(problem: Problem, request_id: str = "") -> str:
    """An error as problem+json (RFC 9457): `reason` is for machines, `detail` for people, `request_id` for both where
    the request has one."""
    body = {"type": "about:blank", "title": problem.title, "status": problem.status, "reason": problem.reason}
    more: dict[str, object] = {"request_id": request_id} if request_id else {}
    more |= {} if problem.offer is None else {"offer_seconds": problem.offer}
    return json.dumps(body | {"detail": problem.detail} | more, ensure_ascii=False)


def busy() -> Problem:
    """The book is locked for longer than we care to wait, or the connection to it is lost: then even a commit may have
    happened whose answer was not heard."""
    words = _(
        "The book did not answer in time. If you asked for a change, look whether it was made before you repeat it."
    )
    return Problem(503, Why.BOOK_UNAVAILABLE, words, {"Retry-After": "2"})


def _refused(error: Refused, parts: ServiceParts) -> Problem:
    if error.reason is Reason.BOOK_UNAVAILABLE:
        return busy()
    return Problem(status_of(error.reason), error.reason.value, parts.refusal_words(error))


def problem_of(error: BaseException, parts: ServiceParts) -> Problem | None:
    """The problem that a known error means, None for one that is a fault of ours."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Refused):
        return _refused(error, parts)
    if isinstance(error, NotFound):
        return Problem(404, Why.NOT_FOUND, _("There is no such thing."))
    if isinstance(error, Conflict):
        return Problem(409, Why.CONFLICT, _("This key was used before for something else. Nothing was changed."))
    if isinstance(error, Stale):
        return Problem(409, Why.CHANGED, _("Somebody else changed this at the same moment. Look again, then retry."))
    if isinstance(error, HubUnavailable):
        return Problem(
            502, Why.HUB_UNAVAILABLE, _("The Hub did not answer. Try again in a moment."), {"Retry-After": "5"}
        )
    return None
