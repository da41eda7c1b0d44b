"""Errors carry a machine reason; words for people are made once, at the edge (`spawner.messages`, `quota.web`)."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a request was refused. The Hub's spawn metric carries the same word."""

    PROFILE_UNKNOWN = "profile-unknown"
    PROFILE_FORBIDDEN = "profile-forbidden"
    IMAGE_UNKNOWN = "image-unknown"
    IMAGE_MISSING = "image-missing"
    ACCOUNT_UNKNOWN = "account-unknown"
    ACCOUNT_FORBIDDEN = "account-forbidden"
    OPTION_UNKNOWN = "option-unknown"
    OPTION_INVALID = "option-invalid"
    USER_NAME_INVALID = "user-name-invalid"
    TOO_MANY_SERVERS = "too-many-servers"
    TOO_MANY_GPUS = "too-many-gpus"
    MONTHLY_LIMIT = "monthly-limit"
    NO_CREDIT = "no-credit"
    NO_ROOM = "no-room"
    NO_DEVICES = "no-devices"
    ALREADY_HELD = "already-held"
    STOPPING = "still-stopping"
    RULE_FAILED = "rule-failed"
    START_FAILED = "start-failed"
    START_TIMEOUT = "start-timeout"
    STOP_REQUESTED = "stop-requested"
    BOOK_UNAVAILABLE = "book-unavailable"
    LOG_IN_AGAIN = "log-in-again"
    NOT_A_MEMBER = "not-a-member"
    NAME_TAKEN = "name-taken"
    PROVIDER_SILENT = "provider-silent"


class BerthError(Exception):
    """Base of all errors of Berth."""


class Refused(BerthError):
    """A request that must not be granted. `facts` holds the numbers a message is made of (integers, strings)."""

    def __init__(self, reason: Reason, **facts: object) -> None:
        super().__init__(f"{reason.value} {facts}" if facts else reason.value)
        self.reason = reason
        self.facts = facts


class Stale(BerthError):
    """A compare-and-swap met a newer version: drop the result and read again."""


class NotFound(BerthError):
    """No such row."""


class Conflict(BerthError):
    """The same natural key was used before for something else."""
