"""A user's process that writes where the runtime reads: records, logs, folders. On the local backend it is the same
system user, so it can write there (docs/security.md says so); what it cannot do is blind, block or crash the agent for
everybody else, or have nonsense billed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quota.leases import Lease, State
from spawner import processes, runner
from spawner.ports import Look, Seen, Unreachable
from spawner.runner import bound_log, read_record, write_record
from tests.contract.runtime_worlds import LocalWorld, seen_in, until
from tests.fakes.clock import FakeClock
from tests.harness.waiting import PATIENCE
from tests.integration.agent_site import Site

SECRET = "a secret of somebody else"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    local = LocalWorld(tmp_path)
    yield local
    local.clean()


def in_time(call: Callable[[], Look], seconds: float = 10) -> Look:
    """The answer of a call that must not block."""
    found: list[Look] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it raised, or blocks"
    return found[0]


# ---- what may stand in a record's place --------------------------------------------------------------------------


def link(path: Path) -> None:
    (path.parent / "secret").write_text(json.dumps({"ended_at_us": 1, "code": 0}))
    path.symlink_to(path.parent / "secret")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def plug(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # such a path may have 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of holes


def text(content: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))

    return write


NOW_US = 1_790_000_000_000_000
PUT: dict[str, Callable[[Path], None]] = {
    "a link": link,
    "a link to no end": endless,
    "a link to itself": loop,
    "a pipe": pipe,
    "a folder": folder,
    "a socket": plug,
    "a terabyte": huge,
    "nothing": text(""),
    "no JSON": text("{"),
    "no text": text("\udcff\udcfe"),
    "a list": text("[]"),
    "lists in lists": text("[" * 200_000),
    "a list of lists": text("[" * 100_000 + "]" * 100_000),
    "no end": text("{}"),
    "an end in the year 300,000": text('{"ended_at_us": 9400000000000000000, "code": 0}'),
    "an end beyond counting": text('{"ended_at_us": 1e999, "code": 0}'),
    "an end of 4,000 digits": text('{"ended_at_us": ' + "9" * 4_000 + ', "code": 0}'),
    "an end of 5,000 digits": text('{"ended_at_us": ' + "9" * 5_000 + ', "code": 0}'),
    "an end before the world": text('{"ended_at_us": -9400000000000000000, "code": 0}'),
    "an end that is true": text('{"ended_at_us": true, "code": true, "signal": true}'),
    "an end in words": text('{"ended_at_us": "yesterday", "code": "none"}'),
    "a code beyond counting": text(json.dumps({"ended_at_us": NOW_US, "code": 10**300})),
}


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_whatever_stands_in_a_records_place_harms_one_server_alone(tmp_path: Path, put: Callable[[Path], None]) -> None:
    """One object of each kind in place of each record; the neighbour's record is read as ever, in time."""
    world = LocalWorld(tmp_path)
    for name in ("start.json", "server.json", "exit.json", "stop.json", "removed", "lock"):
        lease = f"l-{name.partition('.')[0]}"
        (world.root / lease).mkdir()
        put(world.root / lease / name)
    (world.root / "good").mkdir()
    write_record(str(world.root / "good"), "exit.json", {"ended_at_us": NOW_US, "code": 3, "signal": None})
    found = in_time(world.runtime.look)
    assert not isinstance(found, Unreachable)
    good = found["good"]
    assert good == Seen("good", False, None, datetime.fromtimestamp(NOW_US / 1e6, UTC), 3)
    for lease in (name for name in found if name != "good"):
        seen = found[lease]
        assert not seen.running
        assert seen.exit_code is None or abs(seen.exit_code) < 2**31
        world.runtime.stop(lease, 0.1)
        world.runtime.load(lease)
        world.runtime.remove(lease)
        assert seen_in(world.runtime.look(), lease) is None


PIDS = (0, 1, -1, os.getpid(), 2**31, 2**63, 10**300, True, "1", None, [1], 1.0)


@pytest.mark.parametrize("pid", PIDS, ids=map(str, range(len(PIDS))))
def test_a_forged_pid_is_never_signalled(tmp_path: Path, pid: object) -> None:
    """-1 would be everybody; a pid without the kernel's own start time and this boot's id is nobody."""
    world = LocalWorld(tmp_path)
    for name in ("start.json", "server.json"):
        record = {"pid": pid, "start_time": 1, "boot_id": processes.boot_id(), "started_at_us": NOW_US}
        (world.root / "l1").mkdir(exist_ok=True)
        (world.root / "l1" / name).write_text(json.dumps(record))
    assert not isinstance(in_time(world.runtime.look), Unreachable)
    world.runtime.stop("l1", 0.1)
    world.runtime.remove("l1")
    assert seen_in(world.runtime.look(), "l1") is None


def test_a_forged_end_of_a_living_server_tells_nothing(world: LocalWorld) -> None:
    """Else its share would be free while it goes on, unpaid."""
    world.start("l1")
    write_record(str(world.root / "l1"), "exit.json", {"ended_at_us": 1, "code": 0, "signal": None})
    for runtime in (world.runtime, world.again()):
        seen = seen_in(runtime.look(), "l1")
        assert seen is not None and seen.running and seen.ended_at is None
        assert runtime.load("l1").cpu_seconds is not None
    server = world.pid("l1")
    world.runtime.stop("l1", 5.0)
    until(lambda: processes.process(server) is None, "the stop reached it all the same")
    until(lambda: not getattr(seen_in(world.runtime.look(), "l1"), "running", True), "its end is seen")
    seen = seen_in(world.runtime.look(), "l1")
    assert seen is not None and seen.ended_at is not None and seen.ended_at.year > 2000, "by its runner's own record"


def test_a_run_folder_that_is_a_link_leads_nowhere(world: LocalWorld, tmp_path: Path) -> None:
    elsewhere = tmp_path / "aside"
    elsewhere.mkdir()
    (elsewhere / "keep").write_text("x")
    (world.root / "l1").symlink_to(elsewhere)
    assert seen_in(in_time(world.runtime.look), "l1") is None
    world.runtime.remove("l1")
    assert [path.name for path in elsewhere.iterdir() if path.name == "keep"] == ["keep"]


# ---- logs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("put", [link, endless, loop, pipe, folder, plug], ids=lambda put: put.__name__)
def test_a_log_that_is_no_file_is_not_read(world: LocalWorld, put: Callable[[Path], None]) -> None:
    log = world.runtime._log("l1")
    put(log)
    found: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: found.append(world.runtime.log_tail("l1", 20)), daemon=True)
    thread.start()
    thread.join(5)
    assert found == [()]
    bound_log(str(log))


def test_a_log_that_became_a_link_cuts_nobodys_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LOG_LIMIT", 100)
    monkeypatch.setattr(runner, "LOG_KEPT", 10)
    book = tmp_path / "book.sqlite"
    book.write_bytes(b"x" * 1000)
    log = tmp_path / "l1.log"
    log.symlink_to(book)
    bound_log(str(log))
    log.unlink()
    os.link(book, log)
    bound_log(str(log))
    log.unlink()
    log.write_bytes(b"y" * 1000)
    (tmp_path / "l1.log.1").symlink_to(book)
    bound_log(str(log))
    assert book.read_bytes() == b"x" * 1000
    assert (log.stat().st_size, (tmp_path / "l1.log.1").read_bytes()) == (0, b"y" * 10)


def test_a_log_is_cut_though_children_end_all_the_time(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end wakes the runner; the size is looked at by the clock, not when it has nothing else to do."""
    flood = """
import os, sys
open("ready", "w").close()
while True:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.wait()
    os.write(1, b"x" * (1 << 20))
"""
    world.start("l1", code=flood)
    log = world.runtime._log("l1")
    until(lambda: log.with_name("l1.log.1").exists(), "the log was cut", 30)
    until(lambda: log.stat().st_size < runner.LOG_LIMIT * 20, "and stays bounded")
    world.runtime.remove("l1")


def test_what_a_server_writes_steers_no_terminal(world: LocalWorld) -> None:
    log = world.runtime._log("l1")
    forged = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\r2026-01-01 ERROR forged\x00\u202eevil\u2028line"
    log.write_text(f"one\n{forged}\nlast\n", encoding="utf-8")
    lines = world.runtime.log_tail("l1", 20)
    assert lines[0] == "one" and lines[-1] == "last"
    for line in lines:
        assert line.isprintable(), ascii(line)
    assert "red" in "".join(lines)


def test_a_log_of_one_endless_line_is_read_in_part(world: LocalWorld) -> None:
    log = world.runtime._log("l1")
    log.write_bytes(b"x" * (20 << 20))
    began = time.monotonic()
    (line,) = world.runtime.log_tail("l1", 20)
    assert len(line) <= 64 << 10 and time.monotonic() - began < PATIENCE * 5


# ---- the agent, over such a runtime ------------------------------------------------------------------------------


@contextmanager
def site_on(tmp_path: Path) -> Iterator[tuple[Site, LocalWorld, FakeClock]]:
    clock = FakeClock()
    world = LocalWorld(tmp_path / "world")
    (tmp_path / "book").mkdir()
    site = Site(tmp_path / "book", clock, world.runtime)
    try:
        yield site, world, clock
    finally:
        site.store.close()
        world.clean()


def started(site: Site, world: LocalWorld, clock: FakeClock, user: str) -> Lease:
    lease = site.reserve(user, share=250)
    lease = site.book.mark_starting(lease, clock.now().replace(year=2027))
    world.start(lease.id)
    return site.book.mark_running(lease, site.boot, clock.now())


FORGED_ENDS = {
    "before it began": lambda now: now - 86_400,
    "when it began": lambda now: now,
    "next year": lambda now: now + 365 * 86_400,
    "no time at all": lambda now: None,
}


@pytest.mark.parametrize("when", FORGED_ENDS.values(), ids=FORGED_ENDS)
def test_a_forged_end_bills_what_was_seen_and_others_as_ever(
    tmp_path: Path, when: Callable[[float], float | None]
) -> None:
    """A server that has really ended, with a record that says something else: charged to at least where it was seen,
    and never beyond now. The neighbour is metered in the same cycle."""
    with site_on(tmp_path) as (site, world, clock):
        mallory, alice = (started(site, world, clock, name) for name in ("mallory", "alice"))
        began = clock.now().timestamp()
        clock.advance(600)
        site.agent.cycle()
        world.kill(mallory.id, "start.json")  # the runner first, so that the record is the user's own
        world.kill(mallory.id)
        stamp = when(began)
        record = {"ended_at_us": None if stamp is None else int(stamp * 1e6), "code": 0, "signal": None}
        write_record(str(world.root / mallory.id), "exit.json", record)
        clock.advance(60)
        site.agent.cycle()
        while site.agent.cycle():
            continue
        clock.advance(1)
        site.agent.cycle()
        ended = site.book.lease(mallory.id)
        assert ended.state is State.SETTLED and ended.ended_at is not None
        assert 600 <= (ended.ended_at - mallory.started_at).total_seconds() <= 661  # type: ignore[operator]
        assert 600 * 250 <= ended.usage <= 661 * 250
        assert site.book.lease(alice.id).state is State.RUNNING
        assert site.book.lease(alice.id).charged > 0
        assert site.bank.audit() == []


def test_ten_thousand_folders_and_garbage_in_one_record_do_not_stop_a_cycle(tmp_path: Path) -> None:
    with site_on(tmp_path) as (site, world, clock):
        alice = started(site, world, clock, "alice")
        for number in range(2_000):
            (world.root / f"stray{number}").mkdir()
        for number, put in enumerate(PUT.values()):
            (world.root / f"bad{number}").mkdir()
            put(world.root / f"bad{number}" / "exit.json")
        clock.advance(60)
        site.agent.cycle()
        assert site.book.lease(alice.id).last_seen == clock.now()
        assert site.book.lease(alice.id).charged > 0


def test_a_runner_takes_no_record_that_it_did_not_write(tmp_path: Path) -> None:
    """The runner itself, on a folder in which a link stands for its spec: it refuses, and writes nothing through it."""
    run = tmp_path / "l1"
    run.mkdir()
    (run / "spec.json").symlink_to("/etc/passwd")
    done = subprocess.run([sys.executable, "-I", "-S", runner.__file__, str(run)], capture_output=True, timeout=30)
    assert done.returncode == 1 and b"no readable spec.json" in done.stderr
    assert read_record(str(run), "spec.json") is None
