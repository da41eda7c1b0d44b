"""What is wrong with the book's database, in one line with the remedy, and the way up for an older one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from hub_config.compose import Parts
from hub_config.datafolder import BOOK_PASSWORD
from quota import revisions
from quota.errors import BerthError, Refused
from quota.store import Store, private_file

#: Whose heart beat this lately is at work on the book.
AT_WORK = timedelta(seconds=30)
_COPY_SECONDS = 60.0

#: What a driver says, and what to do about it.
_REMEDIES = (
    ("password authentication failed", f"put the right password into [book] password_file or {BOOK_PASSWORD}"),
    ("no password supplied", f"put its password into [book] password_file or {BOOK_PASSWORD}"),
    ("role ", "make the user: CREATE ROLE … LOGIN, or correct [book] url in berth.toml"),
    ("database ", "make the database: CREATE DATABASE … OWNER …, or correct [book] url in berth.toml"),
    ("permission denied", "give the user of [book] url the right to it, best as its owner"),
    ("invalid connection option", "correct what follows the ? of [book] url in berth.toml"),
    ("malformed", "stop Berth and restore a backup: berth restore FILE"),
    ("not a database", "stop Berth and restore a backup: berth restore FILE"),
    ("unable to open", "is the folder there and may this user write it?"),
    ("berth migrate", ""),
)
_EXISTS = ("role ", "database ")


def trouble(refused: Refused) -> str:
    """One line about a book that cannot be reached; never a password."""
    where = refused.facts.get("where", "its database")
    why = str(refused.facts.get("why", "it does not answer"))
    remedy = "is the server up, and is [book] url in berth.toml right?"
    for words, known in _REMEDIES:
        if words in why and (words not in _EXISTS or "does not exist" in why):
            remedy = known
            break
    return f"The book ({where}) cannot be used: {why.rstrip('.?')}" + (f"; {remedy}" if remedy else "")


@dataclass(frozen=True, slots=True)
class Migrated:
    """What was done, or would be: from which revision to which, by which steps; `copy` is the book as it was."""

    before: str | None
    after: str
    steps: tuple[revisions.Revision, ...]
    copy: Path | None = None


def outlook(store: Store) -> Migrated:
    """What bringing the book up would do. Raises `BerthError` for a book of a newer Berth."""
    before = revisions.current(store)
    return Migrated(before, revisions.newest(), revisions.steps_from(before))


def bring_up(made: Parts, say: Callable[[str], None]) -> Migrated:
    """Bring the book to the schema of this Berth; a SQLite file that holds one is copied before.

    Nobody else may be at work on it. Raises `BerthError` for a book of a newer Berth, `Refused`.
    """
    plan = outlook(made.store)
    if not plan.steps:
        return plan
    copy = None
    if plan.before is not None:
        copy = copy_before(made, plan.before)
        if copy is not None:
            say(f"A copy of the book as it is: {copy}")
        for step in plan.steps:
            say(f"Bringing the book to schema {step.id}: {step.what}")
    made.store.migrate()
    return Migrated(plan.before, plan.after, plan.steps, copy)


def copy_before(made: Parts, revision: str) -> Path | None:
    """A copy of a SQLite book, beside nothing that could be taken for the book; None on another database."""
    if made.store.file is None:
        return None
    folder = made.data.root / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    copy = folder / f"book-{revision}-{stamp(made.clock.now())}.sqlite"
    copy_sqlite(made.store.file, copy)
    return copy


def copy_sqlite(source: Path, target: Path) -> None:
    """A consistent copy of a SQLite file that others may be writing, private. Raises `BerthError`."""
    private_file(target)
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True, timeout=_COPY_SECONDS)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)  # all pages in one step: a writer in between would have it begin again
            (found,) = new.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        raise BerthError(f"{source} cannot be copied: {error}") from error
    if found != "ok":
        target.unlink()
        raise BerthError(f"{source} is damaged: {found}")


def stamp(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%SZ}"


def refuse_while_at_work(made: Parts) -> None:
    """Raises `BerthError` when processes were heard of in this book just now: other machines reach a server too, and
    the lock of this data folder says nothing about them."""
    if made.store.file is not None or revisions.current(made.store) is None:
        return
    now = made.clock.now()
    fresh = [beat for beat in made.rows.boots() if now - beat.beat_at < AT_WORK]
    if fresh:
        who = ", ".join(sorted({f"{beat.role} on {beat.host}" for beat in fresh}))
        raise BerthError(f"{who} wrote into this book within the last {AT_WORK.seconds} s; stop Berth there first")
