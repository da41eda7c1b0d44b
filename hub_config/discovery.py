"""What an OpenID provider says about itself (OpenID Connect Discovery 1.0), asked when Berth starts and kept: a Hub
that is restarted while the provider is down still knows where it is."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from hub_config.datafolder import DataFolder, write_private
from hub_config.settings import SettingsError

_SECONDS: Final = 10.0
_MOST: Final = 1_000_000
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")


@dataclass(frozen=True, slots=True)
class Provider:
    """The addresses of a provider; `end_session` is empty where it has none."""

    issuer: str
    authorize: str
    token: str
    userinfo: str
    end_session: str = ""


class Unusable(Exception):
    """One sentence: why what came back is no provider."""


def read(text: bytes | str, issuer: str) -> Provider:
    """The provider of a discovery document. Raises `Unusable`; section 4.3: it must name the issuer that was asked."""
    try:
        told: Any = json.loads(text)
    except ValueError:
        raise Unusable("its answer is not JSON") from None
    if not isinstance(told, dict) or not isinstance(told.get("issuer"), str):
        raise Unusable("its answer names no issuer")
    if told["issuer"].rstrip("/") != issuer:
        raise Unusable(f"it says that its issuer is {told['issuer'][:200]!r}; write that one")
    for key in (*_ENDPOINTS, "end_session_endpoint"):
        if not _safe(told.get(key)) and (key in _ENDPOINTS or told.get(key) is not None):
            raise Unusable(f"its {key} is missing, or not https")
    authorize, token, userinfo = (str(told[key]) for key in _ENDPOINTS)
    return Provider(issuer, authorize, token, userinfo, str(told.get("end_session_endpoint") or ""))


def _safe(address: Any) -> bool:
    if not isinstance(address, str):
        return False
    try:
        parts = urlsplit(address)
        return parts.scheme == "https" or (
            parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")
        )
    except ValueError:
        return False


def ask(issuer: str) -> bytes:
    """The document of an issuer. Raises `OSError` and `ValueError` where it cannot be had."""
    with urllib.request.urlopen(f"{issuer}/.well-known/openid-configuration", timeout=_SECONDS) as answer:
        return bytes(answer.read(_MOST))


def refresh(data: DataFolder, issuer: str, say: Callable[[str], None]) -> None:
    """Ask and keep. Where it does not answer, what was kept of the same issuer stays, and is told. Raises
    `SettingsError` where there is nothing to go on with."""
    try:
        text = ask(issuer)
        read(text, issuer)
    except (OSError, ValueError, Unusable) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) and error.reason else error
        try:
            kept(data, issuer)
        except SettingsError:
            raise SettingsError(f"{data.settings_file}: auth.issuer: {issuer}: {why}") from None
        say(f"The log-in provider {issuer} cannot be asked ({why}). Berth starts; nobody can log in until it answers.")
        return
    write_private(data.provider_file, text.decode("utf-8"))


def kept(data: DataFolder, issuer: str) -> Provider:
    """The provider as it was last asked. Raises `SettingsError`."""
    try:
        return read(data.provider_file.read_bytes(), issuer)
    except (OSError, Unusable):
        raise SettingsError(f"{data.settings_file}: auth.issuer: nothing is known about {issuer} yet") from None
