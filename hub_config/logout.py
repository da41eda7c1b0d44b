"""Logging out, so that it lasts: a cookie that was copied before is worth nothing afterwards."""

from __future__ import annotations

from jupyterhub.handlers.login import LogoutHandler
from jupyterhub.utils import new_token


class Logout(LogoutHandler):
    """The Hub's own, which only asks the browser to forget its cookie: whoever has a copy stays logged in for 14 days.

    Here the user's cookie id changes, so that every log-in of this user ends, in other browsers too, and the
    provider's own log-out follows where it has one. Since that is more than a nuisance, a link or picture of another
    site does not do it.
    """

    elsewhere = ""

    async def get(self) -> None:
        if self.request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            self.redirect(self.hub.base_url)
            return
        await super().get()

    async def default_handle_logout(self) -> None:
        user = self.current_user
        goodbye = getattr(self.authenticator, "goodbye", None)
        if user and goodbye:  # or whoever comes next at this computer is logged in again by one click
            self.elsewhere = await goodbye(user)
        await super().default_handle_logout()
        if user:
            user.orm_user.cookie_id = new_token()
            self.db.commit()

    async def render_logout_page(self) -> None:
        if self.elsewhere:
            self.redirect(self.elsewhere)
        else:
            await super().render_logout_page()
