"""Checks of the ledger: transactions, balances, months, grants, keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.findings import Check, Site, Wrong
from quota.ledger import REVENUE, Kind

_POSTING, _BALANCE, _BUCKET = schema.posting, schema.balance, schema.grant_bucket
_LEASE, _MONTH = schema.lease, schema.month_charge
_TOTAL = sa.func.sum(_POSTING.c.amount)

_OF_LEASE = (Kind.HOLD, Kind.CHARGE, Kind.RELEASE, Kind.SETTLE, Kind.REFUND)
_OF_BUCKET = (Kind.GRANT, Kind.REPAY, Kind.EXPIRE)


def text(value: str) -> sa.BindParameter[str]:
    return sa.literal(value, sa.String)


def grant_sub(bucket_id: sa.ColumnElement[int]) -> sa.ColumnElement[str]:
    return text("grant:") + sa.cast(bucket_id, sa.String)


def rows_refer_to_rows_that_are_there(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """No row was taken away that another one needs. (SQLite's own tool deletes such rows without a word.)"""
    for table in schema.metadata.sorted_tables:
        for key in table.foreign_keys:
            missing = key.parent.is_not(None) & key.parent.not_in(sa.select(key.column))
            chosen = sa.select(key.parent.label("id"), sa.func.count().label("rows")).where(missing)
            for row in connection.execute(chosen.group_by(key.parent).order_by(key.parent)):
                words = f"{row.rows} rows of {table.name} are of {key.column.table.name} {row.id}, which is not there"
                yield Wrong(str(row.id), words)
    owners = {"grant": _BUCKET.c.id, "debt": schema.account.c.id, "held": _LEASE.c.id}
    for kind, owner in owners.items():
        named = sa.select(text(f"{kind}:") + sa.cast(owner, sa.String))
        lost = sa.select(_BALANCE.c.sub).where(_BALANCE.c.sub.like(f"{kind}:%"), _BALANCE.c.sub.not_in(named))
        for sub in connection.scalars(lost.order_by(_BALANCE.c.sub)):
            yield Wrong(sub, f"there is a balance {sub}, and nothing in the book that it is of")


def transactions_balance(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """The legs of each sum to 0, and are of one kind, account and lease."""
    one = sa.func.min(_POSTING.c.account_id) == sa.func.max(_POSTING.c.account_id)
    one &= sa.func.min(_POSTING.c.kind) == sa.func.max(_POSTING.c.kind)
    one &= sa.func.count(_POSTING.c.lease_id).in_([0, sa.func.count()])
    summed = sa.select(_POSTING.c.key, _TOTAL.label("total"), one.label("one")).group_by(_POSTING.c.key)
    for row in connection.execute(summed.having((_TOTAL != 0) | ~one).order_by(_POSTING.c.key)):
        if row.total:
            yield Wrong(row.key, f"transaction {row.key} sums to {row.total}, not 0", row.total, 0)
        else:
            yield Wrong(row.key, f"the legs of transaction {row.key} are of several kinds, accounts or leases")


def balances_agree(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """Every balance is what the ledger sums to."""
    true = sa.select(_POSTING.c.sub, _TOTAL.label("total")).group_by(_POSTING.c.sub).subquery()
    total = sa.func.coalesce(true.c.total, 0)
    kept = sa.select(_BALANCE.c.sub, _BALANCE.c.amount, total.label("total"))
    kept = kept.outerjoin(true, true.c.sub == _BALANCE.c.sub).where(_BALANCE.c.amount != total)
    lost = sa.select(true.c.sub, sa.literal(0).label("amount"), true.c.total)
    lost = lost.where(true.c.total != 0, true.c.sub.not_in(sa.select(_BALANCE.c.sub)))
    for row in connection.execute(kept.union_all(lost).order_by("sub")):
        words = f"balance {row.sub} is {row.amount}, the ledger says {row.total}"
        yield Wrong(row.sub, words, int(row.amount), int(row.total))


def months_agree(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """What an account was charged in each month of the site's calendar is what was posted in it."""
    ends = connection.execute(sa.select(sa.func.min(_POSTING.c.at), sa.func.max(_POSTING.c.at))).one()
    months = site.months(ends[0], ends[1]) if ends[0] is not None else []
    known = {(row.account_id, row.month): int(row.charged) for row in connection.execute(sa.select(_MONTH))}
    true: dict[tuple[int, str], int] = {}
    if months:
        name = sa.case(*((_POSTING.c.at < end, text(month)) for end, month in months), else_=text(months[-1][1]))
        posted = sa.select(_POSTING.c.account_id, name.label("month"), _TOTAL).where(_POSTING.c.sub == REVENUE)
        posted = posted.group_by(_POSTING.c.account_id, sa.text("month"))
        true = {(row[0], row[1]): int(row[2]) for row in connection.execute(posted)}
    for account_id, month in sorted({*known, *true}):
        said, truth = known.get((account_id, month), 0), true.get((account_id, month), 0)
        if said != truth:
            words = f"charges of account {account_id} in {month} are {said}, the ledger says {truth}"
            yield Wrong(str(account_id), words, said, truth)


def grants_agree(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """Every grant was posted once, with its amount, for its account."""
    made = _POSTING.c.kind.in_([Kind.GRANT.value, Kind.REFUND.value]) & (_POSTING.c.amount > 0)
    whose = sa.func.min(_POSTING.c.account_id).label("account_id")
    by_grant = sa.select(_POSTING.c.sub, _TOTAL.label("total"), whose).where(made, _POSTING.c.sub.like("grant:%"))
    posted = by_grant.group_by(_POSTING.c.sub).subquery()
    total = sa.func.coalesce(posted.c.total, 0)
    differ = (total != _BUCKET.c.amount) | (posted.c.account_id != _BUCKET.c.account_id)
    chosen = sa.select(_BUCKET.c.id, _BUCKET.c.amount, total.label("total"))
    chosen = chosen.outerjoin(posted, posted.c.sub == grant_sub(_BUCKET.c.id)).where(differ)
    for row in connection.execute(chosen.order_by(_BUCKET.c.id)):
        words = f"grant {row.id} is one of {row.amount}, {row.total} were posted for it"
        if row.amount == row.total:
            words = f"grant {row.id} of {row.amount} was posted for another account than its own"
        yield Wrong(str(row.id), words, int(row.amount), int(row.total))


def expired_grants_are_empty(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    chosen = sa.select(_BUCKET.c.id, _BALANCE.c.amount).join(_BALANCE, _BALANCE.c.sub == grant_sub(_BUCKET.c.id))
    chosen = chosen.where(_BUCKET.c.expired_at.is_not(None), _BALANCE.c.amount != 0).order_by(_BUCKET.c.id)
    for row in connection.execute(chosen):
        yield Wrong(str(row.id), f"grant {row.id} has expired and still has {row.amount}", row.amount, 0)


def nothing_is_overdrawn(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """No grant and no hold is below zero, no debt above."""
    below = (_BALANCE.c.amount < 0) & (_BALANCE.c.sub.like("grant:%") | _BALANCE.c.sub.like("held:%"))
    above = (_BALANCE.c.amount > 0) & _BALANCE.c.sub.like("debt:%")
    for row in connection.execute(sa.select(_BALANCE).where(below | above).order_by(_BALANCE.c.sub)):
        yield Wrong(row.sub, f"balance {row.sub} is {row.amount}, which it can never be", row.amount, 0)


def keys_tell_what_they_are(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """Each key names the kind and the lease, or the grant, that its legs are of; each leg goes to a known place."""
    plain = _POSTING.c.kind + text(":") + _POSTING.c.lease_id
    several = [Kind.HOLD.value, Kind.CHARGE.value, Kind.RELEASE.value]
    numbered = _POSTING.c.key.like(plain + text(":%")) & _POSTING.c.kind.in_(several)
    of_lease = _POSTING.c.lease_id.is_not(None) & _POSTING.c.kind.in_([kind.value for kind in _OF_LEASE])
    of_lease &= (_POSTING.c.key == plain) | numbered
    of_bucket = _POSTING.c.lease_id.is_(None) & _POSTING.c.kind.in_([kind.value for kind in _OF_BUCKET])
    of_bucket &= _POSTING.c.key.like(_POSTING.c.kind + text(":%"))
    number = sa.func.substr(_POSTING.c.sub, len("grant:"))  # with its colon
    of_bucket &= ~_POSTING.c.sub.like("grant:%") | (_POSTING.c.key == _POSTING.c.kind + number)
    places = [_POSTING.c.sub.like(f"{kind}:%") for kind in ("grant", "debt", "platform")]
    known = sa.or_(*places, _POSTING.c.sub == text("held:") + _POSTING.c.lease_id)
    strange = sa.select(_POSTING.c.id, _POSTING.c.key, _POSTING.c.kind, _POSTING.c.lease_id, _POSTING.c.sub)
    strange = strange.where(~sa.func.coalesce((of_lease | of_bucket) & known, sa.false())).order_by(_POSTING.c.id)
    for row in connection.execute(strange):
        what = f"a {row.kind} on {row.sub} for lease {row.lease_id}" if row.lease_id else f"a {row.kind} on {row.sub}"
        yield Wrong(str(row.id), f"posting {row.id} has the key {row.key}, and is {what}")


def postings_are_their_accounts_own(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """Who pays for a lease is the account that it was reserved for, from its own grants and its own debt."""
    row_of: sa.Select[Any] = sa.select(_POSTING.c.id, _POSTING.c.key, _POSTING.c.account_id)
    foreign = [
        row_of.add_columns(_LEASE.c.account_id.label("owner"))
        .join(_LEASE, _LEASE.c.id == _POSTING.c.lease_id)
        .where(_LEASE.c.account_id != _POSTING.c.account_id),
        row_of.add_columns(_BUCKET.c.account_id.label("owner"))
        .join(_BUCKET, grant_sub(_BUCKET.c.id) == _POSTING.c.sub)
        .where(_BUCKET.c.account_id != _POSTING.c.account_id),
    ]
    for chosen in foreign:
        for row in connection.execute(chosen.order_by(_POSTING.c.id)):
            words = f"posting {row.id} ({row.key}) is of account {row.account_id}, and should be of {row.owner}"
            yield Wrong(str(row.id), words, row.account_id, row.owner)
    debt = text("debt:") + sa.cast(_POSTING.c.account_id, sa.String)
    for row in connection.execute(
        sa.select(_POSTING.c.id, _POSTING.c.key, _POSTING.c.sub, _POSTING.c.account_id)
        .where(_POSTING.c.sub.like("debt:%"), _POSTING.c.sub != debt)
        .order_by(_POSTING.c.id)
    ):
        yield Wrong(str(row.id), f"posting {row.id} ({row.key}) is of account {row.account_id} and goes to {row.sub}")


def postings_are_in_order(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """A lease's first hold comes first, its settlement after all but a refund, and a refund last."""
    edge = _POSTING.alias("edge")
    pairs = sa.select(_POSTING.c.id, _POSTING.c.key, edge.c.key.label("other"), edge.c.kind.label("kind"))
    pairs = pairs.join(edge, (edge.c.lease_id == _POSTING.c.lease_id) & (edge.c.key != _POSTING.c.key))
    pairs = pairs.where(_POSTING.c.leg == 0, edge.c.leg == 0)
    first = edge.c.key == text("hold:") + edge.c.lease_id
    after_settle = (edge.c.kind == Kind.SETTLE.value) & (_POSTING.c.kind != Kind.REFUND.value)
    last = after_settle | (edge.c.kind == Kind.REFUND.value)
    wrong = (first & (_POSTING.c.id < edge.c.id)) | (last & (_POSTING.c.id > edge.c.id))
    for row in connection.execute(pairs.where(wrong).order_by(_POSTING.c.id)):
        side = "before" if row.kind == Kind.HOLD.value else "after"
        yield Wrong(str(row.id), f"posting {row.id} ({row.key}) came {side} {row.other}, which cannot be")


LEDGER_CHECKS: tuple[Check, ...] = (
    rows_refer_to_rows_that_are_there,
    transactions_balance,
    balances_agree,
    months_agree,
    grants_agree,
    expired_grants_are_empty,
    nothing_is_overdrawn,
    keys_tell_what_they_are,
    postings_are_their_accounts_own,
    postings_are_in_order,
)
