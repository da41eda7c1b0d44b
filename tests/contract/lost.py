"""Losing the database in the middle of a call: before any statement, before the commit, or after it."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
import sqlalchemy as sa

from quota.store import Store

Where = Literal["statement", "commit", "answer"]


@dataclass(frozen=True)
class Point:
    """The `number`th statement or commit of a call; "answer" is a commit that is done and whose answer is lost."""

    where: Where
    number: int


@dataclass
class Breaker:
    """Counts what a store does and breaks its connection at one point."""

    store: Store
    network: bool
    point: Point | None = None
    seen: dict[Where, int] = field(default_factory=dict)
    broken: bool = False

    def points(self) -> list[Point]:
        """All points that were passed since the counting began."""
        found = [Point("statement", number) for number in range(1, self.seen.get("statement", 0) + 1)]
        for number in range(1, self.seen.get("commit", 0) + 1):
            found += [Point("commit", number), Point("answer", number)]
        return found

    def due(self, where: Where) -> bool:
        self.seen[where] = self.seen.get(where, 0) + 1
        due = self.point == Point(where, self.seen[where])
        self.broken = self.broken or due
        return due

    def end(self, connection: Any) -> None:
        """The connection is gone: on PostgreSQL its socket is closed, on SQLite the file cannot be read any more."""
        if not self.network:
            raise sqlite3.OperationalError("disk I/O error")
        raw = getattr(connection, "dbapi_connection", connection)
        with socket.socket(fileno=os.dup(raw.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def before_statement(self, *words: Any) -> None:
        _connection, cursor = words[0], words[1]
        if self.due("statement"):
            self.end(cursor.connection)


@contextmanager
def broken(store: Store, point: Point | None) -> Iterator[Breaker]:
    """Break the store at that point (None: only count) until the block ends."""
    breaker, commit = Breaker(store, store.file is None, point), store.engine.dialect.do_commit

    def do_commit(connection: Any) -> None:
        if breaker.due("commit"):
            breaker.end(connection)
        commit(connection)
        if breaker.due("answer"):
            breaker.end(connection)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    sa.event.listen(store.engine, "before_cursor_execute", breaker.before_statement)
    store.engine.dialect.do_commit = do_commit  # type: ignore[method-assign]
    try:
        yield breaker
    finally:
        store.engine.dialect.do_commit = commit  # type: ignore[method-assign]
        sa.event.remove(store.engine, "before_cursor_execute", breaker.before_statement)
