"""Checks of the leases: against the ledger, against the time they count, and of the room they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.audit_ledger import text
from quota.findings import Check, Site, Wrong
from quota.leases import Segment, State
from quota.ledger import REVENUE, Kind
from quota.metering import usage
from quota.pricing import charge_due
from quota.records import LIVE, PRICE, Row, segment_of

_POSTING, _LEASE, _SLOT, _SEGMENT, _PLAN = (
    schema.posting,
    schema.lease,
    schema.slot,
    schema.segment,
    schema.price_plan,
)

_OVER = (State.RELEASED.value, State.SETTLED.value)


def _summed(amount: sa.ColumnElement[Any], *where: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.func.coalesce(sa.func.sum(sa.case((sa.and_(*where), amount), else_=0)), 0)


def leases_agree(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """What a lease's row says was charged, refunded and is held, and how many keys it used, is what was posted."""
    leg, amount = _POSTING.c, _POSTING.c.amount
    of_kind = {kind: leg.kind == kind.value for kind in (Kind.CHARGE, Kind.REFUND, Kind.HOLD)}
    top_up = of_kind[Kind.HOLD] & (leg.key != text("hold:") + leg.lease_id)
    once = sa.literal(1)
    posted = (
        sa.select(
            leg.lease_id,
            _summed(amount, leg.sub == REVENUE, of_kind[Kind.CHARGE]).label("charged"),
            _summed(-amount, leg.sub == REVENUE, of_kind[Kind.REFUND]).label("refunded"),
            _summed(amount, leg.sub.like("held:%")).label("held"),
            _summed(once, of_kind[Kind.CHARGE], leg.leg == 0).label("charges"),
            _summed(once, top_up, leg.leg == 0).label("holds"),
        )
        .where(leg.lease_id.is_not(None))
        .group_by(leg.lease_id)
        .subquery()
    )
    names = {
        "charged": "charges",
        "refunded": "refunds",
        "held": "hold",
        "charges": "number of charges",
        "holds": "top-ups",
    }
    true = {name: sa.func.coalesce(posted.c[name], 0) for name in names}
    differ = sa.or_(*(_LEASE.c[name] != true[name] for name in names))
    said = [_LEASE.c[name].label(f"said_{name}") for name in names]
    chosen = sa.select(_LEASE.c.id, *said, *(column.label(name) for name, column in true.items()))
    chosen = chosen.outerjoin(posted, posted.c.lease_id == _LEASE.c.id).where(differ).order_by(_LEASE.c.id)
    for row in connection.execute(chosen).mappings():
        for name, words in names.items():
            had, has = int(row[f"said_{name}"]), int(row[name])
            if had != has:
                yield Wrong(
                    row["id"], f"{words} of lease {row['id']}: its row says {had}, the ledger says {has}", had, has
                )


def _lives(connection: sa.Connection) -> Iterator[tuple[Row, list[Segment]]]:
    """Every lease with its segments, as a stream."""
    chosen = (
        sa.select(
            *(_LEASE.c[name] for name in ("id", "state", "started_at", "ended_at", "metered_until", "void", "share")),
            *(_LEASE.c[name] for name in ("count", "usage", "charged", "refunded")),
            _LEASE.c.plan_id.label("pinned"),
            *(_SEGMENT.c[name] for name in ("number", "weight", "plan_id")),
            _SEGMENT.c.started_at.label("segment_start"),
            _SEGMENT.c.ended_at.label("segment_end"),
            *PRICE,
        )
        .outerjoin(_SEGMENT, _SEGMENT.c.lease_id == _LEASE.c.id)
        .outerjoin(_PLAN, _PLAN.c.id == _SEGMENT.c.plan_id)
        .outerjoin(schema.rule_price, schema.rule_price.c.plan_id == _SEGMENT.c.plan_id)
        .order_by(_LEASE.c.id, _SEGMENT.c.number)
    )
    with connection.execute(chosen.execution_options(yield_per=1000)) as result:
        for _, rows in groupby(result.mappings(), key=lambda row: row["id"]):
            found = list(rows)
            yield found[0], [_segment(row) for row in found if row["number"] is not None]


def _segment(row: Row) -> Segment:
    return segment_of({**row, "started_at": row["segment_start"], "ended_at": row["segment_end"]})


def leases_cost_what_their_time_costs(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """Use and charge, computed again from the segments and their pinned prices; and that the segments can be true."""
    for row, segments in _lives(connection):
        yield from _time_is_possible(row, segments)
        yield from _cost_is_right(row, segments)


def _time_is_possible(row: Row, segments: list[Segment]) -> Iterator[Wrong]:
    lease = row["id"]
    if (row["started_at"] is None) != (not segments):
        yield Wrong(lease, f"lease {lease} has {len(segments)} segments and began at {row['started_at']}")
    for part, following in pairwise(segments):
        if part.ended_at is None or part.ended_at > following.started_at:
            yield Wrong(lease, f"segments {part.number} and {following.number} of lease {lease} overlap")
    if not segments or row["started_at"] is None:
        return
    first, last = segments[0], segments[-1]
    if first.started_at != row["started_at"]:
        yield Wrong(lease, f"lease {lease} counts time from {first.started_at}, and began at {row['started_at']}")
    if row["ended_at"] is not None and last.ended_at is not None and last.ended_at != row["ended_at"]:
        yield Wrong(lease, f"lease {lease} ended at {row['ended_at']}, and counts time to {last.ended_at}")
    if row["ended_at"] is None and row["state"] in _OVER:
        yield Wrong(lease, f"lease {lease} is over, and no end is on record")
    if first.price.plan_id != row["pinned"]:
        words = f"lease {lease} is pinned to price plan {row['pinned']}, and counts by plan {first.price.plan_id}"
        yield Wrong(lease, words, first.price.plan_id, row["pinned"])
    if first.weight != row["share"] * row["count"]:
        words = f"lease {lease} holds {row['share'] * row['count']} thousandths, and counts {first.weight}"
        yield Wrong(lease, words, first.weight, row["share"] * row["count"])


def _cost_is_right(row: Row, segments: list[Segment]) -> Iterator[Wrong]:
    lease, until = row["id"], row["metered_until"] or row["started_at"]
    due = charge_due(segments, until) if until is not None else 0
    used = usage(segments, until) if until is not None else 0
    if row["void"] and row["state"] == State.SETTLED.value:
        given_back = row["charged"] == row["refunded"] == due  # it failed after it was settled
        due, used = (due if given_back else 0), 0
    if row["charged"] != due:
        rules = sorted({part.price.rule for part in segments if part.price.rule})
        by = f" by the site's rule {', '.join(map(repr, rules))}" if rules else ""
        words = f"lease {lease} is charged {row['charged']}, its time costs {due}{by}"
        yield Wrong(lease, words, row["charged"], due)
    if row["usage"] != used:
        words = f"lease {lease} has used {row['usage']} milli-GPU-seconds, its time makes {used}"
        yield Wrong(lease, words, row["usage"], used)


def settled_leases_hold_nothing(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    chosen = sa.select(_LEASE.c.id, _LEASE.c.held).where(_LEASE.c.state == State.SETTLED.value, _LEASE.c.held != 0)
    for row in connection.execute(chosen.order_by(_LEASE.c.id)):
        yield Wrong(row.id, f"lease {row.id} is settled and still holds {row.held}", row.held, 0)


def no_figure_is_negative(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    """And no more was refunded than was charged."""
    names = ("usage", "charged", "refunded", "held")
    below = sa.or_(*(_LEASE.c[name] < 0 for name in names), _LEASE.c.refunded > _LEASE.c.charged)
    chosen = sa.select(_LEASE.c.id, *(_LEASE.c[name] for name in names)).where(below).order_by(_LEASE.c.id)
    for row in connection.execute(chosen).mappings():
        figures = ", ".join(f"{name} {row[name]}" for name in names)
        yield Wrong(row["id"], f"lease {row['id']} has figures that cannot be: {figures}")


def devices_are_not_overcommitted(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    total = sa.func.sum(_SLOT.c.share)
    held = sa.select(_SLOT.c.device, total).where(_SLOT.c.released_at.is_(None), _SLOT.c.device.is_not(None))
    for device, share in connection.execute(held.group_by(_SLOT.c.device).having(total > 1000)):
        yield Wrong(device, f"device {device} is given away {share} times in a thousand", int(share), 1000)


def live_leases_hold_their_slots(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    open_slots = sa.select(_SLOT.c.lease_id).where(_SLOT.c.released_at.is_(None))
    for row in connection.execute(sa.select(_LEASE.c.id).where(LIVE, _LEASE.c.id.not_in(open_slots))):
        yield Wrong(row.id, f"lease {row.id} is live without a slot")
    room = _summed(_SLOT.c.share, _SLOT.c.released_at.is_(None)).label("room")
    due = (_LEASE.c.share * _LEASE.c.count).label("due")
    held = sa.select(_LEASE.c.id, due, room).join(_SLOT, _SLOT.c.lease_id == _LEASE.c.id).where(LIVE)
    for row in connection.execute(held.group_by(_LEASE.c.id).having((room != due) & (room > 0)).order_by(_LEASE.c.id)):
        words = f"lease {row.id} is of {row.due} thousandths, its slots hold {row.room}"
        yield Wrong(row.id, words, int(row.room), int(row.due))
    live = sa.select(_LEASE.c.id).where(LIVE)
    for row in connection.execute(open_slots.where(_SLOT.c.lease_id.not_in(live)).distinct()):
        yield Wrong(row.lease_id, f"lease {row.lease_id} is over and still has a slot")


def finished_leases_have_no_open_segment(connection: sa.Connection, site: Site) -> Iterable[Wrong]:
    chosen = sa.select(_SEGMENT.c.lease_id).join(_LEASE, _LEASE.c.id == _SEGMENT.c.lease_id)
    for row in connection.execute(chosen.where(_SEGMENT.c.ended_at.is_(None), _LEASE.c.state.in_(_OVER))):
        yield Wrong(row.lease_id, f"lease {row.lease_id} is over and still counts time")


LEASE_CHECKS: tuple[Check, ...] = (
    leases_agree,
    leases_cost_what_their_time_costs,
    settled_leases_hold_nothing,
    no_figure_is_negative,
    devices_are_not_overcommitted,
    live_leases_hold_their_slots,
    finished_leases_have_no_open_segment,
)
