"""Names: one owner for each import package, no shadowing, nothing of one machine in the repository."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.architecture.source import OURS, PACKAGES, ROOT, tracked_files

#: A home folder of a person. jovyan is the user of every Jupyter image.
HOME_FOLDER = re.compile(rb"/(?:home|Users)/(?!jovyan\b)[a-z][a-z0-9_-]+/")


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_exactly_one_owner(package: str) -> None:
    # An editable install beside its own egg-info names the one owner twice.
    assert set(packages_distributions().get(package, ())) == {"berth"}


def test_the_kit_is_its_own_distribution() -> None:
    assert set(packages_distributions().get("berth_lab", ["berth-lab"])) == {"berth-lab"}


def test_pynvml_comes_from_nvidia_alone() -> None:
    """Two distributions on PyPI own a module of this name, and the other one is dead."""
    assert set(packages_distributions().get("pynvml", [])) == {"nvidia-ml-py"}


def test_no_package_is_called_like_the_bootstrap_script() -> None:
    assert not (ROOT / "berth").is_dir()


def test_no_test_folder_is_named_after_a_package() -> None:
    taken = OURS | {"jupyterhub", "sqlalchemy", "docker", "tornado", "pydantic"}
    folders = {path.name for path in (ROOT / "tests").rglob("*") if path.is_dir()}
    assert not folders & taken


def machine_paths() -> list[bytes]:
    """Paths that would only hold where this clone happens to stand."""
    places = [ROOT]
    if len(ROOT.parents) > 2:  # "/" and one general name such as /srv say nothing
        places.append(ROOT.parent)
    return [str(place).encode() for place in places]


@pytest.mark.skipif(not tracked_files(), reason="not a git clone: the tracked files are unknown")
def test_no_tracked_file_names_a_path_of_this_machine() -> None:
    wrong = []
    for relative in tracked_files():
        text = (ROOT / relative).read_bytes()
        if any(place in text for place in machine_paths()) or HOME_FOLDER.search(text):
            wrong.append(relative)
    assert not wrong


@pytest.mark.skipif(not tracked_files(), reason="not a git clone: the tracked files are unknown")
def test_scripts_are_executable() -> None:
    listed = subprocess.run(["git", "ls-files", "-s", "berth", ".ci/run"], cwd=ROOT, capture_output=True, text=True)
    modes = {line.split("\t")[1]: line.split()[0] for line in listed.stdout.splitlines()}
    assert modes == {"berth": "100755", ".ci/run": "100755"}


def test_no_generated_folder_is_a_package() -> None:
    """`find:` packages come by pattern; a stray folder beside them would be installed under a foreign name."""
    known = {*PACKAGES, "tests", "benchmarks", "docs", "deploy"}
    strays = [p.parent.name for p in ROOT.glob("*/__init__.py") if p.parent.name not in known]
    assert not strays, strays


def test_root_is_where_we_think() -> None:
    assert Path(ROOT, "setup.cfg").is_file()
