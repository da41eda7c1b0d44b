"""Answers filled from what the book says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from quota import bank, groups, leases, ledger, rows
from quota.api import shapes
from quota.book_reads import Holding
from quota.leases import State
from quota.web.figures import figures
from quota.web.group_views import MemberUse
from quota.web.parts import ProfileView
from quota.web.words import stop_words


def verdict(found: rows.Verdict | None) -> shapes.Verdict | None:
    if found is None:
        return None
    # The book has no other kinds (a CHECK).
    return shapes.Verdict(kind=found.kind, rule=found.rule, words=found.words, at=found.at, deadline=found.deadline)


def price(found: leases.Price) -> shapes.Price:
    return shapes.Price(
        plan_id=found.plan_id,
        gpu_hour_micro_credits=int(found.gpu_hour),
        cpu_hour_micro_credits=int(found.cpu_hour),
    )


def pinned(found: leases.Price) -> shapes.PinnedPrice:
    return shapes.PinnedPrice(**price(found).model_dump(), own_hour_micro_credits=found.per_hour, rule=found.rule)


def _held_device(slot: leases.Slot, devices: Mapping[str, leases.Device]) -> shapes.HeldDevice:
    device = devices.get(str(slot.device))
    name, simulated = (device.name, device.simulated) if device else (None, None)
    return shapes.HeldDevice(uuid=str(slot.device), name=name, host=slot.host, simulated=simulated)


def lease(
    found: leases.Lease,
    segments: Sequence[leases.Segment],
    devices: Mapping[str, leases.Device],
    idle: rows.Verdict | None,
    now: datetime,
) -> shapes.Lease:
    """One lease. Usage and charge are exact up to `now` while it is not settled; `devices` by UUID."""
    figure = figures(found, segments, now)
    holder = found.holder
    return shapes.Lease(
        id=found.id,
        state=found.state,
        target=found.target,
        holder=shapes.Holder(user=holder.user, server=holder.server, kind=holder.kind),
        profile=found.profile,
        image=found.image,
        account=found.account,
        share_milli=int(found.share),
        count=found.count,
        devices=[_held_device(slot, devices) for slot in found.slots if slot.device is not None],
        simulated=found.simulated,
        requested_at=found.requested_at,
        requested_by=found.requested_by,
        started_at=found.started_at,
        ended_at=found.ended_at,
        stop_reason=found.stop_reason,
        stop_detail=found.stop_detail,
        stop_words=stop_words(found),
        stop_after=found.stop_after,
        milli_gpu_seconds=figure.usage,
        charged_micro_credits=figure.charged,
        held_micro_credits=found.held,
        price=pinned(found.price),
        idle=verdict(idle) if found.state is State.RUNNING else None,
    )


def profile(found: ProfileView) -> shapes.Profile:
    return shapes.Profile(
        name=found.name,
        title=found.title,
        description=found.description,
        share_milli=found.share_milli,
        count=found.count,
        free_now=found.free_now,
        price_per_hour_micro_credits=found.price_per_hour_micro,
        images=list(found.images),
        simulated=found.simulated,
    )


def limits(found: bank.Limits) -> shapes.Limits:
    return shapes.Limits(
        max_servers=found.max_servers,
        max_gpu_milli=found.max_gpu_milli,
        monthly_micro_credits=found.monthly_micro,
        profiles=None if found.profiles is None else sorted(found.profiles),
    )


def grant(found: ledger.Bucket) -> shapes.Grant:
    return shapes.Grant(
        id=found.id,
        amount_micro_credits=found.amount,
        left_micro_credits=found.balance,
        granted_at=found.granted_at,
        expires_at=found.expires_at,
        by=found.by,
        note=found.note,
    )


def account(view: bank.AccountView) -> shapes.Account:
    return shapes.Account(
        name=view.account.name,
        kind=view.account.kind,  # the book has no other kinds (a CHECK)
        created_at=view.account.created_at,
        available_micro_credits=view.available,
        held_micro_credits=view.held,
        month_charged_micro_credits=view.month_charged,
        limits=limits(view.limits),
    )


def session(line: bank.StatementLine) -> shapes.Session:
    return shapes.Session(
        lease_id=line.lease_id,
        user=line.user,
        profile=line.profile,
        image=line.image,
        share_milli=int(line.share),
        count=line.count,
        simulated=line.simulated,
        started_at=line.started_at,
        ended_at=line.ended_at,
        microseconds=line.seconds,
        milli_gpu_seconds=line.milli_gpu_seconds,
        charged_micro_credits=line.charged,
    )


def group(found: groups.Group, members: Sequence[str], view: bank.AccountView) -> shapes.Group:
    return shapes.Group(name=found.name, leads=list(found.leads), members=list(members), account=account(view))


def member_use(found: MemberUse) -> shapes.MemberUse:
    return shapes.MemberUse(
        user=found.user,
        member=bool(found.member),
        sessions=found.sessions,
        milli_gpu_seconds=found.milli_gpu_seconds,
        charged_micro_credits=found.charged_micro,
    )


def device(found: leases.Device, isolation: str, live: Iterable[Holding]) -> shapes.Device:
    holders = [
        shapes.DeviceHolder(user=held.holder.user, server=held.holder.server, share_milli=int(slot.share))
        for held in live
        for slot in held.slots
        if slot.device == found.uuid
    ]
    return shapes.Device(
        uuid=found.uuid,
        name=found.name,
        host=found.host,
        position=found.position,
        memory_mib=found.memory_mib,
        mode=found.mode,
        isolation=isolation,
        state=found.state,
        why=found.why,
        simulated=found.simulated,
        used_milli=found.used,
        free_milli=found.free,
        seen_at=found.seen_at,
        holders=holders,
    )
