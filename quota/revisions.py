"""The revisions of the book's schema: which one a book has, which one this Berth needs, and the way up.

There is no way down: an older Berth refuses a newer book, and a backup is what leads back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from quota.errors import BerthError
from quota.store import Store, private_file

_MIGRATIONS = Path(__file__).parent / "migrations"
#: For PostgreSQL's advisory lock: whoever migrates holds it ("bert" in ASCII).
_LOCK = 0x62657274


@dataclass(frozen=True, slots=True)
class Revision:
    """One step of the schema; `what` it brings, in a line."""

    id: str
    what: str


def known() -> tuple[Revision, ...]:
    """All revisions of this Berth, the first one first."""
    steps = ScriptDirectory.from_config(_config()).walk_revisions()
    return tuple(Revision(step.revision, (step.doc or "").strip()) for step in steps)[::-1]


def newest() -> str:
    """The revision that this Berth needs."""
    return known()[-1].id


def current(store: Store) -> str | None:
    """The revision of a book; None where there is none. Raises `Refused(BOOK_UNAVAILABLE)`."""
    if store.file is not None and not (store.file.exists() and store.file.stat().st_size):
        return None
    with store.read() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def steps_from(revision: str | None) -> tuple[Revision, ...]:
    """What lies between a book's revision and this Berth's. Raises `BerthError` for a newer book."""
    every = known()
    if revision is None:
        return every
    ids = [step.id for step in every]
    if revision not in ids:
        raise BerthError(
            f"this book was written by a newer Berth (its schema is {revision}, this one knows up to {ids[-1]}); "
            "run that Berth or a later one, or restore a backup made before with: berth restore FILE"
        )
    return every[ids.index(revision) + 1 :]


def check(store: Store) -> None:
    """Nothing where the book has the schema of this Berth. Raises `BerthError` with the remedy where it is older,
    newer or not there, `Refused(BOOK_UNAVAILABLE)` where it cannot be asked."""
    revision = current(store)
    if revision is None:
        raise BerthError(f"there is no book in {store.where} yet; make one with: berth migrate")
    if steps_from(revision):
        raise BerthError(
            f"the schema of the book is {revision}, this Berth needs {newest()}; stop Berth and run: berth migrate"
        )


def ready(store: Store) -> None:
    """As `check`, but a book that is not there yet is made."""
    if current(store) is None:
        upgrade(store)
    else:
        check(store)


def upgrade(store: Store, to: str = "head") -> None:
    """Bring the schema to `to`, in one transaction; processes that do so at once wait for each other.

    Raises `BerthError` for a book of a newer Berth, and for a PostgreSQL database that is not in UTF-8.
    """
    if store.file is not None:
        if not store.file.parent.is_dir():
            raise BerthError(f"there is no folder {store.file.parent} for the book; make it, or correct [book] url")
        private_file(store.file)
    with store.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            check_encoding(connection)
        upgrade_in(connection, to)


def upgrade_in(connection: sa.Connection, to: str = "head") -> None:
    """The same inside a transaction that somebody else opened."""
    steps_from(MigrationContext.configure(connection).get_current_revision())
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def downgrade_refused() -> None:
    """Every revision's `downgrade`. Raises `BerthError`."""
    raise BerthError("a book cannot go back to an older schema; restore a backup made before with: berth restore FILE")


def check_encoding(connection: sa.Connection) -> None:
    """Raises `BerthError` for a PostgreSQL database that is not in UTF-8."""
    encoding = connection.scalar(sa.text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise BerthError(
            f"the database is in {encoding}, the book needs UTF-8; make it with: "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
