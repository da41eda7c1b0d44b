"""The first passwords of the site's admins: made by Berth, shown by `berth up` and `berth passwords`, and forgotten
once an admin has chosen another."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from hub_config.datafolder import DataFolder, write_private

#: Who is the admin of a site whose `berth.toml` names nobody.
NOBODY_NAMED: Final = ("admin",)


def made_up() -> str:
    """A password that nobody guesses: 96 bits, in 16 signs."""
    return secrets.token_urlsafe(12)


def admins_of(listed: Iterable[str]) -> tuple[str, ...]:
    """Whom `auth.admins` names; "admin" where it names nobody."""
    return tuple(listed) or NOBODY_NAMED


class FirstPasswords:
    """A private file of the data folder, name to password."""

    def __init__(self, data: DataFolder) -> None:
        self._path = data.secrets / "first-passwords.json"

    def kept(self) -> dict[str, str]:
        """Those that are still in use."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(name): str(password) for name, password in found.items()} if isinstance(found, dict) else {}

    def of(self, name: str) -> str:
        """That of an admin, made up where there is none yet."""
        kept = self.kept()
        if name not in kept:
            kept[name] = made_up()
            self._write(kept)
        return kept[name]

    def forget(self, name: str) -> None:
        """The admin has another one by now."""
        kept = self.kept()
        if kept.pop(name, None) is not None:
            self._write(kept)

    def _write(self, kept: Mapping[str, str]) -> None:
        write_private(self._path, json.dumps(kept, indent=2) + "\n")
