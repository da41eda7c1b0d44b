"""The store on a real SQLite file: migrations, privacy, transactions, and the SQL that PostgreSQL would get."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import threading
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from multiprocessing import get_context
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from quota import postings, records, schema
from quota.errors import BerthError, Reason, Refused
from quota.store import Store, insert_new, upsert
from tests.contract.ddl import elements

pytestmark = pytest.mark.usefixtures("sqlite_only")  # PostgreSQL's are in test_postgres_store


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'book.sqlite'}"


def declared(path: Path) -> dict[str, list[str]]:
    """Every table and index of a SQLite file, as the sorted elements of its SQL."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: elements(sql) for name, sql in rows if name != "alembic_version"}


def test_the_migrated_schema_is_the_declared_schema(tmp_path: Path) -> None:
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with store.read() as connection:
            assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
    plain = tmp_path / "plain.sqlite"
    engine = sa.create_engine(f"sqlite:///{plain}")
    schema.metadata.create_all(engine)
    engine.dispose()
    assert declared(tmp_path / "book.sqlite") == declared(plain)


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with store.write() as connection:
            insert_new(connection, schema.meta, {"key": "kept", "value": "yes"})
        store.migrate()
        with store.read() as connection:
            assert connection.scalar(sa.select(schema.meta.c.value)) == "yes"


def _migrate(url: str) -> int:
    with Store(url) as store:
        store.migrate()
        with store.read() as connection:
            return int(connection.scalar(sa.text("SELECT count(*) FROM alembic_version")) or 0)


def test_processes_that_migrate_at_once_wait_for_each_other(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(_migrate, [url_of(tmp_path)] * 6)) == [1] * 6


def test_the_file_is_private_and_survives_a_power_cut(tmp_path: Path) -> None:
    path = tmp_path / "book.sqlite"
    path.touch(mode=0o644)
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        for each in tmp_path.iterdir():  # -wal and -shm too
            assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
        with store.read() as connection:
            pragmas = {name: connection.scalar(sa.text(f"PRAGMA {name}")) for name in PRAGMAS}
    assert pragmas == PRAGMAS


PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_book_of_a_newer_berth_is_left_alone(tmp_path: Path) -> None:
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with store.write() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(BerthError, match="9999"):
            store.migrate()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_book_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="file"):
        Store(url)


def test_a_book_that_is_not_there_is_unavailable_and_not_made(tmp_path: Path) -> None:
    with Store(url_of(tmp_path)) as store:
        with pytest.raises(Refused) as caught, store.read():
            pass
        assert caught.value.reason is Reason.BOOK_UNAVAILABLE
        with pytest.raises(Refused), store.write():
            pass
    assert list(tmp_path.iterdir()) == []


def test_an_error_rolls_back(tmp_path: Path) -> None:
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with pytest.raises(ZeroDivisionError), store.write() as connection:
            insert_new(connection, schema.meta, {"key": "gone", "value": ""})
            raise ZeroDivisionError
        with store.read() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(schema.meta)) == 0


def _die_while_writing(url: str) -> None:
    with Store(url) as store, store.write() as connection:
        insert_new(connection, schema.meta, {"key": "half", "value": ""})
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        writer = get_context("spawn").Process(target=_die_while_writing, args=(url_of(tmp_path),))
        writer.start()
        writer.join(60)
        assert writer.exitcode == -signal.SIGKILL
        writer.close()
        with store.write() as connection:  # the lock went with it
            assert connection.scalar(sa.select(sa.func.count()).select_from(schema.meta)) == 0


def test_readers_see_one_snapshot_and_never_wait(tmp_path: Path) -> None:
    count = sa.select(sa.func.count()).select_from(schema.meta)
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with store.read() as reader:
            assert reader.scalar(count) == 0
            with store.write() as writer:
                insert_new(writer, schema.meta, {"key": "new", "value": ""})
            assert reader.scalar(count) == 0
        with store.read() as reader:
            assert reader.scalar(count) == 1


def test_writers_stand_in_line(tmp_path: Path) -> None:
    """A read-modify-write of many threads loses nothing, since the transaction begins with the lock."""
    row = schema.meta
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with store.write() as connection:
            insert_new(connection, row, {"key": "n", "value": "0"})

        def work() -> None:
            for _ in range(5):
                with store.write() as connection:
                    value = int(connection.scalar(sa.select(row.c.value)) or 0)
                    connection.execute(sa.update(row).values(value=str(value + 1)))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with store.read() as connection:
            assert connection.scalar(sa.select(row.c.value)) == "40"


def test_times_are_exact_microseconds_in_utc(tmp_path: Path) -> None:
    moment = datetime(2026, 3, 2, 9, 0, 0, 123457, tzinfo=timezone(timedelta(hours=8)))
    row = {"boot": "b", "role": "hub", "host": "h", "started_at": moment, "beat_at": moment, "note": ""}
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with store.write() as connection:
            upsert(connection, schema.heartbeat, [row])
            read = connection.scalar(sa.select(schema.heartbeat.c.beat_at))
            raw = connection.scalar(sa.text("SELECT beat_at FROM heartbeat"))
        assert read == moment
        assert read.tzinfo is UTC
        assert raw == 1772413200123457
        with pytest.raises(sa.exc.StatementError, match="no time zone"), store.write() as connection:
            upsert(connection, schema.heartbeat, [{**row, "beat_at": moment.replace(tzinfo=None)}])


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (records._LEASES.where(records.LIVE, schema.lease.c.account_id == 1), "ix_lease_live_account"),
        (sa.select(records._USED), "ix_slot_live_device"),
        (postings._PAID_BY, "ix_lease_live_account"),
        (postings._TOTALS, "ix_lease_unsettled"),
    ],
    ids=["live leases", "free room", "live sums", "held sums"],
)
def test_what_every_reservation_asks_uses_its_partial_index(
    tmp_path: Path, statement: sa.Select[tuple[object, ...]], index: str
) -> None:
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        with store.read() as connection:
            text = str(statement.compile(store.engine))
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", (0,) * text.count("?"))
            assert index in " ".join(str(row) for row in plan)


@pytest.mark.parametrize("table", schema.metadata.sorted_tables, ids=lambda table: table.name)
def test_postgresql_gets_the_same_tables(table: sa.Table) -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    sql = str(CreateTable(table).compile(dialect=dialect))
    assert "CREATE TABLE" in sql
    for index in table.indexes:
        text = str(CreateIndex(index).compile(dialect=dialect))
        partial = index.dialect_options["sqlite"].get("where") is not None
        assert ("WHERE" in text) is partial


def test_postgresql_gets_statements_it_can_read() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    assert "FROM slot" in str(records._DEVICES.compile(dialect=dialect))
    assert "month_charge" in str(postings._TOTALS.compile(dialect=dialect))
    assert "||" in str(postings._OPEN_BUCKETS.compile(dialect=dialect))


def test_sql_holds_what_sql_can_hold(tmp_path: Path) -> None:
    with Store(url_of(tmp_path)) as store:
        store.migrate()
        for broken in (
            "INSERT INTO balance VALUES ('grant:1', -1)",
            "INSERT INTO balance VALUES ('held:l1', -1)",
            "INSERT INTO balance VALUES ('debt:1', 1)",
            "INSERT INTO account (name, kind, created_at) VALUES ('x', 'robot', 0)",
            "INSERT INTO price_plan VALUES (1, -1, 0, 0, 'x')",
            "INSERT INTO limits (scope, account_id, max_servers) VALUES ('*', NULL, -2)",
            "INSERT INTO slot VALUES ('l1', 0, 'h', NULL, 1001, NULL)",
        ):
            with pytest.raises(sa.exc.IntegrityError), store.write() as connection:
                connection.execute(sa.text(broken))
