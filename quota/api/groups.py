"""Groups that pay: who is in them, what they have, and who used what of it."""

from __future__ import annotations

from quota import groups
from quota.api import asked, fill, shapes
from quota.api.base import Reply, operation
from quota.api.own import UsageHandler
from quota.web import actions
from quota.web.group_views import account_of, uses
from quota.web.problem import Problem, Why
from quota.web.views import statement


class GroupHandler(UsageHandler):
    """Base of what is about groups."""

    async def shape(self, group: groups.Group) -> shapes.Group:
        members = await self.parts.hub.members(group.name)
        return fill.group(group, members, await self.in_thread(account_of, self.parts, group))


class Groups(GroupHandler):
    @operation("Groups that pay", shapes.Groups, query=asked.Paged)
    async def get(self) -> Reply:
        """Those that one is in or leads, or all for an administrator."""
        cursors, after = self.cursors()
        mine = await actions.groups_of(self)
        names = [group.name for group in mine]
        if after is not None and after[0] not in names:
            raise Problem(400, Why.CURSOR, "Your groups have changed since. Begin again without a cursor.")
        start = 0 if after is None else names.index(str(after[0])) + 1
        end = start + self.query(asked.Paged).limit
        following = cursors.write((names[end - 1],)) if end < len(names) else None
        return self.page(shapes.Groups(items=[await self.shape(group) for group in mine[start:end]], next=following))


class OneGroup(GroupHandler):
    @operation("One group that pays", shapes.Group, problems=(Why.NOT_FOUND,))
    async def get(self, group: str) -> shapes.Group:
        """For its members and leads, and for administrators."""
        return await self.shape(await actions.group_for(self, group))


class GroupUsage(GroupHandler):
    @operation(
        "What a group paid for in a stretch of time",
        shapes.GroupUsage,
        query=asked.AskedUsage,
        problems=(Why.DATE_INVALID, Why.NOT_FOUND),
    )
    async def get(self, group: str) -> Reply:
        """For its members and leads, and for administrators. The stretch is that of `me/usage`."""
        period, found = self.period(), await actions.group_for(self, group)
        members = await self.parts.hub.members(found.name)
        await self.in_thread(account_of, self.parts, found)
        told = await self.in_thread(statement, self.parts, found.account, period)
        used = self.used(found.account, period, [line for line, _, _ in told])
        by_person = [fill.member_use(each) for each in uses(told, members)]
        return self.page(shapes.GroupUsage(**used, members=by_person))
