"""The door to the book's database: one engine, read and write transactions.

SQLite: every write transaction is `BEGIN IMMEDIATE`, so that writers of all processes stand in one line; WAL, so
that readers never wait; synchronous=FULL, so that what was committed survives a power cut.

PostgreSQL: writers take the rows they decide on before they read them, always in this order: hosts by name, the
lease, the account, what belongs to the account, and last what all share (`pending`). No two can wait for each other
that way; should the server end one of them all the same, `retried` runs it again. Reads are one snapshot
(REPEATABLE READ, read only), as on SQLite.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from quota import schema
from quota.errors import BerthError, Reason, Refused

BUSY_SECONDS = 30
#: 16 MiB of log between checkpoints: pages that every reservation touches are copied back a quarter as often, which
#: gave a third more reservations a second than SQLite's own 1000.
CHECKPOINT_PAGES = 4000

#: Runs of a transaction that the server ended for the sake of another.
TRIES = 6

#: A server that is gone is noticed, and a process that sleeps inside a transaction does not stop all others for ever.
_POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "berth",
    "client_encoding": "utf8",  # a database in SQL_ASCII would give bytes, before it can be refused by name
}
_SESSION = (
    f"SET lock_timeout = '{BUSY_SECONDS}s'",
    f"SET idle_in_transaction_session_timeout = '{2 * BUSY_SECONDS}s'",
)
_ENDED_FOR_ANOTHER = frozenset({"40001", "40P01"})  # serialization_failure, deadlock_detected: rolled back for certain
_LOCKED = "55P03"
_NO_SCHEMA = frozenset({"42P01", "42703"})  # undefined table, undefined column
_NOT_ALLOWED = "42501"

_REVISION = sa.text("SELECT version_num FROM alembic_version")

P = ParamSpec("P")
T = TypeVar("T")
Late = dict[str, int]
Write = Callable[[sa.Connection, Late], None]


class Contended(Refused):
    """The database ended this transaction for the sake of another. Nothing of it was written."""


class Store:
    """Transactions on the book. Thread-safe; several processes may each have their own `Store` on one database.

    `url` is `sqlite:////absolute/path/book.sqlite` or `postgresql://user@host/database`; a password is better given
    apart, and never told in a message. Nothing is opened or created before it is used; only `migrate` creates a
    SQLite file (mode 0600). Close it when done (it is a context manager).
    """

    def __init__(self, url: str | sa.URL, password: str | None = None) -> None:
        self.url = _complete(sa.make_url(url), password)
        self.file = _sqlite_file(self.url)
        # Threads of one process wait here, in turn, instead of polling SQLite's lock against each other.
        self._line = threading.Lock()
        self.engine = self._sqlite_engine() if self.file else self._postgres_engine()

    @property
    def where(self) -> str:
        """The database in words for people, without a password."""
        if self.file is not None:
            return str(self.file)
        url = self.url
        bare = sa.URL.create("postgresql", url.username, None, url.host, url.port, url.database)
        return bare.render_as_string()

    def _sqlite_engine(self) -> sa.Engine:
        assert self.file is not None
        target = f"file:{quote(str(self.file))}?mode=rw"

        def connect() -> sqlite3.Connection:
            # isolation_level None: sqlite3 begins nothing by itself, the "begin" event below does.
            return sqlite3.connect(
                target, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )

        engine = sa.create_engine(self.url, creator=connect, pool_size=8, max_overflow=64)
        sa.event.listen(engine, "connect", _set_up)
        sa.event.listen(engine, "begin", _begin)
        return engine

    def _postgres_engine(self) -> sa.Engine:
        given = {name: value for name, value in _POSTGRES.items() if name not in self.url.query}
        engine = sa.create_engine(
            self.url,
            connect_args=given,
            isolation_level="READ COMMITTED",  # whatever the server's default is
            pool_pre_ping=True,  # a server that was started again is met with new connections
            pool_size=5,
            max_overflow=15,  # a server takes 100 by default, and four processes share it
            hide_parameters=True,
        )
        sa.event.listen(engine, "connect", _set_up_session)
        return engine

    def migrate(self) -> None:
        """Bring the schema to the newest revision, creating the SQLite file (0600) when there is none.

        Processes that migrate at once wait for each other. Raises `BerthError` when the book was written by a
        newer Berth, `Refused(BOOK_UNAVAILABLE)` when it cannot be opened.
        """
        from quota.revisions import upgrade  # alembic, which a process that only checks the schema need not load

        upgrade(self)

    def check(self) -> None:
        """Nothing where the book has the schema of this code; else as `quota.revisions.check` says."""
        try:
            with self.read() as connection:
                if connection.scalar(_REVISION) == schema.REVISION:
                    return
        except Refused:
            pass  # no such table, or no answer: which of them is said below
        from quota.revisions import check

        check(self)

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A write transaction: committed when the block ends, rolled back when it raises. Do not nest; no network
        or device call inside. Raises `Refused(BOOK_UNAVAILABLE)` when the database does not answer in 30 s or the
        connection is lost (then it is not known whether the transaction was committed), `Contended` when it was
        ended for the sake of another, `ValueError` for a value that the database cannot hold."""
        if self.file is None:
            with self._transaction(berth_write=True) as connection:
                yield connection
            return
        if not self._line.acquire(timeout=BUSY_SECONDS):
            raise self._unavailable("the book is busy")
        try:
            with self._transaction(berth_write=True) as connection:
                yield connection
        finally:
            self._line.release()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read transaction: one snapshot, which never waits for writers."""
        options: dict[str, Any] = {"berth_write": False}
        if self.file is None:
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._transaction(**options) as connection:
            yield connection

    @contextmanager
    def _transaction(self, **options: Any) -> Iterator[sa.Connection]:
        try:
            with self.engine.connect().execution_options(**options) as connection, connection.begin():
                late: dict[Write, Late] = {}
                connection.info[_LATE] = late
                yield connection
                for write, changes in late.items():
                    write(connection, changes)
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            meant = self._meaning(error)
            if meant is None:
                raise
            # While a server is away this is raised again and again: the driver's words are in it, its stack is not.
            raise meant from (None if isinstance(meant, Refused) else error)

    def _meaning(self, error: sa.exc.SQLAlchemyError) -> Exception | None:
        """An error of the database in our own words; None for one that is a fault of the program, or a key that is
        there already."""
        inner = getattr(error, "orig", None)
        state = getattr(inner, "sqlstate", None)
        why = self._one_line(inner or error)
        if state in _ENDED_FOR_ANOTHER:
            return Contended(Reason.BOOK_UNAVAILABLE, why=why, where=self.where)
        if state == _LOCKED:
            return self._unavailable("the book is busy")
        if state in _NO_SCHEMA:
            return self._unavailable(f"{why}; is its schema this Berth's? Run: berth migrate")
        if isinstance(error, sa.exc.IntegrityError):
            return None
        if isinstance(error, sa.exc.DataError) or isinstance(inner, OverflowError):
            return ValueError(f"the book cannot hold this value: {why}")
        lost = isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
        known = sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.InternalError | sa.exc.TimeoutError
        broken_file = type(error) is sa.exc.DatabaseError  # "database disk image is malformed"
        # The driver found fault with the URL's options before it asked any server.
        bad_option = isinstance(error, sa.exc.ProgrammingError) and error.statement is None
        if lost or broken_file or bad_option or state == _NOT_ALLOWED or isinstance(error, known):
            return self._unavailable(why)
        return None

    def _unavailable(self, why: str) -> Refused:
        return Refused(Reason.BOOK_UNAVAILABLE, why=why, where=self.where)

    def _one_line(self, error: BaseException) -> str:
        words = " ".join(str(error).split()) or type(error).__name__
        password = self.url.password
        return words.replace(password, "***") if password else words

    def close(self) -> None:
        """Give all connections back. The store may be used again; it opens new ones."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def retried(method: Callable[P, T]) -> Callable[P, T]:
    """Run a method of one transaction again when the database ended it for the sake of another. Never after a lost
    connection: the commit may have happened."""

    @wraps(method)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        for number in range(TRIES - 1):
            try:
                return method(*args, **kwargs)
            except Contended:
                time.sleep(random.uniform(0.5, 1) * 0.01 * 2**number)
        return method(*args, **kwargs)

    return again


_LATE = "berth_late"


def pending(connection: sa.Connection, write: Write) -> Late:
    """What `write` will be given right before the commit. For rows that all transactions share: taken last, they are
    held for the shortest time and in no other order than theirs."""
    late: dict[Write, Late] = connection.info[_LATE]
    return late.setdefault(write, {})


def _insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def insert_new(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one with the same key is there; tell whether it was inserted."""
    insert = _insert(connection, table).values(**values).on_conflict_do_nothing()
    # No key is asked back, and the count of rows, which SQLAlchemy reads only on demand, is.
    result = connection.execute(insert.inline(), execution_options={"preserve_rowcount": True})
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


def _complete(url: sa.URL, password: str | None) -> sa.URL:
    """The URL with the driver that is installed, and the password."""
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise BerthError(f"the book cannot be kept in {url.drivername!r}; use postgresql://… or sqlite:////…")
    return url.set(password=password) if password else url


def _sqlite_file(url: sa.URL) -> Path | None:
    """The file of a SQLite URL, None for another database. Raises `ValueError` for one in memory: each connection
    would see a book of its own."""
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:":
        raise ValueError("the book needs a file: sqlite:////path/to/book.sqlite")
    return Path(url.database).absolute()


def private_file(path: Path) -> None:
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


def _set_up_session(connection: Any, _record: object) -> None:
    connection.autocommit = True
    for statement in _SESSION:
        connection.execute(statement)
    connection.autocommit = False


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
