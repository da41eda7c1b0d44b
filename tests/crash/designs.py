"""Designs that are wrong, each in one point. The crash suite must tell every one of them from the right one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from quota import ledger, schema
from quota.book import Book
from quota.leases import Lease, State, Target
from quota.ledger import Kind
from quota.metering import month_name, usage
from quota.postings import legs_of, post
from quota.pricing import charge_due
from quota.records import lease_row, read_segments
from spawner import drift as plan
from spawner.agent import Agent
from spawner.drift import Action, Release
from spawner.ports import Look, ServerSpec, Unreachable
from tests.crash.parts import Runtime
from tests.crash.world import POLICY, Design

Boots = dict[str, datetime]


class FreesOnRequest(Agent):
    """The slot is free as soon as somebody asked for a stop."""

    def plan(self, leases: Sequence[Lease], boots: Boots, look: Look, now: datetime) -> list[Action]:
        freed = [Release(one, now) for one in leases if one.state is State.RUNNING and one.target is Target.STOP]
        return [*super().plan(leases, boots, look, now), *freed]


class OutageIsAbsence(Agent):
    """A runtime that does not answer has nothing."""

    def plan(self, leases: Sequence[Lease], boots: Boots, look: Look, now: datetime) -> list[Action]:
        return super().plan(leases, boots, {} if isinstance(look, Unreachable) else look, now)


class LooksFirst(Agent):
    """It looks at the runtime, then reads the book: what it looked at is older than what it is compared with."""

    def _read(self) -> list[Lease]:
        self._early = super()._look()
        return super()._read()

    def _look(self) -> Look:
        return self._early


class TrustsItsList(Agent):
    """What was not in the list read before the look is an orphan; nothing is read again."""

    def _remove_orphan(self, lease_id: str, now: datetime) -> bool:
        self._runtime.remove(lease_id)
        return True


class ReleasesWhatItCouldNotRemove(Agent):
    """A removal that failed is logged, and the lease marked released."""

    def _act(self, action: Action, now: datetime) -> bool:
        try:
            return super()._act(action, now)
        except RuntimeError:
            if isinstance(action, plan.Remove):
                self._book.release(action.lease, now)
            return True


class SettlesInThree(Agent):
    """The charge, what is given back and the state: three commits, and keys that are new each time."""

    def _act(self, action: Action, now: datetime) -> bool:
        if not isinstance(action, plan.Settle):
            return super()._act(action, now)
        settle_in_three(self._book, action.lease, now)
        return True


class DeadlineFrees(Agent):
    """A start that is late and not seen is over; its owner is not waited for."""

    def plan(self, leases: Sequence[Lease], boots: Boots, look: Look, now: datetime) -> list[Action]:
        late = [
            Release(one, now)
            for one in leases
            if one.state is State.STARTING and one.target is Target.STOP and not isinstance(look, Unreachable)
            if one.id not in look
        ]
        return [*super().plan(leases, boots, look, now), *late]


class StopsByHearsay(Agent):
    """What was decided on a heartbeat that was read is written without a look at the lease as it is now."""

    def _act(self, action: Action, now: datetime) -> bool:
        if isinstance(action, plan.RequestStop):
            self._book.request_stop(action.lease.id, action.reason, detail=action.detail, by="agent")
            return True
        return super()._act(action, now)


class EndsAtOnce(Agent):
    """Who is to stop is ended; what its kit still saves is not waited for."""

    def plan(self, leases: Sequence[Lease], boots: Boots, look: Look, now: datetime) -> list[Action]:
        due = [replace(one, stop_after=now) if one.stop_after is not None else one for one in leases]
        return super().plan(due, boots, look, now)


class WaitsForTheFarewell(Agent):
    """A server with a kit is ended when the kit has said that it is done, however long that takes."""

    def plan(self, leases: Sequence[Lease], boots: Boots, look: Look, now: datetime) -> list[Action]:
        actions = super().plan(leases, boots, look, now)
        return [one for one in actions if not isinstance(one, plan.AskStop | plan.Remove) or not self._waits(one.lease)]

    def _waits(self, lease: Lease) -> bool:
        said = self._farewells.of(lease.id)
        has_kit = lease.state is State.RUNNING and "kit" in self._rows.signals(lease.id)
        return has_kit and (said is None or said.done_at is None)


class Unlabelled(Runtime):
    """Whose server it is stands in the database alone, after the start."""

    known: set[str]

    def start(self, spec: ServerSpec) -> None:
        super().start(spec)
        self._known().add(spec.lease_id)

    def look(self) -> Look:
        found = super().look()
        return found if isinstance(found, Unreachable) else {k: v for k, v in found.items() if k in self._known()}

    def remove(self, lease_id: str) -> None:
        if lease_id in self._known():
            super().remove(lease_id)

    def _known(self) -> set[str]:
        self.known = getattr(self, "known", set())
        return self.known


def settle_in_three(book: Book, lease: Lease, now: datetime) -> None:
    """Right as long as nobody dies in it. The number of the charge is the next that is free, not the lease's own."""
    with book.store.read() as connection:
        row = lease_row(connection, lease.id)
        segments = read_segments(connection, [lease.id])[lease.id]
        mine = sa.select(schema.posting.c.key).where(schema.posting.c.lease_id == lease.id).distinct()
        number = sum(key.startswith("charge:") for key in connection.scalars(mine)) + 1
    end, free = lease.ended_at or now, bool(row["void"]) or not segments
    due, used = (0, 0) if free else (charge_due(segments, end), usage(segments, end))
    amount, month = due - row["charged"], month_name(now, book.bank.zone)
    if amount:
        with book.store.write() as connection:
            post(connection, now, month, ledger.charge(lease.id, lease.account_id, number, amount, row["held"], []))
    if row["held"] > amount:
        with book.store.write() as connection:
            back = ledger.give_back(list(legs_of(connection, lease.id)), row["held"] - amount)
            post(connection, now, month, ledger.hand_back(Kind.SETTLE, lease.id, lease.account_id, back, set()))
    with book.store.write() as connection:
        table, charges = schema.lease, number if amount else number - 1
        values = {"state": State.SETTLED.value, "charged": due, "usage": used, "held": 0, "charges": charges}
        times = {"metered_until": end, "version": lease.version + 1}
        connection.execute(sa.update(table).where(table.c.id == lease.id).values(**values, **times))


WRONG: dict[str, Design] = {
    "the slot is freed on request": Design(FreesOnRequest),
    "an outage is read as absence": Design(OutageIsAbsence),
    "it looks before it reads the book": Design(LooksFirst),
    "the list of orphans is not read again": Design(TrustsItsList),
    "a failed removal is logged and marked released": Design(ReleasesWhatItCouldNotRemove),
    "settlement in three commits without natural keys": Design(SettlesInThree),
    "a passed deadline frees": Design(DeadlineFrees),
    "no grace for starts on their way": Design(policy=replace(POLICY, start_grace=0)),
    "when a hub died is forgotten": Design(buries=False),
    "a stop is not swapped on what it was decided on": Design(StopsByHearsay),
    "a kit that is saving is not waited for": Design(EndsAtOnce),
    "a farewell is waited for without a deadline": Design(WaitsForTheFarewell),
    "whose server it is stands in the database alone": Design(runtime=Unlabelled),
}
