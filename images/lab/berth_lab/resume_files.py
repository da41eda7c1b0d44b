"""Snapshots as they lie on the disk: which of them may be used, and which go.

A snapshot is a folder of the person's own, for their eyes alone; one that somebody else could have written, or that is
damaged, is refused in words. Of the others, what is used goes after a day, and what is old, or too many, or too large.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from berth_lab.farewell_files import FORMAT, MANIFEST, write_private
from berth_lab.watch import stamp

log = logging.getLogger("berth_lab")

TOKEN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
FOLDER = re.compile(r"kernel-[0-9]{1,4}")
MOST_KEPT = 5
OLDEST = timedelta(days=14)
USED_KEPT = timedelta(days=1)
#: A folder without a manifest is one that is being written, or was.
UNFINISHED = timedelta(hours=1)
MOST_KERNELS = 100
LARGEST_MANIFEST = 1024 * 1024


class Foreign(Exception):
    """A snapshot that is not the person's own, or not whole; its words are for the person."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One that may be used."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def token(self) -> str:
        return self.folder.name

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.manifest["at"])

    @property
    def used_at(self) -> datetime | None:
        used = self.manifest["used_at"]
        return None if used is None else datetime.fromisoformat(used)

    @property
    def tabs(self) -> list[str]:
        """Paths of the documents that were open, those of kernels first."""
        seats = [entry["path"] for entry in self.manifest["kernels"] if entry["type"] == "notebook"]
        return list(dict.fromkeys([*seats, *self.manifest["tabs"]]))

    def offer(self) -> dict[str, Any]:
        """As event `resume` has it."""
        kernels = self.manifest["kernels"]
        return {
            "token": self.token,
            "at": self.manifest["at"],
            "reason": self.manifest["reason"],
            "kernels": len(kernels),
            "variables": sum(entry["variables"] for entry in kernels),
            "lost": self.manifest["lost"],
            "tabs": self.tabs,
        }


def own(path: Path, user: int) -> None:
    """Raises `Foreign` where somebody else owns a file or folder, could write to it, or where it is a link."""
    try:
        found = path.lstat()
    except OSError as error:
        raise Foreign(f"{path.name} cannot be read ({error.strerror}).") from None
    if path.is_symlink() or found.st_uid != user or found.st_mode & 0o022:
        raise Foreign(f"{path.name} is a link, or others may write to it, so it could hold anybody's code.")


def read(folder: Path, user: int) -> Snapshot:
    """The snapshot in a folder. Raises `Foreign`."""
    manifest = folder / MANIFEST
    for path in (folder.parent, folder, manifest):
        own(path, user)
    try:
        if manifest.stat().st_size > LARGEST_MANIFEST:
            raise ValueError(manifest)
        return Snapshot(folder, _checked(json.loads(manifest.read_text("utf-8")), folder.name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Foreign(f"{MANIFEST} is damaged ({type(error).__name__}).") from None


def _checked(value: Any, token: str) -> dict[str, Any]:
    """A manifest of which every part is what it should be; raises what a damaged one raises."""
    if value["format"] != FORMAT or value["token"] != token or len(value["kernels"]) > MOST_KERNELS:
        raise ValueError(token)
    kernels = [_entry(entry) for entry in value["kernels"]]
    tabs = [str.strip(path) for path in value["tabs"]]
    lost = [{name: str(text) for name, text in row.items()} for row in value["lost"]]
    moments = [value["at"], *([] if value["used_at"] is None else [value["used_at"]])]
    if any(datetime.fromisoformat(moment).tzinfo is None for moment in moments):
        raise ValueError(token)
    owner = {name: str.strip(value["owner"][name]) for name in ("user", "server")}
    told = {"tabs": tabs, "lost": lost, "reason": str.strip(value["reason"])}
    return {**value, "owner": owner, "kernels": kernels, **told}


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    texts = {name: str.strip(entry[name]) for name in ("kernel", "language", "path", "type", "name")}
    if entry["folder"] is not None and not FOLDER.fullmatch(entry["folder"]):
        raise ValueError(entry["folder"])
    if not isinstance(entry["variables"], int) or not isinstance(entry["cwd"], str | None):
        raise TypeError("variables or cwd")
    return {**texts, "folder": entry["folder"], "variables": entry["variables"], "cwd": entry["cwd"]}


def all_of(snapshots: Path, user: int, whose: Mapping[str, str] | None = None) -> tuple[list[Snapshot], dict[str, str]]:
    """The snapshots that may be used, newest first, if `whose` is given of this owner alone; of those that may not,
    why not, by token. What has no manifest is none."""
    found: list[Snapshot] = []
    refused: dict[str, str] = {}
    for folder in _folders(snapshots):
        try:
            if (folder / MANIFEST).is_symlink() or (folder / MANIFEST).exists():
                snapshot = read(folder, user)
                if whose is None or snapshot.manifest["owner"] == dict(whose):
                    found.append(snapshot)
        except (Foreign, OSError) as error:
            refused[folder.name] = str(error)
    return found, refused


def _folders(snapshots: Path) -> list[Path]:
    try:
        return sorted((path for path in snapshots.iterdir() if TOKEN.fullmatch(path.name)), reverse=True)
    except OSError:
        return []


def superfluous(found: Iterable[tuple[Snapshot, int]], now: datetime, most_bytes: int) -> list[Snapshot]:
    """Which of the snapshots (newest first, with their bytes) go. Pure. The newest that is not used stays if it is not
    old, however large it is."""
    gone: list[Snapshot] = []
    kept = size = 0
    for snapshot, bytes_ in found:
        used = snapshot.used_at
        over = kept >= MOST_KEPT or (kept > 0 and size + bytes_ > most_bytes)
        if over or now - snapshot.at > OLDEST or (used is not None and now - used > USED_KEPT):
            gone.append(snapshot)
        else:
            kept, size = kept + 1, size + bytes_
    return gone


def size_of(folder: Path) -> int:
    """Bytes of the files below; what cannot be read is none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:
            continue
    return total


def prune(snapshots: Path, user: int, now: datetime, most_bytes: int) -> None:
    """Remove what is superfluous, folders of savings that never ended, and what is refused and old. Never raises."""
    found, refused = all_of(snapshots, user)
    for snapshot in superfluous([(each, size_of(each.folder)) for each in found], now, most_bytes):
        shutil.rmtree(snapshot.folder, ignore_errors=True)
    for folder in _folders(snapshots):
        try:
            own(folder, user)
            age = timedelta(seconds=now.timestamp() - folder.lstat().st_mtime)
        except (Foreign, OSError):
            continue
        half = age > UNFINISHED and not (folder / MANIFEST).exists()
        if half or (folder.name in refused and age > OLDEST):
            shutil.rmtree(folder, ignore_errors=True)


def mark_used(snapshot: Snapshot, now: datetime) -> None:
    """It is not offered again. Raises `OSError`."""
    write_private(snapshot.folder / MANIFEST, snapshot.manifest | {"used_at": stamp(now)})
