"""Log lines: one line an event whatever somebody typed, no secrets, fields that machines can rely on."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_config import logs
from quota import tracing
from tests.harness.waiting import PATIENCE


def record(message: str, *args: object, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    made = logging.getLogger("berth.test").makeRecord("berth.test", level, "f.py", 1, message, args, None, "f", extra)
    return made


def said(line: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(logs.JsonLines("hub").format(line))
    return found


@pytest.fixture(autouse=True)
def _nothing_bound() -> Iterator[None]:
    token = tracing._FACTS.set({})
    yield
    tracing._FACTS.reset(token)


def test_a_line_has_its_fields() -> None:
    tracing.begin("abc-1")
    tracing.bind(lease="l1", user="alice", server="")
    found = said(record("Lease %s runs", "l1", event="lease-running", duration_ms=1.5))
    assert found.pop("ts").endswith("Z")
    assert found == {
        "level": "info",
        "process": "hub",
        "logger": "berth.test",
        "event": "lease-running",
        "message": "Lease l1 runs",
        "request_id": "abc-1",
        "lease": "l1",
        "user": "alice",
        "server": "",
        "duration_ms": 1.5,
    }


def test_an_event_without_a_name_of_its_own_is_named_by_where_it_came_from() -> None:
    assert said(record("whatever"))["event"] == "f.f"


def test_an_exception_is_one_line_with_a_traceback_field() -> None:
    try:
        raise ValueError("first\nsecond token=abcdef")
    except ValueError:
        line = record("It failed")
        line.exc_info = sys.exc_info()
    for formatter in (logs.JsonLines("hub"), logs.TextLines("hub")):
        text = formatter.format(line)
        assert len(text.splitlines()) == 1
        assert "abcdef" not in text
    trace = said(line)["traceback"]
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "ValueError: first\nsecond" in trace


@given(typed=st.text(st.characters(codec="utf-8"), max_size=60))
def test_nobody_can_begin_a_new_line(typed: str) -> None:
    forged = record("User %s", f'{typed}\n{{"ts": "x", "event": "forged"}}\r\u2028\x85', user=typed, reason=typed)
    for formatter in (logs.JsonLines("hub"), logs.TextLines("hub")):
        assert len(formatter.format(forged).splitlines()) == 1
    found = said(forged)
    assert found["event"] == "f.f"
    assert typed in found["message"] or "[secret]" in found["message"]


@pytest.mark.parametrize(
    "text",
    [
        "GET /hub/api?token=SECRET12345678901234&x=1",
        "GET /oauth_callback?code=SECRET12345678901234&state=SECRET12345678901234",
        "Authorization: token SECRET12345678901234",
        "{'Authorization': 'Bearer SECRET12345678901234'}",
        "Authorization: Basic SECRET12345678901234==",
        '{"password": "SECRET12345678901234"}',
        "JUPYTERHUB_API_TOKEN=SECRET12345678901234",
        "proxy-password: SECRET12345678901234",
        "oauth state argument 'SECRET12345678901234' != cookie service-berth-oauth-state='SECRET12345678901234'",
        "404 GET /hub/api/authorizations/token/SECRET12345678901234",
        "404 GET /hub/api/authorizations/cookie/name/SECRET12345678901234",
        "_xsrf=SECRET12345678901234",
        "cookie_secret = 'SECRET12345678901234'",
        "users: ['berth:$2b$04$SECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRE']",
    ],
)
def test_what_looks_like_a_secret_is_left_out(text: str) -> None:
    assert "SECRET" not in said(record("%s", text))["message"]
    assert "SECRET" not in said(record("x", reason=text))["reason"]


@pytest.mark.parametrize("text", ["Lease l1 is in state: RUNNING", "ended with code 1", "Tokens are checked"])
def test_plain_words_stay(text: str) -> None:
    assert said(record("%s", text))["message"] == text


def test_the_files_rotate_are_private_and_skip_session_ids(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    handler = logs.file_handler(path, "hub", "json")
    try:
        assert handler.maxBytes == logs.MAX_BYTES  # type: ignore[attr-defined]
        assert handler.backupCount == logs.KEPT  # type: ignore[attr-defined]
        handler.handle(record("Setting new xsrf cookie for %r %r", b"id:abc", {}))
        handler.handle(record("kept"))
    finally:
        handler.close()
    assert [json.loads(line)["message"] for line in path.read_text().splitlines()] == ["kept"]
    assert path.stat().st_mode & 0o077 == 0


def test_text_is_for_people_and_has_the_same_facts() -> None:
    text = logs.TextLines("agent").format(record("Lease %s ended", "l1", lease="l1", level=logging.WARNING))
    assert text[10] == "T"
    assert text[24:] == " WARNING agent berth.test Lease l1 ended event=f.f lease=l1"


def test_plain_output_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hub.out.log"
    logs.cut(path)
    path.write_text("12345")
    logs.cut(path)
    assert path.exists()
    monkeypatch.setattr(logs, "MAX_BYTES", 4)
    logs.cut(path)
    assert not path.exists()
    assert (tmp_path / "hub.out.log.1").read_text() == "12345"


@pytest.mark.parametrize("piece", ["a-", "token", "token=", "a", " ", "password: ", "?code=", "\x00"])
def test_a_long_line_is_cut_and_costs_little(piece: str) -> None:
    """Whoever types the text may not hold up the process that logs it."""
    began = time.monotonic()
    line = logs.JsonLines("hub").format(record("%s", piece * 100_000))
    assert len(line) < 8 * logs.LONGEST
    assert time.monotonic() - began < PATIENCE * 2


def test_the_end_of_a_log_is_told_to_people_in_words() -> None:
    line = record("It failed\nbadly", level=logging.ERROR)
    line.exc_text = "Traceback:\n  here\nValueError: no"
    told = logs.for_people(logs.JsonLines("hub").format(line)).splitlines()
    assert told[0].endswith(" ERROR It failed\\nbadly")
    assert told[1:] == ["Traceback:", "  here", "ValueError: no"]
    for plain in ("Traceback (most recent call last):", "[]", "{}", '{"ts": 1}', ""):
        assert logs.for_people(plain) == plain
