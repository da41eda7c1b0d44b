"""Any order of writes on a real book: the balances are the ledger, no device is given twice, every life adds up."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from quota.bank import Defaults
from quota.errors import Conflict, Refused, Stale
from quota.groups import kind_of
from quota.leases import Lease, State, StopReason, Target
from quota.pricing import charge_due
from quota.records import read_segments
from quota.units import MicroCredits
from tests.fakes.book import BOOT, Desk, open_desk, weights
from tests.fakes.clock import FakeClock

USERS = ("alice", "bob", "team-lead")
#: Pays for any of them.
LAB = "group:lab"
SHARES = ((0, 0), (125, 1), (100, 1), (500, 1), (1000, 1), (1000, 2))
#: Ten minutes before a month ends, so that holds, grants and charges cross it.
START = datetime(2026, 3, 31, 23, 50, tzinfo=UTC)


class AnyOrder(RuleBasedStateMachine):
    """A small site with little credit, where everything goes wrong at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(tempfile.mkdtemp(prefix="berth-any-order-"))
        self.stack.callback(shutil.rmtree, folder)
        defaults = Defaults(monthly_grant=MicroCredits(700_000), cpu_hour=MicroCredits(30_000), max_gpu_milli=None)
        self.desk: Desk = self.stack.enter_context(open_desk(folder, FakeClock(START), defaults))
        self.desk.devices(2)
        self.made: list[str] = []
        self.voided: set[str] = set()

    def teardown(self) -> None:
        self.stack.close()

    @initialize()
    def beat(self) -> None:
        self.desk.beat()

    def pick(self, data: st.DataObject, *states: State) -> Lease | None:
        """A lease in one of the states, drawn in the order they were made (ids are random, and must not matter)."""
        leases = {lease.id: lease for lease in self.desk.book.leases(limit=10_000)}
        found = [leases[lease_id] for lease_id in self.made if leases[lease_id].state in states]
        return data.draw(st.sampled_from(found)) if found else None

    # ---- what people and processes do

    @rule(user=st.sampled_from(USERS), server=st.sampled_from("ab"), size=st.sampled_from(SHARES), own=st.booleans())
    def reserve(self, user: str, server: str, size: tuple[int, int], own: bool) -> None:
        try:
            self.made.append(self.desk.reserve(user, server, *size, account=user if own else LAB).id)
        except Refused as refused:
            assert refused.facts

    @rule(user=st.sampled_from(USERS), server=st.sampled_from("ab"), size=st.sampled_from(SHARES), own=st.booleans())
    def run(self, user: str, server: str, size: tuple[int, int], own: bool) -> None:
        try:
            self.made.append(self.desk.run(user, server, *size, account=user if own else LAB).id)
        except Refused as refused:
            assert refused.facts

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        lease = self.pick(data, State.RESERVED)
        if lease is not None and lease.target is Target.RUN:
            self.desk.book.mark_starting(lease, self.desk.now + timedelta(minutes=5))

    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        lease = self.pick(data, State.STARTING)
        if lease is not None and lease.target is Target.RUN:
            self.desk.beat()
            self.desk.book.mark_running(lease, BOOT, self.desk.now)

    @rule(data=st.data(), reason=st.sampled_from(StopReason), notice=st.sampled_from([None, 0, 300]))
    def stop(self, data: st.DataObject, reason: StopReason, notice: int | None) -> None:
        lease = self.pick(data, *State)
        if lease is not None:
            after = None if notice is None else self.desk.now + timedelta(seconds=notice)
            self.desk.book.request_stop(lease.id, reason, stop_after=after)

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        lease = self.pick(data, State.RUNNING)
        if lease is not None:
            try:
                self.desk.book.cancel_stop(lease.id, "idle-culler")
            except Stale:
                assert lease.stop_after is not None
                assert lease.stop_after <= self.desk.now

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        lease = self.pick(data, State.RESERVED, State.STARTING, State.RUNNING)
        if lease is not None and not (lease.state is State.RUNNING and lease.target is Target.RUN):
            self.desk.book.acknowledge(lease.id, BOOT)

    @rule(data=st.data(), ago=st.sampled_from([None, 0, 1.5, 4000]))
    def close(self, data: st.DataObject, ago: float | None) -> None:
        lease = self.pick(data, State.RUNNING)
        if lease is not None:
            ended = None if ago is None else self.desk.now - timedelta(seconds=ago)
            self.desk.book.close(lease, ended, StopReason.FAILED)

    @rule(data=st.data())
    def observe(self, data: st.DataObject) -> None:
        self.desk.book.observe_all(self.desk.book.live(), self.desk.now)

    @rule(data=st.data(), ago=st.sampled_from([None, 0, 2]))
    def release(self, data: st.DataObject, ago: float | None) -> None:
        lease = self.pick(data, State.RESERVED, State.STARTING, State.RUNNING, State.STOPPING)
        if lease is not None and lease.target is Target.STOP:
            ended = None if ago is None else self.desk.now - timedelta(seconds=ago)
            self.desk.book.release(lease, ended)

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        lease = self.pick(data, State.RELEASED)
        if lease is not None:
            assert self.desk.book.settle(lease).held == 0

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        lease = self.pick(data, State.RUNNING)
        if lease is not None:
            self.desk.end(lease)

    @rule(data=st.data(), ago=st.sampled_from([0, 0, 7]))
    def meter(self, data: st.DataObject, ago: float) -> None:
        lease = self.pick(data, State.RUNNING, State.STOPPING)
        if lease is not None:
            self.desk.book.meter(lease, self.desk.now - timedelta(seconds=ago))

    @rule(data=st.data())
    def void(self, data: st.DataObject) -> None:
        lease = self.pick(data, *State)
        if lease is not None:
            try:
                self.desk.book.void(lease.id)
                self.voided.add(lease.id)
            except Conflict:  # a part of it was refunded before
                assert lease.state is State.SETTLED

    @rule(data=st.data(), seconds=st.sampled_from([0, 50, 1200]))
    def fail_after_ready(self, data: st.DataObject, seconds: float) -> None:
        lease = self.pick(data, State.RUNNING)
        if lease is not None:
            self.desk.clock.advance(seconds)
            self.desk.book.void(lease.id)
            self.voided.add(lease.id)
            self.desk.end(self.desk.book.lease(lease.id))

    @rule(data=st.data(), amount=st.sampled_from([None, 1, 5_000, 10**9]))
    def refund(self, data: st.DataObject, amount: int | None) -> None:
        lease = self.pick(data, *State)
        if lease is not None:
            try:
                done = self.desk.bank.refund(lease.id, amount, "admin", "")
                assert done <= lease.charged or lease.charged == 0 or done > 0
            except Conflict:
                pass

    @rule(
        user=st.sampled_from((*USERS, LAB)),
        amount=st.integers(1, 400_000),
        minutes=st.sampled_from([None, 12, 60]),
        key=st.sampled_from([None, None, "k"]),
    )
    def grant(self, user: str, amount: int, minutes: int | None, key: str | None) -> None:
        self.desk.bank.ensure_account(user, kind_of(user))
        ends = None if minutes is None else self.desk.now + timedelta(minutes=minutes)
        try:
            self.desk.bank.grant(user, amount, "admin", key=key, expires_at=ends)
        except Conflict:
            assert key is not None

    @rule(price=st.sampled_from([0, 333_333, 1_000_000, 7_000_000]))
    def reprice(self, price: int) -> None:
        self.desk.bank.set_price(price, price // 30, "admin")

    @rule(user=st.sampled_from(("*", *USERS)), most=st.sampled_from([None, 200_000, "inherit"]))
    def limit(self, user: str, most: object) -> None:
        if user != "*":
            self.desk.bank.ensure_account(user)
        self.desk.bank.set_limits(user, {"monthly_micro": most}, "admin")

    @rule(seconds=st.sampled_from([0.000001, 0.9, 50, 61.37, 300, 900, 7200]))
    def wait(self, seconds: float) -> None:
        self.desk.clock.advance(seconds)

    # ---- what is true after every step

    @invariant()
    def x07_the_balances_are_the_ledger(self) -> None:
        assert self.desk.bank.audit() == []

    @invariant()
    def p03_no_device_is_given_twice(self) -> None:
        assert all(held <= 1000 for held in weights(self.desk.book.live()).values())

    @invariant()
    def b02_statements_sum_to_the_ledger(self) -> None:
        for view in self.desk.bank.accounts():
            name = view.account.name
            lines = self.desk.bank.statement(name, START, self.desk.now + timedelta(seconds=1))
            leases = [lease for lease in self.desk.book.leases() if lease.account == name]
            assert sum(line.charged for line in lines) == sum(lease.charged for lease in leases)
            assert view.held == sum(lease.held for lease in leases)

    @invariant()
    def x08_a_settled_bill_is_what_its_segments_cost_or_nothing(self) -> None:
        settled = [lease for lease in self.desk.book.leases() if lease.state is State.SETTLED]
        with self.desk.store.read() as connection:
            segments = read_segments(connection, [lease.id for lease in settled])
        for lease in settled:
            due = charge_due(segments[lease.id], lease.ended_at or self.desk.now)
            assert 0 <= lease.charged <= due
            assert lease.held == 0
            assert lease.charged == 0 or lease.id not in self.voided
            assert lease.started_at is not None or lease.charged == 0


def test_x07_in_any_order_the_balances_are_the_ledger(database: str, deep: bool) -> None:
    usual = 15 if database == "sqlite" else 3
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        AnyOrder,
        settings=settings(
            max_examples=200 if deep else usual,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
