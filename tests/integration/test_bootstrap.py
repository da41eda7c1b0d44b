"""The script `./berth`: what it says where Python is too old or cannot make environments, and that it installs once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TOOLS = ("sh", "dirname", "cat", "cksum", "find", "sort", "grep", "tail", "cut", "sleep", "tr", "rm", "pwd")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with the script alone, and a PATH with the usual small tools but no Python."""
    shutil.copy(CHECKOUT / "berth", tmp_path / "berth")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    return tmp_path


def fake_python(folder: Path, body: str) -> None:
    script = folder / "bin" / "python3"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    return subprocess.run([str(folder / "berth"), *words], env=env, capture_output=True, text=True, timeout=30)


def test_without_a_python_it_names_the_remedy(bare: Path) -> None:
    done = run(bare, "up")
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr and "apt install python3" in done.stderr


def test_an_old_python_is_not_taken(bare: Path) -> None:
    fake_python(bare, "exit 1")
    done = run(bare, "up")
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert not (bare / ".venv").exists()


def test_without_venv_it_names_the_one_line_that_helps(bare: Path) -> None:
    fake_python(bare, 'case "$2" in *ensurepip*) exit 1;; *%d*) echo 3.12;; *) exit 0;; esac')
    done = run(bare, "up")
    assert done.returncode == 1
    assert "sudo apt install python3.12-venv" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (bare / ".venv").exists()


def test_only_up_and_test_tell_of_the_installation_on_standard_output(bare: Path) -> None:
    """`./berth passwords --json` in a fresh clone: what a script reads is JSON and nothing else."""
    (bare / "images" / "lab").mkdir(parents=True)
    for name in ("setup.cfg", "pyproject.toml", "images/lab/pyproject.toml"):
        (bare / name).write_text("")
    installed = '#!/bin/sh\\ncase "$2" in hub_config) echo {} ;; esac\\n'
    make = f'mkdir -p "$3/bin" "$3/lib"; printf \'{installed}\' >"$3/bin/python"; chmod +x "$3/bin/python"'
    fake_python(bare, f'PATH={os.defpath}:/usr/bin:/bin; case "$1 $2" in "-m venv") {make} ;; *) exit 0 ;; esac')
    done = run(bare, "passwords", "--json")
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stderr
    assert "Installed in" in done.stderr


@pytest.mark.skipif(
    not list((CHECKOUT / ".venv").glob(".berth-installed-*")), reason="this checkout was not installed by ./berth"
)
def test_a_second_run_installs_nothing() -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV_")}
    done = subprocess.run([str(CHECKOUT / "berth"), "--version"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.startswith("berth ")
    assert "Install" not in done.stdout + done.stderr
