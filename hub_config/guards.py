"""What keeps pages, cookies and files to those they are for: headers, cookie flags, file modes."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hub_config.datafolder import DataFolder

#: On every answer of the Hub; its own Content-Security-Policy (frame-ancestors 'none') stays beside them. Its pages and
#: answers are personal, so no cache may keep them; files under /hub/static have rules of their own.
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Cookies of the Hub, and through it those of user servers. Lax: a link from a mail finds its reader logged in, a form
#: or script of another site does not.
COOKIES: Final = {"SameSite": "Lax"}
#: The same for services, to which the Hub does not hand its own.
SERVICE_ENVIRONMENT: Final = {"JUPYTERHUB_COOKIE_OPTIONS": json.dumps(COOKIES)}

#: Of the Hub's HTTP server. tornado's own would hold 100 MB of anybody's body in memory; the largest that the Hub needs
#: is a list of some thousand users. Seconds: the head of a request, and idling (longer than traefik keeps connections,
#: 90); a body.
SERVER: Final = {"max_body_size": 4 << 20, "idle_connection_timeout": 120.0, "body_timeout": 60.0}

PRIVATE_UMASK: Final = 0o077


def guard_pages(c: Any) -> None:
    """Headers, cookie flags and the HTTP server's limits of the Hub."""
    from tornado.httpserver import HTTPServer  # which the command line need not load

    HTTPServer.configure(None, **SERVER)  # the Hub makes one, and passes none of these
    c.JupyterHub.tornado_settings.update({"headers": dict(HEADERS), "cookie_options": dict(COOKIES)})


def private_umask() -> None:
    """What this process and its children write is for this system user alone, whatever the caller's umask."""
    os.umask(PRIVATE_UMASK)


def make_private(data: DataFolder) -> None:
    """Take group and others off what is there already: folders and files copied in, restored, or made by an older
    version. Homes keep the modes their users gave them, behind the folder's own; so does the folder itself, which may
    be anybody's."""
    for folder in (data.hub, data.runs, data.homes, data.logs, data.secrets, data.pids):
        _take_off(folder)
    for folder in (data.hub, data.logs, data.secrets, data.pids):
        for path in folder.rglob("*"):
            _take_off(path)
    for path in data.root.iterdir():
        if path.is_file():
            _take_off(path)


def _take_off(path: Path) -> None:
    with suppress(FileNotFoundError, PermissionError):  # it is gone, or somebody else's
        mode = path.lstat().st_mode
        if mode & PRIVATE_UMASK and not path.is_symlink():
            path.chmod(mode & 0o7777 & ~PRIVATE_UMASK)
