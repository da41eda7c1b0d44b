"""What `berth up` tells a person, on one screen."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from quota.leases import Device

if TYPE_CHECKING:
    from hub_config.compose import Parts


def say(text: str) -> None:
    """One line for the terminal, at once even through a pipe.

    A terminal that was closed, or a reader such as `tee` that ended first on the same Ctrl-C, must not keep
    `berth up` from ending everything in order: what is said from then on is lost.
    """
    try:
        print(text, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def call_of(words: str, root: Path) -> str:
    """A call of this command line about a data folder, as whoever reads it can type it where they called it."""
    name = "berth" if Path(sys.argv[0]).name == "berth" else "./berth"
    return f"{name} {words}" if root == Path("berth-data").resolve() else f"{name} {words} --data {root}"


def devices_words(devices: list[Device]) -> list[str]:
    """One line for each device; simulated ones say so."""
    if not devices:
        return ["none: only CPU profiles can start"]
    return [
        f"{device.name}{'' if 'simulated' in device.name.lower() or not device.simulated else ' (simulated)'}"
        f"{f', {device.memory_mib // 1024} GB' if device.memory_mib else ', memory unknown'}  {device.uuid}"
        for device in devices
    ]


def welcome(made: Parts, url: str) -> str:
    """The address, the log-ins, the devices, what is isolated, where things are, how to stop."""
    devices = made.rows.devices()
    simulated = any(device.simulated for device in devices)
    head = "GPUs (simulated: they hold no hardware)" if simulated else "GPUs"
    lines = ["", f"  Berth is up:  {url}", "", *log_in_lines(made), "", f"  {head}"]
    lines += [f"    {words}" for words in devices_words(devices)]
    lines += [f"    {device.name} {device.uuid}: {device.why}" for device in devices if device.why]
    troubles = [alert.words for alert in made.alerts.open() if alert.kind.startswith("fleet-")]
    lines += [f"    {part}" for words in troubles for part in textwrap.wrap(f"! {words}", 96)]
    backend = f"  Backend: {made.settings.backend.kind}"
    lines += ["", backend, *(f"    {part}" for part in textwrap.wrap(made.hosting.words, 96)), ""]
    lines += [
        f"  Data      {made.data.root}",
        f"  Settings  {made.data.settings_file}",
        f"  Logs      {made.data.logs}",
        "",
        "  Stop with Ctrl-C: user servers end too, nothing is lost.",
        "",
    ]
    return "\n".join(lines)


def log_in_lines(made: Parts) -> list[str]:
    """How people log in: the trial's two passwords, or by what and who is an admin."""
    from hub_config.auth_presets import label
    from hub_config.first_passwords import FirstPasswords, admins_of

    table = made.settings.auth
    if table.kind == "passwords":
        first = FirstPasswords(made.data).kept()
        names = admins_of(table.admins)
        return ["  Log in as", *(f"    {name:<11} {first.get(name, 'password as chosen')}   (admin)" for name in names)]
    if table.kind != "trial":
        admins = ", ".join(table.admins) or "by group"
        return [f"  Log in with {label(table)}", f"    admins: {admins}"]
    lines = [
        f"    {login['name']:<11} {login['password']}   {'(admin)' if role == 'admin' else ''}".rstrip()
        for role, login in made.data.passwords().items()
    ]
    again = call_of("passwords", made.data.root)
    return ["  Log in as", *lines, f"    (again with: {again}; the file is readable by you alone)"]


def complain(text: str) -> None:
    """An error for the terminal."""
    print(f"berth: {text}", file=sys.stderr, flush=True)
