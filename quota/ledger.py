"""Double entry in integer micro-credits. Pure: values in, transactions out; `quota.postings` writes them.

Sub-accounts: `grant:{bucket}` (what is left of one grant), `debt:{account}` (never positive), `held:{lease}`, and
`platform:issued`, `platform:revenue`, `platform:expired`. The legs of every transaction sum to 0, the ledger only
grows, and every transaction has a natural key, so that posting it twice is seen and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from quota.units import MicroCredits

ISSUED = "platform:issued"
REVENUE = "platform:revenue"
EXPIRED = "platform:expired"

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


def give_back(draws: Sequence[Draw], amount: int) -> list[Draw]:
    """Where `amount` of a lease's money goes back to: the latest draw first. `draws` are in the order taken.

    Raises `ValueError` when more would go back than was taken.
    """
    back: dict[str, int] = {}
    left = amount
    for part in reversed(draws):
        if left <= 0:
            break
        returned = min(part.amount, left)
        back[part.sub] = back.get(part.sub, 0) + returned
        left -= returned
    if left > 0:
        raise ValueError(f"{left} more micro-credits to give back than were taken")
    return [Draw(sub, returned) for sub, returned in back.items()]


def outstanding(legs: Iterable[Posting]) -> list[Draw]:
    """The draws of a lease that have not gone back, from all its legs on grants and debt in the order posted."""
    open_draws: list[Draw] = []
    for leg in legs:
        if leg.amount < 0:
            open_draws.append(Draw(leg.sub, -leg.amount))
            continue
        left = leg.amount
        for index in range(len(open_draws) - 1, -1, -1):
            if open_draws[index].sub == leg.sub and left > 0:
                part = min(open_draws[index].amount, left)
                open_draws[index] = Draw(leg.sub, open_draws[index].amount - part)
                left -= part
    return [part for part in open_draws if part.amount > 0]


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


def hand_back(kind: Kind, lease_id: str, account_id: int, back: Sequence[Draw], expired: set[str]) -> Transaction:
    """Give money of the hold back to the sources in `back`; what goes to a grant in `expired` expires at once.

    `kind` is RELEASE (with the slot) or SETTLE (the last of it): each happens once, so each is a key.
    """
    legs = [Posting(held_sub(lease_id), -total(back))]
    legs += [Posting(part.sub, part.amount) for part in back]
    gone = [part for part in back if part.sub in expired]
    legs += [Posting(part.sub, -part.amount) for part in gone]
    if gone:
        legs.append(Posting(EXPIRED, total(gone)))
    return Transaction(f"{kind.value}:{lease_id}", kind, account_id, tuple(legs), lease_id)


def refund(lease_id: str, account_id: int, amount: int, debt: int, bucket_id: int) -> Transaction:
    """Refund `amount`: first the account's debt (`debt` <= 0) is taken down, the rest goes into a bucket of its own."""
    to_debt = min(amount, -debt)
    legs = [Posting(REVENUE, -amount)]
    if to_debt:
        legs.append(Posting(debt_sub(account_id), to_debt))
    if amount > to_debt:
        legs.append(Posting(grant_sub(bucket_id), amount - to_debt))
    return Transaction(f"refund:{lease_id}", Kind.REFUND, account_id, tuple(legs), lease_id)


def expire(bucket_id: int, account_id: int, balance: int) -> Transaction:
    legs = (Posting(grant_sub(bucket_id), -balance), Posting(EXPIRED, balance))
    return Transaction(f"expire:{bucket_id}", Kind.EXPIRE, account_id, legs)
