"""`berth status` for a person: one screen of words. Pure, from what `status.status` found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quota.units import show_credits, show_share

Found = Mapping[str, Any]


def as_text(found: Found) -> str:
    """Head, processes, book, GPUs, leases, findings."""
    lines = [_head(found), "", *_processes(found), "", *_book(found)]
    lines += ["", "GPUs", *([_device(device) for device in found["devices"]] or [_none(found)])]
    lines += ["", _leases_head(found["leases"]), *([_lease(lease) for lease in found["leases"]] or [_none(found)])]
    if found["errors"]:
        lines += ["", "Errors in the logs during the last hour", *(_error(each) for each in found["errors"])]
    if found["findings"]:
        lines += ["", "Findings", *(f"  ! {problem}" for problem in found["findings"])]
    else:
        lines += ["", "No findings."]
    return "\n".join(lines)


def _none(found: Found) -> str:
    return "  none" if found["book"]["readable"] else "  unknown"


def _head(found: Found) -> str:
    if not found["up"]:
        return f"Berth {found['version']} is not running   (data: {found['data']})"
    since = f", since {_moment(found['since'])}" if found["since"] else ""
    return f"Berth {found['version']} is up: {found['url']}{since}   (data: {found['data']})"


def _moment(text: str | None) -> str:
    return f"{text[:10]} {text[11:19]} UTC" if text else "unknown"


def _processes(found: Found) -> list[str]:
    head = f"  {'':<12} {'pid':>8} {'up':>9} {'memory':>9} {'cpu':>7} {'restarts':>9} {'heard':>9}  last cycle"
    lines = [head, *(_process(name, each) for name, each in found["processes"].items())]
    routes = found["proxy"]["routes"]
    answers = {None: "", True: "; the site answers", False: "; the site does not answer"}[found["proxy"]["answers"]]
    return [*lines, f"  routes of the proxy: {'unknown' if routes is None else routes}{answers}"]


def _process(name: str, each: Found) -> str:
    pid = each["pid"] or "-"
    cells = [
        f"{pid:>8}",
        f"{span(each['uptime_s']):>9}",
        f"{size(each['rss_bytes']):>9}",
        f"{'-' if each['cpu_percent'] is None else format(each['cpu_percent'], '.1f') + ' %':>7}",
        f"{'-' if each['restarts'] is None else each['restarts']:>9}",
        f"{'-' if each['heartbeat_age_s'] is None else span(each['heartbeat_age_s']) + ' ago':>9}",
    ]
    cycle = _moment(each["last_cycle_at"]) if each["last_cycle_at"] else ""
    return f"  {name:<12} {' '.join(cells)}  {cycle}".rstrip()


def _book(found: Found) -> list[str]:
    book, disk = found["book"], found["disk"]
    lines = [f"Book  {book['kind']}, {book['where']}"]
    if book["readable"]:
        rows = ", ".join(f"{number:,} {name}" for name, number in book["rows"].items())
        wal = "" if book["wal_bytes"] is None else f" and {size(book['wal_bytes'])} of write-ahead log"
        lines.append(f"  revision {book['revision']}, {size(book['bytes'])}{wal}; {rows}")
        lines.append(f"  last audit {_done(book['last_audit'])}, last backup {_done(book['last_backup'])}")
    else:
        lines.append("  cannot be read")
    if disk["total_bytes"]:
        percent = 100 * disk["free_bytes"] / disk["total_bytes"]
        lines.append(f"Disk  {size(disk['free_bytes'])} of {size(disk['total_bytes'])} free ({percent:.0f} %)")
    return lines


def _done(done: Found | None) -> str:
    if done is None:
        return "never"
    found = "" if done["findings"] is None else f" ({done['findings']} findings)"
    return f"{_moment(done['at'])}{found}"


def _device(device: Found) -> str:
    total = device["used_milli"] + device["free_milli"]
    free = show_share(device["free_milli"]) if device["free_milli"] else "nothing"
    used = f"{100 * device['used_milli'] / total:.0f} % held, " if total else ""
    return f"  {device['words']}   {device['state']}, {used}{free} free"


def _leases_head(leases: list[Found]) -> str:
    burn = sum(lease["burn_micro_credits_per_hour"] for lease in leases)
    return f"Leases ({len(leases)}), {show_credits(burn)} credits per hour in all" if leases else "Leases"


def _lease(lease: Found) -> str:
    holder = f"{lease['user']}/{lease['server']}" if lease["server"] else lease["user"]
    share = show_share(lease["share_milli"], lease["count"]) + (" simulated" if lease["simulated"] else "")
    state = lease["state"] + (f" → stop ({lease['stop_reason']})" if lease["target"] == "STOP" else "")
    burn = show_credits(lease["burn_micro_credits_per_hour"])
    charged = show_credits(lease["charged_micro_credits"], 4)
    since = _moment(lease["since"] or lease["requested_at"])
    return (
        f"  {holder:<24} {lease['profile']:<10} {share:<18} {state}, since {since} "
        f"({span(lease['age_s'])}), {burn}/h, {charged} credits so far"
    )


def _error(each: Found) -> str:
    more = f" (and {each['count'] - 1} more)" if each["count"] > 1 else ""
    return f"  {each['log']}  {_moment(each['at'])}  {each['message'] or each['event']}{more}"


def span(seconds: float | None) -> str:
    """ "41 s", "12 min", "5 h", "3 d"."""
    if seconds is None:
        return "-"
    for least, unit in ((86400 * 2, "d"), (3600 * 2, "h"), (120, "min")):
        if seconds >= least:
            return f"{seconds / {'d': 86400, 'h': 3600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(number: int | None) -> str:
    """ "812 KiB", "96 MiB", "1.4 GiB"."""
    if number is None:
        return "-"
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number >= 2**power:
            return f"{number / 2**power:.{1 if power == 30 else 0}f} {unit}"
    return f"{number} B"
