"""Which documents are open in JupyterLab, by the layout that it keeps in the user's home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SUFFIX = ".jupyterlab-workspace"
LARGEST = 4 * 1024 * 1024
MOST_FILES = 20
MOST_TABS = 100


def workspaces_folder(serverapp: Any) -> Path | None:
    """Where this server's JupyterLab keeps its layouts; None without a JupyterLab."""
    for apps in serverapp.extension_manager.extension_apps.values():
        for app in apps:
            if folder := getattr(app, "workspaces_dir", ""):
                return Path(folder)
    return None


def open_documents(folder: Path | None) -> list[str]:
    """Paths of the documents of the layout that was changed last; none where it cannot be read."""
    try:
        files = sorted(folder.glob(f"*{SUFFIX}") if folder else (), key=lambda path: path.stat().st_mtime)
        for path in reversed(files[-MOST_FILES:]):
            if path.stat().st_size <= LARGEST:
                return documents_of(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        pass
    return []


def documents_of(layout: Any) -> list[str]:
    """Paths of documents in a layout, in the order of its tabs: entries like `notebook:a/b.ipynb` whose data has that
    path. Pure."""
    data = layout.get("data") if isinstance(layout, dict) else None
    if not isinstance(data, dict):
        return []
    paths = {key: path for key, entry in data.items() if (path := _path(key, entry)) is not None}
    shown = [word for word in _words(data.get("layout-restorer:data")) if word in paths]
    return list(dict.fromkeys(paths[key] for key in [*shown, *paths]))[:MOST_TABS]


def _path(key: str, entry: Any) -> str | None:
    value = entry.get("data") if isinstance(entry, dict) else None
    path = value.get("path") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(path, str) or "factory" not in value:
        return None
    return path if path and key.partition(":")[2] == path else None


def _words(value: Any) -> list[str]:
    """All texts in a layout, in their order."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, list | dict):
            waiting.extend(reversed(list(each.values() if isinstance(each, dict) else each)))
    return found
