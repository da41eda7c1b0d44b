"""How far a pull is, from what the Engine tells of each layer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

_DONE: Final = ("Pull complete", "Already exists", "Download complete", "Extracting", "Verifying Checksum")


@dataclass(frozen=True, slots=True)
class Layer:
    """Bytes of one layer that came so far, and of all of it; None until it is known."""

    came: int = 0
    size: int | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class Pulled:
    """The layers by id; `error` in the Engine's words where it gave up."""

    layers: Mapping[str, Layer] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""

    @property
    def percent(self) -> int | None:
        """Of the bytes that are known to come; None while no size is known."""
        known = [layer for layer in self.layers.values() if layer.size]
        size = sum(layer.size or 0 for layer in known)
        came = sum((layer.size or 0) if layer.done else min(layer.came, layer.size or 0) for layer in known)
        return came * 100 // size if size else None

    @property
    def bytes_came(self) -> int:
        """So far."""
        return sum((layer.size or layer.came) if layer.done else layer.came for layer in self.layers.values())


def after(pulled: Pulled, line: Mapping[str, Any]) -> Pulled:
    """The state after another line of the Engine's; lines that tell nothing about a layer change nothing."""
    if line.get("error"):
        return replace(pulled, error=" ".join(str(line["error"]).split())[:300])
    name, status = line.get("id"), str(line.get("status") or "")
    if not isinstance(name, str) or not name or status.startswith("Pulling from"):
        return pulled
    layer = pulled.layers.get(name, Layer())
    detail = line.get("progressDetail") or {}
    current, total = detail.get("current"), detail.get("total")
    if status == "Downloading" and isinstance(current, int):
        layer = replace(layer, came=current, size=total if isinstance(total, int) and total > 0 else layer.size)
    elif status.startswith(_DONE):
        layer = replace(layer, done=True)
    return replace(pulled, layers=MappingProxyType({**pulled.layers, name: layer}))
