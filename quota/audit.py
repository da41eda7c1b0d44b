"""What must be true of the book, check by check: every balance rebuilt from the ledger, leases held against the ledger
and against the time they count. A check tells what is wrong, with the ids and both figures; it changes nothing.

All checks of one run read one snapshot, so they may run while the platform works. Sums are made by the database and
rows are read as a stream: a book of a million postings takes seconds and little memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from quota import schema
from quota.accounts import calendar
from quota.audit_leases import LEASE_CHECKS
from quota.audit_ledger import LEDGER_CHECKS
from quota.findings import Check, Finding, Site

__all__ = ["CHECKS", "Check", "Finding", "Report", "Site", "audit", "findings"]

CHECKS: tuple[Check, ...] = (*LEDGER_CHECKS, *LEASE_CHECKS)

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """One run: the differences in the order of the checks, how many rows were looked at, and how long it took."""

    findings: tuple[Finding, ...]
    postings: int
    leases: int
    accounts: int
    seconds: float


def audit(connection: sa.Connection, zone: str = "UTC", tell: Tell | None = None) -> Report:
    """Run every check; `tell` is called before each with its name, its number from 1, and how many there are. `zone`
    is the site's, for a book that has never noted one."""
    began, site = time.monotonic(), calendar(connection, zone)
    found: list[Finding] = []
    for number, check in enumerate(CHECKS, 1):
        if tell is not None:
            tell(check.__name__.replace("_", " "), number, len(CHECKS))
        found += _run(check, connection, site)
    postings, leases, accounts = (_count(connection, each) for each in (schema.posting, schema.lease, schema.account))
    return Report(tuple(found), postings, leases, accounts, time.monotonic() - began)


def findings(connection: sa.Connection, zone: str = "UTC") -> list[str]:
    """All that is wrong, in words."""
    return [str(finding) for finding in audit(connection, zone).findings]


def _run(check: Check, connection: sa.Connection, site: Site) -> list[Finding]:
    """A row that cannot even be read must not keep the other checks from being made. (A transaction that the database
    has given up cannot go on, and then nor can the audit.)"""
    try:
        return [Finding(check.__name__, *each) for each in check(connection, site)]
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        words = f"{check.__name__.replace('_', ' ')}: a row cannot be read: {type(error).__name__}: {error}"
        return [Finding(check.__name__, "", words, None, None)]


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
