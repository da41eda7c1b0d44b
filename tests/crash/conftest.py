"""One template of a world for all crash tests; its own time and threads stand where the spawner has the machine's."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.crash.hub import install
from tests.crash.parts import Template
from tests.integration.agent_site import quick_folder


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    logging.disable(logging.CRITICAL)  # they tell of every trouble, and trouble is all there is
    try:
        with quick_folder() as folder, pytest.MonkeyPatch.context() as patch:
            install(patch)
            made = Template(folder)
            yield made
            made.store.close()
    finally:
        logging.disable(logging.NOTSET)
