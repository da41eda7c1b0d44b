"""Every call that writes the book, each on a subject of its own, and what the book says of that subject afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from quota import schema
from quota.answers import Answer
from quota.bank import Defaults
from quota.errors import NotFound, Refused, Stale
from quota.leases import DeviceState, Lease, StopReason
from quota.rows import Sample
from quota.units import CREDIT
from quota.verdicts import Told, Verdict
from tests.fakes.book import BOOT, HOST, Desk, asking, gpu, place

Run = Callable[[], object]

#: Of the site on which these calls are tried.
DEFAULTS = Defaults(cpu_hour=CREDIT)


@dataclass(frozen=True)
class Call:
    """`prepare` makes the subject of that name and returns the call on it. `again`: what a repeat may be told when the
    first call was done after all. `appends`: a repeat does it a second time, as the call has no key."""

    prepare: Callable[[Desk, str], Run]
    again: tuple[type[Exception], ...] = ()
    appends: bool = False


def run(desk: Desk, name: str) -> Lease:
    """A server without a GPU, so that there is room for every subject; it costs what a GPU costs."""
    return desk.run(name, share=0, count=0)


def ran(desk: Desk, name: str) -> Lease:
    lease = run(desk, name)
    desk.clock.advance(600)
    return lease


def stopping(desk: Desk, name: str) -> Lease:
    lease = ran(desk, name)
    desk.book.request_stop(lease.id, StopReason.USER)
    return desk.book.acknowledge(lease.id, BOOT)


def in_debt(desk: Desk, name: str) -> Lease:
    """Stopping, and used more than it could pay: its bill draws on a grant and leaves a debt."""
    lease = run(desk, name)
    desk.clock.advance(110 * 3600 * 2)
    desk.bank.grant(name, 5_000, by="admin")
    desk.book.request_stop(lease.id, StopReason.USER)
    return desk.book.acknowledge(lease.id, BOOT)


def _reserve(desk: Desk, name: str) -> Run:
    return lambda: desk.book.reserve(asking(name, share=0, count=0), place)


def _request_stop(desk: Desk, name: str) -> Run:
    lease = run(desk, name)
    return lambda: desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + timedelta(minutes=5))


def _cancel_stop(desk: Desk, name: str) -> Run:
    lease = run(desk, name)
    desk.book.request_stop(lease.id, StopReason.IDLE, stop_after=desk.now + timedelta(minutes=5))
    return lambda: desk.book.cancel_stop(lease.id, "kit")


def _acknowledge(desk: Desk, name: str) -> Run:
    lease = desk.reserve(name, share=0, count=0)
    return lambda: desk.book.acknowledge(lease.id, BOOT)


def _mark_starting(desk: Desk, name: str) -> Run:
    lease = desk.reserve(name, share=0, count=0)
    return lambda: desk.book.mark_starting(lease, desk.now + timedelta(minutes=5))


def _mark_running(desk: Desk, name: str) -> Run:
    desk.beat()
    lease = desk.book.mark_starting(desk.reserve(name, share=0, count=0), desk.now + timedelta(minutes=5))
    return lambda: desk.book.mark_running(lease, BOOT, desk.now)


def _close(desk: Desk, name: str) -> Run:
    lease = desk.book.meter(ran(desk, name), desk.now).lease
    return lambda: desk.book.close(lease, desk.now - timedelta(minutes=3), StopReason.FAILED, "exit 1")


def _settle(desk: Desk, name: str) -> Run:
    lease = desk.book.release(stopping(desk, name), desk.now)
    return lambda: desk.book.settle(lease)


def _settle_into_debt(desk: Desk, name: str) -> Run:
    lease = desk.book.release(in_debt(desk, name), desk.now)
    return lambda: desk.book.settle(lease)


def _void(desk: Desk, name: str) -> Run:
    lease = desk.session(300, name, share=0, count=0)
    return lambda: desk.book.void(lease.id)


def _refund(desk: Desk, name: str) -> Run:
    lease = desk.session(300, name, share=0, count=0)
    return lambda: desk.bank.refund(lease.id, 1000, "admin", "sorry")


def _grant(desk: Desk, name: str) -> Run:
    desk.bank.ensure_account(name)
    return lambda: desk.bank.grant(name, 1_000, "admin", key=f"key-{name}")


def _grant_without_key(desk: Desk, name: str) -> Run:
    desk.bank.ensure_account(name)
    return lambda: desk.bank.grant(name, 1_000, "admin")


def _new_month(desk: Desk, name: str) -> None:
    """An account with a grant that expires and a month that is not granted yet."""
    desk.bank.ensure_account(name)
    desk.bank.grant(name, 700, "admin", key=f"old-{name}", expires_at=desk.now + timedelta(days=1))
    desk.clock.advance(40 * 86400)


def _account(desk: Desk, name: str) -> Run:
    _new_month(desk, name)
    return lambda: desk.bank.account(name)


def _ensure_again(desk: Desk, name: str) -> Run:
    _new_month(desk, name)
    return lambda: desk.bank.ensure_account(name)


def _price(desk: Desk, name: str) -> Run:
    return lambda: desk.bank.set_price(_number(name), 0, name)


def _number(name: str) -> int:
    return int("".join(sign for sign in name if sign.isdigit())) + 1_000_000


def _seed(desk: Desk, _name: str) -> Run:
    desk.bank._seeded = False
    return desk.bank.seed


def _rename(desk: Desk, name: str) -> Run:
    desk.bank.ensure_account(name)
    return lambda: desk.bank.rename(name, f"{name}-new", by=name)


def _limits(desk: Desk, name: str) -> Run:
    desk.bank.ensure_account(name)
    return lambda: desk.bank.set_limits(name, {"max_servers": 3, "profiles": ["a"]}, "admin")


def _monthly(desk: Desk, name: str) -> Run:
    desk.bank.ensure_account(name)
    return lambda: desk.bank.set_monthly_grant(name, 5, "admin")


def _put_devices(desk: Desk, name: str) -> Run:
    desk.rows.put_devices(name, [gpu(0, host=name), gpu(1, host=name)])
    return lambda: desk.rows.put_devices(name, [gpu(1, host=name), gpu(2, host=name)])


def _device_state(desk: Desk, name: str) -> Run:
    desk.rows.put_devices(name, [gpu(0, host=name)])
    return lambda: desk.rows.set_device_state(f"SIM-{name}-0", DeviceState.DRAINING, "dust", "admin")


def _about_lease(call: Callable[[Desk, Lease], object]) -> Callable[[Desk, str], Run]:
    def prepare(desk: Desk, name: str) -> Run:
        lease = run(desk, name)
        return lambda: call(desk, lease)

    return prepare


def _clear(desk: Desk, name: str) -> Run:
    desk.alerts.put(name, "test", "trouble")
    return lambda: desk.alerts.clear(name)


def _drop_beat(desk: Desk, name: str) -> Run:
    desk.rows.beat(name, "hub", HOST)
    return lambda: desk.rows.drop_beat(name)


def _begun(desk: Desk, name: str) -> None:
    desk.answers.begin(name, "key", "what")


def _finish(desk: Desk, name: str) -> Run:
    _begun(desk, name)
    return lambda: desk.answers.finish(name, "key", "what", Answer(201, "{}"))


def _drop(desk: Desk, name: str) -> Run:
    _begun(desk, name)
    return lambda: desk.answers.drop(name, "key")


def _forget(desk: Desk, name: str) -> Run:
    _begun(desk, name)
    desk.clock.advance(30 * 86400)
    return desk.answers.forget_old


def _bury(desk: Desk, name: str) -> Run:
    desk.rows.beat(name, "hub", HOST)
    return lambda: desk.rows.bury(name)


CALLS: dict[str, Call] = {
    "Book.reserve": Call(_reserve, again=(Refused,)),
    "Book.mark_starting": Call(_mark_starting, again=(Stale,)),
    "Book.mark_running": Call(_mark_running, again=(Stale,)),
    "Book.request_stop": Call(_request_stop),
    "Book.cancel_stop": Call(_cancel_stop),
    "Book.acknowledge": Call(_acknowledge),
    "Book.observe": Call(_about_lease(lambda desk, lease: desk.book.observe(lease, desk.now + timedelta(seconds=9)))),
    "Book.observe_all": Call(
        _about_lease(lambda desk, lease: desk.book.observe_all([lease], desk.now + timedelta(seconds=9)))
    ),
    "Book.close": Call(_close, again=(Stale,)),
    "Book.release": Call(
        lambda desk, name: (lambda lease: lambda: desk.book.release(lease, desk.now))(stopping(desk, name)),
        again=(Stale,),
    ),
    "Book.meter": Call(
        lambda desk, name: (lambda lease: lambda: desk.book.meter(lease, desk.now))(ran(desk, name)), again=(Stale,)
    ),
    "Book.settle": Call(_settle, again=(Stale,)),
    "Book.settle, into debt": Call(_settle_into_debt, again=(Stale,)),
    "Book.void": Call(_void),
    "Bank.seed": Call(_seed),
    "Bank.ensure_account": Call(lambda desk, name: lambda: desk.bank.ensure_account(name)),
    "Bank.ensure_account, next month": Call(_ensure_again),
    "Bank.account": Call(_account),
    "Bank.grant": Call(_grant),
    "Bank.grant, without a key": Call(_grant_without_key, appends=True),
    "Bank.refund": Call(_refund),
    "Bank.rename": Call(_rename, again=(NotFound,)),
    "Bank.set_limits": Call(_limits),
    "Bank.set_monthly_grant": Call(_monthly),
    "Bank.set_price": Call(_price),
    "Rows.beat": Call(lambda desk, name: lambda: desk.rows.beat(name, "hub", HOST, "note")),
    "Rows.drop_beat": Call(_drop_beat),
    "Rows.bury": Call(_bury),
    "Rows.put_devices": Call(_put_devices),
    "Rows.set_device_state": Call(_device_state),
    "Rows.put_sample": Call(_about_lease(lambda desk, lease: desk.rows.put_sample(lease.id, Sample(desk.now, 1.5)))),
    "Rows.put_signal": Call(
        _about_lease(lambda desk, lease: desk.rows.put_signal(lease.id, "kit", {"busy": True}, desk.now))
    ),
    "Rows.put_verdict": Call(
        _about_lease(lambda desk, lease: desk.rows.put_verdict(lease.id, desk.now, "keep", "r", "w", {"a": 1}))
    ),
    "Rows.put_verdicts": Call(
        _about_lease(
            lambda desk, lease: desk.rows.put_verdicts(
                [Verdict(lease.id, desk.now, "warn", "r", "w", {"a": 1}, desk.now)],
                [Told(lease.id, lease.account_id, "x", {"n": 1})],
            )
        ),
        appends=True,
    ),
    "Rows.add_event": Call(
        _about_lease(lambda desk, lease: desk.rows.add_event("seen", lease.id, by="x", detail={"n": 1})), appends=True
    ),
    "Rows.set_meta": Call(lambda desk, name: lambda: desk.rows.set_meta(name, "value")),
    "Alerts.put": Call(lambda desk, name: lambda: desk.alerts.put(name, "test", "trouble", {"n": 1})),
    "Alerts.clear": Call(_clear),
    "Answers.begin": Call(lambda desk, name: lambda: desk.answers.begin(name, "key", "what")),
    "Answers.finish": Call(_finish),
    "Answers.drop": Call(_drop),
    "Answers.forget_old": Call(_forget),
}

#: Calls that are made of others, and are tried like them.
MADE_OF_OTHERS = {"Book.observe", "Bank.account"}


# ---- what the book says ----------------------------------------------------------------------------------------


def portrait(desk: Desk, name: str) -> list[Any]:
    """All rows about a subject, with the ids that differ from one subject to the next replaced by their order."""
    with desk.store.read() as connection:
        owned = _rows(connection, schema.account, schema.account.c.name == name)
        ids = {str(row["id"]): "ACCOUNT" for row in owned}
        leases = _rows(connection, schema.lease, schema.lease.c.holder_user == name)
        ids |= {row["id"]: f"LEASE{number}" for number, row in enumerate(leases)}
        chosen = _chosen(name, [row["id"] for row in owned], [row["id"] for row in leases])
        parts = {table.name: _rows(connection, table, where) for table, where in chosen}
        names = {f"grant:{row['id']}": f"grant:B{n}" for n, row in enumerate(parts["grant_bucket"])}
        subs = [row["sub"] for row in parts["posting"] if not row["sub"].startswith("platform:")]
        parts["balance"] = _rows(connection, schema.balance, schema.balance.c.sub.in_(subs))
    return [json.loads(_plain(part, rows, ids, names, name)) for part, rows in sorted(parts.items())]


def _rows(connection: sa.Connection, table: sa.Table, where: sa.ColumnElement[bool]) -> list[dict[str, Any]]:
    statement = sa.select(table).where(where).order_by(*table.primary_key.columns)
    return [dict(row) for row in connection.execute(statement).mappings()]


def _chosen(name: str, accounts: list[int], leases: list[str]) -> list[tuple[sa.Table, sa.ColumnElement[bool]]]:
    by_lease = [schema.slot, schema.segment, schema.sample, schema.signal, schema.verdict]
    by_account = [schema.grant_bucket, schema.posting, schema.month_charge, schema.limits]
    event, host = schema.event, schema.device.c.host
    about = event.c.lease_id.in_(leases) | event.c.account_id.in_(accounts) | (event.c.by == name)
    return [
        (schema.lease, schema.lease.c.id.in_(leases)),
        (schema.account, schema.account.c.id.in_(accounts)),
        *((table, table.c.lease_id.in_(leases)) for table in by_lease),
        *((table, table.c.account_id.in_(accounts)) for table in by_account),
        (event, about),
        (schema.device, host == name),
        (schema.heartbeat, schema.heartbeat.c.boot == name),
        (schema.meta, schema.meta.c.key == name),
        (schema.alert, schema.alert.c.key == name),
        (schema.answered, schema.answered.c.owner == name),
        (schema.price_plan, schema.price_plan.c.by == name),
    ]


def _plain(part: str, rows: list[dict[str, Any]], ids: dict[str, str], names: dict[str, str], name: str) -> str:
    """JSON of the rows without what is another number for every subject."""
    left_out = {"id", "version"} if part == "account" else {"id", "plan_id", "gpu_hour", "account_id", "scope"}
    plain = [{key: value for key, value in row.items() if key not in left_out} for row in rows]
    if part == "event":
        for row in plain:
            row["detail"] = {key: value for key, value in row["detail"].items() if key not in ("bucket", "plan")}
    if part == "balance":
        plain.sort(key=lambda row: str(names.get(row["sub"], row["sub"].partition(":")[0])))
    text = json.dumps(plain, default=str, sort_keys=True)
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    for old, new in ids.items():
        if new != "ACCOUNT":
            text = text.replace(old, new)
    return _without_numbers(text.replace(name, "NAME"))


def _without_numbers(text: str) -> str:
    """Keys of the ledger and of buckets end in an id."""

    text = re.sub(r'"(grant|expire|repay|debt):\d+"', r'"\1:N"', text)
    text = re.sub(r'"(gpu_hour|cpu_hour|bucket)": \d+', r'"\1": 0', text)
    text = re.sub(r'"manual:[0-9a-f]{16}"', '"manual:random"', text)
    return re.sub(r'"monthly:\d+:', '"monthly:N:', text)
