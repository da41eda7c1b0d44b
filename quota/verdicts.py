"""What the idle rules say of a lease, as the book keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the idle rules last said about one lease. `kind` is keep, warn or reclaim."""

    lease_id: str
    at: datetime
    kind: str
    rule: str
    words: str
    evidence: Mapping[str, Any]
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict that becomes history: of which lease and account, by whom, and what is said."""

    lease_id: str
    account_id: int
    by: str
    detail: Mapping[str, Any]
