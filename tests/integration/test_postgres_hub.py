"""A whole deployment with its book on PostgreSQL: start, run, meter, stop, settle; the server dies and comes back; a
backup taken meanwhile comes back on a new data folder, on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from hub_config.compose import parts
from quota import audit, schema
from quota.store import Store
from tests.fakes import postgres
from tests.fakes.postgres import PASSWORD, Cluster
from tests.harness import Stack, until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing()),
]

GPUS = """
[gpus]
source = "simulated"
simulated = 2

[first_start]
credits_per_gpu_hour = 3600
monthly_credits = 1000000
"""


@pytest.fixture(scope="module")
def mortal() -> Iterator[Cluster]:
    """A server of this module's own, to be killed."""
    with Cluster() as started:
        yield started


@pytest.fixture(scope="module")
def database(mortal: Cluster) -> str:
    return mortal.empty(owner="keeper")


@pytest.fixture(scope="module")
def stack(mortal: Cluster, database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    data = tmp_path_factory.mktemp("postgres") / "data"
    (data / "secrets").mkdir(parents=True, mode=0o700)
    (data / "secrets" / "book").write_text(PASSWORD + "\n")
    url = mortal.url(database, user="keeper")
    with Stack(data, f'[book]\nurl = "{url}"\npassword_file = "secrets/book"\n{GPUS}') as stack:
        yield stack


def findings(mortal: Cluster, database: str) -> list[str]:
    with Store(mortal.url(database)) as store, store.read() as connection:
        return audit.findings(connection)


def settled_exactly(stack: Stack, lease_id: str) -> None:
    lease = stack.admin.settled(lease_id, 60)
    assert lease["charged_micro_credits"] == pytest.approx(lease["milli_gpu_seconds"] * 1000, abs=1000)  # shown whole
    assert lease["milli_gpu_seconds"] > 0


def test_a_server_starts_is_charged_and_ends(stack: Stack, mortal: Cluster, database: str) -> None:
    assert not (stack.data / "book.sqlite").exists()
    me = stack.researcher
    me.start("gpu-1-4")
    lease = me.lease()
    assert lease["state"] == "RUNNING" and me.held() > 0
    assert me.free_now()["gpu-1"] == 1
    me.stop()
    settled_exactly(stack, lease["id"])
    assert me.held() == 0
    assert findings(mortal, database) == []
    status = stack.status()
    assert status["up"] and all(status["processes"][name]["pid"] for name in ("hub", "agent", "berth", "idle-culler"))


def test_the_password_is_in_no_log_and_no_command_line(stack: Stack) -> None:
    seen = stack.logs(lines=100_000) + "\n".join(
        Path(f"/proc/{process.pid}/cmdline").read_text() for process in stack._leftover_processes()
    )
    assert len(seen) > 1000 and PASSWORD not in seen and "staple" not in seen


def test_n02_the_database_is_killed_and_the_platform_goes_on(stack: Stack, mortal: Cluster, database: str) -> None:
    me = stack.researcher
    me.start("gpu-1-4")
    lease, pids = me.lease(), {name: stack.pid(name) for name in ("hub", "agent", "berth", "idle-culler")}
    mortal.kill()
    until(lambda: me.berth("/me").status_code == 503, 40, "the service says that the book is not available")
    answer = me.notebook("GET", "api/status")
    assert answer.status_code == 200, "a notebook does not need the book"
    refused = me.ask_start({"profile": "cpu"}, server="second")
    assert refused.status_code in (202, 503)  # answered at once, or pending and refused then
    mortal.start()
    until(lambda: me.berth("/me").status_code == 200, 60, "the service answers again")
    assert {name: stack.pid(name) for name in pids} == pids, "nobody had to be started again"
    until(lambda: me.gone("second"), 60, "the refused start has left nothing")
    me.start("cpu", server="third")
    me.stop(server="third")
    me.stop()
    settled_exactly(stack, lease["id"])
    until(lambda: not findings(mortal, database), 20, "the book is in order")


def test_a_backup_taken_while_it_runs_comes_back_on_a_new_machine(stack: Stack, tmp_path: Path) -> None:
    """On SQLite there; who ran when it was taken is found gone, and pays to the last time it was seen."""
    me = stack.researcher
    me.start("gpu-1-8")
    running, file = me.lease(), tmp_path / "berth.backup"
    until(lambda: seen(stack, running["id"]), 20, "the agent has seen the server")
    stack.run("backup", str(file))
    history = [lease["id"] for lease in me.leases()]
    me.stop()
    new = Stack(tmp_path / "new", GPUS)
    new.run("restore", str(file), "--keep-settings")
    with new:
        for role in ("admin", "researcher"):
            assert new.passwords()[role] == stack.passwords()[role]
        assert [lease["id"] for lease in new.researcher.leases()] == history
        ended = new.admin.settled(running["id"], 60)
        assert ended["stop_reason"] is not None and ended["charged_micro_credits"] >= 0
        until(new.researcher.gone, 40, "the Hub knows that the server is gone")
        new.researcher.start("cpu")
        new.researcher.stop()
    with closing_store(new) as store, store.read() as connection:
        assert audit.findings(connection) == []


def seen(stack: Stack, lease_id: str) -> bool:
    with closing_store(stack) as store, store.read() as connection:
        row = connection.execute(sa.select(schema.lease).where(schema.lease.c.id == lease_id)).mappings().one()
        return bool(row["last_seen"] > row["started_at"])


@contextmanager
def closing_store(stack: Stack) -> Iterator[Store]:
    made = parts(stack.data)
    with made.store as store:
        yield store


def test_up_says_in_one_line_that_its_database_is_away(tmp_path: Path) -> None:
    away = Stack(tmp_path / "away", f'[book]\nurl = "postgresql://u@/x?host={tmp_path}"\n')
    process = away.launch()
    assert process.wait(60) == 1
    said = away.screen.read_text()
    assert "The book (postgresql://u@/x) cannot be used" in said and "Traceback" not in said
    away.process = None
