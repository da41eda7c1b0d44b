"""What several modules of tests on a real site share; each has a `stack` of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hub_config.compose import Parts, parts
from tests.harness import Stack


@pytest.fixture(scope="module")
def made(stack: Stack) -> Iterator[Parts]:
    """The site's book and what belongs to it, as its processes have them."""
    found = parts(stack.data)
    yield found
    found.store.close()
