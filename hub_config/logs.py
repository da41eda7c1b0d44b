"""The one place where logs get their form: one line an event, for hub, services, agent and `berth up`.

JSON lines have the fields `ts` (RFC 3339, UTC), `level`, `process`, `logger`, `event` (a machine's name for what
happened), `message`, then what the line is about: `request_id`, `user`, `server`, `lease`, `method`, `route`, `status`,
`duration_ms`, `reason` …, and `traceback` for an exception. Nothing that a person typed can begin a new line, and what
looks like a secret is left out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from pythonjsonlogger.json import JsonFormatter
from tornado.web import HTTPError

from hub_config.settings import Settings
from quota import tracing

MAX_BYTES = 10_000_000
KEPT = 3
#: Characters of one field; more comes only from somebody who wants a long line.
LONGEST = 16_000

#: Lines in which libraries of the Hub write session ids and hashes of tokens.
_NEVER = ("Setting new xsrf cookie",)
#: Values of parameters and headers that may be secrets, wherever they turn up. The name stays.
_SECRET = re.compile(
    r"""(?ix)
    (   (?: (?<![\w-]) [\w-]{0,40} (?: token | password | secret | _xsrf | api_key | cookie | oauth-state ) [\w-]{0,40}
            ["']? \s{0,3} [=:] \s{0,3} ["']?
        | [?&] (?: code | state ) =
        | /api/authorizations/ (?: token | cookie ) /
        | oauth \s state \s argument \s ["']?
        )
    )
    (?! \[secret\] ) [^\s&"',;}\])]+
    """
)
#: The proxy's log-in stands in its rules.
_BCRYPT = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}")
_BEARER = re.compile(r"(?i)\b(token|bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{16,}")
#: What ends a line somewhere: `str.splitlines`, a terminal, a viewer of logs.
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: What logging itself puts on a record; all else was given by the caller.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color", "end_color", "taskName", "event"}


def hide_secrets(text: str) -> str:
    """The text without what follows `token=`, `password:`, `Bearer ` and the like, and not longer than is useful."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} […] {text[-LONGEST // 2 :]}"
    return _BCRYPT.sub("[secret]", _BEARER.sub(r"\1\2[secret]", _SECRET.sub(r"\1[secret]", text)))


def one_line(text: str) -> str:
    """The text with every control character written out."""
    return _BREAKS.sub(lambda found: repr(found[0])[1:-1], text)


def fields_of(record: logging.LogRecord, process: str) -> dict[str, Any]:
    """What a line says, in order."""
    said: dict[str, Any] = {
        "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "process": process,
        "logger": record.name,
        "event": getattr(record, "event", f"{record.module}.{record.funcName}"),
        "message": hide_secrets(record.getMessage()),
        **tracing.facts(),
    }
    for name, value in vars(record).items():
        if name not in _OWN and value is not None:
            said[name] = hide_secrets(value) if isinstance(value, str) else value
    trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else record.exc_text
    if trace:
        said["traceback"] = hide_secrets(trace)
    return said


class JsonLines(JsonFormatter):
    """One JSON object a record."""

    def __init__(self, process: str) -> None:
        super().__init__(json_ensure_ascii=False, json_default=str)
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = self.serialize_log_record(fields_of(record, self._process))
        # All control characters below U+0080 are escaped by JSON; these few are not, and end lines for some.
        return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


class TextLines(logging.Formatter):
    """The same for a person who reads along: time, level, logger, message, then name=value."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        said = fields_of(record, self._process)
        head = f"{said.pop('ts')} {said.pop('level').upper():<7} {said.pop('process')} {said.pop('logger')}"
        message = said.pop("message")
        return one_line(" ".join([head, message, *(f"{name}={value}" for name, value in said.items())]))


def _keep(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_NEVER)


def file_handler(path: Path, process: str, form: str) -> logging.Handler:
    """A rotating file, private to this user; `form` is "json" or "text"."""
    path.touch(mode=0o600, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8")
    handler.setFormatter(JsonLines(process) if form == "json" else TextLines(process))
    handler.addFilter(_keep)
    return handler


def for_people(line: str) -> str:
    """A line of a log as somebody at a terminal reads it: a JSON event as its words, with the traceback below."""
    try:
        said = json.loads(line)
        head = f"{said['ts']} {said['level'].upper()} {one_line(said['message'])}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
    return "\n".join([head, *(one_line(each) for each in str(said.get("traceback", "")).splitlines())])


def cut(path: Path) -> None:
    """Put a file of plain output aside when it has grown large; one is kept."""
    if path.exists() and path.stat().st_size > MAX_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))


def set_up(process: str, folder: Path, settings: Settings) -> logging.Handler:
    """Send all that this process logs to `folder/PROCESS.log`, and nowhere else. What it prints, and how it ended if
    it could not even load, is in PROCESS.out.log, which `berth up` keeps."""
    handler = file_handler(folder / f"{process}.log", process, settings.logs.format)
    logging.basicConfig(level=settings.logs.level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    return handler


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        log = logging.getLogger("berth")
        log.critical("Ended by %s", kind.__name__, exc_info=(kind, error, trace), extra={"event": "process-failed"})
    sys.__excepthook__(kind, error, trace)


# ---- the Hub ---------------------------------------------------------------------------------------------------


def set_up_hub(c: Any, folder: Path, settings: Settings) -> None:
    """The Hub's own loggers, tornado's and ours into one file; its console shows only what precedes this."""
    from quota.web.arrival import RequestId
    from quota.web.compressed import CompressedFiles

    handler = set_up("hub", folder, settings)
    c.JupyterHub.log_level = settings.logs.level.upper()
    c.JupyterHub.extra_log_handlers = [_Shared(handler)]
    c.JupyterHub.logging_config = {"loggers": {"JupyterHub": {"handlers": [], "level": settings.logs.level.upper()}}}
    c.JupyterHub.tornado_settings.update({"transforms": [RequestId, CompressedFiles], "log_function": log_hub_request})


class _Shared(logging.Handler):
    """Hands records on to a handler that is in use already. traitlets copies values deeply: this one stays itself."""

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        self._target = target
        self.setFormatter(target.formatter)

    def __deepcopy__(self, _memo: object) -> _Shared:
        return self

    def emit(self, record: logging.LogRecord) -> None:
        if self._target.filter(record):
            self._target.handle(record)


_access = logging.getLogger("berth.hub.access")


def log_hub_request(handler: Any) -> None:
    """One line a request of the Hub, without its query and headers, and the Hub's own metric of it."""
    from jupyterhub.metrics import prometheus_log_method

    status, request = handler.get_status(), handler.request
    seconds = request.request_time()
    quiet = status < 400 and (request.path.endswith("/hub/health") or "/hub/static/" in request.path)
    if not quiet and (status != 304 or seconds >= 1):
        _access.log(
            logging.ERROR if status >= 500 else logging.WARNING if status >= 400 else logging.INFO,
            "%d %s %s",
            status,
            request.method,
            request.path,
            extra={
                "event": "request",
                "method": request.method,
                "path": request.path,
                "status": status,
                "duration_ms": round(1000 * seconds, 1),
                "by": _viewer(handler),
            },
        )
    prometheus_log_method(handler)


def _viewer(handler: Any) -> str | None:
    try:
        name = getattr(handler.current_user, "name", None)
    except (HTTPError, RuntimeError):  # nobody was asked for yet
        return None
    return name if isinstance(name, str) else None
