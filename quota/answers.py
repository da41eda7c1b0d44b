"""Answers to requests that carried an idempotency key, kept so that the same request gets the same answer again.

A row is written before the request does anything (status 0: begun) and completed with the answer. A process that
dies in between leaves it begun: the repeat of that request runs again, which has no second effect because whatever
takes a key also has a natural key in the ledger or is a compare-and-swap; another request under that key is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from quota import schema
from quota.errors import Conflict
from quota.ports import Clock
from quota.store import Store, insert_new, retried

__all__ = ["KEPT", "Answer", "Answers"]

#: How long an answer is kept. A repeat after that is a new request, which the natural keys of the ledger still meet.
KEPT = timedelta(days=7)
#: How many are kept for one owner, the newest: nobody fills the book by asking.
MOST_KEPT = 1000
_EVERY = timedelta(days=1)
_BEGUN = 0
_TABLE = schema.answered


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered: an HTTP status below 500, and the body as it was sent."""

    status: int
    body: str


class Answers:
    """Keeps answers by owner and key; keys of two owners never meet. Each call is one transaction."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._tidied: datetime | None = None

    @retried
    def begin(self, owner: str, key: str, fingerprint: str) -> Answer | None:
        """The answer that this request was given before, or None when it is to run now: `finish` or `drop` it then.

        `fingerprint` says what the request is (at most 64 characters). Raises `Conflict` when the key belongs to
        another request. Whoever calls makes sure that it does not run the same request twice at once.
        """
        with self.store.write() as connection:
            now = self.clock.now()
            where = (_TABLE.c.owner == owner) & (_TABLE.c.key == key)
            connection.execute(sa.delete(_TABLE).where(where, _TABLE.c.at < now - KEPT))
            values = {"owner": owner, "key": key, "fingerprint": fingerprint, "status": _BEGUN, "body": "", "at": now}
            if insert_new(connection, _TABLE, values):
                connection.execute(sa.delete(_TABLE).where(_TABLE.c.owner == owner, _TABLE.c.at < _oldest_kept(owner)))
                return None
            row = connection.execute(sa.select(_TABLE).where(where)).mappings().one()
            if row["fingerprint"] != fingerprint:
                raise Conflict(f"the key {key!r} was used for another request")
            return None if row["status"] == _BEGUN else Answer(row["status"], row["body"])

    @retried
    def finish(self, owner: str, key: str, fingerprint: str, answer: Answer) -> None:
        """Keep the answer of a request that was begun; the first one stays. Raises `ValueError` for a status that
        says nothing about the request itself (500 and above)."""
        if not 100 <= answer.status < 500:
            raise ValueError(f"an answer with status {answer.status} is not kept")
        mine = (_TABLE.c.owner == owner) & (_TABLE.c.key == key) & (_TABLE.c.fingerprint == fingerprint)
        values = {"status": answer.status, "body": answer.body, "at": self.clock.now()}
        with self.store.write() as connection:
            connection.execute(sa.update(_TABLE).where(mine, _TABLE.c.status == _BEGUN).values(**values))

    @retried
    def drop(self, owner: str, key: str) -> None:
        """The request came to no answer worth keeping: it may be tried again under the same key."""
        mine = (_TABLE.c.owner == owner) & (_TABLE.c.key == key) & (_TABLE.c.status == _BEGUN)
        with self.store.write() as connection:
            connection.execute(sa.delete(_TABLE).where(mine))

    @retried
    def forget_old(self) -> int:
        """Take off what is older than a week, and tell how many."""
        with self.store.write() as connection:
            return connection.execute(sa.delete(_TABLE).where(_TABLE.c.at < self.clock.now() - KEPT)).rowcount

    def tidy(self) -> int:
        """`forget_old`, once a day however often this is called. The service calls it now and then."""
        now = self.clock.now()
        if self._tidied is not None and timedelta(0) <= now - self._tidied < _EVERY:
            return 0
        self._tidied = now
        return self.forget_old()


def _oldest_kept(owner: str) -> sa.ScalarSelect[datetime]:
    """When the oldest that stays was given; nothing where there are few."""
    newest = sa.select(_TABLE.c.at).where(_TABLE.c.owner == owner).order_by(_TABLE.c.at.desc())
    return newest.offset(MOST_KEPT - 1).limit(1).scalar_subquery()
