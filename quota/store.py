"""The door to the book's database: one engine, read and write transactions, migrations.

SQLite: every write transaction is `BEGIN IMMEDIATE`, so that writers of all processes stand in one line; WAL, so
that readers never wait; synchronous=FULL, so that what was committed survives a power cut. PostgreSQL: a plain
transaction; writers serialise by bumping the rows they are about to decide on, in order of their keys
(`quota.records`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.dialects import postgresql, sqlite

from quota.errors import BerthError, Reason, Refused

BUSY_SECONDS = 30
#: 16 MiB of log between checkpoints: pages that every reservation touches are copied back a quarter as often, which
#: gave a third more reservations a second than SQLite's own 1000.
CHECKPOINT_PAGES = 4000
_MIGRATIONS = Path(__file__).parent / "migrations"


class Store:
    """Transactions on the book. Thread-safe; several processes may each have their own `Store` on one database.

    `url` is `sqlite:////absolute/path/book.sqlite` or `postgresql+psycopg://…`. Nothing is opened or created before
    it is used; only `migrate` creates a SQLite file (mode 0600). Close it when done (it is a context manager).
    """

    def __init__(self, url: str) -> None:
        self.url = sa.make_url(url)
        self._file = _sqlite_file(self.url)
        # Threads of one process wait here, in turn, instead of polling SQLite's lock against each other.
        self._line = threading.Lock()
        self.engine = self._sqlite_engine() if self._file else sa.create_engine(self.url, pool_pre_ping=True)

    def _sqlite_engine(self) -> sa.Engine:
        assert self._file is not None
        target = f"file:{quote(str(self._file))}?mode=rw"

        def connect() -> sqlite3.Connection:
            # isolation_level None: sqlite3 begins nothing by itself, the "begin" event below does.
            return sqlite3.connect(
                target, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )

        engine = sa.create_engine(self.url, creator=connect, pool_size=8, max_overflow=64)
        sa.event.listen(engine, "connect", _set_up)
        sa.event.listen(engine, "begin", _begin)
        return engine

    def migrate(self) -> None:
        """Bring the schema to the newest revision, creating the SQLite file (0600) when there is none.

        Processes that migrate at once wait for each other. Raises `BerthError` when the book was written by a
        newer Berth, `Refused(BOOK_UNAVAILABLE)` when it cannot be opened.
        """
        if self._file:
            _private_file(self._file)
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        with self.write() as connection:
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise BerthError(f"the book cannot be brought to this Berth's schema: {error}") from error

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A write transaction: committed when the block ends, rolled back when it raises. Do not nest; no network
        or device call inside. Raises `Refused(BOOK_UNAVAILABLE)` when the database does not answer in 30 s."""
        if self._file is None:
            with self._transaction(write=True) as connection:
                yield connection
            return
        if not self._line.acquire(timeout=BUSY_SECONDS):
            raise Refused(Reason.BOOK_UNAVAILABLE, why="the book is busy")
        try:
            with self._transaction(write=True) as connection:
                yield connection
        finally:
            self._line.release()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read transaction: one snapshot (on SQLite), which never waits for writers."""
        with self._transaction(write=False) as connection:
            yield connection

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[sa.Connection]:
        try:
            with self.engine.connect().execution_options(berth_write=write) as connection, connection.begin():
                yield connection
        except (sa.exc.OperationalError, sa.exc.TimeoutError) as error:
            raise Refused(Reason.BOOK_UNAVAILABLE, why=str(getattr(error, "orig", None) or error)) from error

    def close(self) -> None:
        """Give all connections back. The store may be used again; it opens new ones."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def insert_new(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one with the same key is there; tell whether it was inserted."""
    result = connection.execute(_insert(connection, table).values(**values).on_conflict_do_nothing())
    return result.rowcount == 1


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, add: Sequence[str] = ()
) -> None:
    """Insert rows (all with the same columns), or overwrite those with the same primary key.

    The columns in `add` are added to what is there instead.
    """
    if not rows:
        return
    statement = _insert(connection, table)
    keys = [column.name for column in table.primary_key]
    fresh = {
        name: table.c[name] + statement.excluded[name] if name in add else statement.excluded[name]
        for name in rows[0]
        if name not in keys
    }
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=fresh), list(rows))


def _sqlite_file(url: sa.URL) -> Path | None:
    """The file of a SQLite URL, None for another database. Raises `ValueError` for one in memory: each connection
    would see a book of its own."""
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:":
        raise ValueError("the book needs a file: sqlite:////path/to/book.sqlite")
    return Path(url.database).absolute()


def _private_file(path: Path) -> None:
    """Make the file, or make it private: it tells who worked when. SQLite gives its -wal and -shm the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _set_up(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    _to_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute("PRAGMA foreign_keys = ON")


def _to_wal(connection: sqlite3.Connection) -> None:
    """Switch a fresh file to WAL (it stays so). The switch needs the file alone and does not wait by itself, so
    processes that open a new book at the same moment try again for a while."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("berth_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
