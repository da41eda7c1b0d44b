"""The pages of groups, for their members, leads and administrators."""

from __future__ import annotations

import re

from quota.groups import Group
from quota.i18n import _
from quota.web import actions, group_views
from quota.web.base import endpoint
from quota.web.export import to_csv
from quota.web.pages import PageHandler
from quota.web.parts import HubUnavailable


class Groups(PageHandler):
    """Where the link leads: the only group one has, or a list."""

    @endpoint()
    async def get(self) -> None:
        mine = await actions.groups_of(self)
        if len(mine) == 1:
            self.redirect(group_views.address_of(self.parts, mine[0].account))
            return
        links = [(group.name, group_views.address_of(self.parts, group.account)) for group in mine]
        self.page("groups.html", _("Groups"), "groups", links=links)


class GroupPage(PageHandler):
    @endpoint()
    async def get(self, name: str) -> None:
        group = await actions.group_for(self, name)
        members = await self.members(group)
        view = await self.in_thread(group_views.group_view, self.parts, group, members, self.asked_month())
        self.page("group.html", _("Group %(group)s", group=group.name), "groups", view=view)

    async def members(self, group: Group) -> tuple[str, ...] | None:
        """None where the Hub does not answer: what was used is in the book."""
        try:
            return await self.parts.hub.members(group.name)
        except HubUnavailable:
            return None


class GroupCsv(PageHandler):
    @endpoint()
    async def get(self, name: str) -> None:
        group, period = await actions.group_for(self, name), self.asked_month()
        rows = await self.in_thread(group_views.group_table, self.parts, group, period)
        file = re.sub(r"[^A-Za-z0-9._-]", "-", f"berth-{group.name}-{period.name}.csv")
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{file}"')
        self.finish(to_csv(group_views.GROUP_COLUMNS, rows))


GROUP_ROUTES: list[tuple[str, type[PageHandler]]] = [
    ("groups", Groups),
    (r"groups/([^/]+)", GroupPage),
    (r"groups/([^/]+)/usage.csv", GroupCsv),
]
