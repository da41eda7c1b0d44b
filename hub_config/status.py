"""`berth status`: what runs, what is held, what is wrong, as data and as a page of text."""

from __future__ import annotations

import fcntl
import json
from typing import Any

from hub_config.compose import parts
from hub_config.datafolder import DataFolder
from hub_config.processes import read_pid
from hub_config.screen import devices_words
from quota.leases import Device, Lease
from quota.revisions import ready
from quota.units import show_credits, show_share

PROCESSES = ("hub", "agent", "proxy", "berth", "idle-culler")
STALE_SECONDS = {"hub": 30, "agent": 30, "idle-culler": 180}


def status(data: DataFolder) -> dict[str, Any]:
    """Everything an operator asks first. `healthy` is True while it is up and no finding stands."""
    made = parts(data.root)
    info = _up_info(data)
    try:
        ready(made.store)
        devices, live, boots = made.rows.devices(), made.book.live(), made.rows.boots()
    finally:
        made.store.close()
    now = made.clock.now()
    pids = {name: read_pid(data.pids, name) for name in PROCESSES}
    latest = {beat.role: beat for beat in sorted(boots, key=lambda beat: beat.beat_at)}
    ages = {role: round((now - beat.beat_at).total_seconds(), 1) for role, beat in latest.items()}
    found: dict[str, Any] = {
        "up": info is not None,
        "url": info["url"] if info else None,
        "data": str(data.root),
        "backend": made.settings.backend.kind,
        "processes": {
            "up": {"pid": info["pid"] if info else None},
            **{
                name: {
                    "pid": pids[name],
                    "heartbeat_age_s": ages.get(name),
                    "note": latest[name].note if name in latest else "",
                }
                for name in PROCESSES
            },
        },
        "devices": [_device(device, words) for device, words in zip(devices, devices_words(devices), strict=False)],
        "leases": [_lease(lease) for lease in live],
    }
    found["findings"] = _findings(found)
    found["healthy"] = found["up"] and not found["findings"]
    return found


def _device(device: Device, words: str) -> dict[str, Any]:
    return {
        "uuid": device.uuid,
        "name": device.name,
        "host": device.host,
        "memory_mib": device.memory_mib,
        "mode": device.mode,
        "state": device.state.value,
        "why": device.why,
        "simulated": device.simulated,
        "used_milli": device.used,
        "free_milli": device.free,
        "words": words,
    }


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "user": lease.holder.user,
        "server": lease.holder.server,
        "profile": lease.profile,
        "share_milli": lease.share,
        "count": lease.count,
        "simulated": lease.simulated,
        "state": lease.state.value,
        "target": lease.target.value,
        "stop_reason": lease.stop_reason.value if lease.stop_reason else None,
        "requested_at": lease.requested_at.isoformat().replace("+00:00", "Z"),
        "milli_gpu_seconds": lease.usage,
        "charged_micro_credits": lease.charged,
    }


def _findings(found: dict[str, Any]) -> list[str]:
    if not found["up"]:
        return ["Berth is not running; start it with: berth up"]
    problems = [
        f"The {name} is not running; `berth up` starts it again"
        for name in PROCESSES
        if not found["processes"][name]["pid"]
    ]
    for name, limit in STALE_SECONDS.items():
        age = found["processes"][name].get("heartbeat_age_s")
        if age is not None and age > limit:
            problems.append(f"The {name} has been silent for {age:.0f} s; see its log in {found['data']}/logs")
    problems += [
        f"{d['name']} ({d['uuid']}) is {d['state']}: {d['why']}" for d in found["devices"] if d["state"] != "ok"
    ]
    return problems


def _up_info(data: DataFolder) -> dict[str, Any] | None:
    """What the living `berth up` wrote, or None: the lock tells the living from the dead."""
    try:
        with data.lock_file.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
    except OSError:
        pass
    try:
        info: dict[str, Any] = json.loads(data.up_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return info


def as_text(found: dict[str, Any]) -> str:
    """The same for a person."""
    head = f"Berth is up: {found['url']}" if found["up"] else "Berth is not running"
    lines = [f"{head}   (data: {found['data']})", ""]
    lines += [_process_line(name, process) for name, process in found["processes"].items()]
    lines += ["", "GPUs", *([_device_line(device) for device in found["devices"]] or ["  none"])]
    lines += ["", "Leases", *([_lease_line(lease) for lease in found["leases"]] or ["  none"])]
    if found["findings"]:
        lines += ["", "Findings", *(f"  {problem}" for problem in found["findings"])]
    return "\n".join(lines)


def _process_line(name: str, process: dict[str, Any]) -> str:
    if not process["pid"]:
        return f"  {name:<12} -"
    age = process.get("heartbeat_age_s")
    return f"  {name:<12} pid {process['pid']}{'' if age is None else f', heard {age:.0f} s ago'}"


def _device_line(device: dict[str, Any]) -> str:
    free = show_share(device["free_milli"]) if device["free_milli"] else "nothing"
    return f"  {device['words']}   {device['state']}, {free} free"


def _lease_line(lease: dict[str, Any]) -> str:
    holder = f"{lease['user']}/{lease['server']}" if lease["server"] else lease["user"]
    share = show_share(lease["share_milli"], lease["count"]) + (" simulated" if lease["simulated"] else "")
    state = lease["state"] + (f" → stop ({lease['stop_reason']})" if lease["target"] == "STOP" else "")
    charged = show_credits(lease["charged_micro_credits"], 4)
    return (
        f"  {holder:<24} {lease['profile']:<10} {share:<18} {state}, since {lease['requested_at']}, {charged} credits"
    )
