"""Keeps tokens out of the server's log: the Hub's library writes session ids, and addresses with a token inside a
redirect. That log is shown where a start failed, and read by whoever looks after the site."""

from __future__ import annotations

import logging
import re
from typing import Any

#: What follows these names, also where an address stands percent-encoded inside another one.
_NAMED = re.compile(
    r"(?i)((?:[\w-]{0,40}(?:token|password|secret|_xsrf|cookie)[\w-]{0,40}|\bcode|\bstate)"
    r"(?:=|%(?:25)*3D))(?!\[secret\])[^\s&\"'%;,)}\]]+"
)
_SESSION = re.compile(r"(Setting new xsrf cookie for )b?(['\"]).*?\2")
_BEARER = re.compile(r"(?i)\b(token|bearer)(\s+)[A-Za-z0-9._~+/=-]{16,}")


def hide(text: str) -> str:
    """The text without secrets; their names stay."""
    return _BEARER.sub(r"\1\2[secret]", _SESSION.sub(r"\1[secret]", _NAMED.sub(r"\1[secret]", text)))


def install() -> None:
    """From now on, for every logger of this process. Once is enough; again does nothing."""
    make = logging.getLogRecordFactory()
    if getattr(make, "hushed", False):
        return

    def hushed(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            said = record.getMessage()
        except Exception:  # whoever formats it will say what is wrong with it
            return record
        quiet = hide(said)
        if quiet != said:
            record.msg, record.args = quiet, ()
        return record

    hushed.hushed = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(hushed)
