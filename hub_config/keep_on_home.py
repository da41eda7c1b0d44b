"""What the buttons on the Hub's home page call to keep a server.

A page of the Hub cannot write to service `berth`, which tells its XSRF token to its own pages alone. Whoever may start
and stop somebody's servers may keep them; a server's own token may neither.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from hub_config import compose
from quota.book import TooLate
from quota.errors import NotFound, Refused
from quota.i18n import _
from quota.web.wish_words import kept_words, refused_words
from quota.wishing import Bounds, Wished, Wishing, WishRefused
from spawner.hub_facts import name_of
from spawner.messages import words
from spawner.threads import in_thread

if TYPE_CHECKING:
    from hub_config.compose import Parts

#: Below the Hub's REST; its name stands in the home page's script too.
ADDRESS: Final = r"/api/berth/users/([^/]+)/keep"
LONGEST: Final = timedelta(days=366)

#: Keeps a user's running lease, by its id, for so long, by whom. Raises `NotFound`, `WishRefused`, `Refused`.
Keep = Callable[[str, str, timedelta, str], Wished]


class KeepHandler(APIHandler):
    """`POST {"lease": ID, "seconds": N}`; the answer's `words` say until when it is kept."""

    def initialize(self, keep: Keep, zone: tzinfo) -> None:
        self._keep, self._zone = keep, zone

    @needs_scope("servers")  # type: ignore[untyped-decorator]
    async def post(self, user_name: str) -> None:
        lease, span = self._asked()
        by = name_of(self.current_user)
        try:
            wished = await in_thread(self._keep, user_name, lease, span, by)
        except NotFound:
            raise web.HTTPError(404, _("There is no such lease.")) from None
        except WishRefused as refused:
            raise web.HTTPError(409, refused_words(refused, self._zone)) from None
        except Refused as refused:  # the book does not answer
            raise web.HTTPError(503, words(refused)) from None
        self.write({"words": kept_words(wished, self._zone)})

    def _asked(self) -> tuple[str, timedelta]:
        body: Any = self.get_json_body()
        lease, seconds = (body.get("lease"), body.get("seconds")) if isinstance(body, dict) else (None, None)
        if not isinstance(lease, str) or type(seconds) is not int or not 60 <= seconds <= LONGEST.total_seconds():
            raise web.HTTPError(400, "lease: an id, and seconds: an integer from 60 to a year are needed")
        return lease, timedelta(seconds=seconds)


def configure(c: Any, made: Parts) -> None:
    wishing = Wishing(made.bank, Bounds(made.settings.idle.keep_most, compose.longest_of(made)))

    def keep(user: str, lease_id: str, span: timedelta, by: str) -> Wished:
        if made.book.lease(lease_id).holder.user != user:
            raise NotFound(lease_id)
        try:
            made.way_out.take_back(lease_id, by)  # where it is about to be stopped for want of use
        except TooLate:
            raise WishRefused("not-running") from None
        return wishing.keep(lease_id, span, by=by)

    c.JupyterHub.extra_handlers = [
        (ADDRESS, KeepHandler, {"keep": keep, "zone": ZoneInfo(made.settings.site.time_zone)})
    ]
