"""What contract suites share: the databases of the book's suites, and the NVML shim, built once a run where this
machine has a C compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import postgres
from tests.fakes.book import books_on
from tests.shim.driver import Driver
from tests.shim.library import build, compiler

#: Suites that run on both databases. A machine without PostgreSQL skips that half, with the reason in the name.
ON_BOTH = ("test_book_", "test_service_api", "test_service_desk", "test_kit_farewell")
MISSING = postgres.missing()
POSTGRES = pytest.param(
    "postgresql", id=MISSING.replace(" ", "-") or "postgresql", marks=[pytest.mark.skip(MISSING)] if MISSING else []
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.module.__name__.rpartition(".")[2]
    if name.startswith(ON_BOTH) and "sqlite_only" not in metafunc.fixturenames:
        metafunc.parametrize("database", [pytest.param("sqlite", id="sqlite"), POSTGRES], indirect=True)


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where `open_desk` makes books in this test."""
    chosen: str = getattr(request, "param", "sqlite")
    with books_on(request.getfixturevalue("cluster") if chosen == "postgresql" else None):
        yield chosen


@pytest.fixture
def sqlite_only() -> None:
    """For tests of what only SQLite has: files, and its own SQL."""


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1 that plays scenarios."""
    if compiler() is None:
        pytest.skip("needs a C compiler (cc) to build the NVML shim")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Makes machines with an NVIDIA driver from lines of a scenario (and time-outs); they end with the test."""
    with ExitStack() as machines:

        def make(*lines: str, library: Path = nvml_library, **timeouts: Any) -> Driver:
            return machines.enter_context(Driver(tmp_path, library, *lines, **timeouts))

        yield make
