"""Files of a farewell: a person's own, for their eyes alone, whole or not there."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"


def snapshots_folder() -> Path:
    """Where a person's snapshots are."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "berth" / "snapshots"


def owner() -> dict[str, str]:
    """Whose server this is, and which of theirs: named servers of one person may share a home."""
    names = {"user": "JUPYTERHUB_USER", "server": "JUPYTERHUB_SERVER_NAME"}
    return {name: os.environ.get(variable, "") for name, variable in names.items()}


def private_folder(path: Path) -> None:
    """Make a folder, or one that is the user's, theirs alone; folders above it are made as usual. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{path} is a link, or somebody else's")
    if found.st_mode & 0o077:
        path.chmod(0o700)


def write_private(path: Path, value: dict[str, Any]) -> None:
    """JSON, whole or not at all, for its owner alone, in a folder that is so as well. Raises `OSError`."""
    private_folder(path.parent)
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
