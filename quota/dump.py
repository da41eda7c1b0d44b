"""The book's rows as lines of JSON, the same from every database: one line names a table, those after it are its rows.

Read and written by the schema that a book really has (its revision), not by the one that this Berth declares, so that
an older book can be dumped, and loaded before it is brought up. Times, money and ids are the integers they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TextIO

import sqlalchemy as sa

from quota.errors import BerthError

_ROWS = 1000  # in one statement, and read at a time
_VERSION = "alembic_version"  # not a table of ours; the manifest of a backup has the revision


def _tables(connection: sa.Connection) -> list[sa.Table]:
    """The tables that are there, those that others refer to first."""
    found = sa.MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != _VERSION]


def dump(connection: sa.Connection, out: TextIO) -> dict[str, int]:
    """Write all rows that the transaction sees; how many of each table."""
    counted = {}
    for table in _tables(connection):
        columns = [column.name for column in table.columns]
        out.write(json.dumps({"table": table.name, "columns": columns}) + "\n")
        ordered = sa.select(table).order_by(*table.primary_key.columns)
        count = 0
        with connection.execute(ordered.execution_options(yield_per=_ROWS)) as rows:
            for row in rows:
                out.write(json.dumps(list(row), ensure_ascii=False, separators=(",", ":")) + "\n")
                count += 1
        counted[table.name] = count
    return counted


def load(connection: sa.Connection, lines: Iterable[str]) -> dict[str, int]:
    """Write the rows into the empty tables of the same revision; how many of each table.

    Raises `BerthError` where the lines name a table or column that is not there, cannot be read, or contradict each
    other (a row twice, or one that refers to a row that is missing).
    """
    try:
        return _load(connection, lines)
    except (sa.exc.IntegrityError, sa.exc.DataError) as error:
        why = " ".join(str(error.orig).split())  # without the rows: they are somebody's bills
        raise BerthError(f"the rows of this book contradict each other: {why}. `berth audit` names them") from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BerthError(f"the rows of this book are damaged ({type(error).__name__}: {error})") from None


def _load(connection: sa.Connection, lines: Iterable[str]) -> dict[str, int]:
    tables = {table.name: table for table in _tables(connection)}
    counted: dict[str, int] = {}
    for name, columns, rows in _parts(lines):
        table = tables.get(name)
        if table is None or set(columns) != set(table.columns.keys()):
            raise BerthError(f"the dump has a table {name!r} ({', '.join(columns)}) that this schema has not")
        counted[name] = 0
        while batch := [dict(zip(columns, row, strict=True)) for row in islice(rows, _ROWS)]:
            connection.execute(sa.insert(table), batch)
            counted[name] += len(batch)
    if connection.dialect.name == "postgresql":
        _count_on(connection, tables.values())
    return counted


def _parts(lines: Iterable[str]) -> Iterator[tuple[str, list[str], Iterator[list[Any]]]]:
    """Table by table: its name, its columns and its rows, which must be read before the next table."""
    source = map(json.loads, lines)
    head = next(source, None)
    while head is not None:
        if not isinstance(head, dict):
            raise BerthError("the dump does not begin with a table")
        following: list[dict[str, Any]] = []

        def rows(found: list[dict[str, Any]] = following) -> Iterator[list[Any]]:
            for each in source:
                if isinstance(each, dict):
                    found.append(each)
                    return
                yield each

        yield head["table"], head["columns"], rows()
        head = following[0] if following else None


def _count_on(connection: sa.Connection, tables: Iterable[sa.Table]) -> None:
    """PostgreSQL numbers new rows from a sequence of its own, which knows nothing of rows that came with a number."""
    for table in tables:
        for column in table.primary_key.columns:
            sequence = connection.scalar(sa.select(sa.func.pg_get_serial_sequence(table.name, column.name)))
            if sequence is not None:
                highest = sa.select(sa.func.coalesce(sa.func.max(column), 0) + 1).scalar_subquery()
                connection.execute(sa.select(sa.func.setval(sequence, highest, False)))


def set_aside(connection: sa.Connection, schema: str) -> list[str]:
    """On PostgreSQL: move the tables that are there into a schema of that name; their names."""
    inspector = sa.inspect(connection)
    names = inspector.get_table_names()
    if names:
        quote = connection.dialect.identifier_preparer.quote
        connection.execute(sa.schema.CreateSchema(schema))
        for name in names:
            connection.exec_driver_sql(f"ALTER TABLE {quote(name)} SET SCHEMA {quote(schema)}")
    return names
