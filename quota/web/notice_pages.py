"""The page of notices: what one was told, and how one wants to be told. All of it works without script."""

from __future__ import annotations

import re

from quota.i18n import _, _n
from quota.said import sentences
from quota.web import notice_actions, notice_views
from quota.web.base import endpoint
from quota.web.fields import wrong
from quota.web.notice_actions import CHOSEN_KINDS, LONGEST_CHAT, LONGEST_EMAIL, Wanted
from quota.web.pages import PageHandler
from quota.web.problem import Problem

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class NoticesPage(PageHandler):
    @endpoint()
    async def get(self) -> None:
        before = self.number("before")
        view = await self.in_thread(notice_views.notices, self.parts, self.viewer, before)
        self.page("notices.html", _("Notices"), "notices", view=view)

    def number(self, name: str) -> int | None:
        """The id of a notice, None where it is absent. Raises `Problem`."""
        asked = self.field(name, 20)
        if asked and not _NUMBER.fullmatch(asked):
            raise wrong(name, _("a whole number is needed"))
        return int(asked) if asked else None


class NoticeForm(NoticesPage):
    """A form of that page; what is wrong with its fields comes back as a message there."""

    back = "notices"

    async def act(self) -> str:
        """Do it, and say what was done. Raises `Problem`."""
        raise NotImplementedError

    @endpoint()
    async def get(self) -> None:
        self.redirect(self.prefix + "notices")

    @endpoint()
    async def post(self) -> None:
        try:
            words, kind = await self.act(), "success"
        except Problem as problem:
            if problem.status not in (400, 404, 409, 429):
                raise
            words, kind = sentences(_("Nothing was changed."), problem.detail), "danger"
        self.done(words, self.back, kind)


class MarkRead(NoticeForm):
    """One (`id`), or all that the page showed (`up_to`)."""

    async def act(self) -> str:
        number = self.number("id")
        if number is None:
            count = await notice_actions.read_all(self, self.number("up_to"))
            return _n("%(n)s notice is marked as read.", "%(n)s notices are marked as read.", count)
        await notice_actions.read(self, number)
        return _("It is marked as read.")


class Choose(NoticeForm):
    back = "notices#choices"

    async def act(self) -> str:
        kinds = {kind.value: self.get_arguments(f"kind:{kind.value}") for kind in CHOSEN_KINDS}
        chat = self.field("chat", LONGEST_CHAT)
        forget = self.field("forget_chat", 10) == "yes"
        wanted = Wanted(
            email=self.field("email", LONGEST_EMAIL) if self.parts.telling.own_addresses else None,
            chat=chat if chat else "" if forget else None,
            kinds=kinds if self.field("kinds", 10) == "yes" else None,
            quiet=(self.field("quiet_from", 10), self.field("quiet_to", 10)),
            digest=self.field("digest", 20),
            language=self.field("language", 20),
        )
        await notice_actions.choose(self, wanted)
        return _("From now on you are told like this.")


class SendTest(NoticeForm):
    back = "notices#test"

    async def act(self) -> str:
        await notice_actions.test(self)
        return _("A test message is on its way. What became of it is told below; reload the page in a moment.")


NOTICE_ROUTES: list[tuple[str, type[PageHandler]]] = [
    ("notices", NoticesPage),
    ("notices/read", MarkRead),
    ("notices/preferences", Choose),
    ("notices/test", SendTest),
]
