"""One Engine for all tests of this folder, which live in its network."""

from __future__ import annotations

from collections.abc import Iterator

import docker
import pytest

from tests.harness import engine as engines
from tests.harness import engine_images


@pytest.fixture(scope="package")
def engine() -> Iterator[engines.Engine]:
    """A daemon that answers. While it lives, this process and all it starts are in its network, not the machine's."""
    if reason := engines.missing():
        pytest.skip(reason)
    with engines.begun() as begun:
        yield begun


@pytest.fixture(scope="package")
def base_image(engine: engines.Engine) -> str:
    """A small Debian with Python."""
    return engine_images.base(engine)


@pytest.fixture(scope="package")
def lab_image(engine: engines.Engine) -> str:
    """JupyterLab with the kit."""
    return engine_images.lab(engine)


@pytest.fixture
def client(engine: engines.Engine) -> Iterator[docker.DockerClient]:
    """A client of the Engine; what the test leaves there is removed after it."""
    with engine.connected() as connected:
        yield connected
    engine.clear()
