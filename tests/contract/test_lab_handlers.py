"""The browser's endpoints in the kit, on a real notebook server: who may, what is sent, what is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from berth_lab import handlers
from berth_lab.broadcast import MOST_LISTENERS
from tests.harness import until
from tests.harness.notebook import BASE, NotebookServer, Service, listening, serving

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PATHS = (("GET", "stream"), ("POST", "saved-docs"), ("POST", "save-now"), ("POST", "resume"))


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with listening() as listens:
        yield listens


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, service: Service) -> Iterator[NotebookServer]:
    with serving(tmp_path_factory.mktemp("handlers"), service) as runs:
        until(lambda: service.streams, 30, "the kit listens")
        yield runs


class Heard:
    """A browser's stream, line by line."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer, self._lines = answer, answer.iter_lines()

    def until(self, event: str) -> dict[str, Any]:
        """The data of the next such event."""
        name = ""
        for line in self._lines:
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data" and name == event:
                return dict(json.loads(value))
        raise AssertionError(f"the stream ended without {event}")


@contextmanager
def browser(server: NotebookServer) -> Iterator[Heard]:
    url = f"http://127.0.0.1:{server.port}{BASE}berth/stream"
    with httpx.stream("GET", url, headers={"Authorization": "token key"}, timeout=30) as answer:
        yield Heard(answer)


def activity(server: NotebookServer) -> str:
    return str(server.ask("GET", "api/status").json()["last_activity"])


def test_stream_tells_what_is_the_case_and_what_follows(server: NotebookServer, service: Service) -> None:
    service.say("state", {"now": (datetime.now(UTC) - timedelta(seconds=75)).isoformat(), "target": "RUN", "n": 1})
    with browser(server) as heard:
        assert heard.answer.headers["Content-Type"].startswith("text/event-stream")
        assert heard.answer.headers["Cache-Control"] == "no-store"
        state = heard.until("state")
        assert state["n"] == 1 and 75 <= state["age"] < 105
        service.say("notice", {"id": 7, "words": "two\nlines and a \u2028 third"})
        assert heard.until("notice") == {"id": 7, "words": "two\nlines and a \u2028 third"}


def test_saving_asks_the_open_browsers_first_and_none_of_it_is_activity(server: NotebookServer) -> None:
    before = activity(server)
    with browser(server) as heard:
        server.ask("POST", "berth/saved-docs", json={})  # nobody asked: no matter
        with httpx.Client(timeout=30) as other:
            url = f"http://127.0.0.1:{server.port}{BASE}berth/"
            key = {"Authorization": "token key"}
            with other.stream("POST", url + "save-now", headers=key, json={}) as saving:
                heard.until("save-please")
                assert other.post(url + "saved-docs", headers=key, json={}).status_code == 200
                saving.read()
        assert saving.status_code == 200 and saving.json()["state"] == "done"
    assert activity(server) == before


def test_a_stranger_gets_nothing(server: NotebookServer) -> None:
    for method, name in PATHS:
        answer = httpx.request(method, f"http://127.0.0.1:{server.port}{BASE}berth/{name}", timeout=30)
        assert answer.status_code == 403, name


def test_a_cookie_without_its_token_writes_nothing(server: NotebookServer) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}{BASE}", timeout=30) as browses:
        browses.get("api/status", params={"token": "key"})  # a cookie from now on
        assert browses.get("api/status").status_code == 200
        for method, name in PATHS[1:]:
            assert browses.request(method, f"berth/{name}", json={}).status_code == 403, name


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("nonsense", 400, "JSON"),
        ("[]", 400, "object"),
        ('{"action": "restore"}', 400, "token"),
        ('{"token": "right", "action": "both"}', 400, "action"),
        ('{"token": "no-such", "action": "restore"}', 404, "not offered"),
        ('{"token": "no-such", "action": "dismiss"}', 404, "not offered"),
        (json.dumps({"token": "x" * 5000}), 413, "4096"),
    ],
)
def test_a_bad_wish_is_told_what_is_wrong(server: NotebookServer, body: str, code: int, words: str) -> None:
    answer = server.ask("POST", "berth/resume", content=body)
    assert answer.status_code == code and words in answer.json()["message"]


def test_tabs_without_end_are_bounded_and_gone_ones_forgotten(server: NotebookServer, service: Service) -> None:
    service.say("state", {"n": 2})
    with ExitStack() as open_:
        tabs = [open_.enter_context(browser(server)) for _ in range(MOST_LISTENERS + 1)]
        for tab in tabs[1:]:
            tab.until("state")
        assert tabs[0].until("gone") == {}
    with browser(server) as heard:
        heard.until("state")
        service.say("notice", {"id": 8})
        assert heard.until("notice") == {"id": 8}


def test_a_page_that_is_opened_after_a_warning_is_told_of_it(server: NotebookServer, service: Service) -> None:
    with browser(server) as heard:
        service.say("notice", {"id": 5, "kind": "idle-stop"})
        service.say("notice", {"id": 6, "kind": "idle-warning", "expires_at": "2999-01-01T00:00:00Z"})
        heard.until("notice")
        heard.until("notice")
    with browser(server) as late:
        assert late.until("notice")["id"] == 6


@pytest.mark.parametrize(
    ("said", "age"),
    [
        ((NOW - timedelta(seconds=75)).isoformat(), 75.0),
        ((NOW + timedelta(seconds=75)).isoformat(), 0.0),
        ("2026-01-01T11:59:00Z", 60.0),
        ("2026-01-01T11:59:00", None),
        ("yesterday", None),
        (None, None),
        (7, None),
    ],
)
def test_age_of_a_state_is_known_or_unknown_and_never_negative(said: Any, age: float | None) -> None:
    assert handlers.age_of(said, NOW) == age
