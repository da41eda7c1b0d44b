"""Forms for "this was wrong": on the receipt of a server that has ended, and on the administrators' desk."""

from __future__ import annotations

from quota.appeals import LONGEST
from quota.i18n import _
from quota.said import sentences
from quota.units import show_credits
from quota.web import appeal_actions, fields
from quota.web.base import endpoint
from quota.web.pages import LEASE, AdminForm, PageHandler
from quota.web.problem import Problem


class AppealForm(PageHandler):
    @endpoint()
    async def get(self, lease_id: str) -> None:
        self.redirect(f"{self.prefix}lease/{lease_id}#card")

    @endpoint()
    async def post(self, lease_id: str) -> None:
        try:
            await appeal_actions.make(self, lease_id, self.field("words", LONGEST))
            words, kind = _("An administrator is told and decides; you will hear of it."), "success"
        except Problem as problem:
            if problem.status not in (400, 409):
                raise
            words, kind = sentences(_("Nothing was changed."), problem.detail), "danger"
        self.done(words, f"lease/{lease_id}", kind)


class DecideAppeal(AdminForm):
    async def act(self) -> str:
        lease_id, answer = self.field("lease", 64), self.field("answer", LONGEST)
        if self.field("do", 20) == "deny":
            await appeal_actions.decide(self, lease_id, None, answer)
            return _("It stands; its user is told why.")
        amount = fields.credits_of(self.field("credits", 30) or "0", "credits")
        if amount < 0:
            raise fields.wrong("credits", _("an amount above zero is needed"))
        found = await appeal_actions.decide(self, lease_id, amount, answer)
        return _("Granted: %(amount)s credits were given back.", amount=show_credits(found.refund, 6))


APPEAL_ROUTES: list[tuple[str, type[PageHandler]]] = [
    (LEASE + "/appeal", AppealForm),
    ("admin/appeal", DecideAppeal),
]
