"""The schema in its revisions, on both databases: what is built is what is declared, older books are read, newer ones
are left alone, and nobody works on a schema that is not the code's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from quota import revisions, schema
from quota.errors import BerthError
from quota.leases import State, StopReason, Target
from quota.store import Store
from tests.contract import first_release
from tests.contract.ddl import elements
from tests.fakes.book import Desk, asking, place
from tests.fakes.clock import FakeClock
from tests.fakes.postgres import Cluster
from tests.fakes.postgres import database as postgres_database


@pytest.fixture
def url(tmp_path: Path, database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database."""
    if database == "sqlite":
        yield f"sqlite:///{tmp_path / 'book.sqlite'}"
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    with postgres_database(cluster, migrated=False) as name:
        yield cluster.url(name)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as opened:
        yield opened


def described(connection: sa.Connection) -> dict[str, Any]:
    """What the database itself says of its schema: columns with types and defaults, keys, CHECKs, indexes with their
    conditions."""
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
        return {name: elements(sql) for name, sql in found if name != "alembic_version"}
    columns = connection.exec_driver_sql(
        "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default "
        "FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'"
    ).all()
    constraints = connection.exec_driver_sql(
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace AND conrelid <> 'alembic_version'::regclass"
    ).all()
    indexes = connection.exec_driver_sql(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
    ).all()
    return {
        "columns": sorted(map(str, columns)),
        "constraints": sorted(map(str, constraints)),
        "indexes": sorted(indexes),
    }


def test_the_migrated_schema_is_the_declared_schema(store: Store) -> None:
    store.migrate()
    with store.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        migrated = described(connection)
    with store.write() as connection:
        schema.metadata.drop_all(connection)
        schema.metadata.create_all(connection)
        assert described(connection) == migrated
    assert len(str(migrated)) > 5000


def test_the_code_names_the_newest_revision() -> None:
    assert revisions.newest() == schema.REVISION
    assert all(step.what for step in revisions.known())


def test_a_book_of_the_first_release_is_read_and_goes_on(store: Store) -> None:
    first_release.fill(store)
    assert revisions.current(store) == "0001"
    store.migrate()
    desk = Desk(store, FakeClock(first_release.START + timedelta(minutes=4)))
    assert desk.bank.audit() == []
    leases = {lease.holder.server: lease for lease in desk.book.leases("alice")}
    assert {name: lease.state.value for name, lease in leases.items()} == {
        name: row["state"] for name, row in first_release.LEASES.items()
    }
    assert leases["running"].started_at == first_release.START
    assert desk.rows.samples()["l-running"].cpu_seconds == 1.25
    assert desk.rows.signals("l-running")["kit"][1] == {"busy": True}
    assert desk.rows.verdicts()["l-warned"].evidence == {"since": 1}
    assert desk.rows.events(account_id=1)[0].detail == {"n": 1}
    assert desk.rows.meta("made") == "0.1"
    assert [device.used for device in desk.rows.devices()] == [1000, 1000, 500, 0]
    finish_all(desk)


def finish_all(desk: Desk) -> None:
    """Every lease of the older release comes to its end, and new ones begin."""
    book = desk.book
    for lease in book.unsettled():
        if lease.state is State.RUNNING and lease.target is Target.RUN:
            lease = book.meter(lease, desk.now).lease
        if lease.state in (State.RESERVED, State.STARTING, State.RUNNING):
            lease = book.acknowledge(book.request_stop(lease.id, StopReason.USER).id, "hub-1")
        book.settle(book.release(lease, desk.now) if lease.state is State.STOPPING else lease)
    assert {lease.state for lease in book.leases("alice")} == {State.SETTLED}
    assert desk.bank.audit() == []
    # Half a GPU: the running ones for four minutes, those whose end was seen for three.
    charged = {lease.holder.server: lease.charged for lease in book.leases("alice")}
    assert charged == {
        "reserved": 0,
        "starting": 0,
        "running": 33_333,
        "warned": 33_333,
        "stopping": 33_333,
        "released": 25_000,
        "settled": 25_000,
    }
    assert book.reserve(asking("alice", "new"), place).state is State.RESERVED
    assert desk.bank.grant("alice", 5, "admin") == 2
    assert desk.alerts.put("audit", "audit", "words") and desk.alerts.open()
    assert desk.bank.audit() == []


def test_there_is_no_way_down(store: Store) -> None:
    store.migrate()
    config = revisions._config()
    with store.write() as connection:
        config.attributes["connection"] = connection
        with pytest.raises(BerthError, match="restore a backup"):
            command.downgrade(config, "0001")
    assert revisions.current(store) == schema.REVISION


def test_a_newer_book_is_left_alone(store: Store) -> None:
    store.migrate()
    with store.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for refuse in (store.check, store.migrate):
        with pytest.raises(BerthError, match=r"newer Berth \(its schema is 9999"):
            refuse()


def test_an_older_book_is_not_worked_on(store: Store) -> None:
    first_release.fill(store)
    with pytest.raises(BerthError, match="berth migrate"):
        store.check()
    store.migrate()
    store.check()


def test_where_there_is_no_book_it_is_said(store: Store) -> None:
    with pytest.raises(BerthError, match=r"there is no book in .*berth migrate"):
        store.check()
    revisions.ready(store)
    store.check()


def test_a_revision_that_fails_leaves_the_book_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first_release.fill(store)
    with store.write() as connection:
        connection.execute(sa.text("CREATE TABLE answered (x INTEGER)"))  # so that 0002 fails in its second half
    with pytest.raises(Exception, match="answered"):
        store.migrate()
    assert revisions.current(store) == "0001"
    with store.read() as connection:
        assert not sa.inspect(connection).has_table("alert")
        assert connection.scalar(sa.text("SELECT count(*) FROM lease")) == len(first_release.LEASES)
