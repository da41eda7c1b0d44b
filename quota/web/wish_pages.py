"""The form on a receipt by which a user keeps a server or sets its end; it needs no script."""

from __future__ import annotations

from datetime import timedelta

from quota.i18n import _
from quota.said import sentences
from quota.web import wish_actions
from quota.web.base import endpoint
from quota.web.fields import moment, wrong
from quota.web.pages import LEASE, PageHandler
from quota.web.problem import Problem
from quota.web.wish_words import kept_words
from quota.web.words import clock_words

MOST_SECONDS = 366 * 86400


class WishForm(PageHandler):
    """One field, `do`, says which button was pressed."""

    @endpoint()
    async def get(self, lease_id: str) -> None:
        self.redirect(f"{self.prefix}lease/{lease_id}#wish")

    @endpoint()
    async def post(self, lease_id: str) -> None:
        try:
            words, kind = await self.act(lease_id, self.field("do", 40)), "success"
        except Problem as problem:
            if problem.status not in (400, 409):
                raise
            words, kind = sentences(_("Nothing was changed."), problem.detail), "danger"
        self.done(words, f"lease/{lease_id}", kind)

    async def act(self, lease_id: str, do: str) -> str:
        """Do it, and say what was done. Raises `Problem`."""
        what, _sign, number = do.partition(":")
        if what == "keep" and number.isascii() and number.isdigit() and 60 <= int(number) <= MOST_SECONDS:
            return await self._keep(lease_id, timedelta(seconds=int(number)))
        if do == "no-keep":
            await wish_actions.no_keep(self, lease_id)
            return _("It is no longer kept; what was held for that is back.")
        if do == "shutdown":
            at = moment(self.field("at", 30), "at", self.parts.tz)
            await wish_actions.shut_down(self, lease_id, at)
            return _("It will be stopped at %(time)s. Save your work before.", time=clock_words(at, self.parts.tz))
        if do == "no-shutdown":
            await wish_actions.shut_down(self, lease_id, None)
            return _("The end that was set is taken off.")
        if do in ("when-done", "no-when-done"):
            wanted = do == "when-done"
            await wish_actions.when_done(self, lease_id, wanted)
            return _("It will be stopped when its work is done.") if wanted else _("It goes on when its work is done.")
        raise wrong("do", _("this is none of the page's buttons"))

    async def _keep(self, lease_id: str, span: timedelta) -> str:
        return kept_words(await wish_actions.keep(self, lease_id, span), self.parts.tz)


WISH_ROUTES: list[tuple[str, type[PageHandler]]] = [(LEASE + "/wish", WishForm)]
