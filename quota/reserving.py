"""A new lease: entitlement, hold and placement, decided on what one transaction sees."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from quota import accounts, billing, entitlement, ledger, schema
from quota.accounts import Account
from quota.entitlement import Earlier, Payer, Standing
from quota.errors import BerthError, Reason, Refused
from quota.leases import Device, Holder, Lease, LeaseRequest, Price, Slot, State, Target
from quota.ledger import Bucket, Draw
from quota.metering import month_name
from quota.own_prices import plan_of
from quota.ports import Place
from quota.postings import Going, held_by, paid_by, totals
from quota.pricing import hold_for
from quota.records import LIVE, add_event, insert_slots, lease_of, lock_account, lock_hosts, read_devices
from quota.units import WHOLE_GPU, MilliGpu

_LEASE = schema.lease
_ADD_LEASE = sa.insert(_LEASE)
_EARLIER = sa.select(_LEASE.c.id, _LEASE.c.state, _LEASE.c.target).where(
    LIVE,
    _LEASE.c.holder_kind == sa.bindparam("kind"),
    _LEASE.c.holder_user == sa.bindparam("user"),
    _LEASE.c.holder_server == sa.bindparam("server"),
)


@dataclass(frozen=True, slots=True)
class Reservation:
    """One attempt of `Book.reserve`, inside its transaction."""

    connection: sa.Connection
    request: LeaseRequest
    now: datetime
    zone: str

    def run(self, place: Place) -> Lease:
        """Raises `Refused`; nothing is written then, since the transaction is rolled back."""
        user = accounts.get(self.connection, self.request.holder.user)
        account = accounts.get(self.connection, self.request.account)
        if user.kind != "user" or (account.kind != "group" and account != user):
            raise Refused(Reason.ACCOUNT_FORBIDDEN, account=account.name)
        self._stand_in_line(user, account)
        price = self._price()
        draws = self._entitle(user, account, price)
        devices = read_devices(self.connection)
        slots = place(devices, self.request)
        check_slots(self.request, devices, slots)
        return self._write(account, price, draws, devices, slots)

    def _price(self) -> Price:
        """The site's list, or what the site's own rule asked for this server."""
        listed, quote = accounts.current_price(self.connection), self.request.quote
        return listed if quote is None else plan_of(self.connection, listed, quote, self.now)

    def _stand_in_line(self, *decided: Account) -> None:
        """Bump what is decided upon, hosts before accounts and accounts by their ids, before anything of it is read."""
        lock_hosts(self.connection)
        for account_id in sorted({account.id for account in decided}):
            lock_account(self.connection, account_id)

    def _entitle(self, user: Account, account: Account, price: Price) -> list[Draw]:
        """The user may hold it, and the account, theirs or a group's, pays for it."""
        request, own = self.request, account.id == user.id
        buckets = accounts.freshen(self.connection, account, self.now, self.zone)
        going = held_by(self.connection, user.name)
        standing = self._standing(user, going, buckets if own else ())
        limits = accounts.effective_limits(self.connection, user)
        payer = None
        if not own:
            paid = self._standing(account, paid_by(self.connection, account.id), buckets)
            payer = Payer(account.name, accounts.effective_limits(self.connection, account), paid)
        hold = hold_for(price, MilliGpu(request.share * request.count), request.hold_seconds)
        entitlement.check(request, limits, standing, hold, payer)
        return ledger.draw(buckets, hold, self.now)

    def _standing(self, account: Account, going: Going, buckets: Sequence[Bucket]) -> Standing:
        sums = totals(self.connection, account.id, month_name(self.now, self.zone))
        return Standing(
            servers=going.servers,
            gpu_milli=going.gpu_milli,
            month_charged=sums.month_charged,
            held=sums.held,
            available=ledger.available(buckets, sums.debt, self.now),
            earlier=earlier_of(self.connection, self.request.holder),
        )

    def _write(
        self,
        account: Account,
        price: Price,
        draws: Sequence[Draw],
        devices: Sequence[Device],
        slots: Sequence[Slot],
    ) -> Lease:
        request, held = self.request, ledger.total(draws)
        given = {slot.device for slot in slots}
        simulated = any(device.simulated for device in devices if device.uuid in given)
        values = self._values(account, price, simulated) | {"held": held}
        self.connection.execute(_ADD_LEASE, values)
        insert_slots(self.connection, values["id"], slots)
        joined = {"account": account.name, "gpu_hour": price.gpu_hour, "cpu_hour": price.cpu_hour}
        joined |= {"per_hour": price.per_hour, "rule": price.rule}
        lease = lease_of({**_FRESH, **values, **joined}, slots)
        billing.first_hold(billing.Bill(self.connection, lease, self.now, self.zone), draws)
        detail = {"profile": request.profile, "devices": [slot.device for slot in slots if slot.device], "held": held}
        if price.rule:
            detail |= {"price_rule": price.rule, "price_per_hour": price.per_hour}
        add_event(
            self.connection,
            self.now,
            "lease-reserved",
            lease_id=lease.id,
            account_id=account.id,
            by=request.requested_by,
            detail=detail,
        )
        return lease

    def _values(self, account: Account, price: Price, simulated: bool) -> dict[str, Any]:
        request = self.request
        return {
            "id": "l" + secrets.token_hex(8),
            "version": 1,
            "state": State.RESERVED.value,
            "target": Target.RUN.value,
            "holder_kind": request.holder.kind.value,
            "holder_user": request.holder.user,
            "holder_server": request.holder.server,
            "account_id": account.id,
            "profile": request.profile,
            "image": request.image,
            "share": int(request.share),
            "count": request.count,
            "simulated": simulated,
            "plan_id": price.plan_id,
            "hold_seconds": request.hold_seconds,
            "owner": request.owner,
            "requested_at": self.now,
            "requested_by": request.requested_by,
            "service_class": request.service_class.value,
            "groups": None if request.groups is None else sorted(request.groups),
        }


#: The columns that a new row leaves to their defaults.
_FRESH: Mapping[str, Any] = {
    "deadline": None,
    "started_at": None,
    "last_seen": None,
    "ended_at": None,
    "stop_reason": None,
    "stop_detail": "",
    "stop_by": "",
    "stop_after": None,
    "usage": 0,
    "charged": 0,
    "refunded": 0,
}


def earlier_of(connection: sa.Connection, holder: Holder) -> Earlier | None:
    """The live lease that the holder has already."""
    key = {"kind": holder.kind.value, "user": holder.user, "server": holder.server}
    row = connection.execute(_EARLIER, key).one_or_none()
    return None if row is None else Earlier(row.id, State(row.state), Target(row.target))


def check_slots(request: LeaseRequest, devices: Sequence[Device], slots: Sequence[Slot]) -> None:
    """The book trusts no placement: what is given must be what was asked (it is priced by that), and be free.

    Raises `BerthError`, as it is a fault of the placement.
    """
    if request.count == 0:
        if len(slots) > 1 or any(slot.device is not None or slot.share != 0 for slot in slots):
            raise BerthError(f"placement gave a CPU lease {slots}")
        return
    if len(slots) != request.count or any(slot.share != request.share for slot in slots):
        raise BerthError(f"placement gave {slots} for {request.count} x {request.share}")
    placed = [slot.device for slot in slots if slot.device is not None]
    free = {device.uuid: device.free for device in devices if device.uuid in placed}
    if len(set(placed)) != len(placed):
        raise BerthError(f"placement gave one device twice: {slots}")
    for uuid in placed:
        if free.get(uuid, 0) < min(request.share, WHOLE_GPU):
            raise BerthError(f"placement gave device {uuid}, which has not {request.share} free")
