"""Secrets of users in the book, such as the address of a chat: sealed with a key that lies in the data folder."""

from __future__ import annotations

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken


class Sealer:
    """Seals and opens texts. `secret` is any text of enough randomness; with another one nothing opens any more."""

    def __init__(self, secret: str) -> None:
        self._box = Fernet(base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()))

    def seal(self, text: str) -> str:
        return self._box.encrypt(text.encode()).decode("ascii")

    def open(self, sealed: str) -> str | None:
        """The text; None where it was not sealed with this key."""
        try:
            return self._box.decrypt(sealed.encode()).decode()
        except (InvalidToken, ValueError):
            return None
