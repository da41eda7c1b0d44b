"""Who may log in. The local trial uses the Hub's own shared-password authenticator, on loopback only."""

from __future__ import annotations

import unicodedata
from typing import Any

from jupyterhub.auth import Authenticator
from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from jupyterhub.traitlets import Callable
from tornado import web

from quota.errors import Refused
from spawner.messages import words
from spawner.names import check_username


class HouseRules(Authenticator):
    """What holds for every way to log in: the rule for names, and our log-out. Stands before an authenticator
    in the list of bases."""

    deleted = Callable(
        None, allow_none=True, help="Told the name of a user who is deleted, before the name is free for another."
    ).tag(config=True)

    def delete_user(self, user: Any) -> None:
        if self.deleted is not None:
            self.deleted(user.name)
        super().delete_user(user)

    def normalize_username(self, username: str) -> str:
        """NFC, trimmed and lower-cased, so that one person is one name whatever the keyboard sent."""
        name: str = super().normalize_username(unicodedata.normalize("NFC", username).strip())
        return name

    def validate_username(self, username: str) -> bool:
        """Whether the name keeps to the house rule (see `spawner.names`) and is in its normal form already:
        a name that an admin adds with a capital could never log in."""
        try:
            check_username(username)
        except Refused:
            return False
        return username == self.normalize_username(username) and bool(super().validate_username(username))

    def get_handlers(self, app: Any) -> list[tuple[str, Any]]:
        """Our own log-out, before the parent's and the Hub's, and the parent's others."""
        from hub_config.logout import Logout

        return [("/logout", Logout), *super().get_handlers(app)]


class LocalAuthenticator(HouseRules, SharedPasswordAuthenticator):
    """One password for admins, one for everybody else; names are restricted before they reach any rule or path."""

    async def authenticate(self, handler: Any, data: dict[str, str]) -> Any:
        """As the parent, but a name that can never be used is told so instead of "invalid credentials"."""
        try:
            check_username(self.normalize_username(data["username"]))
        except Refused as refusal:
            raise web.HTTPError(400, words(refusal)) from None
        if not data["password"].isascii():  # the parent's constant-time comparison raises for it
            return None
        return await super().authenticate(handler, data)
