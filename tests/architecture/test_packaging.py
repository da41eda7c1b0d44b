"""A wheel carries everything that the checkout runs with: templates, styles, notebooks, migrations."""

from __future__ import annotations

from configparser import ConfigParser
from fnmatch import fnmatchcase

import pytest

from tests.architecture.source import KIT, PACKAGES, ROOT, tracked_files

pytestmark = pytest.mark.skipif(not tracked_files(), reason="not a git clone: the tracked files are unknown")


def lines(section: str, key: str) -> list[str]:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup.get(section, key, fallback="").split()


def ours(package: str) -> list[str]:
    inside = [name for name in tracked_files() if name.startswith(f"{package}/")]
    # The kit is a distribution of its own; recipes of images need the checkout as their context.
    return [name for name in inside if not name.startswith("images/lab/") and not name.endswith("/Dockerfile")]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_data_file_is_packaged(package: str) -> None:
    data = {name for name in ours(package) if not name.endswith(".py")}
    patterns = lines("options.package_data", package)
    taken = {str(path.relative_to(ROOT)) for pattern in patterns for path in (ROOT / package).glob(pattern)}
    assert not sorted(data - taken), "setup.cfg, [options.package_data]"


def packaged(name: str) -> bool:
    """Whether `find:` takes the folder of this file: a package all the way up, included and not excluded."""
    parts = name.split("/")[:-1]
    whole = all((ROOT.joinpath(*parts[: depth + 1]) / "__init__.py").is_file() for depth in range(len(parts)))
    dotted = ".".join(parts)
    included = any(fnmatchcase(dotted, pattern) for pattern in lines("options.packages.find", "include"))
    return whole and included and not any(fnmatchcase(dotted, out) for out in lines("options.packages.find", "exclude"))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_python_file_is_packaged(package: str) -> None:
    assert not [name for name in ours(package) if name.endswith(".py") and not packaged(name)]


def test_the_kit_stays_a_distribution_of_its_own() -> None:
    assert not packaged(f"images/lab/{KIT}/launch.py")
