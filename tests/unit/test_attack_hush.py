"""What the kit keeps out of a server's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_lab import hush

SECRET = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
LINES = (
    f"302 GET /hub/home?token={SECRET} -> /hub/login",
    f"302 GET /x -> /hub/login?next=%2Fhub%2Fhome%3Ftoken%3D{SECRET}",
    f"302 GET /x -> /a?next=%252Fb%253Faccess_token%253D{SECRET}%2526x%253D1",
    f"GET /oauth_callback?code={SECRET}&state={SECRET}",
    f"Setting new xsrf cookie for b'{SECRET}:f00' {{'path': '/user/x/'}}",
    f'Setting new xsrf cookie for b"{SECRET}:f00"',
    f"Authorization: token {SECRET}",
    f"authorization: Bearer {SECRET}",
    f"JUPYTERHUB_API_TOKEN={SECRET}",
    f"service-cookie={SECRET}; _xsrf={SECRET}",
)


@pytest.fixture
def restored() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.mark.parametrize("line", LINES)
def test_a_secret_is_hidden_and_its_name_stays(line: str) -> None:
    quiet = hush.hide(line)
    assert SECRET not in quiet and "[secret]" in quiet
    assert hush.hide(quiet) == quiet


@pytest.mark.parametrize(
    "line", ["200 GET /user/x/api/status", "Kernel started: 5e0a", "the token of x", "a state of mind", "code 3"]
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert hush.hide(line) == line


def test_every_logger_is_hushed_once(restored: None, caplog: pytest.LogCaptureFixture) -> None:
    hush.install()
    factory = logging.getLogRecordFactory()
    hush.install()
    assert logging.getLogRecordFactory() is factory
    logging.getLogger("anything").warning("GET /?token=%s from %s", SECRET, "x")
    logging.getLogger("anything").warning("plain %s", "words")
    assert caplog.messages == ["GET /?token=[secret] from x", "plain words"]


@given(st.text(max_size=300))
def test_any_line_at_all_is_taken(text: str) -> None:
    assert isinstance(hush.hide(text), str)
