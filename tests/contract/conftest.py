"""What contract suites share: the NVML shim, built once a run where this machine has a C compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.shim.driver import Driver
from tests.shim.library import build, compiler


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
