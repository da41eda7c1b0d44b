"""A book as the first release left it: revision 0001, filled by plain SQL, with a lease in every state.

The numbers are those that release wrote; nothing here may be made by today's code but the empty schema of 0001.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from quota import revisions
from quota.store import Store

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
MINUTE = 60_000_000
HOLD = 125_000  # fifteen minutes of half a GPU at one credit an hour
GRANT = 100_000_000


def micros(minutes: float = 0) -> int:
    return int((START - EPOCH).total_seconds()) * 1_000_000 + int(minutes * MINUTE)


def fill(store: Store) -> None:
    """Make the book at revision 0001 and write a small site into it."""
    revisions.upgrade(store, "0001")
    with store.write() as connection:
        for table, rows in _rows().items():
            for row in rows:
                names = ", ".join(f'"{name}"' for name in row)
                values = ", ".join(f":{name}" for name in row)
                connection.execute(sa.text(f'INSERT INTO "{table}" ({names}) VALUES ({values})'), row)
        if connection.dialect.name == "postgresql":
            for table in ("account", "posting", "event", "grant_bucket"):
                connection.execute(sa.text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))


def _lease(name: str, state: str, **more: Any) -> dict[str, Any]:
    target = "RUN" if state in ("RESERVED", "STARTING", "RUNNING") else "STOP"
    began = {"started_at": micros(), "metered_until": micros(), "last_seen": micros(3)}
    ended = {"stop_reason": "user", "stop_detail": "", "stop_by": "alice", "stop_after": micros(3)}
    values: dict[str, Any] = {
        "id": f"l-{name}",
        "version": 4,
        "state": state,
        "target": target,
        "holder_kind": "server",
        "holder_user": "alice",
        "holder_server": name,
        "account_id": 1,
        "profile": "gpu-1-2",
        "image": "env",
        "share": 500,
        "count": 1,
        "simulated": True,
        "plan_id": 1,
        "hold_seconds": 900,
        "owner": "hub-1",
        "requested_at": micros(-1),
        "requested_by": "alice",
        "held": HOLD,
    }
    if state not in ("RESERVED", "STARTING"):
        values |= began
    if target == "STOP":
        values |= ended
    return values | more


LEASES: dict[str, dict[str, Any]] = {
    "reserved": _lease("reserved", "RESERVED"),
    "starting": _lease("starting", "STARTING", deadline=micros(2)),
    "running": _lease("running", "RUNNING"),
    "warned": _lease(
        "warned", "RUNNING", target="STOP", stop_reason="idle", stop_detail="", stop_by="", stop_after=micros(30)
    ),
    "stopping": _lease("stopping", "STOPPING"),
    "released": _lease("released", "RELEASED", ended_at=micros(3), held=25_000),
    "settled": _lease(
        "settled",
        "SETTLED",
        ended_at=micros(3),
        metered_until=micros(3),
        held=0,
        charged=25_000,
        usage=90_000,
        charges=1,
    ),
}
DEVICES = {"reserved": 0, "starting": 0, "running": 1, "warned": 1, "stopping": 2, "released": 2, "settled": 3}


def _postings() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def post(key: str, kind: str, *legs: tuple[str, int], lease: str | None = None) -> None:
        for leg, (sub, amount) in enumerate(legs):
            row = {"id": len(found) + 1, "key": key, "leg": leg, "kind": kind, "sub": sub, "amount": amount}
            found.append({**row, "account_id": 1, "lease_id": lease, "at": micros()})

    post("grant:1", "grant", ("platform:issued", -GRANT), ("grant:1", GRANT))
    for name in LEASES:
        lease = f"l-{name}"
        post(f"hold:{lease}", "hold", ("grant:1", -HOLD), (f"held:{lease}", HOLD), lease=lease)
    post("charge:l-settled:1", "charge", ("held:l-settled", -25_000), ("platform:revenue", 25_000), lease="l-settled")
    post("release:l-released", "release", ("held:l-released", -100_000), ("grant:1", 100_000), lease="l-released")
    post("settle:l-settled", "settle", ("held:l-settled", -100_000), ("grant:1", 100_000), lease="l-settled")
    return found


def _balances(postings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sums = {"platform:issued": 0, "platform:revenue": 0, "platform:expired": 0}
    for row in postings:
        sums[row["sub"]] = sums.get(row["sub"], 0) + row["amount"]
    return [{"sub": sub, "amount": amount} for sub, amount in sums.items()]


def _segment(name: str) -> dict[str, Any]:
    ended = micros(3) if name in ("released", "settled") else None
    row = {"lease_id": f"l-{name}", "number": 1, "weight": 500, "plan_id": 1}
    return {**row, "started_at": micros(), "ended_at": ended}


def _device(number: int) -> dict[str, Any]:
    row = {"uuid": f"SIM-h1-{number}", "host": "h1", "position": number, "name": "simulated GPU"}
    more = {"memory_mib": 24576, "mode": "time-slice", "simulated": True, "state": "ok", "why": ""}
    return {**row, **more, "seen_at": micros()}


def _rows() -> dict[str, list[dict[str, Any]]]:
    postings = _postings()
    over = ("released", "settled")
    bucket = {"id": 1, "account_id": 1, "key": "monthly:1:2026-03", "amount": GRANT, "granted_at": micros(-2)}
    event = {"id": 1, "at": micros(), "kind": "grant", "account_id": 1, "by": "setup", "detail": json.dumps({"n": 1})}
    verdict = {"lease_id": "l-warned", "at": micros(2), "kind": "warn", "rule": "idle", "words": "idle"}
    return {
        "account": [{"id": 1, "name": "alice", "kind": "user", "created_at": micros(-2)}],
        "limits": [{"scope": "*", "max_servers": 20, "max_gpu_milli": -1, "monthly_grant": GRANT}],
        "price_plan": [{"id": 1, "gpu_hour": 1_000_000, "cpu_hour": 0, "created_at": micros(-2), "by": "setup"}],
        "host": [{"name": "h1", "seen_at": micros()}],
        "device": [_device(number) for number in range(4)],
        "grant_bucket": [bucket | {"expires_at": micros(30 * 1440), "by": "setup", "note": "monthly grant 2026-03"}],
        "lease": list(LEASES.values()),
        "slot": [
            {
                "lease_id": f"l-{name}",
                "number": 0,
                "host": "h1",
                "device": f"SIM-h1-{device}",
                "share": 500,
                "released_at": micros(3) if name in over else None,
            }
            for name, device in DEVICES.items()
        ],
        "segment": [_segment(name) for name in LEASES if name not in ("reserved", "starting")],
        "posting": postings,
        "balance": _balances(postings),
        "month_charge": [{"account_id": 1, "month": "2026-03", "charged": 25_000}],
        "sample": [{"lease_id": "l-running", "at": micros(2), "cpu_seconds": 1.25, "memory_mib": 100}],
        "signal": [{"lease_id": "l-running", "source": "kit", "at": micros(2), "payload": '{"busy": true}'}],
        "verdict": [verdict | {"evidence": '{"since": 1}', "deadline": micros(30)}],
        "event": [event],
        "heartbeat": [
            {"boot": "hub-1", "role": "hub", "host": "h1", "started_at": micros(-9), "beat_at": micros(3), "note": ""}
        ],
        "meta": [{"key": "made", "value": "0.1"}],
    }
