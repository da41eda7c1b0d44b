"""The outbox: notices in the book, once for each key, and their deliveries by each channel until they are over.

Whoever decides hands a notice to `Outbox.deliver`, which returns at once: a thread writes it, and tries again while the
book is away. Whoever delivers claims what is due (`Deliveries.claim`), by compare-and-swap, for a bounded time, and
says right before it hands a message over that it does (`begin`). Where the owner of a claim died before that, it is
sent again; after that only where its channel is idempotent: it may have arrived.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from quota import schema_stops
from quota.errors import Stale
from quota.notices import ENDS, STOPS, TO_ADMINS, URGENT, Notice, NoticeKind
from quota.ports import Clock
from quota.routing import NO_NEWS, Preference, from_choices, route
from quota.store import Store, insert_new, retried
from quota.told import booked

__all__ = ["Claim", "Deliveries", "Outbox", "Tidy", "Waiting", "key_of", "read_waiting", "write"]

log = logging.getLogger("berth.notices")

_NOTICE, _DELIVERY, _PREFERENCE = schema_stops.notice, schema_stops.delivery, schema_stops.preference

#: Notices that wait for a book that is away.
MOST_WAITING: Final = 512
AGAIN_SECONDS: Final = 2.0
#: At the process's end, what still waits gets so long.
LAST_SECONDS: Final = 5.0

#: A claim is good for so long; no send takes longer.
CLAIMED: Final = timedelta(minutes=5)
#: Between two tries of one delivery: doubled each time up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=15), timedelta(hours=1)
MOST_TRIES: Final = 10
_LONGEST_KEY: Final = 255
#: Behind the owner of a claim whose message is being handed over.
BEGUN: Final = " hands over"

UNKNOWN = booked("It is not known whether it was sent: the process that was sending it ended")
TOO_LATE = booked("It could not be sent in time")


#: Warnings of a server that has ended since say nothing more: they count as read.
_SUPERSEDED = sa.update(_NOTICE).where(
    _NOTICE.c.lease_id == sa.bindparam("over"),
    _NOTICE.c.read_at.is_(None),
    _NOTICE.c.kind.in_([kind.value for kind in (*URGENT, *STOPS.values())]),
)


def key_of(notice: Notice) -> str:
    """What makes it one thing, as it fits into the book."""
    key = notice.key or f"{notice.kind.value}:{notice.user}:{notice.when.isoformat()}"
    if len(key) <= _LONGEST_KEY:
        return key
    return key[:190] + hashlib.sha256(key.encode()).hexdigest()


def write(
    connection: sa.Connection, notice: Notice, usable: Collection[str], now: datetime, zone: ZoneInfo
) -> int | None:
    """A notice with its deliveries, in a transaction that is under way. Its id; None where it was told before."""
    lease = notice.data.get("lease")
    values = {
        "key": key_of(notice),
        "user": notice.user,
        "kind": notice.kind.value,
        "lease_id": lease if isinstance(lease, str) else None,
        "at": notice.when,
        "expires_at": notice.expires_at,
        "words": notice.words,
        "link": notice.link,
        "data": dict(notice.data),
        "read_at": notice.when if notice.kind in NO_NEWS else None,
    }
    if not insert_new(connection, _NOTICE, values):
        return None
    if notice.kind in ENDS and values["lease_id"]:
        connection.execute(_SUPERSEDED.values(read_at=now), {"over": values["lease_id"]})
    number = connection.scalar(sa.select(_NOTICE.c.id).where(_NOTICE.c.key == values["key"]))
    assert number is not None
    row = connection.execute(sa.select(_PREFERENCE).where(_PREFERENCE.c.user == notice.user)).mappings().one_or_none()
    chosen = from_choices(row["email"], row["choices"], row["secret"]) if row else Preference()
    due = route(notice, chosen, usable, now, zone)
    if due:
        rows = [{"notice_id": number, "channel": name, "state": "waiting", "next_at": at} for name, at in due.items()]
        connection.execute(sa.insert(_DELIVERY), rows)
    return int(number)


class Outbox:
    """A `quota.ports.Notifier`. `usable` are the channels that the settings open to users, `admins` those to the
    administrators; `zone` is the site's."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        usable: Collection[str] = (),
        zone: str = "UTC",
        admins: Collection[str] = (),
        again: float = AGAIN_SECONDS,
    ) -> None:
        self._store, self._clock, self._usable, self._zone = store, clock, frozenset(usable), ZoneInfo(zone)
        self._admins, self._again = frozenset(admins), again
        self._waiting: queue.Queue[Notice | None] = queue.Queue(MOST_WAITING)
        self._counts: Counter[str] = Counter()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def deliver(self, notice: Notice) -> None:
        """Put it in line for the book. Where the line is full it is dropped, logged and counted."""
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            self._lost(notice, "too many notices wait for the book")
            return
        with self._lock:
            if self._thread is None:  # with the first notice: a process that tells nothing has no thread for it
                self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
                self._thread.start()

    @retried
    def put(self, notice: Notice) -> int | None:
        """Write it now, in this thread. Its id; None where it was told before. Raises what the book raises."""
        with self._store.write() as connection:
            usable = self._admins if notice.user == TO_ADMINS else self._usable
            return write(connection, notice, usable, self._clock.now(), self._zone)

    def counts(self) -> Mapping[str, int]:
        """What became of notices since the process began."""
        return {name: self._counts[name] for name in ("notices_written", "notices_dropped")}

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Give what waits a last chance, bounded; for the end of the process."""
        if self._thread is None:
            return
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            pass
        self._thread.join(seconds)
        self._ending.set()

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            while not self._written(notice):
                if self._ending.wait(self._again):
                    return

    def _written(self, notice: Notice) -> bool:
        """False where it is to be tried again."""
        try:
            self._counts["notices_written"] += self.put(notice) is not None
        except ValueError as error:  # the book cannot hold it, now or ever
            self._lost(notice, str(error))
        except sa.exc.IntegrityError as error:
            self._lost(notice, type(error).__name__)
        except Exception as error:
            log.warning("A notice waits for the book: %s", error, extra={"event": "notice-waits"})
            return False
        return True

    def _lost(self, notice: Notice, why: str) -> None:
        self._counts["notices_dropped"] += 1
        told = {"event": "notice-lost", "user": notice.user, "notice": notice.kind.value}
        log.warning("The notice %s to %s was not delivered: %s", notice.kind.value, notice.user, why, extra=told)


# ---- deliveries --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """One delivery that whoever holds this may send now, `tries` counted with this one."""

    id: int
    channel: str
    owner: str
    tries: int
    notice: Notice


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one channel has still to send of what is due: how many, and since when the first of them has been due."""

    count: int
    oldest_due: datetime


#: What becomes of one try; "again": it is tried again later.
ENDS_OF_TRIES: Final = ("sent", "again", "failed", "dropped")
#: As the partial index has it, so that both databases use that.
_OPEN = sa.text(f"delivery.{schema_stops.DUE_SQL}")


class Deliveries:
    """Claims of deliveries and their ends; each call is one transaction. Safe from several processes."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._ends: Counter[tuple[str, str]] = Counter()

    def counts(self) -> Mapping[tuple[str, str], int]:
        """What became of tries since the process began, by channel and one of `ENDS_OF_TRIES`."""
        return dict(self._ends)

    @retried
    def claim(self, channel: str, owner: str, most: int = 20) -> list[Claim]:
        """What is due on a channel, from now on `owner`'s for `CLAIMED`. What is too late is dropped instead."""
        with self._store.write() as connection:
            now = self._clock.now()
            due = (
                sa.select(_NOTICE, _DELIVERY.c.tries)
                .join(_DELIVERY, _DELIVERY.c.notice_id == _NOTICE.c.id)
                .where(_OPEN, _DELIVERY.c.channel == channel)
                .where(_DELIVERY.c.state == "waiting", _DELIVERY.c.next_at <= now)
                .order_by(_DELIVERY.c.next_at, _NOTICE.c.id)
                .limit(most)
            )
            found, dropped = [], 0
            for row in connection.execute(due).mappings().all():
                late = row["expires_at"] is not None and row["expires_at"] <= now
                mine = {"state": "sending", "claimed_by": owner, "tries": row["tries"] + 1, "next_at": now + CLAIMED}
                values = {"state": "dropped", "why": TOO_LATE, "done_at": now} if late else mine
                this = sa.update(_DELIVERY).where(
                    _DELIVERY.c.notice_id == row["id"],
                    _DELIVERY.c.channel == channel,
                    _DELIVERY.c.state == "waiting",
                    _DELIVERY.c.tries == row["tries"],
                )
                if connection.execute(this.values(**values)).rowcount != 1:
                    continue
                if late:
                    dropped += 1
                else:
                    found.append(Claim(row["id"], channel, owner, row["tries"] + 1, _notice_of(row)))
        self._ends[channel, "dropped"] += dropped
        return found

    def sent(self, claim: Claim) -> bool:
        """It went out. False where the claim was not one's own any more."""
        return self._end(claim, "sent", "")

    def failed(self, claim: Claim, why: str) -> bool:
        """It can never go out this way."""
        return self._end(claim, "failed", why)

    def again(self, claim: Claim, why: str) -> bool:
        """It did not go out and may later. False where that is given up: tried too often, or too late by then."""
        at = self._clock.now() + pause(claim.tries)
        expires = claim.notice.expires_at
        if claim.tries >= MOST_TRIES or (expires is not None and at >= expires):
            self._end(claim, "failed", why)
            return False
        if self._set(claim, state="waiting", next_at=at, why=why, claimed_by=""):
            self._ends[claim.channel, "again"] += 1
        return True

    @retried
    def begin(self, claims: Sequence[Claim]) -> bool:
        """They are handed over from now on, as one message: whether they arrived is unknown if the sender dies. False,
        and nothing is marked, where one of them is not one's own any more: its claim ran out."""
        try:
            with self._store.write() as connection:
                for claim in claims:
                    if connection.execute(_own(claim).values(claimed_by=claim.owner + BEGUN)).rowcount != 1:
                        raise Stale(f"the notice {claim.id} is not this sender's any more")
        except Stale:
            return False
        return True

    @retried
    def recover(self, channel: str, idempotent: bool, alive: Callable[[str], bool] = lambda owner: True) -> int:
        """Deliveries whose sender is dead by `alive`, or whose claim has run out: it died where nobody sees that, or
        hangs. What it had not begun to hand over is sent again; the rest may have arrived. How many of these."""
        with self._store.write() as connection:
            now = self._clock.now()
            sending = sa.and_(_OPEN, _DELIVERY.c.channel == channel, _DELIVERY.c.state == "sending")
            owners = connection.scalars(sa.select(_DELIVERY.c.claimed_by).where(sending).distinct())
            dead = [owner for owner in owners if not alive(owner.removesuffix(BEGUN))]
            lost = sa.update(_DELIVERY).where(
                sending, sa.or_(_DELIVERY.c.next_at <= now, _DELIVERY.c.claimed_by.in_(dead))
            )
            begun = _DELIVERY.c.claimed_by.endswith(BEGUN, autoescape=True)
            again = lost.values(state="waiting", claimed_by="", next_at=now)
            waits = connection.execute(again if idempotent else again.where(~begun)).rowcount
            unknown = {"state": "failed", "why": UNKNOWN, "done_at": now}
            count = connection.execute(lost.values(**unknown)).rowcount
        self._ends[channel, "again"] += waits
        self._ends[channel, "failed"] += count
        return count

    def waiting(self) -> dict[str, Waiting]:
        """What each channel has still to send that is due."""
        with self._store.read() as connection:
            return read_waiting(connection, self._clock.now())

    @retried
    def forget(self, before: datetime, most: int = 1000) -> int:
        """Take off the oldest notices of before that moment, with their deliveries; none that is still to be sent. How
        many."""
        with self._store.write() as connection:
            waits = sa.select(_DELIVERY.c.notice_id).where(_OPEN, _DELIVERY.c.notice_id == _NOTICE.c.id)
            old = sa.select(_NOTICE.c.id).where(_NOTICE.c.at < before, ~waits.exists()).order_by(_NOTICE.c.id)
            ids = list(connection.scalars(old.limit(most)))
            connection.execute(sa.delete(_DELIVERY).where(_DELIVERY.c.notice_id.in_(ids)))
            return connection.execute(sa.delete(_NOTICE).where(_NOTICE.c.id.in_(ids))).rowcount

    def outcomes(self) -> dict[tuple[str, str], int]:
        """How many deliveries are in each state, by channel and state."""
        with self._store.read() as connection:
            chosen = sa.select(_DELIVERY.c.channel, _DELIVERY.c.state, sa.func.count())
            rows = connection.execute(chosen.group_by(_DELIVERY.c.channel, _DELIVERY.c.state))
            return {(channel, state): count for channel, state, count in rows}

    def of(self, notice_id: int) -> dict[str, tuple[str, str]]:
        """State and reason of each delivery of one notice, by channel."""
        with self._store.read() as connection:
            rows = connection.execute(sa.select(_DELIVERY).where(_DELIVERY.c.notice_id == notice_id)).mappings()
            return {row["channel"]: (row["state"], row["why"]) for row in rows}

    def _end(self, claim: Claim, state: str, why: str) -> bool:
        ended = self._set(claim, state=state, why=why, done_at=self._clock.now())
        self._ends[claim.channel, state] += ended
        return ended

    @retried
    def _set(self, claim: Claim, **values: object) -> bool:
        with self._store.write() as connection:
            return connection.execute(_own(claim).values(**values)).rowcount == 1


def _own(claim: Claim) -> sa.Update:
    """The delivery, as long as it is this claim's."""
    return sa.update(_DELIVERY).where(
        _DELIVERY.c.notice_id == claim.id,
        _DELIVERY.c.channel == claim.channel,
        _DELIVERY.c.state == "sending",
        _DELIVERY.c.claimed_by.in_([claim.owner, claim.owner + BEGUN]),
        _DELIVERY.c.tries == claim.tries,
    )


def _notice_of(row: sa.RowMapping) -> Notice:
    return Notice(
        user=row["user"] or TO_ADMINS,
        kind=NoticeKind(row["kind"]),
        words=row["words"],
        when=row["at"],
        link=row["link"],
        data=row["data"],
        key=row["key"],
        expires_at=row["expires_at"],
    )


def preferences_of(connection: sa.Connection, users: Sequence[str]) -> dict[str, Preference]:
    """What each of these chose; who never chose anything is not in it."""
    rows = connection.execute(sa.select(_PREFERENCE).where(_PREFERENCE.c.user.in_(list(users)))).mappings()
    return {row["user"]: from_choices(row["email"], row["choices"], row["secret"]) for row in rows}


def read_waiting(connection: sa.Connection, now: datetime) -> dict[str, Waiting]:
    """What each channel has still to send that is due at `now`. Costs what waits, not what was sent."""
    parts = (_DELIVERY.c.channel, _DELIVERY.c.state, _DELIVERY.c.tries)
    due = sa.or_(_DELIVERY.c.next_at <= now, _DELIVERY.c.tries > 0)
    rows = connection.execute(
        sa.select(*parts, sa.func.count(), sa.func.min(_DELIVERY.c.next_at)).where(_OPEN, due).group_by(*parts)
    )
    found: dict[str, Waiting] = {}
    for channel, state, tries, count, soonest in rows:
        before = found.get(channel)
        first = min(_first_due(state, tries, soonest), before.oldest_due if before else now)
        found[channel] = Waiting(count + (before.count if before else 0), first)
    return found


def _first_due(state: str, tries: int, next_at: datetime) -> datetime:
    """When it was first due: the pauses since are known, and how long each try took is left out."""
    done = tries if state == "waiting" else tries - 1
    return next_at - (timedelta() if state == "waiting" else CLAIMED) - sum(map(pause, range(1, done + 1)), timedelta())


def pause(tries: int) -> timedelta:
    """How long is waited after so many tries."""
    return min(FIRST_PAUSE * (1 << (tries - 1)), LONGEST_PAUSE)


#: Old notices are looked for so often.
_EVERY: Final = timedelta(days=1)


class Tidy:
    """Takes off notices that are older than `keep`, once a day however often it is called."""

    def __init__(self, deliveries: Deliveries, clock: Clock, keep: timedelta) -> None:
        self._deliveries, self._clock, self._keep = deliveries, clock, keep
        self._last: datetime | None = None

    def look(self) -> int:
        """How many were taken off, in pieces of one transaction each. Raises what the book raises."""
        now = self._clock.now()
        if self._last is not None and timedelta() <= now - self._last < _EVERY:
            return 0
        taken = 0
        while found := self._deliveries.forget(now - self._keep):
            taken += found
        self._last = now
        return taken
