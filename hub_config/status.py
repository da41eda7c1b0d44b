"""`berth status`: what runs, what is held, what is wrong, as data. `status_facts` looks, `status_text` shows."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.metadata import version
from typing import Any

from hub_config.compose import parts
from hub_config.datafolder import DataFolder
from hub_config.screen import devices_words
from hub_config.status_facts import PROCESSES, BookLook, Look, ProcessLook, look
from hub_config.status_text import as_text
from quota.leases import Device, DeviceState, Lease
from quota.pricing import hourly
from quota.rows import Heartbeat
from quota.units import MilliGpu
from quota.vitals import Vitals, done_at, from_note

#: A process that beats and was last heard of so long ago has stopped doing its work.
STALE_SECONDS = {"hub": 30, "agent": 30, "idle-culler": 180, "berth": 90}
DISK_LEAST = 0.10
WATCH_SECONDS = 2.0


def status(data: DataFolder) -> dict[str, Any]:
    """Everything an operator asks first. `healthy` is True while it is up and no finding stands.

    Times are RFC 3339 in UTC, `_s` seconds, money micro-credits; what cannot be told is null.
    """
    made = parts(data.root)
    seen = look(made)
    beats = _latest(seen.book)
    found: dict[str, Any] = {
        "up": seen.up is not None,
        "url": seen.up["url"] if seen.up else None,
        "since": seen.up.get("since") if seen.up else None,
        "version": version("berth"),
        "at": _time(seen.now),
        "data": str(data.root),
        "backend": made.settings.backend.kind,
        "processes": {name: _process(each, beats.get(name), seen.now) for name, each in seen.processes.items()},
        "proxy": {"routes": seen.routes, "answers": seen.answers},
        "book": _book(seen),
        "disk": {"free_bytes": seen.disk_free_bytes, "total_bytes": seen.disk_total_bytes},
        "devices": _devices(seen.book),
        "leases": [_lease(lease, seen.now) for lease in seen.book.leases],
        "alerts": [
            {"key": each.key, "kind": each.kind, "words": each.words, "since": _time(each.since)}
            for each in seen.book.alerts
        ],
        "errors": [
            {"log": each.log, "at": each.at, "event": each.event, "message": each.message, "count": each.count}
            for each in seen.errors
        ],
    }
    found["findings"] = list(_findings(found, seen))
    found["healthy"] = found["up"] and not found["findings"]
    if not seen.book.why:
        made.store.close()
    return found


def show(data: DataFolder, *, as_json: bool, watch: bool) -> bool:
    """Print it, with `watch` every 2 s until Ctrl-C (as JSON: an object a line). Whether all was well at last."""
    found = status(data)
    try:
        while True:
            if watch and not as_json and sys.stdout.isatty():
                print("\x1b[H\x1b[2J", end="")
            print(json.dumps(found, indent=None if watch else 2) if as_json else as_text(found), flush=True)
            if not watch:
                break
            _pause(WATCH_SECONDS)
            found = status(data)
    except KeyboardInterrupt:
        print()
    return bool(found["healthy"])


def _pause(seconds: float) -> None:
    time.sleep(seconds)


def _latest(book: BookLook) -> Mapping[str, Heartbeat]:
    boots = book.facts.boots if book.facts else ()
    return {beat.role: beat for beat in sorted(boots, key=lambda beat: beat.beat_at)}


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None


def _process(seen: ProcessLook, beat: Heartbeat | None, now: datetime) -> dict[str, Any]:
    vitals = from_note(beat.note) if beat else Vitals()
    return {
        "pid": seen.pid,
        "uptime_s": seen.uptime_s,
        "rss_bytes": seen.rss_bytes,
        "cpu_percent": seen.cpu_percent,
        "restarts": seen.restarts,
        "heartbeat_age_s": round((now - beat.beat_at).total_seconds(), 1) if beat else None,
        "last_cycle_at": _time(vitals.last_success),
        "cycles": vitals.counts.get("cycles"),
        "cycle_errors": vitals.counts.get("errors"),
        "note": vitals.words,
    }


def _book(seen: Look) -> dict[str, Any]:
    book, size = seen.book, seen.book.size
    return {
        "kind": book.kind,
        "where": book.where,
        "readable": book.facts is not None,
        "revision": size.revision if size else None,
        "bytes": size.bytes if size else None,
        "wal_bytes": size.wal_bytes if size else None,
        "rows": dict(size.rows) if size else None,
        "last_audit": _done(book.facts.meta.get("audit") if book.facts else None),
        "last_backup": _done(seen.backup),
    }


def _done(note: str | None) -> dict[str, Any] | None:
    done = done_at(note)
    return {"at": _time(done[0]), "findings": done[1]} if done else None


def _devices(book: BookLook) -> list[dict[str, Any]]:
    devices = list(book.devices)
    return [_device(device, words) for device, words in zip(devices, devices_words(devices), strict=False)]


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


def _lease(lease: Lease, now: datetime) -> dict[str, Any]:
    burns = lease.state.value == "RUNNING" and lease.ended_at is None
    return {
        "id": lease.id,
        "user": lease.holder.user,
        "server": lease.holder.server,
        "profile": lease.profile,
        "share_milli": lease.share,
        "count": lease.count,
        "simulated": lease.simulated,
        "devices": [slot.device for slot in lease.slots if slot.device is not None],
        "state": lease.state.value,
        "target": lease.target.value,
        "stop_reason": lease.stop_reason.value if lease.stop_reason else None,
        "requested_at": _time(lease.requested_at),
        "since": _time(lease.started_at),
        "age_s": round((now - (lease.started_at or lease.requested_at)).total_seconds(), 1),
        "burn_micro_credits_per_hour": hourly(lease.price, MilliGpu(lease.share * lease.count)) if burns else 0,
        "milli_gpu_seconds": lease.usage,
        "charged_micro_credits": lease.charged,
    }


# ---- what is wrong, each with what to do ---------------------------------------------------------------------------


def _findings(found: Mapping[str, Any], seen: Look) -> Iterator[str]:
    if not found["up"]:
        yield "Berth is not running; start it with: berth up"
    else:
        yield from _dead_or_silent(found)
    if seen.book.why:
        yield seen.book.why
    for alert in seen.book.alerts:
        yield alert.words
    yield from _device_findings(found["devices"], found["url"])
    yield from _disk_findings(found)


def _dead_or_silent(found: Mapping[str, Any]) -> Iterator[str]:
    logs = f"{found['data']}/logs"
    for name in PROCESSES:
        if not found["processes"][name]["pid"]:
            where = f"{logs}/{name}.log" if name != "proxy" else f"{logs}/hub.out.log"
            yield f"The {name} is not running; `berth up` starts it again, and if it does not, see {where}"
    if found["proxy"]["answers"] is False and all(found["processes"][name]["pid"] for name in ("proxy", "hub")):
        pid = found["processes"]["proxy"]["pid"]
        yield (
            f"{found['url']} does not answer, though hub and proxy run: one of them hangs, or another program took the "
            f"port. Should it stay so, end the proxy (kill -9 {pid}; another is started at once), then start Berth anew"
        )
    for name, limit in STALE_SECONDS.items():
        age = found["processes"][name]["heartbeat_age_s"]
        if age is not None and age > limit:
            yield f"The {name} has been silent for {age:.0f} s; see {logs}/{name}.log, and start Berth anew if it hangs"
    words = found["processes"]["idle-culler"]["note"]
    if words.startswith("unhealthy"):
        yield f"The idle-culler is {words}; see {logs}/idle-culler.log"


def _device_findings(devices: list[dict[str, Any]], url: str | None) -> Iterator[str]:
    board = f"; who is on it: {url}/services/berth/board" if url else ""
    for device in devices:
        if device["state"] != DeviceState.OK.value:
            why = f": {device['why']}" if device["why"] else ""
            yield (
                f"{device['name']} ({device['uuid']}) is {device['state']}{why}. Nothing new is placed on it until it "
                f"is ok again{board}"
            )


def _disk_findings(found: Mapping[str, Any]) -> Iterator[str]:
    free, total = found["disk"]["free_bytes"], found["disk"]["total_bytes"]
    if free is not None and total and free < DISK_LEAST * total:
        yield (
            f"Only {100 * free / total:.0f} % of the disk of {found['data']} is free ({free / 2**30:.1f} GiB). Make "
            "room before the book cannot be written: old files in homes/, backups, logs/servers/"
        )
