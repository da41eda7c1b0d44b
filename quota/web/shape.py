"""The JSON of REST: names and units that programs rely on. Pure.

Times are RFC 3339 in UTC, GPU-time `milli_gpu_seconds`, money `micro_credits`, all integers; unknown is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from quota.bank import AccountView, Limits, StatementLine
from quota.leases import Device, Lease, Price, Segment, State
from quota.ledger import Bucket
from quota.rows import Verdict
from quota.web.figures import figures
from quota.web.parts import ProfileView
from quota.web.words import instant, instant_or_none, stop_words

Json = dict[str, Any]


def verdict_json(verdict: Verdict | None) -> Json | None:
    """What the idle rule thinks of a running server, in the words that its user sees."""
    if verdict is None:
        return None
    return {
        "kind": verdict.kind,
        "rule": verdict.rule,
        "words": verdict.words,
        "at": instant(verdict.at),
        "deadline": instant_or_none(verdict.deadline),
    }


def _device_json(uuid: str, host: str | None, device: Device | None) -> Json:
    name = device.name if device else None
    return {"uuid": uuid, "name": name, "host": host, "simulated": device.simulated if device else None}


def lease_json(
    lease: Lease,
    segments: Sequence[Segment],
    devices: Mapping[str, Device],
    verdict: Verdict | None,
    now: datetime,
) -> Json:
    """One lease. Usage and charge are exact up to `now` while it is not settled; `devices` by UUID."""
    figure = figures(lease, segments, now)
    held = [slot for slot in lease.slots if slot.device is not None]
    return {
        "id": lease.id,
        "state": lease.state.value,
        "target": lease.target.value,
        "holder": {"user": lease.holder.user, "server": lease.holder.server, "kind": lease.holder.kind.value},
        "profile": lease.profile,
        "image": lease.image,
        "account": lease.account,
        "share_milli": int(lease.share),
        "count": lease.count,
        "devices": [_device_json(str(slot.device), slot.host, devices.get(str(slot.device))) for slot in held],
        "simulated": lease.simulated,
        "requested_at": instant(lease.requested_at),
        "requested_by": lease.requested_by,
        "started_at": instant_or_none(lease.started_at),
        "ended_at": instant_or_none(lease.ended_at),
        "stop_reason": lease.stop_reason.value if lease.stop_reason else None,
        "stop_detail": lease.stop_detail,
        "stop_words": stop_words(lease),
        "stop_after": instant_or_none(lease.stop_after),
        "milli_gpu_seconds": figure.usage,
        "charged_micro_credits": figure.charged,
        "held_micro_credits": lease.held,
        "price": price_json(lease.price),
        "idle": verdict_json(verdict) if lease.state is State.RUNNING else None,
    }


def price_json(price: Price) -> Json:
    return {
        "plan_id": price.plan_id,
        "gpu_hour_micro_credits": int(price.gpu_hour),
        "cpu_hour_micro_credits": int(price.cpu_hour),
    }


def profile_json(profile: ProfileView) -> Json:
    return {
        "name": profile.name,
        "title": profile.title,
        "description": profile.description,
        "share_milli": profile.share_milli,
        "count": profile.count,
        "free_now": profile.free_now,
        "price_per_hour_micro_credits": profile.price_per_hour_micro,
        "images": list(profile.images),
        "simulated": profile.simulated,
    }


def limits_json(limits: Limits) -> Json:
    """Null is no limit."""
    return {
        "max_servers": limits.max_servers,
        "max_gpu_milli": limits.max_gpu_milli,
        "monthly_micro_credits": limits.monthly_micro,
        "profiles": None if limits.profiles is None else sorted(limits.profiles),
    }


def bucket_json(bucket: Bucket) -> Json:
    """One dated grant: given, left, until when it is good."""
    return {
        "id": bucket.id,
        "amount_micro_credits": bucket.amount,
        "left_micro_credits": bucket.balance,
        "granted_at": instant(bucket.granted_at),
        "expires_at": instant_or_none(bucket.expires_at),
        "by": bucket.by,
        "note": bucket.note,
    }


def account_json(view: AccountView) -> Json:
    return {
        "name": view.account.name,
        "kind": view.account.kind,
        "created_at": instant(view.account.created_at),
        "available_micro_credits": view.available,
        "held_micro_credits": view.held,
        "month_charged_micro_credits": view.month_charged,
        "limits": limits_json(view.limits),
    }


def line_json(line: StatementLine) -> Json:
    """One session, clipped to the stretch that was asked for."""
    return {
        "lease_id": line.lease_id,
        "profile": line.profile,
        "image": line.image,
        "share_milli": int(line.share),
        "count": line.count,
        "simulated": line.simulated,
        "started_at": instant(line.started_at),
        "ended_at": instant_or_none(line.ended_at),
        "microseconds": line.seconds,
        "milli_gpu_seconds": line.milli_gpu_seconds,
        "charged_micro_credits": line.charged,
    }


def fleet_json(device: Device, isolation: str, leases: Iterable[Lease]) -> Json:
    """One device and who holds parts of it; no money."""
    holders = [
        {"user": lease.holder.user, "server": lease.holder.server, "share_milli": int(slot.share)}
        for lease in leases
        for slot in lease.slots
        if slot.device == device.uuid
    ]
    return {
        "uuid": device.uuid,
        "name": device.name,
        "host": device.host,
        "position": device.position,
        "memory_mib": device.memory_mib,
        "mode": device.mode,
        "isolation": isolation,
        "state": device.state.value,
        "why": device.why,
        "simulated": device.simulated,
        "used_milli": device.used,
        "free_milli": device.free,
        "seen_at": instant_or_none(device.seen_at),
        "holders": holders,
    }
