"""What the Engine tells of containers, in Berth's words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from spawner.box import LEASE_LABEL
from spawner.ports import Seen

#: States in which a container's processes may live. "removing" is until it is seen to be gone.
LIVING: Final = frozenset({"running", "paused", "restarting", "removing"})
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def lease_of(listed: Mapping[str, Any]) -> str:
    """The lease of a container in a list; "" for none."""
    return str((listed.get("Labels") or {}).get(LEASE_LABEL) or "")


def moment(text: object) -> datetime | None:
    """A moment as the Engine writes it (nanoseconds, "Z"); None where there was none (the year 1)."""
    match = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[1].startswith("0001"):
        return None
    micros = (match[2] or "0").ljust(6, "0")[:6]
    zone = "+00:00" if match[3] == "Z" else match[3]
    return datetime.fromisoformat(f"{match[1]}.{micros}{zone}").astimezone(UTC)


def exit_code(code: object) -> int | None:
    """As a process's own record has it: negative where a signal ended it (shells and inits tell that as 128 + N)."""
    if type(code) is not int:
        return None
    return 128 - code if 128 < code < 160 else code


def seen(lease_id: str, inspected: Mapping[str, Any]) -> Seen:
    """One container by `inspect`. Of one that was made and never started there is no end to tell."""
    state = inspected.get("State") or {}
    started_at = moment(state.get("StartedAt"))
    if state.get("Status") in LIVING and started_at is not None:
        return Seen(lease_id, True, started_at)
    if state.get("Status") == "removing":
        return Seen(lease_id, True)
    if started_at is None:
        return Seen(lease_id, False)
    ended_at = moment(state.get("FinishedAt"))
    if ended_at is not None and ended_at < started_at:  # the Engine died before it could write the end down
        ended_at = None
    return Seen(lease_id, False, started_at, ended_at, exit_code(state.get("ExitCode")), bool(state.get("OOMKilled")))


def address(inspected: Mapping[str, Any], network: str) -> str:
    """Its address in a network; "" where it has none."""
    networks = (inspected.get("NetworkSettings") or {}).get("Networks") or {}
    return str((networks.get(network) or {}).get("IPAddress") or "")
