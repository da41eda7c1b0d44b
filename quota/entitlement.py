"""Who may have a lease, apart from room. Pure: takes a snapshot of facts, raises `Refused` with the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from quota.errors import Reason, Refused
from quota.leases import LeaseRequest, State, Target
from quota.units import WHOLE_GPU, MicroCredits


@dataclass(frozen=True, slots=True)
class Limits:
    """What one account may have at once and in a month. None is "no limit", never zero.

    `max_gpu_milli`: milli-GPU over all live leases of the account. `monthly_micro`: micro-credits that may be
    charged (or be held for charging) in one calendar month of the site. `profiles`: the allowed names.
    """

    max_servers: int | None = None
    max_gpu_milli: int | None = None
    monthly_micro: int | None = None
    profiles: frozenset[str] | None = None


class Earlier(NamedTuple):
    """The live lease that the same holder has already."""

    lease_id: str
    state: State
    target: Target


@dataclass(frozen=True, slots=True)
class Standing:
    """What an account has now. Money in micro-credits; `held` is for leases not yet settled, `available` is what
    is left in grants that have not expired, less debt (so it may be negative)."""

    servers: int
    gpu_milli: int
    month_charged: int
    held: int
    available: int
    earlier: Earlier | None = None


@dataclass(frozen=True, slots=True)
class Payer:
    """A group that pays in the holder's place: its account, the limits of that, and all that it pays for now."""

    account: str
    limits: Limits
    standing: Standing


def check(
    request: LeaseRequest, limits: Limits, standing: Standing, hold: MicroCredits, payer: Payer | None = None
) -> None:
    """Return if the holder may have this lease with this hold; raise `Refused` with the first reason against it.

    `limits` and `standing` are the holder's: servers and GPUs of all they hold, whoever pays. The money is the
    holder's as well, unless there is a `payer`; then that one's limits must allow it, too, and the facts of a refusal
    on its account name it (`account`).

    Reasons: OPTION_INVALID, ALREADY_HELD, STOPPING, PROFILE_FORBIDDEN, TOO_MANY_SERVERS, TOO_MANY_GPUS,
    MONTHLY_LIMIT, NO_CREDIT.
    """
    check_shape(request)
    _check_holder(standing.earlier)
    _check_limits(request, limits, standing)
    if payer is None:
        _check_money(limits, standing, hold)
        return
    _check_limits(request, payer.limits, payer.standing, account=payer.account)
    _check_money(payer.limits, payer.standing, hold, account=payer.account)


def check_shape(request: LeaseRequest) -> None:
    """Refuse shares that no device can give: a CPU lease is 0 x 0, a fraction is of one device, more are whole."""
    share, count = request.share, request.count
    cpu = share == 0 and count == 0
    fraction = 0 < share <= WHOLE_GPU and count == 1
    several = share == WHOLE_GPU and count > 1
    if not (cpu or fraction or several):
        raise Refused(Reason.OPTION_INVALID, option="share", share=int(share), count=count)
    if request.hold_seconds < 0:
        raise Refused(Reason.OPTION_INVALID, option="hold_seconds", value=request.hold_seconds)


def _check_holder(earlier: Earlier | None) -> None:
    if earlier is None:
        return
    reason = Reason.STOPPING if earlier.target is Target.STOP else Reason.ALREADY_HELD
    raise Refused(reason, lease=earlier.lease_id, state=earlier.state.value)


def _check_limits(request: LeaseRequest, limits: Limits, standing: Standing, **whose: str) -> None:
    if limits.profiles is not None and request.profile not in limits.profiles:
        allowed = ", ".join(sorted(limits.profiles)) or "none"
        raise Refused(Reason.PROFILE_FORBIDDEN, profile=request.profile, allowed=allowed, **whose)
    if limits.max_servers is not None and standing.servers + 1 > limits.max_servers:
        raise Refused(Reason.TOO_MANY_SERVERS, limit=limits.max_servers, held=standing.servers, **whose)
    asked = request.share * request.count
    # A CPU lease asks for no GPU, so it is never refused for GPUs that are held.
    if asked and limits.max_gpu_milli is not None and standing.gpu_milli + asked > limits.max_gpu_milli:
        raise Refused(Reason.TOO_MANY_GPUS, limit=limits.max_gpu_milli, held=standing.gpu_milli, asked=asked, **whose)


def _check_money(limits: Limits, standing: Standing, hold: MicroCredits, **whose: str) -> None:
    used = standing.month_charged + standing.held
    if hold and limits.monthly_micro is not None and used + hold > limits.monthly_micro:
        raise Refused(Reason.MONTHLY_LIMIT, limit=limits.monthly_micro, used=used, needed=int(hold), **whose)
    if hold and hold > standing.available:
        raise Refused(Reason.NO_CREDIT, needed=int(hold), available=standing.available, **whose)
