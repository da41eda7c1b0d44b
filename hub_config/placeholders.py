"""Placeholders such as {username}: known where something is put in for them, an error everywhere else. Pure.

Left unnoticed one is either filled with what a user chose or stays as it is, and nobody sees which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any

#: What the Hub puts into `HUB_TEMPLATES` (`Spawner.template_namespace` of JupyterHub 6).
KNOWN = ("base_url", "username")
#: Settings into which Berth itself puts something.
SETTINGS = {"docker.homes": "{user}"}
HUB_TEMPLATES = ("default_url", "notebook_dir")
_SPAWNERS = ("Spawner", "GpuSpawner", "LocalGpuSpawner", "DockerSpawner", "DockerGpuSpawner")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.\[\]]*\}")


def unexpected(tables: Mapping[str, Any]) -> str | None:
    """The first text of a settings file that has a placeholder, in words: nothing is put in for any there."""
    for key, text in _texts(tables, ""):
        filled = SETTINGS.get(key)
        found = _PLACEHOLDER.search(text.replace(filled, "", 1) if filled else text)
        if found:
            return f"{key}: {found[0]} is a placeholder, and nothing is put in for it here; write what is meant"
    return None


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value, 1):
            yield from _texts(each, f"{key}[{number}]")


def unknown(config: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The first of the Hub's own templates in `config` (by class, then trait) that it could not fill, in words."""
    for name in _SPAWNERS:
        for trait in HUB_TEMPLATES:
            text = config.get(name, {}).get(trait)
            if isinstance(text, str):
                wrong = _unfilled(text)
                if wrong:
                    return f"c.{name}.{trait} = {text!r}: {wrong}; known are {', '.join(KNOWN)}"
    return None


def _unfilled(text: str) -> str | None:
    try:
        names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        return str(error)
    strange = [name for name in names if name not in KNOWN]
    return f"nothing is put in for {{{strange[0]}}}" if strange else None
