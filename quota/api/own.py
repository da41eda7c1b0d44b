"""`me`, and accounts: money, grants and limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from quota import ledger
from quota.api import asked, fill, shapes
from quota.api.base import ApiHandler, Reply, operation
from quota.api.operation import Access
from quota.api.paging import cut, newest_first
from quota.bank import AccountView, StatementLine
from quota.groups import group_of
from quota.i18n import _
from quota.leases import Lease
from quota.web import actions, fields
from quota.web.figures import figures
from quota.web.period import Period, month_of, parse_moment
from quota.web.problem import Problem, Why
from quota.web.snapshot import Snapshot, snapshot
from quota.web.views import statement

NO_ACCOUNT = (Why.NOT_FOUND,)


class AccountHandler(ApiHandler):
    """Base of what is about accounts and leases."""

    def shape_of(self, lease: Lease, seen: Snapshot) -> shapes.Lease:
        return fill.lease(lease, seen.segments(lease), seen.devices, seen.verdict(lease), seen.now)

    async def shapes_of(self, leases: list[Lease]) -> list[shapes.Lease]:
        def made() -> list[shapes.Lease]:
            seen = snapshot(self.parts, leases)
            return [self.shape_of(lease, seen) for lease in leases]

        return await self.in_thread(made)

    async def account_view(self, name: str) -> AccountView:
        """One's own account (made on the first look), or any for an administrator. Raises `Problem`."""
        if name == self.viewer.name:
            await self.in_thread(self.parts.bank.ensure_account, name)
        elif not self.viewer.admin:
            raise Problem(403, Why.FORBIDDEN, _("This account is somebody else's."))
        elif not fields.is_name(name):
            raise Problem(404, Why.NOT_FOUND, _("There is no such account."))
        else:
            name = await actions.known_account(self, name)
        return await self.in_thread(self.parts.bank.account, name)

    async def name_or_all(self, name: str) -> str:
        """The name of an account, or "*" for an administrator. Raises `Problem`."""
        if name == "*":
            self.need_admin()
            return name
        return (await self.account_view(name)).account.name

    def moment(self, name: str, text: str | None) -> datetime | None:
        """A time in the address, None where it is absent. Raises `Problem`."""
        if text is None:
            return None
        try:
            return parse_moment(text, self.parts.tz)
        except ValueError as error:
            raise Problem(400, Why.DATE_INVALID, f"{name}: {error}.") from None


class Me(AccountHandler):
    @operation("Who I am, what I have and what I have running", shapes.Me, problems=(Why.CONFLICT,))
    async def get(self) -> shapes.Me:
        """The account is made on the first look, with this month's grant."""
        view = await self.account_view(self.viewer.name)
        live = await self.in_thread(self.parts.book.live, user=self.viewer.name)
        seen = await self.in_thread(snapshot, self.parts, live)
        return shapes.Me(
            name=self.viewer.name,
            admin=self.viewer.admin,
            account=fill.account(view),
            burn_micro_credits_per_hour=sum(
                figures(each, seen.segments(each), seen.now).per_hour
                for each in live
                if each.account == self.viewer.name
            ),
            time_zone=self.parts.zone,
            leases=[self.shape_of(lease, seen) for lease in live],
        )


def session_key(line: StatementLine) -> tuple[int, int, str]:
    """Where a session stands in a list, the newest first. Neither its start nor its id ever changes."""
    return (*newest_first(line.started_at), line.lease_id)


class UsageHandler(AccountHandler):
    """Base of what was used in a stretch of time."""

    def used(self, account: str, period: Period, lines: Sequence[StatementLine]) -> dict[str, Any]:
        """A page of sessions with the sums of all of them: the fields of `shapes.Usage`."""
        cursors, after = self.cursors(start=str(period.start), end=str(period.end), account=account)
        page, last = cut(lines, session_key, after, self.query(asked.Paged).limit)
        return {
            "account": account,
            "from_": period.start,
            "to": period.end,
            "time_zone": self.parts.zone,
            "milli_gpu_seconds": sum(line.milli_gpu_seconds for line in lines),
            "charged_micro_credits": sum(line.charged for line in lines),
            "items": [fill.session(line) for line in page],
            "next": last and cursors.write(last),
        }

    def period(self) -> Period:
        """[from, to); by default the present month of the site, or the one that the only end given is in, where that
        month is later (`from`) or earlier (`to`). Raises `Problem`."""
        now, zone, query = self.parts.clock.now(), self.parts.tz, self.query(asked.AskedUsage)
        since, until = self.moment("from", query.from_), self.moment("to", query.to)
        first = min(now, until - timedelta(microseconds=1)) if until else now
        start = since or month_of(first, zone).start
        end = until or month_of(max(now, since or now), zone).end
        if start >= end:
            raise Problem(400, Why.DATE_INVALID, _("from must lie before to."))
        return Period(start, end)


class MyUsage(UsageHandler):
    @operation(
        "What I used in a stretch of time, and what it cost",
        shapes.Usage,
        query=asked.AskedMine,
        problems=(Why.DATE_INVALID, Why.NOT_FOUND, Why.CONFLICT),
    )
    async def get(self) -> Reply:
        """What one's own account paid, or what a group paid for one's own servers (`payer`). The stretch is half-open,
        [from, to). By default it is the present month of the site; with one end given, up to the end of the month
        (`from`) or from its beginning (`to`). Adjacent stretches sum exactly."""
        period, payer, user = self.period(), self.query(asked.AskedMine).payer, self.viewer.name
        account = payer or (await self.account_view(user)).account.name
        if account != user and group_of(account) is None:
            raise Problem(404, Why.NOT_FOUND, _("Only your own account and those of groups pay for your servers."))
        only = None if account == user else user
        found = await self.in_thread(statement, self.parts, account, period, only)
        return self.page(shapes.Usage(**self.used(account, period, [line for line, _, _ in found])))


class Accounts(AccountHandler):
    @operation("All accounts", shapes.Accounts, query=asked.AskedAccounts, access=Access.ADMIN)
    async def get(self) -> Reply:
        """By name. Accounts are made when their user first looks or starts."""
        query = self.query(asked.AskedAccounts)
        cursors, after = self.cursors(search=query.search)
        last = None if after is None else str(after[0])
        views, more = await self.in_thread(
            self.parts.bank.account_page, search=query.search or "", after=last, limit=query.limit
        )
        following = cursors.write((views[-1].account.name,)) if more else None
        return self.page(shapes.Accounts(items=[fill.account(view) for view in views], next=following))


class Account(AccountHandler):
    @operation("One account", shapes.Account, problems=(*NO_ACCOUNT, Why.CONFLICT))
    async def get(self, name: str) -> shapes.Account:
        """One's own, or any for an administrator."""
        return fill.account(await self.account_view(name))


_NEVER = 2**62


def grant_key(bucket: ledger.Bucket) -> tuple[int, int]:
    """Where a grant stands in a list: as it is spent. Neither its end nor its id ever changes."""
    end = bucket.expires_at
    return (_NEVER if end is None else int(end.timestamp() * 10**6), bucket.id)


class Grants(AccountHandler):
    @operation("Grants of an account", shapes.Grants, query=asked.Paged, problems=(*NO_ACCOUNT, Why.CONFLICT))
    async def get(self, name: str) -> Reply:
        """Those that have not expired, in the order in which they are spent."""
        cursors, after = self.cursors()
        view = await self.account_view(name)
        page, last = cut(view.buckets, grant_key, after, self.query(asked.Paged).limit)
        return self.page(shapes.Grants(items=[fill.grant(each) for each in page], next=last and cursors.write(last)))

    @operation(
        "Give credits",
        {201: shapes.Granted},
        body=asked.NewGrant,
        problems=(*NO_ACCOUNT, Why.CONFLICT),
        access=Access.ADMIN,
        keyed=True,
    )
    async def post(self, name: str) -> Reply:
        """The account is made where only the Hub knows the user. Under one key a grant is made once, for ever."""
        body = self.body(asked.NewGrant)
        amount = body.amount
        assert amount is not None
        key = self.ledger_key(self.idempotency_key() or body.key)
        await actions.need_payer(self, name)
        account = (await self.account_view(name)).account.name
        bucket = await self.in_thread(
            self.parts.bank.grant, account, amount, by=self.viewer.name, note=body.note, key=key
        )
        view = await self.in_thread(self.parts.bank.account, account)
        granted = shapes.Granted(bucket=bucket, amount_micro_credits=amount, account=fill.account(view))
        return Reply(granted, 201)


class LimitsOf(AccountHandler):
    """Limits of one account, or of everybody without their own ("*", for administrators)."""

    @operation("Limits of an account", shapes.Limits, problems=(*NO_ACCOUNT, Why.CONFLICT))
    async def get(self, name: str) -> shapes.Limits:
        """ "*" is everybody without limits of their own (for administrators)."""
        account = await self.name_or_all(name)
        return fill.limits(await self.in_thread(self.parts.bank.limits, account))

    @operation(
        "Change limits of an account",
        shapes.Limits,
        body=asked.NewLimits,
        problems=(*NO_ACCOUNT, Why.CONFLICT),
        access=Access.ADMIN,
    )
    async def put(self, name: str) -> shapes.Limits:
        """What is absent stays, null is no limit. "*" is everybody without limits of their own."""
        known = {profile.name for profile in await self.in_thread(self.parts.profiles)}
        changes = self.body(asked.NewLimits).changes(known)
        account = await self.name_or_all(name)
        await self.in_thread(self.parts.bank.set_limits, account, changes, by=self.viewer.name)
        return fill.limits(await self.in_thread(self.parts.bank.limits, account))


class MonthlyGrantOf(AccountHandler):
    """What an account, or everybody ("*"), is given each month from the next one on."""

    @operation(
        "What an account is given each month",
        shapes.MonthlyGrant,
        problems=(*NO_ACCOUNT, Why.CONFLICT),
        access=Access.ADMIN,
    )
    async def get(self, name: str) -> shapes.MonthlyGrant:
        """ "*" is everybody without an amount of their own."""
        return await self._shape(await self.name_or_all(name))

    @operation(
        "Change what an account is given each month",
        shapes.MonthlyGrant,
        body=asked.NewMonthlyGrant,
        problems=(*NO_ACCOUNT, Why.CONFLICT),
        access=Access.ADMIN,
    )
    async def put(self, name: str) -> shapes.MonthlyGrant:
        """It counts from the next month that is granted; what was given stays."""
        amount = self.body(asked.NewMonthlyGrant).micro_credits
        account = await self.name_or_all(name)
        await self.in_thread(self.parts.bank.set_monthly_grant, account, amount, by=self.viewer.name)
        return await self._shape(account)

    async def _shape(self, account: str) -> shapes.MonthlyGrant:
        found = await self.in_thread(self.parts.bank.monthly_grant, account)
        return shapes.MonthlyGrant(account=account, micro_credits=found)
