"""Double entry in integer micro-credits. Pure: values in, transactions out; `quota.postings` writes them.

Sub-accounts: `grant:{bucket}` (what is left of one grant), `debt:{account}` (never positive), `held:{lease}`, and
`platform:issued`, `platform:revenue`, `platform:expired`. The legs of every transaction sum to 0, the ledger only
grows, and every transaction has a natural key, so that posting it twice is seen and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from quota.units import MicroCredits

PLATFORM = "platform:"
ISSUED = f"{PLATFORM}issued"
REVENUE = f"{PLATFORM}revenue"
EXPIRED = f"{PLATFORM}expired"

_NEVER = datetime.max.replace(tzinfo=UTC)


class Kind(StrEnum):
    GRANT = "grant"
    REPAY = "repay"  # a new grant first pays the debt
    HOLD = "hold"
    CHARGE = "charge"
    RELEASE = "release"  # what a finished lease no longer needs of its hold, given back with the slot
    SETTLE = "settle"  # the rest of the hold, given back when the bill is final
    REFUND = "refund"
    EXPIRE = "expire"


def grant_sub(bucket_id: int) -> str:
    return f"grant:{bucket_id}"


def debt_sub(account_id: int) -> str:
    return f"debt:{account_id}"


def held_sub(lease_id: str) -> str:
    return f"held:{lease_id}"


def bucket_of(sub: str) -> int | None:
    """The bucket behind a sub-account; None when it is not a grant."""
    kind, _, number = sub.partition(":")
    return int(number) if kind == "grant" else None


@dataclass(frozen=True, slots=True)
class Posting:
    """One leg: `amount` micro-credits into the sub-account, or out of it when negative. Never 0."""

    sub: str
    amount: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """Legs that sum to 0 under a natural key. Raises `ValueError` when they do not, or when a leg is empty."""

    key: str
    kind: Kind
    account_id: int
    legs: tuple[Posting, ...]
    lease_id: str | None = None

    def __post_init__(self) -> None:
        if not self.legs or any(leg.amount == 0 for leg in self.legs):
            raise ValueError(f"{self.key}: empty leg")
        if sum(leg.amount for leg in self.legs) != 0:
            raise ValueError(f"{self.key}: legs do not sum to 0")


@dataclass(frozen=True, slots=True)
class Bucket:
    """One dated grant. `balance` is what is left of `amount`; it expires at `expires_at` (that moment excluded
    from its life), or never when that is None."""

    id: int
    key: str
    amount: int
    balance: int
    granted_at: datetime
    expires_at: datetime | None = None
    by: str = ""
    note: str = ""

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class Draw:
    """Money taken from one source (a grant, or the debt) for one lease."""

    sub: str
    amount: int


def burn_order(buckets: Iterable[Bucket], now: datetime) -> list[Bucket]:
    """The buckets that can pay, in the order they are burnt: earliest expiry first, open-ended last, then oldest."""
    usable = (bucket for bucket in buckets if bucket.balance > 0 and not bucket.expired(now))
    return sorted(usable, key=lambda bucket: (bucket.expires_at or _NEVER, bucket.id))


def available(buckets: Iterable[Bucket], debt: int, now: datetime) -> MicroCredits:
    """What an account can still spend: its unexpired grants less its debt (`debt` <= 0). May be negative."""
    return MicroCredits(sum(bucket.balance for bucket in burn_order(buckets, now)) + debt)


def draw(buckets: Iterable[Bucket], amount: int, now: datetime) -> list[Draw]:
    """Take up to `amount` from the buckets in burn order. The draws may sum to less: the caller sees what lacks."""
    draws, left = [], amount
    for bucket in burn_order(buckets, now):
        if left <= 0:
            break
        part = min(bucket.balance, left)
        draws.append(Draw(grant_sub(bucket.id), part))
        left -= part
    return draws


def total(draws: Iterable[Draw]) -> int:
    return sum(part.amount for part in draws)


def give_back(latest_first: Iterable[Posting], amount: int) -> list[Draw]:
    """Where `amount` of a lease's money goes back to: to the source of the latest draw first.

    `latest_first`: the lease's legs on grants and debt, newest first (read no further than needed); a negative leg
    is a draw, a positive one is money that went back already. Raises `ValueError` when more would go back than
    was taken.
    """
    back: dict[str, int] = {}
    returned: dict[str, int] = {}
    left = amount
    for leg in latest_first:
        if left <= 0:
            break
        if leg.amount > 0:
            returned[leg.sub] = returned.get(leg.sub, 0) + leg.amount
            continue
        already = min(returned.get(leg.sub, 0), -leg.amount)
        returned[leg.sub] = returned.get(leg.sub, 0) - already
        part = min(-leg.amount - already, left)
        if part > 0:
            back[leg.sub] = back.get(leg.sub, 0) + part
            left -= part
    if left > 0:
        raise ValueError(f"{left} more micro-credits to give back than were taken")
    return [Draw(sub, part) for sub, part in back.items()]


# Transactions, each with its natural key.


def grant(bucket_id: int, account_id: int, amount: int) -> Transaction:
    legs = (Posting(ISSUED, -amount), Posting(grant_sub(bucket_id), amount))
    return Transaction(f"grant:{bucket_id}", Kind.GRANT, account_id, legs)


def repay(bucket_id: int, account_id: int, amount: int) -> Transaction:
    legs = (Posting(grant_sub(bucket_id), -amount), Posting(debt_sub(account_id), amount))
    return Transaction(f"repay:{bucket_id}", Kind.REPAY, account_id, legs)


def hold(lease_id: str, account_id: int, draws: Sequence[Draw], number: int = 0) -> Transaction:
    """`number` 0 is the first hold of the lease, then the top-ups."""
    key = f"hold:{lease_id}:{number}" if number else f"hold:{lease_id}"
    legs = (*(Posting(part.sub, -part.amount) for part in draws), Posting(held_sub(lease_id), total(draws)))
    return Transaction(key, Kind.HOLD, account_id, legs, lease_id)


def charge(lease_id: str, account_id: int, number: int, amount: int, held: int, draws: Sequence[Draw]) -> Transaction:
    """Charge `amount`: from what is held, then from `draws`, and what they lack becomes debt.

    A negative amount takes a charge back into the hold (the end turned out to be earlier, or the start void).
    """
    from_held = amount if amount < 0 else min(amount, held)
    lacking = amount - from_held - total(draws)
    legs = [Posting(held_sub(lease_id), -from_held)] if from_held else []
    legs += [Posting(part.sub, -part.amount) for part in draws]
    if lacking:
        legs.append(Posting(debt_sub(account_id), -lacking))
    legs.append(Posting(REVENUE, amount))
    return Transaction(f"charge:{lease_id}:{number}", Kind.CHARGE, account_id, tuple(legs), lease_id)


def hand_back(
    kind: Kind, lease_id: str, account_id: int, back: Sequence[Draw], expired: Set[str], number: int = 0
) -> Transaction:
    """Give money of the hold back to the sources in `back`; what goes to a grant in `expired` expires at once.

    `kind` is RELEASE (with the slot) or SETTLE (the last of it): each happens once, so each is a key. While a server
    runs, a RELEASE of what it need not hold any more has the version of its lease as `number`.
    """
    legs = [Posting(held_sub(lease_id), -total(back))]
    legs += [Posting(part.sub, part.amount) for part in back]
    gone = [part for part in back if part.sub in expired]
    legs += [Posting(part.sub, -part.amount) for part in gone]
    if gone:
        legs.append(Posting(EXPIRED, total(gone)))
    key = f"{kind.value}:{lease_id}:{number}" if number else f"{kind.value}:{lease_id}"
    return Transaction(key, kind, account_id, tuple(legs), lease_id)


def refund(lease_id: str, account_id: int, to_debt: int, to_grant: int, bucket_id: int | None) -> Transaction:
    """Refund `to_debt` against the account's debt and `to_grant` into a bucket of its own (None where that is 0)."""
    legs = [Posting(REVENUE, -(to_debt + to_grant))]
    if to_debt:
        legs.append(Posting(debt_sub(account_id), to_debt))
    if to_grant:
        if bucket_id is None:
            raise ValueError(f"refund:{lease_id}: no bucket for {to_grant}")
        legs.append(Posting(grant_sub(bucket_id), to_grant))
    return Transaction(f"refund:{lease_id}", Kind.REFUND, account_id, tuple(legs), lease_id)


def expire(bucket_id: int, account_id: int, balance: int) -> Transaction:
    legs = (Posting(grant_sub(bucket_id), -balance), Posting(EXPIRED, balance))
    return Transaction(f"expire:{bucket_id}", Kind.EXPIRE, account_id, legs)
