"""What a jump of the machine's clock does to what is in the book. Pure.

Charges follow the wall clock, which a person, NTP or a suspended machine may move; what is owed follows the time that
the machine really ran. The agent compares both hands at every look (`measure`) and makes a difference good at once:

* forward (a step, or a suspend): running segments are cut at the last moment before the jump and go on at the same
  moment as the new clock has it. The gap between is no segment, so it is never charged;
* back: what is running is dated back by the step, whole: it began so much earlier by the new clock.

Either way a segment's length stays the time that ran, nothing lies in the future, and nothing overlaps. Terms (a
notice, a start's deadline) move along; an end that was set to the calendar (`CALENDAR`) stays where its user put it.

Which stamps are of the old time: those of events that were in the book at the agent's last look, by their numbers; of
later ones all but those within the last `blind` seconds of the new clock (between two looks of the agent). Where that
cannot be told, the doubt is the user's gain and at most `blind`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from quota.leases import Segment, StopReason

#: Hands may differ so much before it is a jump. NTP slews both alike, so that they only part by a step or a suspend.
TOLERANCE = timedelta(seconds=1)

#: A stamp so far ahead may have been taken while a jump back was being made good.
SLACK = timedelta(seconds=5)

#: Ends that were set to a time of day, not to a length of time.
CALENDAR = frozenset({StopReason.SHUTDOWN, StopReason.WINDOW_END})

RESERVED, STARTING, RUNNING, STOP = "lease-reserved", "lease-starting", "lease-running", "stop-requested"
SOONER = "stop-sooner"
_NONE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Reading:
    """Both hands at one moment: `wall` in UTC, and how long the machine has `run` since some moment of this `boot`."""

    wall: datetime
    run: timedelta
    boot: str


@dataclass(frozen=True, slots=True)
class Jump:
    """The wall clock moved by `by` more (less, where it is negative) than the machine ran, at a moment within the last
    `blind` before `now`, which is the present by the new clock."""

    by: timedelta
    blind: timedelta
    now: datetime

    @property
    def before(self) -> datetime:
        """The present as the old clock would tell it."""
        return self.now - self.by

    def old(self, stamp: datetime) -> bool:
        """Whether a stamp that is on record was taken before the jump."""
        if self.by > _NONE:
            return stamp < self.now - self.blind
        return not self.now - self.blind <= stamp <= self.now + SLACK


def carried(before: Reading, after: Reading) -> Reading:
    """`after` as the clock of `before` would tell it: differences below the tolerance add up, and are not forgotten."""
    return Reading(before.wall + (after.run - before.run), after.run, before.boot)


def measure(before: Reading, after: Reading) -> Jump | None:
    """The jump between two readings; None where there was none, or where nobody can tell (another boot)."""
    ran = after.run - before.run
    if not before.boot or before.boot != after.boot or ran < _NONE:
        return None
    by = (after.wall - before.wall) - ran
    return Jump(by, ran, after.wall) if abs(by) > TOLERANCE else None


@dataclass(frozen=True, slots=True)
class Written:
    """When an event last happened, by the clock of then, and whether that was after the agent's last look."""

    at: datetime
    late: bool

    def old(self, jump: Jump) -> bool:
        """Whether it happened before the jump."""
        return not self.late or jump.old(self.at)


@dataclass(frozen=True, slots=True)
class Life:
    """What one live lease has on record; `written` are the events of its start and stop."""

    requested_at: datetime
    deadline: datetime | None
    started_at: datetime | None
    last_seen: datetime | None
    metered_until: datetime | None
    stop_reason: StopReason | None
    stop_after: datetime | None
    segments: tuple[Segment, ...]
    written: Mapping[str, Written]

    @property
    def running(self) -> Segment | None:
        """The segment that counts time."""
        return self.segments[-1] if self.segments and self.segments[-1].ended_at is None else None


def made_good(life: Life, jump: Jump) -> Life:
    """The same life by the new clock."""
    life = replace(life, deadline=_deadline(life, jump), stop_after=_stop_after(life, jump))
    running = life.running
    ran_before = running is not None and _ran_before(life, running, jump)
    if jump.by > _NONE:
        return _cut(life, running, jump) if running is not None and ran_before else life
    life = _asked_earlier(life, jump)
    return _dated_back(life, jump) if ran_before else life


def _ran_before(life: Life, running: Segment, jump: Jump) -> bool:
    """Whether it ran at the jump already."""
    began = life.written.get(RUNNING)
    return jump.old(running.started_at) if began is None else Written(running.started_at, began.late).old(jump)


def _deadline(life: Life, jump: Jump) -> datetime | None:
    set_at = life.written.get(STARTING)
    if life.deadline is None or set_at is None or not set_at.old(jump):
        return life.deadline
    return life.deadline + jump.by


def _stop_after(life: Life, jump: Jump) -> datetime | None:
    set_at = life.written.get(STOP)
    if life.stop_after is None or set_at is None or not set_at.old(jump):
        return life.stop_after
    if life.stop_reason in CALENDAR and life.stop_after > jump.before:
        return max(life.stop_after, jump.now)  # one that the jump went over is due now, and ended in good order
    return life.stop_after + jump.by


# ---- forward -------------------------------------------------------------------------------------------------------


def _cut(life: Life, running: Segment, jump: Jump) -> Life:
    """Close at the last moment that is on record, go on at the same moment by the new clock."""
    known = [running.started_at, *(stamp for stamp in (life.last_seen, life.metered_until) if stamp is not None)]
    at = max(running.started_at, min(max(known), jump.before))
    going_on = replace(running, started_at=min(at + jump.by, max(jump.now, running.started_at)))
    if at == running.started_at:
        begun = going_on.started_at if len(life.segments) == 1 else life.started_at
        return replace(life, started_at=begun, segments=(*life.segments[:-1], going_on))
    ended = replace(running, ended_at=at)
    return replace(life, segments=(*life.segments[:-1], ended, replace(going_on, number=running.number + 1)))


# ---- back ----------------------------------------------------------------------------------------------------------


def _asked_earlier(life: Life, jump: Jump) -> Life:
    return replace(life, requested_at=life.requested_at + jump.by) if life.requested_at > jump.now else life


def _dated_back(life: Life, jump: Jump) -> Life:
    """Move the running segment, and of those before it what would overlap; the other stamps go with theirs."""
    moves = _moves(life.segments, jump.by)
    segments = tuple(_moved(part, move) for part, move in zip(life.segments, moves, strict=True))
    begun = life.started_at + moves[0] if life.started_at is not None else None
    seen = life.last_seen + jump.by if life.last_seen is not None else None
    if seen is not None and begun is not None:
        seen = max(begun, min(seen, jump.now))
    requested = min(life.requested_at, begun) if begun is not None else life.requested_at
    metered = None if life.metered_until is None else _relocated(life.metered_until, life.segments, moves)
    return replace(
        life, requested_at=requested, started_at=begun, last_seen=seen, metered_until=metered, segments=segments
    )


def _moves(segments: Sequence[Segment], by: timedelta) -> list[timedelta]:
    """By how much each segment moves: the last by all, one before it only so far that they do not overlap."""
    moves = [by]
    for part, following in zip(reversed(segments[:-1]), reversed(segments[1:]), strict=True):
        room = (following.started_at + moves[0]) - (part.ended_at or following.started_at)
        moves.insert(0, min(_NONE, room))
    return moves


def _moved(part: Segment, move: timedelta) -> Segment:
    ended = None if part.ended_at is None else part.ended_at + move
    return replace(part, started_at=part.started_at + move, ended_at=ended)


def _relocated(stamp: datetime, segments: Sequence[Segment], moves: Sequence[timedelta]) -> datetime:
    """A stamp after the move, with the same time counted before it as before."""
    for part, move in zip(segments, moves, strict=True):
        if part.ended_at is None or stamp <= part.ended_at:
            return max(stamp, part.started_at) + move
    return stamp + moves[-1]
