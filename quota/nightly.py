"""The nightly audit: when it is due, and what becomes of its result.

Its time of day is one of the site's zone. A night is named by its date there, so the hour that a clock repeats is one
night and the hour that it leaves out is none too few; a night that nobody was up for is caught up at the next start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from quota.alerts import Alerts
from quota.audit import Report, Tell
from quota.bank import Bank
from quota.ports import Clock
from quota.rows import Rows

log = logging.getLogger("berth.audit")

ALERT = KIND = "audit"
#: In `meta`: the last night's date and result, as JSON.
META = "audit"
_DAY = timedelta(days=1)
_SHOWN = 10  # differences that an alert carries


def moment_of(night: date, at: time, zone: str) -> datetime:
    """When the audit of a night is due, in UTC. A time that the clock leaves out is the moment after the gap as far in;
    of one that it repeats the first counts."""
    return datetime.combine(night, at, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def latest_night(now: datetime, at: time, zone: str) -> date:
    """The last night whose time has come."""
    today = now.astimezone(ZoneInfo(zone)).date()
    tried = (today + _DAY, today, today - _DAY)  # a zone may have no such day, and go on with the next
    return next((night for night in tried if moment_of(night, at, zone) <= now), today - 2 * _DAY)


def is_due(now: datetime, done: date | None, at: time, zone: str) -> bool:
    """Whether the latest night was not audited. One that lies ahead was noted by a clock that was wrong."""
    latest = latest_night(now, at, zone)
    return done is None or done < latest or done > latest + _DAY


class Nightly:
    """Audits the book once each night. `at` is the time of day in the bank's zone."""

    def __init__(self, bank: Bank, rows: Rows, alerts: Alerts, clock: Clock, at: time) -> None:
        self._bank = bank
        self._rows = rows
        self._alerts = alerts
        self._clock = clock
        self._at = at

    def look(self, tell: Tell | None = None) -> bool:
        """Audit if it is due; tells whether it was. Blocks for as long as the audit takes (seconds for a book of a
        million postings). Raises what the book raises, and what `tell` does; then the night is not done."""
        now = self._clock.now()
        if not is_due(now, self._done(), self._at, self._bank.zone):
            return False
        self._take(self._bank.audited(tell), latest_night(now, self._at, self._bank.zone))
        return True

    def _done(self) -> date | None:
        try:
            return date.fromisoformat(last_audit(self._rows)["night"])
        except (KeyError, ValueError, TypeError):
            return None

    def _take(self, report: Report, night: date) -> None:
        found = [str(finding) for finding in report.findings]
        if found:
            self._alerts.put(ALERT, KIND, alert_words(found), {"night": night.isoformat(), "findings": found[:_SHOWN]})
        else:
            self._alerts.clear(ALERT)
        level = logging.ERROR if found else logging.INFO
        seconds = round(report.seconds, 1)
        log.log(level, "The audit of %s found %s in %g s", night, found[0] if found else "nothing wrong", seconds)
        result = {
            "night": night.isoformat(),
            "at": self._clock.now().isoformat(),
            "findings": len(found),
            "first": found[0] if found else None,
            "postings": report.postings,
            "leases": report.leases,
            "seconds": round(report.seconds, 3),
        }
        self._rows.set_meta(META, json.dumps(result))


def last_audit(rows: Rows) -> Mapping[str, Any]:
    """What is on record of the last night's audit: `night`, `at`, `findings`, `first`, `postings`, `leases`, `seconds`;
    empty where there was none."""
    try:
        found = json.loads(rows.meta(META) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def alert_words(found: list[str]) -> str:
    """For an administrator: the first difference, and how many more there are."""
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"The audit of the book found a difference: {found[0]}{more}. Run: berth audit --all"
