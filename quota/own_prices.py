"""Prices that a rule of the site made for one server, kept as price plans, inside a transaction somebody else opened.

So the bill needs no rule again: the plan is pinned in the lease, whatever becomes of the function that made it.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from quota import schema
from quota.leases import Price, Quote
from quota.store import insert_new

_PLAN, _OWN = schema.price_plan, schema.rule_price

#: A plan with a row here is no plan that the site's list has.
LISTED = ~sa.exists().where(_OWN.c.plan_id == _PLAN.c.id)

_SAME = sa.select(_OWN.c.plan_id).where(
    _OWN.c.per_hour == sa.bindparam("per_hour"), _OWN.c.rule == sa.bindparam("rule")
)
_NEWEST_ID = sa.select(sa.func.max(_PLAN.c.id))
#: Whoever makes such a plan holds the first one's row (on SQLite the whole database is ours already).
_IN_LINE = sa.select(_PLAN.c.id).order_by(_PLAN.c.id).limit(1).with_for_update(key_share=True)


def newest_id(connection: sa.Connection) -> int:
    """The highest number of any plan."""
    return connection.scalar(_NEWEST_ID) or 0


def plan_of(connection: sa.Connection, listed: Price, quote: Quote, now: datetime) -> Price:
    """The plan of a quote, made where it is the first of its price and name. `listed` is the site's own price now."""
    known = {"per_hour": quote.per_hour, "rule": quote.rule}
    plan_id = connection.scalar(_SAME, known)
    if plan_id is None:
        connection.execute(_IN_LINE)
        plan_id = connection.scalar(_SAME, known) or _add(connection, listed, quote, now)
    return Price(plan_id, listed.gpu_hour, listed.cpu_hour, quote.per_hour, quote.rule)


def _add(connection: sa.Connection, listed: Price, quote: Quote, now: datetime) -> int:
    hours = {"gpu_hour": listed.gpu_hour, "cpu_hour": listed.cpu_hour}
    while True:
        plan_id = newest_id(connection) + 1
        if insert_new(connection, _PLAN, {"id": plan_id, **hours, "created_at": now, "by": "rule"}):
            break  # else a new list of prices took the number at this moment
    connection.execute(sa.insert(_OWN).values(plan_id=plan_id, per_hour=quote.per_hour, rule=quote.rule))
    return plan_id
