"""What an OpenID provider says about itself, and what is no such thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hub_config import discovery
from hub_config.datafolder import DataFolder
from hub_config.settings import SettingsError

ISSUER = "https://id.example.org/realms/lab"
GOOD = {
    "issuer": f"{ISSUER}/",
    "authorization_endpoint": f"{ISSUER}/auth",
    "token_endpoint": f"{ISSUER}/token",
    "userinfo_endpoint": f"{ISSUER}/me",
    "end_session_endpoint": f"{ISSUER}/logout",
}


def document(**changes: Any) -> str:
    return json.dumps({key: value for key, value in (GOOD | changes).items() if value is not None})


def test_a_whole_document() -> None:
    found = discovery.read(document(), ISSUER)
    assert (found.token, found.end_session) == (f"{ISSUER}/token", f"{ISSUER}/logout")
    assert discovery.read(document(end_session_endpoint=None), ISSUER).end_session == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html>", "not JSON"),
        ("[]", "names no issuer"),
        (document(issuer="https://evil.example"), "says that its issuer is 'https://evil.example'"),
        (document(token_endpoint=None), "token_endpoint is missing"),
        (document(userinfo_endpoint="http://id.example.org/me"), "userinfo_endpoint is missing, or not https"),
        (document(end_session_endpoint="javascript:alert(1)"), "end_session_endpoint"),
        (document(authorization_endpoint=7), "authorization_endpoint"),
    ],
)
def test_what_is_no_provider(text: str, words: str) -> None:
    with pytest.raises(discovery.Unusable) as refused:
        discovery.read(text, ISSUER)
    assert words in str(refused.value)


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    made = DataFolder(tmp_path / "data")
    made.make()
    return made


def test_what_was_kept_serves_while_the_provider_is_down(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(discovery, "ask", lambda issuer: document().encode())
    discovery.refresh(data, ISSUER, said.append)
    assert discovery.kept(data, ISSUER).token == f"{ISSUER}/token"
    assert said == []

    def down(issuer: str) -> bytes:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(discovery, "ask", down)
    discovery.refresh(data, ISSUER, said.append)
    assert "nobody can log in until it answers" in said[0]
    with pytest.raises(SettingsError, match=r"auth\.issuer: https://other\.example: .*refused"):
        discovery.refresh(data, "https://other.example", said.append)  # what was kept is another provider's


def test_nonsense_does_not_replace_what_was_kept(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "ask", lambda issuer: document().encode())
    discovery.refresh(data, ISSUER, lambda _: None)
    monkeypatch.setattr(discovery, "ask", lambda issuer: b"<html>maintenance</html>")
    discovery.refresh(data, ISSUER, lambda _: None)
    assert discovery.kept(data, ISSUER).token == f"{ISSUER}/token"
