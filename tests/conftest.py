"""Rules for every test: no network in unit tests, no settings from outside, nothing left running.

`--deep` is the long form (`./berth test --deep`): more Hypothesis examples, and tests that take the `deep`
fixture run their long loops.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_socket
from hypothesis import HealthCheck, settings

from tests.fakes import postgres

TESTS = Path(__file__).resolve().parent

# A developer's own hub, device choice or proxy must not reach a test.
FOREIGN = ("BERTH_", "JUPYTERHUB_", "JUPYTER_", "JPY_", "CUDA_", "NVIDIA_")
for _name in [name for name in os.environ if name.startswith(FOREIGN)]:
    del os.environ[_name]

settings.register_profile("berth", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("berth"), max_examples=10_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="the long form: 10,000 schedules, seeds and examples")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("deep" if config.getoption("--deep") else "berth")


@pytest.fixture(scope="session")
def deep(pytestconfig: pytest.Config) -> bool:
    """Whether the long form was asked for."""
    return bool(pytestconfig.getoption("--deep"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL server of this run's own."""
    if postgres.missing():
        pytest.skip(postgres.missing())
    with postgres.Cluster() as started:
        yield started


def in_folder(item: pytest.Item, folder: str) -> bool:
    return item.path.is_relative_to(TESTS / folder)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A unit test opens no socket. Unix socket pairs stay, as every asyncio loop owns one."""
    if not in_folder(item, "unit"):
        return
    if item.get_closest_marker("enable_socket") or "socket_enabled" in getattr(item, "fixturenames", ()):
        pytest.fail("a test that needs the network belongs in tests/contract or tests/integration", pytrace=False)
    pytest_socket.disable_socket(allow_unix_socket=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test on a deployment shows the end of its logs."""
    report = yield
    if report.failed:
        stacks = [value for value in getattr(item, "funcargs", {}).values() if type(value).__name__ == "Stack"]
        report.sections += [(f"logs of {stack.data}", stack.logs()) for stack in stacks]
    return report


def left_running() -> list[str]:
    """Descendants of this process that still live, by command line."""
    alive = []
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and "multiprocessing.resource_tracker" not in command:
                alive.append(f"{child.pid} {command[:160]}")
        except psutil.NoSuchProcess:
            continue
    return alive


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    left = left_running()
    if left:
        print("\nleft running by the tests:\n  " + "\n  ".join(left))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
