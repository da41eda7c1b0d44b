"""What the tables of the book are made with: names of constraints, times as integers, words from closed lists."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

BigInt = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def from_micros(value: int) -> datetime:
    """The moment of so many microseconds since the epoch, in UTC."""
    return _EPOCH + timedelta(microseconds=value)


class UtcMicros(TypeDecorator[datetime]):
    """An aware datetime as integer microseconds since the epoch, UTC. Raises `ValueError` for a naive one."""

    impl = BigInt
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else from_micros(value)


def word_list(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def one_of(column: str, words: Iterable[str], *, null: bool = False) -> sa.CheckConstraint:
    test = f"{column} IN ({word_list(words)})"
    return sa.CheckConstraint(f"{column} IS NULL OR {test}" if null else test, name=column)
