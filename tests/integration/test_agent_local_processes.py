"""The agent with real processes on the machine's own clock: what is killed, what is left behind, what is charged."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from quota.clock import SystemClock
from quota.leases import Lease, Segment, State, StopReason, Target
from quota.pricing import charge_due
from quota.units import MilliGpu
from spawner import processes, runner
from spawner.agent import AgentPolicy
from tests.contract.runtime_worlds import SERVER, LocalWorld, until
from tests.contract.test_runtime_local import NOHUP, alive
from tests.harness.waiting import PATIENCE
from tests.integration.agent_site import HOST, Site


class Deployment(Site):
    """A site with local processes, and an agent that runs in a thread when told to."""

    def __init__(self, folder: Path, policy: AgentPolicy | None = None) -> None:
        self.world = LocalWorld(folder)
        super().__init__(folder, SystemClock(), self.world.runtime, policy=policy)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def session(self, user: str = "ada", share: int = 500, *, deaf: bool = False, code: str = SERVER) -> Lease:
        lease = self.mark_starting(self.reserve(user, share))
        self.world.start(lease.id, deaf=deaf, code=code)
        return self.mark_running(lease)

    def agent_begins(self) -> None:
        self._stop = threading.Event()
        agent = self.new_agent(f"agent-{len(self._threads) + 2}")
        self._threads.append(threading.Thread(target=agent.run, args=(self._stop,)))
        self._threads[-1].start()

    def agent_ends(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def until_settled(self, lease: Lease) -> Lease:
        until(lambda: self.now(lease).state is State.SETTLED, "settled")
        return self.now(lease)

    def assert_exact(self, lease: Lease, end: datetime) -> None:
        """Charged from ready to `end`, to the microsecond."""
        done = self.now(lease)
        assert done.ended_at == end and done.started_at is not None
        segment = Segment(1, MilliGpu(done.weight), done.price, done.started_at, end)
        assert done.charged == charge_due([segment], end)

    def recorded_end(self, lease: Lease) -> datetime:
        found: list[int] = []

        def on_record() -> bool:
            record = runner.read_record(str(self.world.root / lease.id), "exit.json")
            found.extend([int(str(record["ended_at_us"]))] if record else [])
            return bool(found)

        until(on_record, "the end is on record")
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found[0])

    def clean(self) -> None:
        self.agent_ends()
        self.world.clean()
        self.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    made.clean()


def test_s01_three_servers_outlive_their_hub_and_agent(site: Deployment) -> None:
    leases = [site.session(user, 250) for user in ("ada", "bob", "eve")]
    pids = [site.world.pid(lease.id) for lease in leases]
    site.agent_begins()
    until(lambda: all(site.now(lease).last_seen != lease.last_seen for lease in leases))
    site.agent_ends()
    between = [site.now(lease) for lease in leases]
    site.boot = "hub-2"
    site.rows.beat(site.boot, "hub", HOST)
    site.agent_begins()
    until(lambda: all(site.now(lease).last_seen != lease.last_seen for lease in between))
    for lease, pid in zip(leases, pids, strict=True):
        assert site.now(lease).state is State.RUNNING and site.now(lease).target is Target.RUN
        assert site.world.pid(lease.id) == pid and alive(pid)


def test_s01_a_runs_folder_that_is_away_ends_nothing(site: Deployment) -> None:
    lease = site.session()
    site.agent.cycle()
    site.world.lose()
    before = site.now(lease)
    site.cycles(3)
    assert site.now(lease) == before
    site.world.root.with_name("elsewhere").rename(site.world.root)
    site.cycles(2)
    assert site.now(lease).state is State.RUNNING and alive(site.world.pid(lease.id))


def test_s02_a_server_that_ended_while_nobody_looked_is_charged_to_the_exit_record(site: Deployment) -> None:
    lease = site.session(share=1000)
    site.world.kill(lease.id)
    end = site.recorded_end(lease)
    ended_before = site.clock.now()
    until(lambda: site.clock.now() > ended_before + timedelta(seconds=0.5), "time passes, and is not charged")
    site.cycles()
    site.assert_exact(lease, end)
    assert site.now(lease).stop_reason is StopReason.FAILED
    site.assert_clean()


@pytest.mark.parametrize("killed", ["server", "runner", "both"])
def test_x29_a_kill_is_seen_at_once_and_closed_at_the_right_end(site: Deployment, killed: str) -> None:
    lease = site.session(share=1000)
    server = site.world.pid(lease.id)
    site.agent_begins()  # with the policy of production: one look a second
    until(lambda: site.now(lease).last_seen != lease.last_seen)
    if killed != "server":
        site.world.kill(lease.id, "start.json")
    if killed == "runner":
        seen = site.now(lease).last_seen
        until(lambda: site.now(lease).last_seen != seen, "it is still observed")
        assert alive(server) and site.now(lease).state is State.RUNNING, "a dead runner frees nothing"
        site.book.request_stop(lease.id, StopReason.USER)
        site.until_settled(lease)
    else:
        at = time.monotonic()
        os.kill(server, signal.SIGKILL)
        until(lambda: site.now(lease).ended_at is not None, "closed", patience_s=12)
        assert time.monotonic() - at < PATIENCE * 12
        done = site.until_settled(lease)
        gone = site.clock.now()
        assert done.ended_at is not None and gone - done.ended_at < PATIENCE * timedelta(seconds=14)
        assert done.stop_reason is StopReason.FAILED
        assert done.stop_detail == (
            "signal 9" if killed == "server" else "it ended without a record; charged to when it was last seen"
        )
    site.agent_ends()
    assert not alive(server)
    site.assert_clean()


def test_s05_both_ways(tmp_path: Path) -> None:
    site = Deployment(tmp_path, AgentPolicy(orphan_grace=0.2))
    try:
        lease = site.session()
        site.world.start("l-not-in-the-book")
        orphan, server = site.world.pid("l-not-in-the-book"), site.world.pid(lease.id)
        site.agent.cycle()
        assert alive(orphan), "left alone for the grace"
        until(lambda: (site.agent.cycle() or True) and not alive(orphan))
        assert alive(server) and site.now(lease).state is State.RUNNING
        site.runtime.remove(lease.id)  # behind the book's back
        site.cycles()
        done = site.now(lease)
        assert done.state is State.SETTLED and done.ended_at == done.last_seen
        site.assert_clean()
    finally:
        site.clean()


@pytest.mark.parametrize("step", ["after create", "after start", "never answers"])
def test_s06_a_failure_at_any_step_leaves_no_process_no_lease_no_charge(site: Deployment, step: str) -> None:
    lease = site.mark_starting(site.reserve())
    if step == "after create":
        (site.world.root / lease.id).mkdir()
    elif step == "after start":
        site.world.start(lease.id)
    else:
        site.world.start(lease.id, deaf=True)
    site.book.acknowledge(lease.id, site.boot)
    site.cycles()
    assert site.now(lease).state is State.SETTLED and site.now(lease).charged == 0
    site.assert_clean()


def test_s06_a_server_that_dies_in_its_start_is_its_owners_to_give_up(site: Deployment) -> None:
    lease = site.mark_starting(site.reserve())
    site.world.start(lease.id)
    site.world.kill(lease.id)
    site.recorded_end(lease)
    site.cycles(2)
    assert site.now(lease).state is State.STARTING
    site.book.acknowledge(lease.id, site.boot)
    site.cycles()
    assert site.now(lease).charged == 0
    site.assert_clean()


def test_s12_a_server_that_ignores_sigterm_is_forced_at_the_grace(tmp_path: Path) -> None:
    site = Deployment(tmp_path, AgentPolicy(cycle=0.1, term=0.5))
    try:
        lease = site.session(deaf=True)
        server = site.world.pid(lease.id)
        asked = site.clock.now()
        site.book.request_stop(lease.id, StopReason.ADMIN, stop_after=asked + timedelta(seconds=0.5))
        site.agent_begins()
        done = site.until_settled(lease)
        assert not alive(server)
        assert done.ended_at is not None and timedelta(seconds=0.9) < done.ended_at - asked < PATIENCE * timedelta(
            seconds=10
        )
        assert done.stop_reason is StopReason.ADMIN
        site.agent_ends()
        site.assert_clean()
    finally:
        site.clean()


def test_s12_a_deaf_server_without_a_runner_is_forced_too(tmp_path: Path) -> None:
    site = Deployment(tmp_path, AgentPolicy(cycle=0.1, term=0.3))
    try:
        lease = site.session(deaf=True)
        site.world.kill(lease.id, "start.json")
        site.book.request_stop(lease.id, StopReason.ADMIN)
        site.agent_begins()
        site.until_settled(lease)
        site.agent_ends()
        site.assert_clean()
    finally:
        site.clean()


def test_x04_a_time_limit_outlives_hub_and_agent(tmp_path: Path) -> None:
    site = Deployment(tmp_path, AgentPolicy(cycle=0.05))
    try:
        lease = site.session(share=1000)
        limit = site.clock.now() + timedelta(seconds=1)
        site.book.request_stop(lease.id, StopReason.SHUTDOWN, detail="shut down at its time", stop_after=limit)
        site.agent.cycle()
        site.rows.drop_beat(site.boot)
        site.agent_begins()  # another one, which knows only the book
        end = site.recorded_end(lease)
        site.until_settled(lease)
        assert timedelta(0) <= end - limit < PATIENCE * timedelta(seconds=5)
        # A look between the server's end and the runner's record of it still saw it held.
        closed = site.now(lease).ended_at
        assert closed is not None and timedelta(0) <= closed - end < PATIENCE * timedelta(seconds=1)
        site.assert_exact(lease, closed)
        assert site.now(lease).stop_reason is StopReason.SHUTDOWN
        site.agent_ends()
        site.assert_clean()
    finally:
        site.clean()


def test_a_nohup_job_ends_with_the_lease_and_holds_it_until_then(site: Deployment) -> None:
    site.agent = site.new_agent(policy=AgentPolicy(term=0.3))
    lease = site.session(code=NOHUP + SERVER)
    stray = int((site.world.home(lease.id) / "stray").read_text())
    server = site.world.pid(lease.id)
    site.world.kill(lease.id, "start.json")
    os.kill(server, signal.SIGKILL)
    until(lambda: not alive(server))
    site.cycles(3)
    assert alive(stray) and site.now(lease).state is State.RUNNING, "it uses the device, so the device is not free"
    site.book.request_stop(lease.id, StopReason.USER)
    until(lambda: (site.agent.cycle() or True) and site.now(lease).state is State.SETTLED)
    assert not alive(stray)
    site.assert_clean()


def test_a_machine_that_was_restarted_is_charged_to_the_last_observation(site: Deployment) -> None:
    lease = site.session()
    site.cycles(2)
    seen = site.now(lease).last_seen
    site.world.kill(lease.id, "start.json")
    site.world.kill(lease.id)
    until(lambda: not alive(site.world.pid(lease.id)))
    for name in ("start.json", "server.json"):  # pids of a boot that is over mean nothing, even where they are in use
        record = {**runner.identity(os.getpid()), "boot_id": "before", "started_at_us": 1}
        runner.write_record(str(site.world.root / lease.id), name, record)
    site.agent = site.new_agent("agent-2")
    site.runtime = site.world.again()
    site.cycles()
    assert seen is not None
    site.assert_exact(lease, seen)


def test_the_servers_own_process_is_not_its_users_work(site: Deployment) -> None:
    """The load of a lease is that of kernels and terminals, not of the server that answers a poller."""
    lease = site.session(
        code="import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n" + SERVER
    )
    load = site.runtime.load(lease.id)
    assert load.cpu_seconds is not None and load.cpu_seconds < 0.1
    assert processes.process(site.world.pid(lease.id)).ticks >= 15  # type: ignore[union-attr]
