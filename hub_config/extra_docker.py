"""What the site's `extra_config` must not ask of containers: whatever would let a server out of its own. Found when the
configuration is loaded; what is a function can only be looked at at each start, and is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from spawner.docker_spec import ENGINE_WORDS, fault

_SECTIONS: Final = ("DockerSpawner", "DockerGpuSpawner")


def unsafe(config: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One line for each, with the remedy."""
    for section in _SECTIONS:
        given = config.get(section) or {}
        for name, words in _faults(given):
            yield f"c.{section}.{name}: {words}"


def _faults(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    more = given.get("extra_host_config")
    if isinstance(more, Mapping):
        words = fault({ENGINE_WORDS.get(name, name): value for name, value in more.items()})
        if words:
            yield "extra_host_config", words
    for name in ("volumes", "read_only_volumes"):
        found = given.get(name)
        words = fault({"Binds": [str(source) for source in found]}) if isinstance(found, Mapping) else ""
        if words:
            yield name, words
    mounts = given.get("mounts")
    if isinstance(mounts, list | tuple):
        sources = [str(each.get("source", "")) for each in mounts if isinstance(each, Mapping)]
        words = fault({"Binds": sources})
        if words:
            yield "mounts", words
