"""The bank: accounts, grants, limits, prices and statements. Each call is one transaction.

Money is in integer micro-credits, times are aware UTC datetimes.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from quota import accounts, billing, schema
from quota.account_views import AccountView, read_views
from quota.accounts import EVERYBODY, INHERIT, MOST_CREDITS, Account, Defaults
from quota.audit import Report, Tell
from quota.audit import audit as run_audit
from quota.entitlement import Limits
from quota.errors import Stale
from quota.leases import Price
from quota.own_prices import newest_id
from quota.ports import Clock
from quota.records import add_event, lock_account, read_lease
from quota.statement import StatementLine, read_statement
from quota.store import Store, insert_new, retried
from quota.units import MicroCredits

__all__ = ["EVERYBODY", "INHERIT", "Account", "AccountView", "Bank", "Defaults", "Limits", "StatementLine"]

_TRIES = 5


class Bank:
    """Accounts and their money. `defaults` seed the book once; `defaults.zone` says where months begin."""

    def __init__(self, store: Store, clock: Clock, defaults: Defaults | None = None) -> None:
        self.store = store
        self.clock = clock
        self.defaults = defaults or Defaults()
        self._seeded = False

    @property
    def zone(self) -> str:
        return self.defaults.zone

    @retried
    def seed(self) -> None:
        """Write the defaults into a new book; done by itself before the first use."""
        if self._seeded:
            return
        with self.store.write() as connection:
            accounts.seed(connection, self.defaults, self.clock.now())
        self._seeded = True

    # Accounts

    @retried
    def ensure_account(self, name: str, kind: str = "user") -> Account:
        """The account of that name, made if there is none, with this month's grant.

        Raises `Conflict` when the name is one of another kind ("user", "group").
        """
        self.seed()
        with self.store.read() as connection:
            known = accounts.find(connection, name)
            if known and known.kind == kind and not self._is_stale(connection, known):
                return known  # nothing to write, so nobody is made to wait
        with self.store.write() as connection:
            now = self.clock.now()
            found = accounts.ensure(connection, name, kind, now)
            lock_account(connection, found.id)
            accounts.freshen(connection, found, now, self.zone)
            return found

    @retried
    def rename(self, name: str, new: str, by: str) -> Account:
        """Give an account another name. Its id, and so its ledger, grants, limits and bills, stay; who takes the old
        name later begins anew. Raises `NotFound`, `Conflict` when the new name is taken or it has servers."""
        self.seed()
        with self.store.write() as connection:
            found = accounts.get(connection, name)
            lock_account(connection, found.id)
            renamed = accounts.rename(connection, found, new)
            kept = schema.answered  # to keys of whoever takes the old name: theirs are others
            connection.execute(sa.delete(kept).where(kept.c.owner == name))
            detail = {"before": name, "after": new}
            add_event(connection, self.clock.now(), "account-renamed", account_id=found.id, by=by, detail=detail)
            return renamed

    def account(self, name: str) -> AccountView:
        """One account with its money. Raises `NotFound`."""
        self.seed()
        with self.store.read() as connection:
            found = accounts.get(connection, name)
        return self._views([found])[0]

    def accounts(self) -> list[AccountView]:
        """All accounts by name."""
        self.seed()
        with self.store.read() as connection:
            found = [Account(*row) for row in connection.execute(accounts.ACCOUNTS.order_by(schema.account.c.name))]
        return self._views(found)

    def names(self) -> list[str]:
        """The names of all accounts."""
        with self.store.read() as connection:
            return list(connection.scalars(sa.select(schema.account.c.name)))

    def views_of(self, names: Sequence[str]) -> dict[str, AccountView]:
        """Some accounts (a page of them) by name; names without one are left out."""
        self.seed()
        with self.store.read() as connection:
            rows = connection.execute(accounts.ACCOUNTS.where(schema.account.c.name.in_(names)))
            found = [Account(*row) for row in rows]
        return {view.account.name: view for view in self._views(found)}

    def account_page(self, search: str, after: str | None, limit: int) -> tuple[list[AccountView], bool]:
        """Up to `limit` accounts by name whose names contain `search` (in any case), those after the name `after`; and
        whether there are more. It costs what the page costs, however many accounts there are."""
        self.seed()
        name = schema.account.c.name
        chosen = accounts.ACCOUNTS.order_by(name).limit(limit + 1)
        if search:
            chosen = chosen.where(sa.func.lower(name).contains(search.lower(), autoescape=True))
        if after is not None:
            chosen = chosen.where(name > after)
        with self.store.read() as connection:
            found = [Account(*row) for row in connection.execute(chosen)]
        return self._views(found[:limit]), len(found) > limit

    def _is_stale(self, connection: sa.Connection, account: Account) -> bool:
        return accounts.needs_freshening(connection, account, self.clock.now(), self.zone)

    @retried
    def _freshen(self, name: str) -> None:
        """Write what time brought (a new month, an expired grant), where it brought something."""
        self.seed()
        with self.store.read() as connection:
            found = accounts.get(connection, name)
            if not self._is_stale(connection, found):
                return
        with self.store.write() as connection:
            found = accounts.get(connection, name)
            lock_account(connection, found.id)
            accounts.freshen(connection, found, self.clock.now(), self.zone)

    def _views(self, found: Sequence[Account]) -> list[AccountView]:
        """These accounts in one look, with what time brought written before."""
        with self.store.read() as connection:
            told = list(read_views(connection, found, self.clock.now(), self.zone))
        late = [view.account.name for view, is_late in told if is_late]
        if late:
            for name in late:
                self._freshen(name)
            with self.store.read() as connection:
                told = list(read_views(connection, found, self.clock.now(), self.zone))
        return [view for view, _ in told]

    # Money

    @retried
    def grant(
        self,
        name: str,
        amount: int,
        by: str,
        note: str = "",
        key: str | None = None,
        expires_at: datetime | None = None,
    ) -> int:
        """Give an account `amount` (> 0) micro-credits as a bucket of its own, and return the bucket's id.

        The same `key` again does nothing and returns the same id. The bucket is there until it is spent or
        `expires_at` passes. Raises `NotFound`, `ValueError` for a bad amount, `Conflict` when the key was used for
        another account or amount.
        """
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 < amount <= MOST_CREDITS:
            raise ValueError(f"a grant must be more than 0 and at most {MOST_CREDITS} micro-credits, not {amount!r}")
        self.seed()
        bucket_key = f"manual:{key if key is not None else secrets.token_hex(8)}"
        with self.store.write() as connection:
            now = self.clock.now()
            found = accounts.get(connection, name)
            lock_account(connection, found.id)
            accounts.freshen(connection, found, now, self.zone)
            more = {"by": by, "note": note, "expires_at": expires_at}
            bucket_id, fresh = accounts.add_bucket(connection, found.id, bucket_key, amount, now, **more)
            if fresh:
                accounts.fund(connection, found.id, bucket_id, amount, now, self.zone)
                detail = {"bucket": bucket_id, "amount": amount, "note": note}
                add_event(connection, now, "grant", account_id=found.id, by=by, detail=detail)
            return bucket_id

    @retried
    def refund(self, lease_id: str, amount: int | None, by: str, note: str) -> MicroCredits:
        """Refund a settled lease, wholly where `amount` is None, and return what was refunded.

        Never above what was charged, and once per lease: the same again does nothing and returns the same. Debt is
        taken down first; the rest is a bucket that does not expire. Raises `NotFound`, `ValueError` for an amount
        that is not positive, `Conflict` while the lease is not settled or when it was refunded with another amount.
        """
        if amount is not None and amount <= 0:
            raise ValueError(f"a refund must be more than 0, not {amount!r}")
        self.seed()
        for _ in range(_TRIES - 1):
            try:
                return self._refund(lease_id, amount, by, note)
            except Stale:  # somebody else (on PostgreSQL) wrote the lease at this moment
                continue
        return self._refund(lease_id, amount, by, note)

    def _refund(self, lease_id: str, amount: int | None, by: str, note: str) -> MicroCredits:
        with self.store.write() as connection:
            bill = billing.Bill(connection, read_lease(connection, lease_id), self.clock.now(), self.zone)
            already = billing.refunded(bill, amount)
            return MicroCredits(billing.refund(bill.claimed(), amount, by, note) if already is None else already)

    def statement(self, name: str, start: datetime, end: datetime, user: str | None = None) -> list[StatementLine]:
        """What the account paid (for one user's servers, or all) in the half-open [start, end), oldest lease first.
        Raises `NotFound`."""
        with self.store.read() as connection:
            return read_statement(connection, accounts.get(connection, name).id, start, end, self.zone, user)

    def paid_for(self, user: str, start: datetime, end: datetime) -> list[str]:
        """The accounts of groups that paid for servers which this user had in the half-open [start, end), by name."""
        lease, account = schema.lease, schema.account
        ran = lease.c.started_at.is_not(None) & (lease.c.ended_at.is_(None) | (lease.c.ended_at > start))
        chosen = sa.select(account.c.name).distinct().join(lease, lease.c.account_id == account.c.id)
        chosen = chosen.where(lease.c.holder_user == user, lease.c.started_at < end, ran, account.c.kind == "group")
        with self.store.read() as connection:
            return sorted(connection.scalars(chosen))

    # Limits

    def limits(self, name: str) -> Limits:
        """What holds for an account; "*" for what everybody has. Raises `NotFound`."""
        self.seed()
        with self.store.read() as connection:
            return accounts.effective_limits(connection, self._whose(connection, name))

    @retried
    def set_limits(self, name: str, changes: Mapping[str, object], by: str) -> Limits:
        """Change some limits of an account, or of everybody ("*"), and return what holds then.

        `changes`: fields of `Limits`; None is no limit, `INHERIT` ("inherit") is what everybody has. Raises
        `NotFound`, `ValueError` with words for a bad field or value.
        """
        columns = accounts.limit_columns(changes)
        self.seed()
        with self.store.write() as connection:
            account = self._whose(connection, name)
            account_id = account.id if account else None
            if accounts.write_limits(connection, account_id, columns):
                detail = {"name": name, "changes": {key: _plain(value) for key, value in changes.items()}}
                add_event(connection, self.clock.now(), "limits", account_id=account_id, by=by, detail=detail)
            return accounts.effective_limits(connection, account)

    def monthly_grant(self, name: str = EVERYBODY) -> MicroCredits:
        """Micro-credits that an account (or everybody) is given each month. Raises `NotFound`."""
        self.seed()
        with self.store.read() as connection:
            return accounts.monthly_grant(connection, self._whose(connection, name))

    @retried
    def set_monthly_grant(self, name: str, amount: int, by: str) -> None:
        """Change the monthly grant of an account or of everybody; 0 is none. It counts from the next month that is
        granted; what was given stays. Raises `NotFound`, `ValueError`."""
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MOST_CREDITS:
            raise ValueError(f"a monthly grant must be 0 to {MOST_CREDITS} micro-credits, not {amount!r}")
        self.seed()
        with self.store.write() as connection:
            account = self._whose(connection, name)
            account_id = account.id if account else None
            if accounts.write_limits(connection, account_id, {"monthly_grant": amount}):
                detail = {"name": name, "changes": {"monthly_grant": amount}}
                add_event(connection, self.clock.now(), "limits", account_id=account_id, by=by, detail=detail)

    def _whose(self, connection: sa.Connection, name: str) -> Account | None:
        return None if name == EVERYBODY else accounts.get(connection, name)

    # Prices

    def price(self) -> Price:
        """The plan that new leases are made under."""
        self.seed()
        with self.store.read() as connection:
            return accounts.current_price(connection)

    @retried
    def set_price(self, gpu_hour: int, cpu_hour: int, by: str) -> Price:
        """Make a new price plan. Leases that exist keep theirs. Raises `ValueError` for a negative price."""
        for price in (gpu_hour, cpu_hour):
            if isinstance(price, bool) or not isinstance(price, int) or not 0 <= price <= MOST_CREDITS:
                raise ValueError(f"a price must be 0 to {MOST_CREDITS} micro-credits an hour, not {price!r}")
        self.seed()
        with self.store.write() as connection:
            now = self.clock.now()
            values = {"gpu_hour": gpu_hour, "cpu_hour": cpu_hour, "created_at": now, "by": by}
            while True:
                newest = newest_id(connection)  # before the price: one made in between is seen, or meets ours
                plan = accounts.current_price(connection)
                if (plan.gpu_hour, plan.cpu_hour) == (gpu_hour, cpu_hour):
                    return plan
                fresh = Price(newest + 1, MicroCredits(gpu_hour), MicroCredits(cpu_hour))
                if insert_new(connection, schema.price_plan, {"id": fresh.plan_id, **values}):
                    break  # else another process made a plan at this moment
            detail = {"plan": fresh.plan_id, "gpu_hour": gpu_hour, "cpu_hour": cpu_hour}
            add_event(connection, now, "price", by=by, detail=detail)
            return fresh

    def audit(self) -> list[str]:
        """Everything that must be true of the book and is not, in words; empty when all is well."""
        return [str(finding) for finding in self.audited().findings]

    def audited(self, tell: Tell | None = None) -> Report:
        """The same as a report, from one snapshot. `tell` hears the name and number of each check before it is made."""
        with self.store.read() as connection:
            return run_audit(connection, self.zone, tell)


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set | frozenset | tuple) else value
