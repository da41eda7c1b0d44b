"""Berth's kit inside a user's notebook server. It speaks only to service `berth`, with the server's own token."""

from __future__ import annotations

__version__ = "0.1.0"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "berth_lab.extension"}]
