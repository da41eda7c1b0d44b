"""What the measurements share: databases to measure on, the machine in words, and how a result is shown."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quota.store import Store

KINDS = ("sqlite", "postgresql")


def arguments(name: str, words: str | None) -> argparse.ArgumentParser:
    """A parser with what all measurements take."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(words or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--database", choices=(*KINDS, "both"), default="both", help="which database (both)")
    parser.add_argument("--folder", help="where a SQLite book lies (the system's temporary folder)")


@contextmanager
def book_on(kind: str, folder: str | None = None) -> Iterator[str]:
    """The URL of a new migrated book, as durable as in real use; it is gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as temporary:
        if kind == "sqlite":
            url = f"sqlite:///{Path(temporary) / 'book.sqlite'}"
            with Store(url) as store:
                store.migrate()
            yield url
            return
        from tests.fakes import postgres  # needs psycopg, and a server on this machine

        with postgres.Cluster(durable=True) as cluster, postgres.database(cluster) as name:
            yield cluster.url(name)


def missing(kind: str) -> str:
    """Why this database cannot be measured here; empty when it can."""
    if kind == "sqlite":
        return ""
    try:
        from tests.fakes import postgres
    except ImportError as error:
        return f"{error}; run from a clone with the test packages installed"
    return postgres.missing()


def on_each(chosen: str, measure: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The result of each database that was asked for, or why it was left out."""
    found: dict[str, Any] = {}
    for kind in KINDS if chosen == "both" else (chosen,):
        why = missing(kind)
        found[kind] = {"skipped": why} if why else measure(kind)
    return found


def machine() -> dict[str, Any]:
    """What the figures were taken on. Figures of two machines do not compare; ratios of one run do."""
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "load_1min": round(os.getloadavg()[0], 2),
    }


def show(result: dict[str, Any], as_json: bool, indent: str = "") -> None:
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        if isinstance(value, dict):
            print(f"{indent}{name}")
            show(value, False, indent + "  ")
        else:
            print(f"{indent}{name:{max(1, 40 - len(indent))}} {value}")
